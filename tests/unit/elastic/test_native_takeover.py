"""The native lifecycle, new, finds workers of a manager that is no more: they go on as if nothing had happened."""

from __future__ import annotations

import dataclasses

import pytest

from bftrain_elastic.wire.messages import Message, read_message
from bftrain_elastic.wire.worker_messages import FROM_WORKER
from tests.helpers.lifecycles import (
    ABSENCE_S,
    COMPANY_S,
    MEETING_S,
    LauncherJob,
    LeftWorker,
    LifecycleCase,
    NativeLifecycle,
    RecordedContext,
    StepReport,
    WorkerExit,
    left_worker,
)


class Play(LifecycleCase):
    """A lifecycle that knows what its task holds, on nodes whose agents are not there yet."""

    def __init__(self, *wanted: str) -> None:
        self.context = RecordedContext()
        self.lifecycle = NativeLifecycle("t", LauncherJob(argv=("s.py",), folder="f"), self.context)
        self.lifecycle.set_nodes(wanted, at_once=frozenset())

    def comes(self, node: str, left: LeftWorker | None) -> bool:
        """Let an agent register with the worker it has, if any."""
        self.context.there[node] = 1
        adopted = left is not None and self.lifecycle.adopt(node, left)
        self.lifecycle.node_up(node)
        return adopted

    def tick(self, seconds: float) -> None:
        self.context.time += seconds
        self.lifecycle.tick(self.context.time)


def left(node: str, rank: int = 0, workers: int = 1, *, ready: bool = False, generation: int = 7) -> LeftWorker:
    words: Message | None = None
    if ready:
        words = {"type": "ready", "step": 40, "generation": generation, "store": [node, 1], "reason": ""}
    return left_worker(f"t/{node}/0/9", 40, (generation, rank, workers), ready=words)


def go_orders(context: RecordedContext) -> list[tuple[str, int]]:
    return [(worker, order["generation"]) for worker, order in context.take_sent("go")]


def test_a_group_that_is_found_whole_goes_on_untouched() -> None:
    case = Play("a", "b", "c")
    assert case.comes("c", left("c", 0, 3))
    assert case.comes("a", left("a", 2, 3))
    assert case.context.messages == []
    assert case.comes("b", left("b", 1, 3))
    (confirmed,) = case.context.messages
    assert confirmed == {
        "type": "confirmed", "generation": 7, "size": 3, "nodes": ["a", "b", "c"], "step": 40,
    }  # fmt: skip
    case.tick(10 * COMPANY_S)
    assert (case.context.spawned, case.context.sent, case.context.stopped) == ([], [], []), (
        "no worker was started or disturbed"
    )


def test_if_one_does_not_turn_up_the_others_gather_and_go_on_without_it() -> None:
    case = Play("a", "b")
    case.comes("a", left("a", 0, 2))
    case.tick(COMPANY_S / 2)
    assert case.context.take_sent("gather") == []
    case.tick(COMPANY_S)
    assert case.context.take_sent("gather") == [("t/a/0/9", {"type": "gather", "generation": 8})]
    case.hear("t/a/0/9", {"type": "ready", "step": 41, "generation": 7, "store": ["a", 1], "reason": ""})
    assert go_orders(case.context) == [("t/a/0/9", 8)]
    assert case.comes("b", left("b", 1, 2, ready=True)) is False, "too late: the state is elsewhere"


def test_a_node_without_a_worker_gets_a_new_one_which_joins() -> None:
    case = Play("a", "b")
    case.comes("b", None)
    assert case.context.spawned == [], "the other node may have the state"
    case.comes("a", left("a"))
    (new,) = case.context.spawned
    assert [one["type"] for one in case.context.messages] == ["confirmed"]
    case.hear(new, {"type": "ready", "step": -1, "generation": 0, "store": ["b", 1], "reason": ""})
    assert [worker for worker, _ in case.context.take_sent("gather")] == ["t/a/0/9"]


def test_those_who_had_left_their_group_wait_for_the_others_and_form_the_next() -> None:
    case = Play("a", "b")
    case.comes("a", left("a", 0, 2, ready=True))
    assert go_orders(case.context) == []
    case.comes("b", left("b", 1, 2, ready=True))
    assert go_orders(case.context) == [("t/a/0/9", 8), ("t/b/0/9", 8)]


def test_but_not_for_ever() -> None:
    case = Play("a", "b")
    case.comes("a", left("a", 0, 2, ready=True))
    case.tick(COMPANY_S + 0.1)
    assert go_orders(case.context) == [("t/a/0/9", 8)]


