"""The native lifecycle on events from the test: which workers gather, form the next group, and leave."""

from __future__ import annotations

from tests.helpers.lifecycles import ABORT_S, COMPANY_S, HANG_S, LONGEST_RETRY_S, REPEAT_S, WorkerExit, at
from tests.helpers.lifecycles import NativeCase as Play


def test_a_start_waits_for_all_that_are_coming_but_not_for_ever() -> None:
    case = Play("a", "b")
    case.set_nodes("a", "b")
    first, second = case.context.spawned
    case.ready(first)
    assert case.context.take_sent("go") == []
    case.tick(COMPANY_S + 0.1)
    assert case.go(0) == [first]
    case.ready(second)
    assert [worker for worker, _ in case.context.take_sent("gather")] == [first]


def test_a_planned_change_gathers_at_a_commit_and_an_old_member_leads() -> None:
    case = Play("a", "b", "c")
    (old,) = case.running("a")
    case.set_nodes("a", "b", "c")
    assert case.context.sent == [], "the old one trains on while the new ones come"
    case.all_new_ready()
    assert case.context.take_sent("gather") == [(old, {"type": "gather", "generation": 2})]
    case.ready(old, step=7, generation=1)
    members = case.go(7)
    assert members[0] == old
    assert sorted(map(at, members)) == ["a", "b", "c"]
    assert case.context.messages[-1] == {
        "type": "confirmed", "generation": 2, "size": 3, "nodes": ["a", "b", "c"], "step": 7,
    }  # fmt: skip


def test_a_new_worker_learns_where_the_state_is_so_that_it_has_memory_for_it() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    (old,) = case.context.spawned
    assert "BFTRAIN_PEER" not in case.context.env[old]
    case.all_new_ready()
    case.go(0)
    case.set_nodes("a", "b")
    (new,) = case.context.spawned
    assert case.context.env[new]["BFTRAIN_PEER"] == f"{old}:1"


def test_who_gives_up_its_node_leaves_and_the_rest_need_no_state() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.set_nodes("b")
    case.context.take_sent("gather")
    case.ready(one, 5, 1)
    case.ready(other, 5, 1)
    assert [order["sync"] for _, order in case.context.sent if order["type"] == "go"] == [False]
    assert case.go(5) == [other]
    assert case.context.take_sent("leave") == [(one, {"type": "leave", "save": False, "grace_s": 0.0})]
    case.lifecycle.exited(one, WorkerExit(0, ""))
    assert case.context.messages[-1] == {"type": "vacated", "nodes": ["a"]}


def test_a_new_worker_leaves_its_node_at_once_if_that_is_given_up_before_it_joins() -> None:
    """Whether it starts or is ready; the others train on, so no next group would dismiss it."""
    case = Play("a", "b", "c")
    case.running("a")
    case.set_nodes("a", "b", "c")
    coming, ready = sorted(case.context.spawned, key=at)
    case.ready(ready)
    case.set_nodes("a")
    assert [name for name, _ in case.context.stopped] == [coming]
    assert case.context.take_sent("leave") == [(ready, {"type": "leave", "save": False, "grace_s": 0.0})]
    case.lifecycle.exited(coming, WorkerExit(0, ""))
    assert case.context.messages[-1] == {"type": "vacated", "nodes": ["b"]}
    assert case.context.take_sent("gather") == [], "the group stays as it is"


def test_moving_altogether_takes_an_old_member_along_once() -> None:
    case = Play("a", "b")
    (old,) = case.running("a")
    case.set_nodes("b")
    case.all_new_ready()
    case.ready(old, 4, 1)
    first, new = case.go(4)
    assert (first, at(new)) == (old, "b")
    case.ready(old, 5, 2)
    case.ready(new, 5, 2)
    assert case.go(5) == [new]


def test_a_change_waits_until_the_one_before_is_confirmed() -> None:
    case = Play("a", "b")
    case.set_nodes("a")
    case.all_new_ready()
    case.set_nodes("a", "b")
    case.all_new_ready()
    assert case.context.take_sent("gather") == []
    case.go(0)
    assert len(case.context.take_sent("gather")) == 1


def test_a_group_gets_the_batch_that_was_decided_and_another_one_is_a_change() -> None:
    case = Play("a")
    case.lifecycle.set_batch(512)
    case.set_nodes("a")
    case.all_new_ready()
    assert [order["batch"] for _, order in case.context.sent if order["type"] == "go"] == [512]
    (worker,) = case.go(0)
    case.lifecycle.set_batch(512)
    assert case.context.take_sent("gather") == [], "it trains with this batch"
    case.lifecycle.set_batch(640)
    assert [name for name, _ in case.context.take_sent("gather")] == [worker]
    case.ready(worker, 3, 1)
    assert [order["batch"] for _, order in case.context.sent if order["type"] == "go"] == [640]
    assert case.go(3) == [worker]
    assert case.context.take_sent("gather") == []


