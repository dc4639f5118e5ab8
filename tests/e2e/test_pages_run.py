"""Every page, typed block by block by a reader who has nothing else: all of it works, and shows what the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bftrain_replay.reporting.losses import CAUSES
from tests.helpers.pages import PAGES, Page, page
from tests.helpers.reading import Reader, way
from tests.helpers.site import Built

pytestmark = pytest.mark.apart


def has_something_to_do(found: Page) -> bool:
    return any(
        way(block, before) != "not run" for before, block in zip([None, *found.blocks], found.blocks, strict=False)
    )


def needs(found: Page) -> list[str]:
    return found.said.get("needs", "").split()


# Other tests type pages with these needs: test_live_tutorial.py, test_hooks_tutorial.py, test_own_cluster.py
APART = {"slurm", "pbs", "hosts"}
ALL = [found for found in map(page, PAGES) if has_something_to_do(found) and not APART & {*needs(found)}]


# Each takes half a minute of CPU time. Other pages type the same commands, and tests/golden compares their outputs
LONG = {"docs/how-to/sweeps.md", "docs/tutorials/your-objective.md"}


def marks(found: Page) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in [*needs(found), *(["soak"] if found.name in LONG else [])]]


@pytest.mark.parametrize("found", [pytest.param(found, id=found.name, marks=marks(found)) for found in ALL])
def test_what_the_page_shows_works(found: Page, tmp_path: Path) -> None:
    folder, state = tmp_path / "reader", tmp_path / "state"
    folder.mkdir()
    state.mkdir()
    Reader(found, folder, state).read()
    for name in LEFT.get(found.name, ()):
        figures = json.loads((folder / name / "summary.json").read_text())
        assert figures["complete"]
        if name == "result" and figures["baseline"]:
            assert figures["tasks_finished"] < figures["tasks"], "with too few tasks all solvers harvest the same"
            assert figures["efficiency"] > figures["baseline"]["efficiency"] + 0.05
    if (folder / "four").exists():
        assert_report_is_quoted(found.text, Built(folder / "four" / "report.html").text)


# What a reader of a page is left with: folders of replays
LEFT = {
    "README.md": ("result",),
    "docs/tutorials/from-sacct-to-report.md": ("result",),
    "docs/tutorials/reading-the-report.md": ("four", "many"),
    "docs/tutorials/your-objective.md": ("plain", "thrifty"),
}


def assert_report_is_quoted(text: str, report: str) -> None:
    """The page quotes the report's first words, its figures, its steps and what it compares, as they stand there."""
    seen = squeezed(report)
    quoted = " ".join(re.findall(r"^> (.*)$", text, re.MULTILINE))
    assert squeezed(quoted.replace("**", "")) in seen
    figures = [(name, value) for name, value, *_ in rows(text, "| figure |")]
    assert len(figures) == len(rows(text, "| | exact |")) == 6
    for shown in (*figures, *rows(text, "| | exact |")):
        assert squeezed("".join(shown)) in seen
    assert [name for name, *_ in rows(text, "| step |")] == [cause.name for cause in CAUSES]


def rows(text: str, first_words: str) -> list[list[str]]:
    table = text.partition(f"\n{first_words}")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def squeezed(text: str) -> str:
    """Leave the blanks out: a page has none between its elements."""
    return re.sub(r"\s+", "", text)


def test_the_pages_that_matter_most_are_typed() -> None:
    assert set(LEFT) <= {found.name for found in ALL}
