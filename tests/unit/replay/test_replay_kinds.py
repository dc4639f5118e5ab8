"""The engine on nodes of several kinds: speeds, moves from kind to kind, and why nodes of a kind do not work."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import bftrain
from bftrain import (
    Action,
    BadInput,
    BftrainError,
    Cause,
    Decision,
    Event,
    EventLog,
    NodesJoined,
    NodesLeft,
    Quality,
    Release,
    ReplaySettings,
    Shrink,
    Start,
    Stop,
    TaskFinished,
    TaskSpec,
    TaskSubmitted,
    Termination,
)
from bftrain_replay.simulation.engine import EngineRun, run
from tests.unit.replay.cases import curve_of, log_from_pool_changes, log_of, task

KINDS = {"f1": "fast", "f2": "fast", "s1": "slow", "s2": "slow"}
FAST_AND_SLOW = {"fast": curve_of(10.0, 18.0), "slow": curve_of(2.0, 3.0)}

Script = dict[float, dict[str, tuple[str, ...]]]


class Scripted:
    """Decides what a script says: at its times the nodes of each task; it gives up what leaves, as the core does."""

    uses_work_left = chooses_batches = False

    def __init__(self, script: Script) -> None:
        self._script = script
        self._pool: dict[str, str] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        self._tasks: dict[str, TaskSpec] = {}
        self._decided = 0

    def absorb(self, *events: Event) -> list[Action]:
        actions: list[Action] = []
        for event in events:
            match event:
                case NodesJoined():
                    self._pool.update(dict.fromkeys(event.nodes, event.kind))
                case NodesLeft():
                    actions += self._lose(event.nodes)
                case TaskSubmitted():
                    self._tasks[event.spec.name] = event.spec
                    self._held[event.spec.name] = ()
                case TaskFinished():
                    del self._tasks[event.task], self._held[event.task]
                case _:
                    raise AssertionError(event)
        return actions

    def _lose(self, nodes: tuple[str, ...]) -> list[Action]:
        actions: list[Action] = [Release(nodes=nodes)]
        for node in nodes:
            del self._pool[node]
        for name, held in self._held.items():
            lost = tuple(node for node in held if node in nodes)
            if lost:
                self._held[name] = tuple(node for node in held if node not in nodes)
                how = Shrink if self._held[name] else Stop
                actions.append(how(task=name, nodes=lost, cause=Cause.PREEMPTED))
        return actions

    def decide(self, time_s: float) -> Decision:
        wanted = self._script.get(time_s, {})
        actions: list[Action] = [Stop(task=name, nodes=self._held[name]) for name in wanted if self._held[name]]
        for name, nodes in wanted.items():
            self._held[name] = nodes
            if nodes:
                actions.append(Start(task=name, nodes=nodes))
        sizes = {name: len(self._held[name]) for name in self._tasks}
        self._decided += 1
        return Decision(
            time_s=time_s,
            number=self._decided,
            pool=len(self._pool),
            used=sum(sizes.values()),
            sizes=sizes,
            value=0.0,
            bound=None,
            solver="script",
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            actions=tuple(actions),
            kinds={name: self._pool[held[0]] for name, held in self._held.items() if held and self._pool[held[0]]},
        )


def mixed(*changes: tuple[float, tuple[str, ...], tuple[str, ...]], end_s: float = 100.0) -> EventLog:
    begin = ((0.0, ("f1", "f2", "s1", "s2"), ()),)
    return log_from_pool_changes(begin + changes, node_names=KINDS, end_s=end_s, kinds=KINDS)


def ran(log: EventLog, tasks: list[TaskSpec], script: Script) -> EngineRun:
    return run(log, tasks, Scripted(script))


def done(ended: EngineRun) -> dict[str, float]:
    return {each.spec.name: each.done_samples for each in ended.tasks}  # type: ignore[union-attr]  # all have arrived


def unused(ended: EngineRun) -> Mapping[str, float]:
    return {str(why): node_s for why, node_s in ended.ledger.unused_node_s.items() if node_s}


def test_a_task_is_as_fast_as_the_kind_it_holds() -> None:
    tasks = [task("a", curves=FAST_AND_SLOW), task("b", curves=FAST_AND_SLOW)]
    ended = ran(mixed(), tasks, {0.0: {"a": ("f1", "f2"), "b": ("s2",)}})
    assert done(ended) == {"a": 1800.0, "b": 200.0}


def test_a_move_to_another_kind_is_a_stop_and_a_start() -> None:
    moving = task("a", curves=FAST_AND_SLOW, start_cost_s=5.0, work_samples=1000.0)
    late = task("late", submit_s=50.0, curves=FAST_AND_SLOW)
    ended = ran(mixed(), [moving, late], {0.0: {"a": ("s1",)}, 50.0: {"a": ("f1",)}})
    first = ended.tasks[0]
    # 45 s at 2 samples/s, then 45 s at 10: a start takes 5 s at the speed of where it starts
    assert first.done_samples == pytest.approx(2 * 45 + 10 * 45)
    assert (first.starts, first.rescales, first.preemptions, first.waits) == (2, 1, 0, 0)


def test_lost_nodes_of_one_kind_are_lost_to_who_holds_them() -> None:
    log = mixed((40.0, (), ("f2", "s2")))
    tasks = [task("a", curves=FAST_AND_SLOW), task("b", curves=FAST_AND_SLOW)]
    ended = ran(log, tasks, {0.0: {"a": ("f1", "f2"), "b": ("s1", "s2")}})
    assert done(ended) == {"a": 40 * 18 + 60 * 10.0, "b": 40 * 3 + 60 * 2.0}
    assert unused(ended) == {}


def test_without_kinds_the_plain_curve_counts() -> None:
    spec = task("a", rate=(7.0,), curves=FAST_AND_SLOW)
    ended = ran(log_of((0.0, "x", ""), end_s=10.0, start_s=0.0), [spec], {0.0: {"a": ("x",)}})
    assert done(ended) == {"a": 70.0}


@pytest.mark.parametrize(
    ("tasks", "script", "reasons"),
    [
        # full on the slow nodes, and no others: those of the fast kind are left over because every task is full
        ([task("a", rate=(2.0,), curves=FAST_AND_SLOW)], {"a": ("s1",)}, {"at_maximum": 300.0}),
        # it wants another node, and holds slow ones: the second slow node is not worth it, the fast ones are others
        ([task("a", curves=FAST_AND_SLOW)], {"a": ("s1",)}, {"not_worth": 100.0, "other_kind": 200.0}),
        # it waits and does not run on slow nodes at all
        ([task("a", curves={"fast": curve_of(1.0, 2.0)})], {}, {"not_worth": 200.0, "other_kind": 200.0}),
        # three nodes of one kind are nowhere to be had
        ([task("a", rate=(1.0, 1.0, 1.0), min_nodes=3, curves=FAST_AND_SLOW)], {}, {"below_minimum": 400.0}),
        # no task is there any more
        (
            [task("a", work_samples=18.0, curves=FAST_AND_SLOW)],
            {"a": ("f1", "f2")},
            {"at_maximum": 2.0, "no_task": 396.0},
        ),
    ],
)
def test_why_nodes_of_a_kind_do_not_work(
    tasks: list[TaskSpec], script: dict[str, tuple[str, ...]], reasons: dict[str, float]
) -> None:
    ended = ran(mixed(), tasks, {0.0: script})
    assert unused(ended) == pytest.approx(reasons)


def test_nodes_of_two_kinds_for_one_task_are_a_fault() -> None:
    with pytest.raises(BftrainError, match="nodes of 2 kinds are given to one task: fast, slow"):
        ran(mixed(), [task("a", curves=FAST_AND_SLOW)], {0.0: {"a": ("f1", "s1")}})


def test_a_study_on_kinds_is_held_against_yardsticks_with_kinds() -> None:
    tasks = [task("a", curves=FAST_AND_SLOW, start_cost_s=4.0), task("b", rate=(4.0,), curves={"slow": curve_of(4.0)})]
    done = bftrain.replay(mixed(), tasks, ReplaySettings())
    result = done.result
    # a takes both fast nodes, b a slow one; the other slow one is left over
    assert [each.done_samples for each in result.tasks] == [18.0 * 96, 400.0]
    assert result.yardsticks is not None
    assert result.yardsticks.dedicated_samples == result.yardsticks.ceiling_samples == 1800.0 + 400.0
    assert {str(why): node_s for why, node_s in result.unused_node_s.items() if node_s} == {"at_maximum": 100.0}


def test_a_task_that_no_kind_of_the_log_can_ever_hold_is_refused_by_name() -> None:
    unfit = [
        task("a", curves={"tpu": curve_of(1.0)}),
        task("wide", rate=(1.0,) * 3, min_nodes=3, curves={"fast": curve_of(1.0, 1.0, 1.0)}),
        *(task(f"more-{number}", curves={"tpu": curve_of(1.0)}) for number in range(3)),
    ]
    with pytest.raises(BadInput) as refused:
        bftrain.replay(mixed(), [task("b", curves=FAST_AND_SLOW), *unfit], ReplaySettings())
    said = str(refused.value)
    assert "can ever hold task 'a', which runs on tpu only; task 'wide', which needs 3 nodes of one kind " in said
    assert said.endswith("; and 2 others (omit them, give them a curve for a kind of the log, or lower min_nodes)")
