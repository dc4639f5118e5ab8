"""``bftrain compare``: side by side as wide as there is room, with the best marked, and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from bftrain import ReplaySettings
from bftrain_replay import replay_folder
from bftrain_replay.commands.side_by_side import FigureRow, ReplayCell, RowGroup, SideBySide
from bftrain_replay.study import study
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "abcd", ""), (100.0, "", "b"), (150.0, "bef", ""), (700.0, "", "ae"), end_s=1000.0)
TASKS = [task("a", grow_cost_s=40.0), task("b", rate=(8.0, 16.0, 20.0), grow_cost_s=40.0, shrink_cost_s=9.0)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("replays")
    for solver in ("exact", "equal-share", "greedy"):
        replay_folder.write(study(LOG, TASKS, ReplaySettings(solver=solver)), place / solver)
    return [place / "exact", place / "equal-share", place / "greedy"]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replays") / "other"
    replay_folder.write(study(log_of((0.0, "ab", ""), end_s=1000.0), TASKS, ReplaySettings()), folder)
    return folder


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_two_stand_side_by_side_with_the_change(bftrain: CommandLine, folders: list[Path]) -> None:
    ended = bftrain("compare", *folders[:2])
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    heading = next(line for line in lines if "exact" in line)
    assert cells(heading) == ["exact", "equal-share", "change"]
    output = json.loads(bftrain("compare", *folders[:2], "--json").out)
    rows = {cells(line)[0]: cells(line)[1:] for line in lines if line.strip()}
    assert {figure["label"] for figure in output["figures"].values()} <= set(rows)
    lost = output["figures"]["lost"]
    marked = [label for label, cell in zip(["exact", "equal-share"], rows["lost in all"], strict=False) if "*" in cell]
    assert marked == lost["best"] == ["exact"]
    assert rows["lost in all"][2].endswith(" points")
    assert rows["solver"] == ["exact", "equal-share"]
    assert any(line.startswith(" settings") and "the other settings as by default" in line for line in lines)


def test_more_show_the_difference_when_asked(bftrain: CommandLine, folders: list[Path]) -> None:
    plain, ended = bftrain("compare", *folders).out, bftrain("compare", *folders, "--difference").out
    row = next(line for line in ended.splitlines() if line.startswith(" lost in all"))
    assert row != next(line for line in plain.splitlines() if line.startswith(" lost in all"))
    assert "points" in row or "same" in row
    assert "points" not in plain


def test_json_has_everything_and_nothing_else(bftrain: CommandLine, folders: list[Path]) -> None:
    ended = bftrain("compare", *folders, "--json")
    output = json.loads(ended.out)
    assert (ended.code, ended.err, ended.out.count("\n")) == (0, "", 1)
    assert [each["label"] for each in output["replays"]] == ["exact", "equal-share", "greedy"]
    assert [each["folder"] for each in output["replays"]] == [str(folder) for folder in folders]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in folders]
    assert output["figures"]["harvested"]["values"] == [each["harvested"] for each in summaries]
    assert output["figures"]["harvested"]["better"] == "more"
    assert output["differs"] == {"settings.solver": ["exact", "equal-share", "greedy"]}
    assert output["same"]["settings.horizon_s"] == "auto"
    assert (output["notes"], output["forced"], output["page"]) == ([], None, None)


def test_labels_are_taken_as_given(bftrain: CommandLine, folders: list[Path]) -> None:
    ended = bftrain("compare", *folders[:2], "--label", "new [red]", "--label", "old :bug:")
    assert "new [red]" in ended.out
    assert "old :bug:" in ended.out
    refused = bftrain("compare", *folders[:2], "--label", "one")
    assert (refused.code, refused.out) == (2, "")
    assert "1 labels for 2 replays" in refused.err


def test_different_logs_need_force_and_it_is_said(bftrain: CommandLine, folders: list[Path], other: Path) -> None:
    refused = bftrain("compare", folders[0], other)
    assert (refused.code, refused.out) == (3, "")
    assert "2 different logs (--force compares them all the same)" in refused.err
    forced = bftrain("compare", folders[0], other, "--force")
    assert forced.code == 0
    assert forced.out.startswith("Compared because of --force, though they are of 2 different logs\n")
    assert forced.err.startswith("warning: compared because of --force")
    assert json.loads(bftrain("compare", folders[0], other, "--force", "--json").out)["forced"]


def test_where_nothing_differs_that_is_said(bftrain: CommandLine, folders: list[Path], tmp_path: Path) -> None:
    replay_folder.write(study(LOG, TASKS, ReplaySettings()), tmp_path / "again")
    ended = bftrain("compare", folders[0], tmp_path / "again")
    assert "Nothing differs in how they were made.\n" in ended.out
    assert "all settings as by default" in ended.out


def test_a_page_is_written_whole_and_named(bftrain: CommandLine, folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    ended = bftrain("compare", *folders, "-o", path)
    assert (ended.code, ended.err) == (0, f"page: {path}\n")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")
    assert json.loads(bftrain("compare", *folders, "-o", path, "--json", "-q").out)["page"] == str(path)
    refused = bftrain("compare", *folders, "-o", tmp_path / "nowhere" / "page.html")
    assert (refused.code, refused.out) == (3, "")
    assert "nowhere/page.html" in refused.err


def test_one_folder_or_none_is_a_matter_of_usage(bftrain: CommandLine, folders: list[Path], tmp_path: Path) -> None:
    assert bftrain("compare", folders[0]).code == 2
    assert bftrain("compare").code == 2
    assert "is given twice" in bftrain("compare", folders[0], folders[0]).err
    empty = bftrain("compare", folders[0], tmp_path)
    assert (empty.code, empty.out) == (3, "")
    assert "holds no summary.json" in empty.err


def printed(what: SideBySide, width: int, *, terminal: bool = True) -> str:
    console = Console(
        width=width, force_terminal=terminal, color_system="standard" if terminal else None, highlight=False
    )
    with console.capture() as capture:
        console.print(what)
    return capture.get()


NAMES = [f"replay-{number}" for number in range(8)]
HARVEST = [
    FigureRow(f"figure number {row}", [ReplayCell(f"{1000 * row + at}", at == 3) for at in range(8)])
    for row in range(9)
]
LOST = [FigureRow("lost: start-up", [ReplayCell(f"{at}.0 %") for at in range(8)])]
WIDE = SideBySide("Title", NAMES, [RowGroup("Harvest", HARVEST), RowGroup("Lost", LOST)])


@pytest.mark.parametrize("width", [40, 60, 80, 120, 250])
def test_eight_replays_fit_any_terminal_and_nothing_is_left_out(width: int) -> None:
    said = re.sub(r"\x1b\[[0-9;]*m", "", printed(WIDE, width))
    assert max(map(len, said.splitlines())) <= width
    for row in range(9):
        for at in range(8):
            assert re.search(rf"\b{1000 * row + at}\b", said)
    assert said.count("*") == 9
    turned = width < 250
    assert (said.count("Harvest"), said.count("Lost")) == ((1, 1) if turned else (0, 0))
    first = next(line for line in said.splitlines() if "1003 *" in line)
    assert ("replay-3" in first) is turned  # a row a replay, or a row a figure


def test_a_label_that_is_too_long_is_folded_not_cut() -> None:
    long = SideBySide(
        "", ["x" * 50, "y" * 50], [RowGroup("A", [FigureRow("figure", [ReplayCell("1"), ReplayCell("2")])])]
    )
    said = printed(long, 40, terminal=False)
    assert (said.count("x"), said.count("y")) == (50, 50)
    assert max(map(len, said.splitlines())) <= 40


def test_the_best_is_bold_on_a_terminal_and_has_a_star_everywhere() -> None:
    plain, seen = printed(WIDE, 200, terminal=False), printed(WIDE, 200)
    assert "\x1b" not in plain
    assert "1003 *" in plain
    assert "\x1b[1m" in seen
    assert re.search(r"\x1b\[1m *1003 \*", seen)
