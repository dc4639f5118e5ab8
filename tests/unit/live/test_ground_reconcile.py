"""Which nodes are ours, and what follows when that is not what we remember: the outside world wins."""

from __future__ import annotations

import pytest

from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Run
from bftrain.live.nodes import reconcile
from bftrain.live.nodes.reconcile import StoredState
from bftrain.live.nodes.usable_nodes import NodesSeen, NodeTracker
from bftrain.values.events import NodesJoined, NodesLeft, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from tests.unit.core.samples import spec


def kept(name: str, state: LiveTaskState = LiveTaskState.SUBMITTED) -> LiveTaskRecord:
    return LiveTaskRecord(
        number=1, name=name, uid=1, user="ada", launcher="fake", spec=spec(name), guessed=False,
        run=Run(argv=("run",)), submitted_s=0.0, state=state,
    )  # fmt: skip


def some(letters: str) -> frozenset[str]:
    return frozenset(letters)


@pytest.mark.parametrize(
    ("world", "ours"),
    [
        (NodesSeen(allowed=some("abc"), present=some("bcd")), "bc"),
        (NodesSeen(allowed=some("abc"), present=some("b"), expected=some("cd")), "bc"),
        (NodesSeen(allowed=None, present=some("b"), expected=some("c")), ""),
        (NodesSeen(allowed=None, present=some("b"), expected=some("c"), agents_suffice=True), "bc"),
        (NodesSeen(allowed=some("a"), present=some("bc"), taken=some("c"), agents_suffice=True), "b"),
        (NodesSeen(allowed=some("abc"), drained=some("b"), agents_used=False), "ac"),
    ],
)
def test_a_node_is_ours_by_word_and_agent_and_what_is_in_doubt_is_not(world: NodesSeen, ours: str) -> None:
    assert world.ours == some(ours)


def test_what_was_taken_is_ours_again_with_a_new_agent_or_word() -> None:
    pilots = NodeTracker(agents_suffice=True, agents_used=True)
    pilots.came("a")
    pilots.take(["a"])
    assert pilots.ours == frozenset()
    pilots.went("a")
    pilots.came("a")
    assert pilots.ours == {"a"}
    hooks = NodeTracker(agents_suffice=False, agents_used=True)
    hooks.came("a")
    hooks.allow(["a", "b"], until_s=9.0)
    assert (hooks.ours, hooks.until_s) == ({"a"}, {"a": 9.0, "b": 9.0})
    hooks.allow_only(["b"])
    assert (hooks.ours, hooks.until_s) == (frozenset(), {"b": 9.0})
    hooks.close()
    hooks.came("b")
    assert hooks.ours == frozenset()


def test_departures_come_before_those_who_join() -> None:
    remembered = StoredState(pool=some("ab"), unfinished=())
    world = NodesSeen(allowed=some("bc"), present=some("bc"))
    assert reconcile.reconciled(remembered, world, 5.0) == (
        NodesLeft(time_s=5.0, nodes=("a",)),
        NodesJoined(time_s=5.0, nodes=("c",)),
    )


@pytest.mark.parametrize(
    ("unfinished", "paused", "tasks", "expected"),
    [
        (("a",), "", (kept("a"),), []),
        ((), "", (kept("a"),), [TaskSubmitted(time_s=1.0, spec=spec("a"))]),
        (("a",), "", (), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (kept("a", LiveTaskState.DONE),), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (kept("a", LiveTaskState.PAUSED),), [TaskPaused(time_s=1.0, task="a")]),
        (("a",), "a", (kept("a"),), [TaskResumed(time_s=1.0, task="a")]),
        (("a",), "a", (kept("a", LiveTaskState.PAUSED),), []),
    ],
)
def test_tasks_are_as_their_owners_want_them(
    unfinished: tuple[str, ...], paused: str, tasks: tuple[LiveTaskRecord, ...], expected: list[object]
) -> None:
    remembered = StoredState(pool=frozenset(), unfinished=unfinished, paused=some(paused), kept=tasks)
    assert list(reconcile.tasks(remembered, 1.0)) == expected
