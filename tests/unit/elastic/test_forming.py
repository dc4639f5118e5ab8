"""Groups that take long to form: a large state has its time, and one that never forms is reported and given up."""

from __future__ import annotations

from tests.helpers.lifecycles import LOADING_S, LONGEST_RETRY_S, MEETING_S, LauncherJob, NativeLifecycle, WorkerExit
from tests.helpers.lifecycles import NativeCase as Play


def joined(case: Play, worker: str, generation: int) -> None:
    case.hear(worker, {"type": "joined", "generation": generation})


def test_a_state_may_take_longer_to_load_than_members_to_meet() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    case.all_new_ready()
    first = next(worker for worker, order in case.context.sent if order.get("rank") == 0)
    case.tick(MEETING_S - 1)
    joined(case, first, 1)
    case.tick(LOADING_S - 1)
    case.tick(1.0)
    assert case.context.take_sent("abort") == []
    assert case.go(500)[0] == first
    assert case.context.stopped == []


def test_a_group_whose_state_never_comes_is_cut_a_little_later_each_time_and_given_up() -> None:
    case = Play("a", "b")
    case.lifecycle = NativeLifecycle(
        "t", LauncherJob(argv=("s.py",), folder="f", stall_limit_s=4 * LOADING_S), case.context
    )
    case.set_nodes("a", "b")
    case.all_new_ready()
    tries = []
    while "failed" not in case.context.kinds() and len(tries) < 9:
        orders = case.context.take_sent("go")
        members, generation = [worker for worker, _ in orders], orders[0][1]["generation"]
        joined(case, members[0], generation)
        begun = case.context.time
        while not (cut := case.context.take_sent("abort")) and not case.context.stopped:
            case.tick(1.0)
        tries.append(round(case.context.time - begun))
        if case.context.stopped:
            for worker in members:
                case.lifecycle.exited(worker, WorkerExit(-9))
            break
        assert {worker for worker, _ in cut} == set(members)
        for worker in members:
            case.ready(worker, generation=generation, reason="Connection closed by peer")
        case.context.take_sent("abort")
        case.tick(LONGEST_RETRY_S)
    assert tries[1] > 1.9 * tries[0]
    (failed,) = [one["reason"] for one in case.context.messages if one["type"] == "failed"]
    assert "its state was not loaded and spread within" in failed
    assert sum(tries) >= 4 * LOADING_S - 3 * LONGEST_RETRY_S
    assert any("2 groups of its workers in a row did not get to train" in note for note in case.context.notes())


def test_one_that_is_alone_and_never_gets_its_state_is_ended_and_started_again() -> None:
    case = Play("a")
    case.set_nodes("a")
    (only,) = case.context.spawned
    case.all_new_ready()
    joined(case, only, 1)
    case.tick(LOADING_S + 1)
    assert case.context.stopped == [(only, 0.0)]
    case.lifecycle.exited(only, WorkerExit(-9))
    case.tick(case.context.settle_s + 1)
    assert len(case.context.spawned) == 1
    assert case.context.notes() == []
