"""Growth that fails: the training goes on without the new nodes, which are tried again later and later."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.helpers.lifecycles import (
    FIRST_S,
    LOADING_S,
    LONGEST_RETRY_S,
    LONGEST_S,
    SURVIVED,
    NativeCase,
    WorkerExit,
    at,
)


def failed(case: NativeCase, step: int) -> None:
    """Let the group that was asked to form lose itself while the state is on its way."""
    orders = case.context.take_sent("go")
    generation = orders[0][1]["generation"]
    for worker, order in sorted(orders, key=lambda one: one[1]["rank"]):
        known = step if order["rank"] == 0 else -1
        case.ready(worker, known, generation, "Timed out waiting 20000ms for recv operation to complete")


def growth_notes(case: NativeCase) -> list[str]:
    return [text for text in case.context.notes() if "did not grow" in text]


def seconds_to_gather(case: NativeCase, worker: str, step: int) -> float:
    """Let a worker train until it is asked to gather; return for how long."""
    begun = case.context.time
    for _ in range(round(2 * LONGEST_S)):
        case.tick(1.0)
        now = case.context.time
        report = {"type": "report", "t": now, "step": step, "size": 1, "samples": 1, "loss": None, "total": step}
        case.hear(worker, report)
        if case.context.take_sent("gather"):
            break
    return case.context.time - begun


def growing() -> tuple[NativeCase, str, int]:
    """Return a task that trains on a, is to grow onto b, and does not."""
    case = NativeCase("a", "b", "c")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    case.all_new_ready()
    case.ready(old, 7, 1)
    failed(case, 7)
    case.tick(LONGEST_RETRY_S)
    case.context.take_sent("gather")
    return case, old, 8


def test_after_a_growth_that_failed_the_old_members_train_on_and_it_is_tried_again_later() -> None:
    case, old, step = growing()
    delays = []
    for _ in range(9):
        assert case.go(step) == [old], "it trains without the new node"
        case.context.take_sent("gather")
        delays.append(seconds_to_gather(case, old, step))
        step += 1
        case.ready(old, step, 99)
        failed(case, step)
        case.tick(LONGEST_RETRY_S)
    assert delays[0] <= FIRST_S
    assert all(LONGEST_S >= later >= 1.5 * sooner or later > 0.9 * LONGEST_S for sooner, later in pairwise(delays))
    assert case.context.stopped == []
    notes = growth_notes(case)
    assert len(notes) == 9, "one for each failure but the first"
    assert "did not grow onto b, 2 times in a row" in notes[0]
    assert "Timed out waiting" in notes[0]
    assert f"training continues without it; the next attempt is in {LONGEST_S:.0f} s" in notes[-1]


def test_a_growth_that_succeeds_after_failures_ends_the_delay() -> None:
    case, old, step = growing()
    assert case.go(step) == [old]
    case.tick(FIRST_S)
    case.ready(old, step, 3)
    assert list(map(at, case.go(step))) == ["a", "b"]
    assert growth_notes(case) == []
    case.set_nodes("a", "b", "c")
    case.all_new_ready()
    for worker in (old, "t/b/0/2"):
        case.ready(worker, step, 4)
    failed(case, step)
    assert growth_notes(case) == [], "of the first failure after a growth there is none"


def test_nodes_that_were_set_aside_serve_if_no_other_is_left() -> None:
    case, old, step = growing()
    assert case.go(step) == [old]
    case.set_nodes("b")
    assert [worker for worker, _ in case.context.take_sent("gather")] == [old]
    case.ready(old, step + 1, 3)
    assert list(map(at, case.go(step + 1))) == ["a", "b"]


def test_other_new_nodes_need_not_wait_for_those_set_aside() -> None:
    case, old, step = growing()
    assert case.go(step) == [old]
    case.set_nodes("a", "b", "c")
    case.all_new_ready()
    assert [worker for worker, _ in case.context.take_sent("gather")] == [old]
    case.ready(old, step + 1, 3)
    assert list(map(at, case.go(step + 1))) == ["a", "c"]


def test_a_growth_is_not_cut_while_the_state_moves_and_is_when_it_stands_still() -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    case.all_new_ready()
    case.ready(old, 7, 1)
    (leader, order), (new, _) = sorted(case.context.take_sent("go"), key=lambda one: one[1]["rank"])
    case.hear(leader, {"type": "joined", "generation": order["generation"]})
    for moved in range(200):
        case.tick(0.3 * LOADING_S)
        message = {"type": "moving", "generation": order["generation"], "moved": moved}
        case.hear(new, message)
    assert case.context.take_sent("abort") == []
    case.tick(1.1 * LOADING_S)
    case.tick(1.0)
    assert {worker for worker, _ in case.context.take_sent("abort")} == {leader, new}


def trains(case: NativeCase, worker: str, step: int) -> None:
    """Let a worker report a step."""
    report = {"type": "report", "t": case.context.time, "step": step, "size": 1, "samples": 1, "loss": None}
    case.hear(worker, report)


def seconds_to_restart(case: NativeCase, old: str, step: int) -> float:
    """Let a worker train until another one is started; return for how long."""
    begun = case.context.time
    while not case.context.spawned and case.context.time - begun < 2 * LONGEST_S:
        case.tick(1.0)
        trains(case, old, step)
    return case.context.time - begun


def join(case: NativeCase, old: str, step: int) -> str:
    """Let the worker that was started join the group of the old one; return its name."""
    (new,) = case.context.spawned
    case.all_new_ready()
    case.ready(old, step, 99)
    assert case.go(step) == [old, new]
    return new


def crash(case: NativeCase, worker: str, code: int = 1) -> None:
    case.lifecycle.exited(worker, WorkerExit(code, "Traceback\nZeroDivisionError: division by zero\n"))


@pytest.mark.parametrize("when", ["as it starts", "while the group forms", "in its first step"])
def test_a_worker_that_crashes_as_it_joins_is_started_again_later_and_later(when: str) -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    delays = []
    for step in range(1, 10):
        trains(case, old, step)
        (new,) = case.context.spawned
        if when == "as it starts":
            case.context.spawned = []
        elif when == "in its first step":
            join(case, old, step)
        else:
            case.all_new_ready()
            case.ready(old, step, 99)
            case.context.take_sent("go")
        crash(case, new)
        if when != "as it starts":
            case.ready(old, step, 99)
            assert case.go(step) == [old], "it trains without the new node"
        delays.append(seconds_to_restart(case, old, step))
    assert delays[0] == pytest.approx(FIRST_S, abs=1.0)
    assert all(
        LONGEST_S + 1.0 >= later >= 1.5 * sooner or later > 0.9 * LONGEST_S for sooner, later in pairwise(delays)
    )
    assert "failed" not in case.context.kinds()
    notes = growth_notes(case)
    assert len(notes) == len(delays) - 1, "one for each failure but the first"
    assert (
        "did not grow onto b, 2 times in a row: t/b/0/3 ended with 1 (ZeroDivisionError: division by zero)" in notes[0]
    )
    assert f"the next attempt is in {2 * FIRST_S:.0f} s" in notes[0]
    assert len([text for text in case.context.notes() if "started again" in text]) == 1, "each death is reported once"


def test_a_worker_that_joined_and_made_some_steps_ends_the_delay_and_is_replaced_at_once() -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    for step in (1, 2):
        new = join(case, old, step)
        crash(case, new)
        case.ready(old, step, 99)
        case.go(step)
        seconds_to_restart(case, old, step)
    new = join(case, old, 3)
    for step in range(4, 4 + SURVIVED):
        trains(case, old, step)
    crash(case, new)
    assert case.context.spawned, "it died in the middle of training"
    case.ready(old, 3 + SURVIVED, 99)
    case.go(3 + SURVIVED)
    crash(case, join(case, old, 3 + SURVIVED))
    assert len(growth_notes(case)) == 1, "of the first failure after a growth there is none"


@pytest.mark.parametrize("code", [-9, 128 + 9, -15])
@pytest.mark.parametrize("when", ["as it starts", "as it joins"])
def test_a_worker_that_is_killed_as_it_joins_is_started_again_later_and_later(code: int, when: str) -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    delays = []
    for step in range(1, 6):
        new = case.context.spawned.pop() if when == "as it starts" else join(case, old, step)
        crash(case, new, code)
        if when == "as it joins":
            case.ready(old, step, 99)
            assert case.go(step) == [old]
        delays.append(seconds_to_restart(case, old, step))
    assert delays == [pytest.approx(FIRST_S * 2**times, abs=1.5) for times in range(5)]
    assert len(growth_notes(case)) == len(delays) - 1, "one for each failure but the first"
    assert len([text for text in case.context.notes() if "started again" in text]) == 1, "each death is reported once"


def test_a_worker_that_is_killed_as_it_joins_by_a_preemption_is_no_failure_to_join() -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    for step in range(1, 6):
        case.set_nodes("a", "b")
        crash(case, join(case, old, step), -9)
        assert case.context.spawned == []
        case.context.there["b"] = 0
        case.lifecycle.node_gone("b")
        case.set_nodes("a")
        case.ready(old, step, 99)
        assert case.go(step) == [old]
        case.tick(0.1)
        case.context.there["b"] = 1
        case.lifecycle.node_up("b")
        case.tick(case.context.settle_s + 1.0)
    case.set_nodes("a", "b")
    assert case.context.spawned, "at once"
    assert case.context.notes() == []


def test_a_node_whose_worker_crashed_as_it_joined_serves_if_no_other_is_left() -> None:
    case = NativeCase("a", "b")
    (old,) = case.running("a")
    case.set_nodes("a", "b")
    crash(case, join(case, old, 1))
    assert case.context.spawned == []
    crash(case, old)
    assert set(map(at, case.context.spawned)) == {"a", "b"}


def test_workers_that_crash_as_they_join_together_are_one_failure() -> None:
    case = NativeCase("a", "b", "c")
    (old,) = case.running("a")
    case.set_nodes("a", "b", "c")
    new = list(case.context.spawned)
    case.all_new_ready()
    case.ready(old, 1, 99)
    assert case.go(1) == [old, *new]
    for worker in new:
        crash(case, worker)
    assert growth_notes(case) == []
    case.ready(old, 1, 99)
    case.go(1)
    assert seconds_to_restart(case, old, 2) == pytest.approx(FIRST_S, abs=1.0)
    assert list(map(at, case.context.spawned)) == ["b", "c"]
