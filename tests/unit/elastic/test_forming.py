"""Groups that take long to form: a large state has its time, and one that never forms is reported and given up."""

from __future__ import annotations

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.native import LONGEST_RETRY_S, NativeLifecycle
from bftrain_elastic.manager.task_lifecycles.stalls import LEAST_LOADING_S, LOADING_S, LOADS, MEETING_S, FormationWatch
from tests.unit.elastic.lifecycle_cases import NativeCase as Play
from tests.unit.elastic.recorded_context import RecordedContext


def joined(case: Play, worker: str, generation: int) -> None:
    case.lifecycle.on_worker_message(worker, {"type": "joined", "generation": generation})


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


def test_how_long_a_state_takes_is_learned() -> None:
    watch = FormationWatch(10_000.0)
    watch.began(0.0)
    watch.met(1.0)
    watch.confirmed(1.5, learn=True)
    watch.began(10.0)
    watch.met(10.0)
    assert not watch.overdue(10.0 + LEAST_LOADING_S)
    assert watch.overdue(10.1 + LEAST_LOADING_S)
    watch.confirmed(110.0, learn=True)
    watch.began(200.0)
    watch.met(200.0)
    assert not watch.overdue(200.0 + LOADS * 99)


def test_groups_that_nodes_leave_do_not_count() -> None:
    floor_s, watch = RecordedContext().settle_s, FormationWatch(120.0)
    for second in range(0, 1000, 10):
        assert watch.began(float(second)) == ""
        assert watch.given_up(second + floor_s) == ""


def test_without_a_limit_it_is_tried_for_ever() -> None:
    watch = FormationWatch(0.0)
    for second in range(0, 100_000, 100):
        watch.began(float(second))
        watch.lost("Connection refused")
    assert watch.given_up(1e9) == ""
