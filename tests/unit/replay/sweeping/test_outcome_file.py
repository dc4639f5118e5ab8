"""What is done stays done: across interruptions, crashes and changes of the sweep file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import BadInput, UsageError
from tests.unit.replay.sweeping.sweep_case import counted, small, swept

SWEEP = small(grid={"max_tasks": [1, 2, 3]})


def runs(spec: dict[str, Any], folder: Path, **options: Any) -> int:  # noqa: ANN401 - as sweep() takes them
    return counted(spec, folder, **options)[0]


def points(folder: Path) -> list[str]:
    return (folder / "points.jsonl").read_text().splitlines()


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    def half() -> bool:
        return (tmp_path / "out" / "points.jsonl").exists() and len(points(tmp_path / "out")) == 5

    count, found = counted(SWEEP, tmp_path / "out", stopping=half)
    assert count == 4
    assert [row.state for row in found.rows] == ["done", "done", "open"]
    count, found = counted(SWEEP, tmp_path / "out")
    assert (count, found.complete) == (2, True)
    assert runs(SWEEP, tmp_path / "out") == 0
    assert found.figures_sha256 == swept(SWEEP, tmp_path / "in one go").figures_sha256


def test_a_line_that_was_being_written_is_cut_off(tmp_path: Path) -> None:
    assert runs(SWEEP, tmp_path) == 6
    path = tmp_path / "points.jsonl"
    whole = path.read_bytes()
    for cut in (1, 100, len(whole.splitlines(keepends=True)[-1]) - 1):
        path.write_bytes(whole[:-cut])
        assert runs(SWEEP, tmp_path) == 1
        assert len(points(tmp_path)) == 7
    path.write_bytes(whole[:5])
    assert runs(SWEEP, tmp_path) == 6


def test_a_changed_sweep_keeps_what_it_has_in_common(tmp_path: Path) -> None:
    runs(SWEEP, tmp_path)
    assert runs(small(grid={"max_tasks": [3, 2, 4]}), tmp_path) == 2
    assert runs(small(grid={"max_tasks": [2]}, fixed={"solver": "greedy"}), tmp_path) == 1  # its yardsticks are there
    assert runs(SWEEP, tmp_path) == 0


def test_what_failed_is_tried_again_if_that_is_asked_for(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import pathlib\n\ndef worth(task, sizes):\n    raise OSError('it rained')\n")
    spec = small(fixed={"objective": f"{mine}:worth"}, yardsticks=False)
    (row,) = swept(spec, tmp_path / "out").failed
    assert "it rained" in row.error
    assert row.cells.get("efficiency") is None
    assert runs(spec, tmp_path / "out") == 0
    assert runs(spec, tmp_path / "out", retry_failed=True) == 1


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    def second(_: object) -> None:
        with pytest.raises(UsageError, match=f"is in use by process {os.getpid()} on "):
            bftrain.sweep(SWEEP, tmp_path)

    assert swept(small(), tmp_path, watch=second).complete


def test_a_sweep_with_nothing_in_common_replaces_no_table(tmp_path: Path) -> None:
    done = swept(SWEEP, tmp_path)
    done.write(tmp_path)
    swept(small(grid={"max_tasks": [3, 4]}), tmp_path).write(tmp_path)
    other = small(grid={"max_tasks": [7]}, yardsticks=False)
    with pytest.raises(
        UsageError, match=r"contains a finished sweep, and is left unchanged \(overwrite=True replaces it"
    ):
        swept(other, tmp_path)
    swept(other, tmp_path, overwrite=True)
    assert json.loads((tmp_path / "sweep.json").read_text())["points"] == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"format": "bftrain sweep 0"}\n', ":1: is of the format 'bftrain sweep 0', not 'bftrain sweep 1'"),
        ('{"format": "bftrain sweep 1"}\n{"id": 3}\n', "points.jsonl:2: "),
        ("\x00\n", "points.jsonl:1: "),
    ],
)
def test_a_file_of_others_is_left_alone(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "points.jsonl"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        swept(SWEEP, tmp_path)
    assert complaint in str(refused.value)
    assert "move the file away to start over" in str(refused.value)
    assert path.read_text() == text
