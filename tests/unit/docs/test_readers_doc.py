"""The pages on readers: every format and every kind of doubt is listed, and the example of a reader is one."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bftrain.cli.doctor import examine
from bftrain.registry import BUILT_IN
from bftrain_datasets.importing.findings import HAZARDS, RecordHazard
from tests.helpers.records import imported
from tests.unit.core import plugins

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "readers.md").read_text()
HOW_TO_ADD = (DOCS / "adding" / "reader.md").read_text()


def anchor(section: str) -> str:
    """Return the name under which a section can be linked to."""
    return re.sub(r"[^\w -]", "", section.partition("\n")[0].lower()).replace(" ", "-")


def test_every_format_is_in_the_table_and_has_its_section() -> None:
    documented = dict(re.findall(r"^\| \[`([\w-]+)`\]\(#([\w-]+)\) \|", PAGE, re.MULTILINE))
    assert set(documented) == set(BUILT_IN["reader"])
    sections = {anchor(section): section for section in PAGE.split("\n## ")}
    assert [name for name, place in documented.items() if f"`{name}` reads" not in sections[place]] == []


def row(name: str, hazard: RecordHazard) -> str:
    """Return the line of the table that a kind of doubt should have."""
    option = f"`{hazard.option}`" if re.fullmatch(r"--\S+", hazard.option) else hazard.option
    return f"| `{name}` | {hazard.says} | {hazard.done} | {option} | {'doubt' if hazard.doubt else ''} |"


def test_every_kind_of_doubt_is_documented_as_it_is() -> None:
    table = PAGE.split("## Every kind of doubt")[1].split("\n\n`bftrain check`")[0]
    assert re.findall(r"^\| `.*$", table, re.MULTILINE) == [row(name, hazard) for name, hazard in HAZARDS.items()]


def test_no_other_kind_is_named_on_the_page() -> None:
    named = set(re.findall(r"(?:set aside|counted) (?:as|under) `(\w+)`", PAGE))
    assert named <= set(HAZARDS)
    assert len(named) > 20


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """Install the example as the package of its entry point would."""
    (code,) = re.findall(r"```python\n(.*?)```", HOW_TO_ADD, re.DOTALL)
    ((name, target),) = re.findall(r"bftrain\.reader\"\]\n(\w+) = \"([\w.]+)\"$", HOW_TO_ADD, re.MULTILINE)
    assert len(code.splitlines()) < 60
    module = ModuleType(target)
    exec(code, vars(module))  # noqa: S102 - our own page
    monkeypatch.setitem(sys.modules, target.partition(".")[0], ModuleType("my_package"))
    monkeypatch.setitem(sys.modules, target, module)
    plugins.register(monkeypatch, ("reader", name, target))
    return str(name)


def test_the_example_of_a_reader_reads(tiny: str, tmp_path: Path) -> None:
    text = (
        "#tiny 1\n"
        "1 main 1700000000 1700000100 a+b\n"
        "2 main 1700000150 - b\n"
        "3 idle 1700000100 1700000150 a\n"
        "4 main - - c\n"
        "5 main today 1700000100 a\n"
        "6 main\n"
        "7 main 1700000200 1700000300 c\n"
    )
    found = imported(tmp_path, text, preemptible=("idle",))
    assert found.format == tiny
    assert found.rows.aside == {"preemptible": 1, "never_started": 1, "bad_time": 1, "malformed": 1}
    assert found.log.node_names == ("a", "b", "c")
    assert found.log.idle_node_s == 200 + 50 + 200
    (shown,) = [each for each in examine() if tiny in each.name]
    assert shown.state.value == "ok"
