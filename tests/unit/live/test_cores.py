"""Which nodes are ours: pure functions."""

from __future__ import annotations

import pytest

from bftrain import NodesJoined, NodesLeft, Run, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted
from bftrain.live.daemon.node_manager import NodeTracker, node_events
from bftrain.live.daemon.task_manager import task_events
from tests.helpers.live_inside import LiveTaskRecord, LiveTaskState, NodeKinds
from tests.unit.core.samples import spec


def record(name: str, state: LiveTaskState = LiveTaskState.SUBMITTED) -> LiveTaskRecord:
    return LiveTaskRecord(
        number=1, name=name, uid=1, user="ada", launcher="fake", spec=spec(name), guessed=False,
        run=Run(argv=("run",)), submitted_s=0.0, state=state,
    )  # fmt: skip


def some(letters: str) -> frozenset[str]:
    return frozenset(letters)


def tracker(*, agents_suffice: bool = False, agents_used: bool = True, **known: str) -> NodeTracker:
    made = NodeTracker(agents_suffice=agents_suffice, agents_used=agents_used)
    for name, letters in known.items():
        setattr(made, name, some(letters))
    return made


@pytest.mark.parametrize(
    ("world", "ours"),
    [
        (tracker(allowed="abc", present="bcd"), "bc"),
        (tracker(allowed="abc", present="b", expected="cd"), "bc"),
        (tracker(present="b", expected="c"), ""),
        (tracker(present="b", expected="c", agents_suffice=True), "bc"),
        (tracker(allowed="a", present="bc", taken="c", agents_suffice=True), "b"),
        (tracker(allowed="abc", drained="b", agents_used=False), "ac"),
        (tracker(allowed="abc", drained="b", agents_used=False, agents_suffice=True), "ac"),
    ],
)
def test_a_node_is_ours_by_word_and_agent_and_what_is_in_doubt_is_not(world: NodeTracker, ours: str) -> None:
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
    assert (hooks.ours, hooks.until_s) == (some("a"), {"a": 9.0, "b": 9.0})
    hooks.set_allowed(["b"])
    assert (hooks.ours, hooks.until_s) == (frozenset(), {"b": 9.0})
    hooks.closed = True
    hooks.came("b")
    assert hooks.ours == frozenset()


def test_all_gpus_of_a_drained_node_are_left() -> None:
    shared = NodeTracker(agents_suffice=True, agents_used=True)
    shared.present = {"n1/gpu0", "n1/gpu1", "n2/gpu0"}
    shared.drained = frozenset({"n1"})
    assert shared.ours == {"n2/gpu0"}
    shared.drained = frozenset({"n1/gpu1"})
    assert shared.ours == {"n1/gpu0", "n2/gpu0"}


def test_departures_come_before_those_who_join() -> None:
    assert list(node_events({"a", "b"}, {"b", "c"}, 5.0, NodeKinds())) == [
        NodesLeft(time_s=5.0, nodes=("a",)),
        NodesJoined(time_s=5.0, nodes=("c",)),
    ]


def test_nodes_of_another_kind_than_was_known_leave_and_join_again() -> None:
    kinds = NodeKinds({"a": "v100", "b": "v100"})
    assert list(node_events({"a", "b"}, {"a"}, 5.0, kinds, mistaken=["a"])) == [
        NodesLeft(time_s=5.0, nodes=("a", "b")),
        NodesJoined(time_s=5.0, nodes=("a",), kind="v100"),
    ]


@pytest.mark.parametrize(
    ("unfinished", "paused", "tasks", "expected"),
    [
        (("a",), "", (record("a"),), []),
        ((), "", (record("a"),), [TaskSubmitted(time_s=1.0, spec=spec("a"))]),
        (("a",), "", (), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (record("a", LiveTaskState.DONE),), [TaskCancelled(time_s=1.0, task="a")]),
        (("a",), "", (record("a", LiveTaskState.PAUSED),), [TaskPaused(time_s=1.0, task="a")]),
        (("a",), "a", (record("a"),), [TaskResumed(time_s=1.0, task="a")]),
        (("a",), "a", (record("a", LiveTaskState.PAUSED),), []),
    ],
)
def test_tasks_are_as_their_owners_want_them(
    unfinished: tuple[str, ...], paused: str, tasks: tuple[LiveTaskRecord, ...], expected: list[object]
) -> None:
    assert list(task_events(unfinished, paused, tasks, (), 1.0)) == expected