def test_a_change_that_was_under_way_is_brought_to_an_end() -> None:
    case = Play("a", "b", "c")
    case.comes("a", left("a", 0, 3))
    case.comes("b", left("b", 1, 3, ready=True))
    assert [worker for worker, _ in case.context.take_sent("gather")] == ["t/a/0/9"], "it is the last one in its group"
    case.comes("c", left("c", 2, 3, ready=True))
    case.hear("t/a/0/9", {"type": "ready", "step": 41, "generation": 7, "store": ["a", 1], "reason": ""})
    assert [worker for worker, _ in go_orders(case.context)] == ["t/a/0/9", "t/b/0/9", "t/c/0/9"]


def test_a_group_that_never_formed_is_cut() -> None:
    case = Play("a", "b")
    case.comes("a", left("a", 0, 2, generation=8))
    case.comes("b", left("b", 1, 2, ready=True, generation=7))
    case.tick(MEETING_S + 1.0)
    case.tick(1.0)
    assert ("t/a/0/9", {"type": "abort"}) in case.context.sent


def test_who_was_on_its_way_still_is() -> None:
    case = Play("a")
    born = left_worker("t/a/0/9", -1, (0, 0, 0))
    assert case.comes("a", born)
    assert case.context.spawned == []
    case.hear(born.worker, {"type": "ready", "step": -1, "generation": 0, "store": ["a", 1], "reason": ""})
    assert go_orders(case.context) == [(born.worker, 1)]


def test_who_was_done_may_end_and_then_all_is_done() -> None:
    case = Play("a")
    done = left_worker("t/a/0/9", 60, (3, 0, 1), done=True)
    assert case.comes("a", done)
    case.lifecycle.exited(done.worker, WorkerExit(0, ""))
    assert case.context.messages[-1] == {"type": "done", "step": 60, "finished": True}
    assert case.context.spawned == []


@pytest.mark.parametrize("why", ["the node is not wanted", "others have the state"])
def test_who_cannot_go_on_is_refused(why: str) -> None:
    case = Play("a", "b")
    if why == "the node is not wanted":
        assert not case.comes("x", left("x"))
        return
    case.comes("a", None)
    case.tick(ABSENCE_S + 0.1)
    (new,) = case.context.spawned
    case.hear(new, {"type": "ready", "step": -1, "generation": 0, "store": ["a", 1], "reason": ""})
    case.tick(COMPANY_S + 0.1)
    assert go_orders(case.context) == [(new, 1)]
    case.hear(new, {"type": "confirmed", "generation": 1, "step": 0})
    assert not case.comes("b", left("b"))


def test_who_ended_well_while_no_manager_listened_is_done_and_is_not_run_again() -> None:
    case = Play("a")
    ended = dataclasses.replace(left("a"), done=True, exit=WorkerExit(0, ago_s=3.0))
    assert case.comes("a", ended)
    case.tick(0.1)
    assert case.context.messages[-1] == {"type": "done", "step": 40, "finished": True}
    assert case.context.spawned == []


def test_what_was_reported_while_no_manager_listened_is_reported() -> None:
    case = Play("a")
    report = {"type": "report", "t": 1.0, "step": 44, "size": 1, "samples": 2, "loss": 0.5, "total": 88, "since": 0}
    assert case.comes("a", dataclasses.replace(left("a"), report=StepReport.read(report)))
    assert [one["total"] for one in case.context.messages if one["type"] == "report"] == [88]


def test_who_said_it_was_finished_while_no_manager_listened_is_not_run_again() -> None:
    case = Play("a")
    assert case.comes("a", dataclasses.replace(left("a"), exit=WorkerExit(0, finished=True, ago_s=3.0)))
    case.tick(0.1)
    assert case.context.messages[-1] == {"type": "done", "step": 0, "finished": True}
    assert case.context.spawned == []


def test_workers_of_the_release_before_may_report_that_their_models_differ() -> None:
    case = Play("a")
    assert case.comes("a", left("a", 0, 1))
    drift = read_message(FROM_WORKER, {"type": "drift", "step": 44, "relative": 0.5})
    assert drift is not None
    case.lifecycle.on_worker_message("t/a/0/9", drift)
    (note,) = [one["text"] for one in case.context.messages if one["type"] == "note"]
    assert note.startswith("the models of its workers differ at step 44 (")
