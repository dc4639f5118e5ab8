"""The native course, told on paper what happens: who is asked to gather, who goes on with whom, and who leaves."""

from __future__ import annotations

from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.group_choice import COMPANY_S
from bftrain_elastic.manager.task_lifecycles.health import HANG_S
from bftrain_elastic.manager.task_lifecycles.native import LONGEST_RETRY_S, REPEAT_S
from bftrain_elastic.manager.task_lifecycles.present_group import ABORT_S
from tests.unit.elastic.plays import NativePlay as Play
from tests.unit.elastic.plays import at


def test_a_start_waits_for_all_that_are_coming_but_not_for_ever() -> None:
    play = Play("a", "b")
    play.want("a", "b")
    first, second = play.floor.spawned
    play.ready(first)
    assert play.floor.heard("go") == []
    play.tick(COMPANY_S + 0.1)
    assert play.go(0) == [first]
    play.ready(second)
    assert [worker for worker, _ in play.floor.heard("gather")] == [first]


def test_a_planned_change_gathers_at_a_commit_and_an_old_member_leads() -> None:
    play = Play("a", "b", "c")
    (old,) = play.running("a")
    play.want("a", "b", "c")
    assert play.floor.said == [], "the old one trains on while the new ones come"
    play.all_new_ready()
    assert play.floor.heard("gather") == [(old, {"type": "gather", "generation": 2})]
    play.ready(old, step=7, generation=1)
    members = play.go(7)
    assert members[0] == old
    assert sorted(map(at, members)) == ["a", "b", "c"]
    assert play.floor.messages[-1] == {
        "type": "confirmed", "generation": 2, "size": 3, "nodes": ["a", "b", "c"], "step": 7,
    }  # fmt: skip


def test_who_gives_up_its_node_leaves_and_the_rest_need_no_state() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want("b")
    play.floor.heard("gather")
    play.ready(one, 5, 1)
    play.ready(other, 5, 1)
    assert [order["sync"] for _, order in play.floor.said if order["type"] == "go"] == [False]
    assert play.go(5) == [other]
    assert play.floor.heard("leave") == [(one, {"type": "leave", "save": False})]
    play.course.exited(one, WorkerExit(0, ""))
    assert play.floor.messages[-1] == {"type": "vacated", "nodes": ["a"]}


def test_moving_altogether_takes_an_old_member_along_once() -> None:
    play = Play("a", "b")
    (old,) = play.running("a")
    play.want("b")
    play.all_new_ready()
    play.ready(old, 4, 1)
    first, new = play.go(4)
    assert (first, at(new)) == (old, "b")
    play.ready(old, 5, 2)
    play.ready(new, 5, 2)
    assert play.go(5) == [new]


def test_a_change_waits_until_the_one_before_is_confirmed() -> None:
    play = Play("a", "b")
    play.want("a")
    play.all_new_ready()
    play.want("a", "b")
    play.all_new_ready()
    assert play.floor.heard("gather") == []
    play.go(0)
    assert len(play.floor.heard("gather")) == 1


def test_a_notice_that_was_not_followed_is_repeated() -> None:
    play = Play("a", "b")
    play.running("a")
    play.want("a", "b")
    play.all_new_ready()
    play.floor.heard("gather")
    play.tick(REPEAT_S / 2)
    assert play.floor.heard("gather") == []
    play.tick(REPEAT_S)
    assert len(play.floor.heard("gather")) == 1


def test_when_a_member_dies_the_furthest_leads_and_a_new_one_joins_later() -> None:
    play = Play("a", "b", "c")
    one, two, three = play.running("a", "b", "c")
    play.course.exited(one, WorkerExit(-9, ""))
    assert [at(worker) for worker in play.floor.spawned] == ["a"], "another takes its place"
    play.ready(two, step=5, generation=1, reason="Connection reset by peer")
    assert play.floor.heard("go") == []
    play.ready(three, step=6, generation=1, reason="Connection reset by peer")
    assert play.go(6) == [three, two]
    play.all_new_ready()
    assert len(play.floor.heard("gather")) == 2


