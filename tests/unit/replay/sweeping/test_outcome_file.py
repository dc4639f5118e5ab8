"""What is done stays done: across interruptions, crashes and changes of the sweep file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bftrain import BadInput, UsageError
from bftrain_replay.sweeping.sweep import result_folder
from tests.unit.replay.sweeping.sweep_case import Here, OutcomeFile, PreparedSweep, failed, known_in, small

SWEEP = small(grid={"max_tasks": [1, 2, 3]})


def run(spec: dict[str, object], folder: Path, *, stop_after: int | None = None, retry_failed: bool = False) -> int:
    """Sweep; gives how many passes that took."""
    here = Here(stop_after)
    with OutcomeFile(folder) as outcomes:
        PreparedSweep.of(spec).run(outcomes, here, retry_failed=retry_failed)
    return len(here.done)


def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    assert run(SWEEP, tmp_path, stop_after=4) == 4
    stopped = PreparedSweep.of(SWEEP).swept(known_in(tmp_path))
    assert [row.state for row in stopped.rows] == ["done", "done", "open"]
    assert run(SWEEP, tmp_path) == 2
    assert run(SWEEP, tmp_path) == 0
    went_on, in_one_go = PreparedSweep.of(SWEEP).swept(known_in(tmp_path)), tmp_path / "other"
    in_one_go.mkdir()
    run(SWEEP, in_one_go)
    assert went_on.figures_sha256 == PreparedSweep.of(SWEEP).swept(known_in(in_one_go)).figures_sha256


def test_a_line_that_was_being_written_is_cut_off(tmp_path: Path) -> None:
    assert run(SWEEP, tmp_path) == 6
    path = tmp_path / "points.jsonl"
    whole = path.read_bytes()
    for cut in (1, 100, len(whole.splitlines(keepends=True)[-1]) - 1):
        path.write_bytes(whole[:-cut])
        assert run(SWEEP, tmp_path) == 1
        assert len(known_in(tmp_path)) == 6
    path.write_bytes(whole[:5])
    assert run(SWEEP, tmp_path) == 6


def test_a_changed_sweep_keeps_what_it_has_in_common(tmp_path: Path) -> None:
    run(SWEEP, tmp_path)
    assert run(small(grid={"max_tasks": [3, 2, 4]}), tmp_path) == 2
    assert run(small(grid={"max_tasks": [2]}, fixed={"solver": "greedy"}), tmp_path) == 1  # its yardsticks are there
    assert run(SWEEP, tmp_path) == 0


def test_what_failed_is_tried_again_if_that_is_asked_for(tmp_path: Path) -> None:
    jobs = list(PreparedSweep.of(SWEEP).plan.passes.values())
    with OutcomeFile(tmp_path) as outcomes:
        outcomes.add(failed(jobs[0], "it rained"))
    assert run(SWEEP, tmp_path) == 5
    (row, *_) = PreparedSweep.of(SWEEP).swept(known_in(tmp_path)).failed
    assert (row.error, row.cells.get("efficiency")) == ("it rained", None)
    assert run(SWEEP, tmp_path, retry_failed=True) == 1
    assert PreparedSweep.of(SWEEP).swept(known_in(tmp_path)).failed == ()


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    ready = PreparedSweep.of(SWEEP)
    with result_folder(ready, tmp_path), pytest.raises(UsageError, match=f"is in use by process {os.getpid()} on "):
        result_folder(ready, tmp_path).__enter__()
    with result_folder(ready, tmp_path), OutcomeFile(tmp_path):
        assert known_in(tmp_path) == {}


def test_a_sweep_with_nothing_in_common_replaces_no_table(tmp_path: Path) -> None:
    run(SWEEP, tmp_path)
    done = PreparedSweep.of(SWEEP).swept(known_in(tmp_path))
    done.write(tmp_path)
    PreparedSweep.of(small(grid={"max_tasks": [3, 4]})).swept(known_in(tmp_path)).write(tmp_path)
    done.write(tmp_path)
    other = PreparedSweep.of(small(grid={"max_tasks": [7]}, yardsticks=False))
    with pytest.raises(
        UsageError, match=r"holds a finished sweep, and is left unchanged \(overwrite=True replaces it, or name another"
    ):
        other.swept({}).write(tmp_path)
    other.swept({}).write(tmp_path, overwrite=True)
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
        OutcomeFile(tmp_path).__enter__()
    assert complaint in str(refused.value)
    assert "move the file away to begin again" in str(refused.value)
    assert path.read_text() == text