def test_a_notice_that_was_not_followed_is_repeated() -> None:
    case = Play("a", "b")
    case.running("a")
    case.set_nodes("a", "b")
    case.all_new_ready()
    case.context.take_sent("gather")
    case.tick(REPEAT_S / 2)
    assert case.context.take_sent("gather") == []
    case.tick(REPEAT_S)
    assert len(case.context.take_sent("gather")) == 1


def test_when_a_member_dies_the_furthest_leads_and_a_new_one_joins_later() -> None:
    case = Play("a", "b", "c")
    one, two, three = case.running("a", "b", "c")
    case.lifecycle.exited(one, WorkerExit(-9, ""))
    assert [at(worker) for worker in case.context.spawned] == ["a"], "another takes its place"
    case.ready(two, step=5, generation=1, reason="Connection reset by peer")
    assert case.context.take_sent("go") == []
    case.ready(three, step=6, generation=1, reason="Connection reset by peer")
    assert case.go(6) == [three, two]
    case.all_new_ready()
    assert len(case.context.take_sent("gather")) == 2


def test_who_waits_for_a_dead_member_is_cut_off_and_at_last_killed() -> None:
    case = Play("a", "b", "c")
    one, two, three = case.running("a", "b", "c")
    case.lifecycle.exited(one, WorkerExit(-9, ""))
    case.ready(two, 5, 1, "Connection reset by peer")
    case.tick(ABORT_S + 0.1)
    assert case.context.take_sent("abort") == [(three, {"type": "abort"})]
    case.tick(HANG_S)
    assert (three, 0.0) in case.context.stopped


def test_preempted_nodes_are_cleared_at_once_and_the_rest_go_on_by_themselves() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.set_nodes("b", at_once=("a",))
    assert case.context.stopped == [(one, 0.0)]
    case.ready(other, 3, 1, "Connection reset by peer")
    assert case.go(3) == [other]
    case.lifecycle.exited(one, WorkerExit(-9, ""))
    assert "note" not in case.context.kinds()[-1:], "it died because it was asked to"


def test_giving_up_all_nodes_writes_the_state_down_and_pauses() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    case.set_nodes()
    assert len(case.context.take_sent("gather")) == 2
    case.ready(other, 9, 1)
    case.ready(one, 9, 1)
    assert case.context.take_sent("leave") == [
        (one, {"type": "leave", "save": True, "grace_s": 10.0}),
        (other, {"type": "leave", "save": False, "grace_s": 0.0}),
    ]
    case.lifecycle.exited(one, WorkerExit(0, ""))
    assert "paused" not in case.context.kinds()
    case.lifecycle.exited(other, WorkerExit(0, ""))
    assert case.context.kinds()[-2:] == ["vacated", "paused"]


def test_losing_all_nodes_pauses_and_the_next_start_reads_the_folder() -> None:
    case = Play("a", "b")
    (only,) = case.running("a")
    del case.context.there["a"]
    case.lifecycle.exited(only, WorkerExit(-9, ""))
    case.lifecycle.node_gone("a")
    assert case.context.spawned == []
    case.set_nodes()
    assert case.context.kinds()[-1] == "paused"
    case.set_nodes("b")
    case.all_new_ready()
    assert [order["sync"] for _, order in case.context.sent] == [True]


def test_a_group_that_breaks_again_and_again_though_no_worker_dies_is_a_mistake_of_the_script() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b", step=5)
    for generation in (1, 2, 3):
        for worker in (one, other):
            case.ready(worker, step=5, generation=generation, reason="could not connect to the gloomy database")
        if generation < 3:
            case.tick(LONGEST_RETRY_S)
            assert case.go(5) == [one, other]
    case.tick(case.context.settle_s + 0.1)
    assert case.context.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        case.lifecycle.exited(worker, WorkerExit(-9, ""))
    assert "its workers lost each other: could not connect" in case.context.messages[-1]["reason"]


def test_a_group_that_loses_its_connections_is_formed_again_however_often() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b", step=5)
    for generation in range(1, 20):
        for worker in (one, other):
            case.ready(worker, step=5, generation=generation, reason="Connection reset by peer")
        case.tick(LONGEST_RETRY_S)
        assert case.go(5) == [one, other]
    assert "failed" not in case.context.kinds()
    case.tick(1.0)
    assert "lost the group: Connection reset by peer" in case.context.notes()[0]


def test_a_group_that_breaks_because_one_dies_is_not_even_if_the_others_say_so_first() -> None:
    case = Play("a", "b")
    one, other = case.running("a", "b")
    for generation in range(1, 10, 2):
        case.ready(other, step=5, generation=generation, reason="Connection closed by peer")
        case.lifecycle.set_nodes(("a", "b"), at_once=frozenset())
        case.context.there["a"] = 0
        case.lifecycle.exited(one, WorkerExit(-9, ""))
        assert case.go(5) == [other]
        case.context.there["a"] = 1
        case.context.spawned.clear()
        case.lifecycle.node_up("a")
        (one,) = case.context.spawned
        case.ready(one)
        case.ready(other, step=5, generation=generation + 1)
        assert case.go(5) == [other, one]
    assert "failed" not in case.context.kinds()