def test_who_waits_for_a_dead_member_is_cut_off_and_at_last_killed() -> None:
    play = Play("a", "b", "c")
    one, two, three = play.running("a", "b", "c")
    play.course.exited(one, WorkerExit(-9, ""))
    play.ready(two, 5, 1, "Connection reset by peer")
    play.tick(ABORT_S + 0.1)
    assert play.floor.heard("abort") == [(three, {"type": "abort"})]
    play.tick(HANG_S)
    assert (three, 0.0) in play.floor.stopped


def test_preempted_nodes_are_cleared_at_once_and_the_rest_go_on_by_themselves() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want("b", at_once=("a",))
    assert play.floor.stopped == [(one, 0.0)]
    play.ready(other, 3, 1, "Connection reset by peer")
    assert play.go(3) == [other]
    play.course.exited(one, WorkerExit(-9, ""))
    assert "note" not in play.floor.kinds()[-1:], "it died because it was told to"


def test_giving_up_all_nodes_writes_the_state_down_and_pauses() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    play.want()
    assert len(play.floor.heard("gather")) == 2
    play.ready(other, 9, 1)
    play.ready(one, 9, 1)
    assert play.floor.heard("leave") == [
        (one, {"type": "leave", "save": True, "grace_s": 10.0}),
        (other, {"type": "leave", "save": False}),
    ]
    play.course.exited(one, WorkerExit(0, ""))
    assert "paused" not in play.floor.kinds()
    play.course.exited(other, WorkerExit(0, ""))
    assert play.floor.kinds()[-2:] == ["vacated", "paused"]


def test_losing_all_nodes_pauses_and_the_next_start_reads_the_folder() -> None:
    play = Play("a", "b")
    (only,) = play.running("a")
    del play.floor.there["a"]
    play.course.exited(only, WorkerExit(-9, ""))
    play.course.node_gone("a")
    assert play.floor.spawned == []
    play.want()
    assert play.floor.kinds()[-1] == "paused"
    play.want("b")
    play.all_new_ready()
    assert [order["sync"] for _, order in play.floor.said] == [True]


def test_a_group_that_breaks_again_and_again_though_nobody_dies_is_a_mistake_of_the_script() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b", step=5)
    for generation in (1, 2, 3):
        for worker in (one, other):
            play.ready(worker, step=5, generation=generation, reason="could not connect to the gloomy database")
        if generation < 3:
            play.tick(LONGEST_RETRY_S)
            assert play.go(5) == [one, other]
    play.tick(play.floor.settle_s + 0.1)
    assert play.floor.stopped == [(one, 0.0), (other, 0.0)]
    for worker in (one, other):
        play.course.exited(worker, WorkerExit(-9, ""))
    assert "its workers lost each other: could not connect" in play.floor.messages[-1]["reason"]


def test_a_group_that_loses_its_connections_is_formed_again_however_often() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b", step=5)
    for generation in range(1, 20):
        for worker in (one, other):
            play.ready(worker, step=5, generation=generation, reason="Connection reset by peer")
        play.tick(LONGEST_RETRY_S)
        assert play.go(5) == [one, other]
    assert "failed" not in play.floor.kinds()
    play.tick(1.0)
    assert "lost the group: Connection reset by peer" in play.floor.notes()[0]


def test_a_group_that_breaks_because_one_dies_is_not_even_if_the_others_say_so_first() -> None:
    play = Play("a", "b")
    one, other = play.running("a", "b")
    for generation in range(1, 10, 2):
        play.ready(other, step=5, generation=generation, reason="Connection closed by peer")
        play.course.want(("a", "b"), at_once=frozenset())
        play.floor.there["a"] = 0
        play.course.exited(one, WorkerExit(-9, ""))
        assert play.go(5) == [other]
        play.floor.there["a"] = 1
        play.floor.spawned.clear()
        play.course.node_up("a")
        (one,) = play.floor.spawned
        play.ready(one)
        play.ready(other, step=5, generation=generation + 1)
        assert play.go(5) == [other, one]
    assert "failed" not in play.floor.kinds()
