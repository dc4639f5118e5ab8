"""``bftrain compare``: side by side with the best marked, as JSON, and as a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain import ReplaySettings, generate_log, generate_mix, replay
from tests.helpers.in_process import CommandLine

SOLVERS = ("exact", "equal-share", "greedy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with replays of one log by three solvers, the first of them again, and of another log."""
    place, log, tasks = tmp_path_factory.mktemp("replays"), generate_log(12, 0.2, 3), generate_mix(4, 3)
    for solver in SOLVERS:
        replay(log, tasks, ReplaySettings(solver=solver)).write(place / solver)
    replay(log, tasks, ReplaySettings()).write(place / "again")
    replay(generate_log(6, 0.1, 3), tasks, ReplaySettings()).write(place / "other")
    return place


@pytest.fixture(autouse=True)
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def rows_of(text: str) -> dict[str, list[str]]:
    cells = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.strip()]
    return {row[0]: row[1:] for row in cells}


def test_two_stand_side_by_side_with_the_change(bftrain: CommandLine) -> None:
    ended = bftrain("compare", *SOLVERS[:2])
    assert (ended.code, ended.err) == (0, "")
    rows, output = rows_of(ended.out), json.loads(bftrain("compare", *SOLVERS[:2], "--json").out)
    assert re.search(r"^ +exact +equal-share +change$", ended.out, re.MULTILINE)
    assert {figure["label"] for figure in output["figures"].values()} <= set(rows)
    for name in ("lost", "harvested"):
        figure = output["figures"][name]
        marked = [label for label, cell in zip(SOLVERS, rows[figure["label"]], strict=False) if "*" in cell]
        assert marked == figure["best"]
        assert marked
    assert rows["solver"] == ["exact", "equal-share"]
    same = bftrain("compare", "exact", "again").out
    assert ("Settings and inputs are equal." in same, "all settings as by default" in same) == (True, True)


def test_more_show_the_difference_when_asked(bftrain: CommandLine) -> None:
    plain, ended = (rows_of(bftrain("compare", *SOLVERS, *more).out) for more in ((), ("--difference",)))
    assert not any("points" in cell for cell in plain["lost in all"])
    assert any("points" in cell or "same" in cell for cell in ended["lost in all"])


def test_json_has_everything_and_nothing_else(bftrain: CommandLine) -> None:
    ended = bftrain("compare", *SOLVERS, "--json")
    output = json.loads(ended.out)
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
    assert [each["label"] for each in output["replays"]] == [each["folder"] for each in output["replays"]] == [*SOLVERS]
    harvested = [json.loads(Path(name, "summary.json").read_text())["harvested"] for name in SOLVERS]
    assert (output["figures"]["harvested"]["values"], output["figures"]["harvested"]["better"]) == (harvested, "more")
    assert output["differs"] == {"settings.solver": [*SOLVERS]}
    assert (output["notes"], output["forced"], output["page"]) == ([], None, None)


def test_labels_are_taken_as_given_and_never_markup(bftrain: CommandLine) -> None:
    ended = bftrain("compare", *SOLVERS[:2], "--label", "new [red]", "--label", "old :bug:")
    assert ("new [red]" in ended.out, "old :bug:" in ended.out, "\x1b" in ended.out) == (True, True, False)


def test_different_logs_need_force(bftrain: CommandLine) -> None:
    ended = bftrain("compare", "exact", "other")
    assert (ended.code, ended.out, "2 different logs (--force" in ended.err) == (3, "", True)
    forced = bftrain("compare", "exact", "other", "--force")
    assert (forced.code, "because of --force" in forced.out, forced.err.startswith("warning: ")) == (0, True, True)
    assert json.loads(bftrain("compare", "exact", "other", "--force", "--json").out)["forced"]


def test_a_page_is_written_whole_and_named(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    ended = bftrain("compare", *SOLVERS, "-o", path)
    assert (ended.code, ended.err) == (0, f"page: {path}\n")
    text = path.read_text(encoding="utf-8")
    assert (text.startswith("<!DOCTYPE html>"), text.endswith("</html>\n")) == (True, True)
    assert json.loads(bftrain("compare", *SOLVERS, "-o", path, "--json", "-q").out)["page"] == str(path)


@pytest.mark.parametrize("width", [40, 80, 250])
def test_eight_replays_fit_any_terminal_and_nothing_is_left_out(
    bftrain: CommandLine, terminal: Callable[[int], None], tmp_path: Path, width: int
) -> None:
    names = [f"replay-{number}" for number in range(8)]
    for name in names:
        (tmp_path / name).symlink_to(Path("greedy").resolve())
    words = [word for name in names for word in (tmp_path / name, "--label", name)]
    whole = bftrain("compare", *words)
    assert whole.code == 0, whole.err
    terminal(width)
    narrow = bftrain("compare", *words).out
    assert "\x1b[1m" in narrow  # the best is bold
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", narrow)
    assert max(map(len, narrow.splitlines())) <= width
    figures = [set(re.findall(r"\d[\d.,]*", re.sub(r"[\d.]+ m?s\b", "", text))) for text in (whole.out, narrow)]
    assert figures[0] - figures[1] == set()
    assert all(name in narrow for name in names)
