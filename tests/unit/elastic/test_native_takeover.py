"""The native course, new, finds workers of a manager that is no more: they go on as if nothing had happened."""

from __future__ import annotations

import dataclasses

import pytest

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import LeftWorker, WorkerExit
from bftrain_elastic.manager.task_lifecycles.forming import MEETING_S
from bftrain_elastic.manager.task_lifecycles.given_nodes import ABSENCE_S
from bftrain_elastic.manager.task_lifecycles.group_choice import COMPANY_S
from bftrain_elastic.manager.task_lifecycles.native import NativeLifecycle
from bftrain_elastic.wire.messages import Message
from tests.unit.elastic.floor import PaperFloor


class Play:
    """A course that was told what its task holds, on nodes whose agents are not there yet."""

    def __init__(self, *wanted: str) -> None:
        self.floor = PaperFloor()
        self.course = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="f"), self.floor)
        self.course.want(wanted, at_once=frozenset())

    def comes(self, node: str, left: LeftWorker | None) -> bool:
        """Let an agent register with the worker it has, if any."""
        self.floor.there[node] = 1
        adopted = left is not None and self.course.adopt(node, left)
        self.course.node_up(node)
        return adopted

    def tick(self, seconds: float) -> None:
        self.floor.time += seconds
        self.course.tick(self.floor.time)


def left(node: str, rank: int = 0, workers: int = 1, *, ready: bool = False, generation: int = 7) -> LeftWorker:
    words: Message | None = None
    if ready:
        words = {"type": "ready", "step": 40, "generation": generation, "store": [node, 1], "reason": ""}
    return LeftWorker(f"t/{node}/0/9", 0, 40, generation, rank, workers, words, done=False)


def go_orders(floor: PaperFloor) -> list[tuple[str, int]]:
    return [(worker, order["generation"]) for worker, order in floor.heard("go")]


def test_a_group_that_is_found_whole_goes_on_untouched() -> None:
    play = Play("a", "b", "c")
    assert play.comes("c", left("c", 0, 3))
    assert play.comes("a", left("a", 2, 3))
    assert play.floor.messages == []
    assert play.comes("b", left("b", 1, 3))
    (confirmed,) = play.floor.messages
    assert confirmed == {
        "type": "confirmed", "generation": 7, "size": 3, "nodes": ["a", "b", "c"], "step": 40,
    }  # fmt: skip
    play.tick(10 * COMPANY_S)
    assert (play.floor.spawned, play.floor.said, play.floor.stopped) == ([], [], []), "nobody was started or disturbed"


def test_if_one_does_not_turn_up_the_others_gather_and_go_on_without_it() -> None:
    play = Play("a", "b")
    play.comes("a", left("a", 0, 2))
    play.tick(COMPANY_S / 2)
    assert play.floor.heard("gather") == []
    play.tick(COMPANY_S)
    assert play.floor.heard("gather") == [("t/a/0/9", {"type": "gather", "generation": 8})]
    play.course.said("t/a/0/9", {"type": "ready", "step": 41, "generation": 7, "store": ["a", 1], "reason": ""})
    assert go_orders(play.floor) == [("t/a/0/9", 8)]
    assert play.comes("b", left("b", 1, 2, ready=True)) is False, "too late: the state is elsewhere"


def test_a_node_without_a_worker_gets_a_new_one_which_joins() -> None:
    play = Play("a", "b")
    play.comes("b", None)
    assert play.floor.spawned == [], "the other node may have the state"
    play.comes("a", left("a"))
    (new,) = play.floor.spawned
    assert [one["type"] for one in play.floor.messages] == ["confirmed"]
    play.course.said(new, {"type": "ready", "step": -1, "generation": 0, "store": ["b", 1], "reason": ""})
    assert [worker for worker, _ in play.floor.heard("gather")] == ["t/a/0/9"]


def test_those_who_had_left_their_group_wait_for_the_others_and_form_the_next() -> None:
    play = Play("a", "b")
    play.comes("a", left("a", 0, 2, ready=True))
    assert go_orders(play.floor) == []
    play.comes("b", left("b", 1, 2, ready=True))
    assert go_orders(play.floor) == [("t/a/0/9", 8), ("t/b/0/9", 8)]


