"""A pass in a child process gives what it gives here, is shown while it runs, and ends with what started it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace as changed

from bftrain import CompetingTask, EventLog, ReplaySettings
from bftrain.errors import BadObjective
from bftrain.result_folder import DRAFT, REPORT_FILE
from bftrain_replay import forked_pass, replay_folder, study_passes
from bftrain_replay.accounting.column_file import ColumnFile
from bftrain_replay.commands.replay_run import ReplayRequest, run_into
from bftrain_replay.forked_pass import ForkedPass, PassesBeside
from bftrain_replay.provenance import InputSource
from bftrain_replay.results.decider_counts import CEILING
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.simulation.engine import KeepGoing
from bftrain_replay.study import ReplayStudy, StudyCalls, study, study_of
from bftrain_replay.study_checks import check_parts
from bftrain_replay.study_passes import DEDICATED, StudyPasses
from tests.unit.replay.cases import log_of, study_files, task

LOG = log_of(
    (0.0, "abcde", ""), (70.0, "fg", "ab"), (140.0, "hi", "c"), (150.0, "", "hf"), (500.0, "ab", "de"), end_s=900.0
)
TASKS = [
    task("x", rate=(10.0, 19.0, 25.0), work_samples=5000.0, grow_cost_s=5.0, shrink_cost_s=3.0),
    task("y", rate=(11.3, 16.1, 22.7, 31.0), work_samples=9000.0, start_cost_s=4.0, grow_cost_s=2.0),
    task("z", rate=(7.1, 15.3), submit_s=33.0, shrink_cost_s=8.0),
]
SETTINGS = ReplaySettings(max_tasks=2)
GPU_LOG = replace(LOG, provenance=changed(LOG.provenance, unit="gpu"))


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let passes on any log run beside the main one, with so many processors."""
    monkeypatch.setattr(study_passes, "_WORTH_A_FORK", 0)
    monkeypatch.setattr(study_passes, "may_fork", lambda: True)  # the test runner has threads, which do nothing
    monkeypatch.setattr(study_passes, "usable_cpus", lambda: getattr(request, "param", 2))


def ended(each: ForkedPass) -> ForkedPass:
    until = time.monotonic() + 20.0
    while each.running and time.monotonic() < until:
        each.refresh(0.1)
    return each


@pytest.mark.parametrize("beside", [1, 2, 3], indirect=True)
@pytest.mark.usefixtures("beside")
def test_side_by_side_comes_to_the_same_files(tmp_path: Path) -> None:
    shown: list[str] = []

    def watch(name: str, _simulated_s: float, _decisions: int) -> bool:
        shown.append(name)
        return True

    done = study(LOG, TASKS, SETTINGS, baseline="equal-share", watch=watch)
    parts = check_parts(SETTINGS, "equal-share")
    alone = study_of(StudyPasses(LOG, TASKS, parts).main(), LOG, TASKS, parts)
    assert study_files(done, tmp_path / "beside") == study_files(alone, tmp_path / "alone")
    assert done.ceiling is not None
    assert done.complete
    assert "exact" in shown


