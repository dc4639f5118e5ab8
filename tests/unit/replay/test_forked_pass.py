"""A pass in a child process gives what it gives here, is shown while it runs, and ends with what started it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import Mock

import pytest

import bftrain
from bftrain import BftrainError, CompetingTask, ReplaySettings
from bftrain_replay.study import forked_pass
from bftrain_replay.study.forked_pass import ForkedPass
from tests.unit.replay.cases import log_of, replay_files, task

KeepGoing = Callable[[float, int], bool]
PASSES = "bftrain_replay.study.study"
COLUMNS = "bftrain_replay.simulation.run_records"

LOG = log_of(
    (0.0, "abcde", ""), (70.0, "fg", "ab"), (140.0, "hi", "c"), (150.0, "", "hf"), (500.0, "ab", "de"), end_s=900.0
)
TASKS = [
    task("x", rate=(10.0, 19.0, 25.0), work_samples=5000.0, grow_cost_s=5.0, shrink_cost_s=3.0),
    task("y", rate=(11.3, 16.1, 22.7, 31.0), work_samples=9000.0, start_cost_s=4.0, grow_cost_s=2.0),
    task("z", rate=(7.1, 15.3), submit_s=33.0, shrink_cost_s=8.0),
]
SETTINGS = ReplaySettings(max_tasks=2)


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let passes on any log run beside the main one, with so many processors."""
    monkeypatch.setattr(f"{PASSES}.MIN_EVENTS_TO_FORK", 0)
    monkeypatch.setattr(f"{PASSES}.may_fork", lambda: True)  # the test runner has threads, which do nothing
    monkeypatch.setattr(f"{PASSES}.usable_cpus", lambda: getattr(request, "param", 2))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the files of a replay that no other process helped with."""
    done = bftrain.replay(LOG, TASKS, SETTINGS, baseline="equal-share")
    return replay_files(done, tmp_path_factory.mktemp("alone") / "out")


def ended(each: ForkedPass[None]) -> ForkedPass[None]:
    until = time.monotonic() + 20.0
    while each.running and time.monotonic() < until:
        each.refresh(0.1)
    return each


@pytest.mark.parametrize("beside", [1, 2, 3], indirect=True)
@pytest.mark.usefixtures("beside")
def test_side_by_side_comes_to_the_same_files(tmp_path: Path, alone: dict[str, object]) -> None:
    shown: list[str] = []

    def watch(name: str, _simulated_s: float, _decisions: int) -> bool:
        shown.append(name)
        return True

    done = bftrain.replay(LOG, TASKS, SETTINGS, baseline="equal-share", watch=watch)
    assert replay_files(done, tmp_path / "beside") == alone
    assert done.ceiling is not None
    assert done.complete
    assert "exact" in shown


@pytest.mark.usefixtures("beside")
def test_columns_of_many_blocks_come_to_the_same_files(
    tmp_path: Path, alone: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{COLUMNS}.BLOCK_ROWS", 4)
    monkeypatch.setattr(f"{COLUMNS}.STORED_AT_ONCE", 2)
    done = bftrain.replay(LOG, TASKS, SETTINGS, baseline="equal-share")
    assert replay_files(done, tmp_path / "blocks") == alone


@pytest.mark.usefixtures("beside")
def test_a_pass_whose_process_dies_is_done_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: dict[str, object]
) -> None:
    here, run = os.getpid(), forked_pass.ForkedPass.__init__

    def dying(each: ForkedPass, work: Callable[[KeepGoing], object]) -> None:
        def die(keep_going: KeepGoing) -> object:
            if os.getpid() != here:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(keep_going)

        run(each, die)

    monkeypatch.setattr(forked_pass.ForkedPass, "__init__", dying)
    done = bftrain.replay(LOG, TASKS, SETTINGS, baseline="equal-share")
    assert replay_files(done, tmp_path / "again") == alone


@pytest.mark.parametrize("method", ["__getstate__", "__setstate__"])
@pytest.mark.usefixtures("beside")
def test_a_pass_whose_columns_cannot_be_handed_over_is_done_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, alone: dict[str, object], method: str
) -> None:
    """The disk is full as the child writes, or its files cannot be opened here."""
    monkeypatch.setattr(f"{COLUMNS}.RowFile.{method}", Mock(side_effect=OSError(28, "No space left on device")))
    done = bftrain.replay(LOG, TASKS, SETTINGS, baseline="equal-share")
    assert replay_files(done, tmp_path / "again") == alone


@pytest.mark.usefixtures("beside")
def test_what_fails_in_a_child_is_raised_here(capfd: pytest.CaptureFixture[str]) -> None:
    class OnlyHere:
        name = "only-here"

        def values(self, task: CompetingTask, sizes: object) -> object:
            if not task.start_cost_s and not task.grow_cost_s and not task.shrink_cost_s:  # in the ceiling
                raise ArithmeticError("no costs")
            return sizes

    with pytest.raises(BftrainError, match="no costs"):
        bftrain.replay(LOG, TASKS[:2], SETTINGS, objective=OnlyHere())  # type: ignore[arg-type]  # as careless people write them
    assert capfd.readouterr().err == ""


def test_an_unexpected_error_in_a_child_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def run(_: KeepGoing) -> None:
        raise ArithmeticError("not expected")

    assert ended(ForkedPass(run)).exit_code == 1
    assert "ArithmeticError: not expected" in capfd.readouterr().err


def test_a_child_that_takes_long_to_exit_is_not_killed() -> None:
    def run(keep_going: KeepGoing) -> None:
        for cell in keep_going.__closure__ or ():  # type: ignore[attr-defined]  # it is a function
            if isinstance(cell.cell_contents, Connection):
                cell.cell_contents.close()
        time.sleep(0.5)
        os._exit(7)

    assert ended(ForkedPass(run)).exit_code == 7


def test_progress_is_received_while_it_runs() -> None:
    def run(keep_going: KeepGoing) -> None:
        keep_going(12.0, 3)
        signal.pause()

    each = ForkedPass(run)
    try:
        each.refresh(20.0)
        assert (each.running, each.progress) == (True, (12.0, 3))
    finally:
        each.stop()
    assert (each.running, each.result) == (False, None)


def test_ctrl_c_at_the_terminal_is_for_the_parent() -> None:
    def run(keep_going: KeepGoing) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        keep_going(5.0, 1)

    each = ended(ForkedPass(run))
    assert each.progress == (5.0, 1)


def test_it_ends_with_a_parent_that_is_killed() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if not parent:
        ForkedPass(lambda _: os.write(writer, b"%d\n" % os.getpid()) and signal.pause())
        signal.pause()
    try:
        assert os.read(reader, 100)
    finally:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        os.close(writer)
    assert os.read(reader, 1) == b""  # the last one that had it open is gone
    os.close(reader)


def test_a_process_with_threads_or_such_libraries_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_pass.threading, "active_count", lambda: 1)
    monkeypatch.setattr(forked_pass.sys, "modules", {})
    assert forked_pass.may_fork()
    monkeypatch.setattr(forked_pass.sys, "modules", {"gurobipy": forked_pass})
    assert not forked_pass.may_fork()
    monkeypatch.setattr(forked_pass.sys, "modules", {})
    monkeypatch.setattr(forked_pass.threading, "active_count", lambda: 2)
    assert not forked_pass.may_fork()
