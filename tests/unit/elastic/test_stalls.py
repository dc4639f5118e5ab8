"""What is noticed of tasks that make no step or learn nothing, on paper."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import stalls
from bftrain_elastic.manager.task_lifecycles.stalls import StallAction, StallInspection, StallWatch
from bftrain_elastic.manager.task_lifecycles.supervision import TaskSupervision
from tests.unit.elastic.recorded_context import RecordedContext

RANKS = {"w0": (0, "a"), "w1": (1, "b")}


def watch(limit_s: float, pace_s: float = 1.0) -> tuple[StallWatch, float]:
    """Return a watch over a task that made some steps, and the time of the last one."""
    found = StallWatch(limit_s)
    found.trains(0.0)
    for number in range(1, 6):
        found.step(number * pace_s, number)
    return found, 5 * pace_s


def test_a_look_a_restart_and_the_end_come_once_each() -> None:
    found, last = watch(1000.0)
    due = [(at, found.check(last + at)) for at in (29.0, 31.0, 32.0, 499.0, 501.0, 502.0, 999.0, 1001.0, 1002.0)]
    assert [(at, action) for at, action in due if action] == [
        (31.0, StallAction.LOOK),
        (501.0, StallAction.RESTART),
        (1001.0, StallAction.GIVE_UP),
    ]


def test_long_steps_are_given_ten_paces() -> None:
    found, last = watch(10_000.0, pace_s=20.0)
    assert found.check(last + 199.0) is None
    assert found.check(last + 201.0) is StallAction.LOOK


def test_a_step_restarts_it_and_rests_do_not_count() -> None:
    found, last = watch(1000.0)
    assert found.check(last + 40.0) is StallAction.LOOK
    found.step(last + 41.0, 6)
    found.rests(last + 50.0)
    assert found.check(last + 5000.0) is None
    found.trains(last + 5000.0)
    assert found.without_s(last + 5001.0) == pytest.approx(10.0)


def test_steps_that_are_done_again_after_a_restart_do_not_end_the_stall() -> None:
    found, last = watch(1000.0)
    assert [found.check(last + at) for at in (31.0, 501.0)] == [StallAction.LOOK, StallAction.RESTART]
    found.rests(last + 501.0)
    found.trains(last + 600.0)
    found.step(last + 601.0, 4)
    found.step(last + 602.0, 5)
    assert found.check(last + 1000.0) is None
    assert found.check(last + 1110.0) is StallAction.GIVE_UP
    assert found.pace_s <= 1.0, "a restart is no step"


def test_a_step_further_ends_it_but_not_for_ever() -> None:
    found, now = watch(1000.0)
    for number in range(6, 9):
        assert [found.check(now + at) for at in (251.0, 501.0)] == [StallAction.LOOK, StallAction.RESTART]
        now += 502.0
        found.step(now, number)
    assert [found.check(now + at) for at in (251.0, 501.0)] == [StallAction.LOOK, StallAction.GIVE_UP]


def test_without_a_limit_it_is_only_reported() -> None:
    found, last = watch(0.0)
    assert found.check(last + 31.0) is StallAction.LOOK
    assert found.check(last + 1e6) is None


def inspection(*answers: tuple[str, str, int], states: dict[str, str] | None = None) -> str:
    found = StallInspection(RANKS, 0.0)
    for worker, (place, line, commits) in zip(RANKS, answers, strict=False):
        if place:
            found.position(worker, {"place": place, "line": line, "commits": commits})
    for worker, state in (states or {}).items():
        found.process_state(worker, state)
    return found.words()


def test_a_commit_on_one_rank_only_is_named() -> None:
    words = inspection(("commit", "fit.py:9 in train", 4), ("script", "fit.py:11 in train", 3))
    assert words == (
        "rank 0 waits in state.commit(), which every rank must call; rank 1 on b is in script at fit.py:11 in train"
    )


def test_a_stopped_rank_is_named() -> None:
    assert "rank 1 on b is stopped" in inspection(("script", "fit.py:9", 4), states={"w0": "S", "w1": "T"})


def test_a_deadlock_says_where_all_are() -> None:
    words = inspection(("script", "fit.py:9 in train", 4), ("script", "fit.py:11 in train", 4))
    assert "rank 0 on a is in script at fit.py:9" in words
    assert "rank 1 on b is in script at fit.py:11" in words


class Play:
    """A supervised task, and its context."""

    def __init__(self, **job: Any) -> None:  # noqa: ANN401 - a job's own fields
        self.context = RecordedContext("a", "b")
        self.found = TaskSupervision(LauncherJob(argv=("s.py",), folder="f", **job), self.context)
        self.found.stalls.trains(self.context.time)

    def report(self, step: int, **more: Any) -> None:  # noqa: ANN401 - as a worker says it
        self.found.reported({"type": "report", "t": 1.0, "step": step, "size": 2, "samples": 4, "loss": 1.0, **more})

    def tick(self, seconds: float) -> str:
        self.context.time += seconds
        return self.found.tick(RANKS).failure


def test_where_the_ranks_are_is_asked_and_reported() -> None:
    case = Play()
    case.report(1)
    case.tick(stalls.LEAST_S + 1)
    assert case.context.inspected == ["w0", "w1"]
    assert [worker for worker, _ in case.context.take_sent("position")] == ["w0", "w1"]
    case.found.on_worker_message("w0", {"type": "position", "place": "commit", "line": "fit.py:9", "commits": 2})
    case.tick(0.1)
    assert case.context.notes() == []
    case.found.inspected("w1", "T")
    case.tick(0.1)
    (note,) = case.context.notes()
    assert note.startswith("no step for 31 s: rank 1 on b is stopped (SIGSTOP)")


def test_nodes_are_given_back_at_the_limit_with_the_reason() -> None:
    case = Play(stall_limit_s=100.0)
    case.report(1)
    assert case.tick(26.0) == ""
    assert case.tick(stalls.ANSWER_S + 1.0) == ""
    assert case.tick(80.0) == ""  # first its workers are started again
    assert "no step for 110 s" in case.tick(0.0)


def test_a_loss_that_is_no_number_is_reported_and_given_up_after_the_limit() -> None:
    case = Play(stall_limit_s=100.0)
    case.report(1)
    for step in range(2, 6):
        case.report(step, loss=None, nan=True)
        assert case.tick(1.0) == ""
    assert case.context.notes() == ["its loss is not a number (NaN or infinite) since step 2"]
    for step in range(6, 120):
        case.report(step, loss=None, nan=True)
        failure = case.tick(1.0)
        if failure:
            break
    assert "since step 2" in failure
    assert 95 < step < 110


def test_a_task_that_never_had_a_loss_may_go_on() -> None:
    case = Play(stall_limit_s=10.0)
    for step in range(1, 100):
        case.report(step, loss=None, nan=True)
        assert case.tick(1.0) == ""


def test_workers_that_never_get_ready_are_given_up() -> None:
    case = Play(stall_limit_s=100.0)
    case.found.stalls.rests(case.context.time)
    began = case.context.time
    case.context.time += 121.0
    assert "none is ready" in case.found.tick({}, began).failure


def test_workers_that_usually_take_long_to_start_have_that_time() -> None:
    case = Play(stall_limit_s=100.0)
    case.found.stalls.rests(case.context.time)
    case.found.failures.started(60.0)
    began = case.context.time
    case.context.time += 590.0
    assert case.found.tick({}, began).failure == ""
    case.context.time += 20.0
    assert "none is ready" in case.found.tick({}, began).failure


def test_samples_of_a_program_that_goes_on_from_a_checkpoint_are_estimated_by_its_steps() -> None:
    case = Play(work_samples=1000.0)
    case.report(60, total=100.0, since=50)  # ten steps of ten samples, after fifty that another life did
    assert case.found.is_early
    case.report(99, total=490.0, since=50)
    assert not case.found.is_early, "990 of 1,000 are done"