def test_but_not_for_ever() -> None:
    play = Play("a", "b")
    play.comes("a", left("a", 0, 2, ready=True))
    play.tick(COMPANY_S + 0.1)
    assert go_orders(play.floor) == [("t/a/0/9", 8)]


def test_a_change_that_was_under_way_is_brought_to_an_end() -> None:
    play = Play("a", "b", "c")
    play.comes("a", left("a", 0, 3))
    play.comes("b", left("b", 1, 3, ready=True))
    assert [worker for worker, _ in play.floor.heard("gather")] == ["t/a/0/9"], "it is the last one in its group"
    play.comes("c", left("c", 2, 3, ready=True))
    play.course.said("t/a/0/9", {"type": "ready", "step": 41, "generation": 7, "store": ["a", 1], "reason": ""})
    assert [worker for worker, _ in go_orders(play.floor)] == ["t/a/0/9", "t/b/0/9", "t/c/0/9"]


def test_a_group_that_never_formed_is_cut() -> None:
    play = Play("a", "b")
    play.comes("a", left("a", 0, 2, generation=8))
    play.comes("b", left("b", 1, 2, ready=True, generation=7))
    play.tick(MEETING_S + 1.0)
    play.tick(1.0)
    assert ("t/a/0/9", {"type": "abort"}) in play.floor.said


def test_who_was_on_its_way_still_is() -> None:
    play = Play("a")
    born = LeftWorker("t/a/0/9", 0, -1, 0, 0, 0, None, done=False)
    assert play.comes("a", born)
    assert play.floor.spawned == []
    play.course.said(born.worker, {"type": "ready", "step": -1, "generation": 0, "store": ["a", 1], "reason": ""})
    assert go_orders(play.floor) == [(born.worker, 1)]


def test_who_was_done_may_end_and_then_all_is_done() -> None:
    play = Play("a")
    done = LeftWorker("t/a/0/9", 0, 60, 3, 0, 1, None, done=True)
    assert play.comes("a", done)
    play.course.exited(done.worker, WorkerExit(0, ""))
    assert play.floor.messages[-1] == {"type": "done", "step": 60, "finished": True}
    assert play.floor.spawned == []


@pytest.mark.parametrize("why", ["the node is not wanted", "others have the state"])
def test_who_cannot_go_on_is_refused(why: str) -> None:
    play = Play("a", "b")
    if why == "the node is not wanted":
        assert not play.comes("x", left("x"))
        return
    play.comes("a", None)
    play.tick(ABSENCE_S + 0.1)
    (new,) = play.floor.spawned
    play.course.said(new, {"type": "ready", "step": -1, "generation": 0, "store": ["a", 1], "reason": ""})
    play.tick(COMPANY_S + 0.1)
    assert go_orders(play.floor) == [(new, 1)]
    play.course.said(new, {"type": "confirmed", "generation": 1, "step": 0})
    assert not play.comes("b", left("b"))


def test_who_ended_well_while_nobody_listened_is_done_and_is_not_run_again() -> None:
    play = Play("a")
    ended = dataclasses.replace(left("a"), done=True, exit=WorkerExit(0, ago_s=3.0))
    assert play.comes("a", ended)
    play.tick(0.1)
    assert play.floor.messages[-1] == {"type": "done", "step": 40, "finished": True}
    assert play.floor.spawned == []


def test_what_was_reported_while_nobody_listened_is_told() -> None:
    play = Play("a")
    report = {"type": "report", "t": 1.0, "step": 44, "size": 1, "samples": 2, "loss": 0.5, "total": 88, "since": 0}
    assert play.comes("a", dataclasses.replace(left("a"), report=report))
    assert [one["total"] for one in play.floor.messages if one["type"] == "report"] == [88]


def test_who_said_it_was_finished_while_nobody_listened_is_not_run_again() -> None:
    play = Play("a")
    assert play.comes("a", dataclasses.replace(left("a"), exit=WorkerExit(0, finished=True, ago_s=3.0)))
    play.tick(0.1)
    assert play.floor.messages[-1] == {"type": "done", "step": 0, "finished": True}
    assert play.floor.spawned == []