@pytest.mark.parametrize(("beside", "left"), [(2, 2), (3, 1)], indirect=["beside"])
@pytest.mark.usefixtures("beside")
def test_a_pass_that_a_child_completed_is_not_repeated_here(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    here = Mock(side_effect=study_passes.run)
    monkeypatch.setattr(study_passes, "run", here)
    done = study(LOG, TASKS, SETTINGS, baseline="equal-share")
    assert done.ceiling is not None
    assert done.baseline is not None
    assert here.call_count == left


@pytest.mark.usefixtures("beside")
def test_a_pass_whose_process_dies_is_done_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, whole = os.getpid(), study_files(study(LOG, TASKS, SETTINGS), tmp_path / "whole")
    ceiling = StudyPasses.ceiling

    def dying(passes: StudyPasses) -> object:
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return ceiling(passes)

    monkeypatch.setattr(StudyPasses, "ceiling", dying)
    assert study_files(study(LOG, TASKS, SETTINGS), tmp_path / "again") == whole


@pytest.mark.parametrize("method", ["__getstate__", "__setstate__"])
@pytest.mark.usefixtures("beside")
def test_a_pass_whose_columns_cannot_be_handed_over_is_done_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    """The disk is full as the child writes, or its files cannot be opened here."""
    whole = study_files(study(LOG, TASKS, SETTINGS), tmp_path / "whole")
    monkeypatch.setattr(ColumnFile, method, Mock(side_effect=OSError(28, "No space left on device")))
    assert study_files(study(LOG, TASKS, SETTINGS), tmp_path / "again") == whole


@pytest.mark.usefixtures("beside")
def test_what_fails_in_a_child_is_raised_here() -> None:
    class OnlyHere:
        name = "only-here"

        def values(self, task: CompetingTask, sizes: object) -> object:
            if not task.start_cost_s and not task.grow_cost_s and not task.shrink_cost_s:  # in the ceiling
                raise ArithmeticError("no costs")
            return sizes

    with pytest.raises(BadObjective, match="no costs"):
        study(LOG, TASKS[:2], SETTINGS, objective=OnlyHere())  # type: ignore[arg-type]  # as careless people write them


@pytest.mark.usefixtures("beside")
def test_the_dedicated_pool_is_replayed_here_before_the_others_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    result = PassesBeside.result

    def wait(passes: PassesBeside, name: str, going: Callable[[], bool]) -> ReplayResult | None:
        waited.append(name)
        return result(passes, name, going)

    monkeypatch.setattr(PassesBeside, "result", wait)
    study(LOG, TASKS, SETTINGS, baseline="equal-share")
    assert waited == [DEDICATED, "equal-share", CEILING]


def test_the_parent_comes_first(tmp_path: Path) -> None:
    ended(ForkedPass(lambda _: (tmp_path / "nice").write_text(str(os.nice(0)), encoding="utf-8") and None))
    assert int((tmp_path / "nice").read_text(encoding="utf-8")) == min(os.nice(0) + 1, 19)


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


@pytest.mark.parametrize("log", [LOG, GPU_LOG], ids=["nodes", "gpus"])
def test_files_of_the_main_replay_can_be_written_before_the_others_end(tmp_path: Path, log: EventLog) -> None:
    early: list[ReplayStudy] = []
    begun: list[tuple[str, int]] = []

    def watch(name: str, _simulated_s: float, _decisions: int) -> bool:
        begun.append((name, len(early)))
        return True

    calls = StudyCalls(warn=lambda _: None, main_done=early.append)
    done = study(log, TASKS, SETTINGS, baseline="equal-share", watch=watch, calls=calls)
    assert len(early) == 1
    assert {many for name, many in begun if name == "exact"} == {0}
    assert {many for name, many in begun if name != "exact"} == {1}, "before the others"
    late, ahead, source = tmp_path / "late", tmp_path / "early", InputSource(log="log.npz")
    replay_folder.write(done, late, source)
    ahead.mkdir()
    written = replay_folder.write_early(early[0], ahead, source)
    assert written.own is not None
    assert written.own.pictures, "drawn already"
    assert {each.name for each in late.iterdir()} - {each.name for each in ahead.iterdir()} == {
        REPORT_FILE,
        "summary.json",
    }
    replay_folder.write(done, ahead, source, early=written)
    for path in late.iterdir():
        assert (ahead / path.name).read_bytes() == path.read_bytes()


def test_a_command_writes_tables_while_other_replays_go_on(tmp_path: Path) -> None:
    done, folder = study(LOG, TASKS, SETTINGS), tmp_path / "out"

    def run(main_done: Callable[[ReplayStudy], None]) -> ReplayStudy:
        main_done(done)
        assert (folder / DRAFT / "decisions.csv").exists()
        return done

    asked = cast("ReplayRequest", Mock(overwrite=False, tables=replay_folder.CSV))
    assert run_into(folder, InputSource(), run, asked) == (done, True)
    replay_folder.write(done, tmp_path / "late")
    assert (folder / "decisions.csv").read_bytes() == (tmp_path / "late" / "decisions.csv").read_bytes()


def test_the_tables_of_an_interrupted_replay_are_not_written_early() -> None:
    calls = StudyCalls(warn=lambda _: None, main_done=Mock(side_effect=AssertionError))
    assert not study(LOG, TASKS, SETTINGS, watch=lambda *_: False, calls=calls).complete
