"""With any events of nodes of several kinds, no task ever holds two kinds, and none is given more than there are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from bftrain import (
    Decision,
    Event,
    Grow,
    Harvester,
    NodesJoined,
    NodesLeft,
    Plan,
    Release,
    Shrink,
    Solver,
    SpeedCurve,
    Start,
    Stop,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    apply_actions,
)
from bftrain.values import wire
from tests.helpers.named_parts import EQUAL_SHARE, EXACT, GREEDY, THROUGHPUT

KINDS = ("fast", "slow", "")
NODES = [f"n{number}" for number in range(10)]
TASKS = list("abcd")

Moment = tuple[Event, ...]


@st.composite
def curves(draw: DrawFn) -> SpeedCurve:
    return SpeedCurve(nodes=(1, 2, 4), rate=tuple(draw(st.sampled_from([0.0, 3.0, 9.0, 40.0])) for _ in range(3)))


@st.composite
def specs(draw: DrawFn) -> TaskSpec:
    smallest = draw(st.integers(1, 3))
    return TaskSpec(
        name=draw(st.sampled_from(TASKS)),
        curve=draw(curves()),
        curves=draw(st.dictionaries(st.sampled_from(["fast", "slow", "unseen"]), curves(), max_size=3)),
        min_nodes=smallest,
        max_nodes=draw(st.integers(smallest, 5)),
        grow_cost_s=draw(st.sampled_from([0.0, 30.0])),
        shrink_cost_s=draw(st.sampled_from([0.0, 30.0])),
        start_cost_s=draw(st.sampled_from([0.0, 30.0])),
    )


@st.composite
def events(draw: DrawFn, time_s: float) -> Event:
    some = tuple(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=6, unique=True)))
    task = draw(st.sampled_from(TASKS))
    match draw(st.sampled_from("JJJJLLSSSFPRM")):
        case "J":
            return NodesJoined(time_s=time_s, nodes=some, kind=draw(st.sampled_from(KINDS)))
        case "L":
            return NodesLeft(time_s=time_s, nodes=some)
        case "S":
            return TaskSubmitted(time_s=time_s, spec=draw(specs()))
        case "F":
            return TaskFinished(time_s=time_s, task=task)
        case "P":
            return TaskPaused(time_s=time_s, task=task)
        case "R":
            return TaskResumed(time_s=time_s, task=task)
        case _:
            names = st.sampled_from(["fast", "slow"])
            return TaskMeasured(time_s=time_s, task=task, curves=draw(st.dictionaries(names, curves(), min_size=1)))


@st.composite
def storms(draw: DrawFn) -> list[Moment]:
    """Moments in order of time, the first with nodes of all kinds and two tasks."""
    opening = [NodesJoined(time_s=0.0, nodes=tuple(NODES[place::3][:3]), kind=kind) for place, kind in enumerate(KINDS)]
    moments: list[Moment] = [(*opening, *(TaskSubmitted(time_s=0.0, spec=draw(specs())) for _ in range(2)))]
    time_s = 0.0
    for _ in range(draw(st.integers(1, 10))):
        time_s += draw(st.sampled_from([0.0, 20.0]))
        moments.append(tuple(draw(st.lists(events(time_s), min_size=1, max_size=3))))
    return moments


class Watch:
    """Follows nodes and actions by itself, and checks every decision against what it saw."""

    def __init__(self) -> None:
        self.kind: dict[str, str] = {}  # of every idle node
        self.plan = Plan(holdings={})

    def absorb(self, moment: Moment, harvester: Harvester) -> None:
        left_last = {n: place for place, e in enumerate(moment) if isinstance(e, NodesLeft) for n in e.nodes}
        for node in left_last:
            self.kind.pop(node, None)
        for place, event in enumerate(moment):
            if isinstance(event, NodesJoined):
                for node in event.nodes:
                    if left_last.get(node, -1) < place:
                        self.kind.setdefault(node, event.kind)
        self.plan = apply_actions(self.plan, harvester.absorb(*moment))
        for event in moment:
            if isinstance(event, TaskFinished):  # its processes ended by themselves
                self.plan = Plan(
                    holdings={name: held for name, held in self.plan.holdings.items() if name != event.task}
                )

    def decide(self, decision: Decision, harvester: Harvester) -> None:
        before = self.plan
        gives = [isinstance(action, Shrink | Stop) for action in decision.actions]
        assert all(one >= other for one, other in pairwise(gives))  # all give up before any takes
        assert not any(isinstance(action, Release) for action in decision.actions)
        self.plan = apply_actions(self.plan, decision.actions)
        assert self.plan.holdings == harvester.held
        with_kinds = any(self.kind.values())
        for task, nodes in self.plan.holdings.items():
            (kind,) = {self.kind[node] for node in nodes}
            assert decision.kinds.get(task, "") == kind
            assert harvester.spec(task).curve_on(kind) is not None
            assert decision.sizes[task] == len(nodes)
            was = before.holdings.get(task, ())
            acts = [type(action) for action in decision.actions if getattr(action, "task", "") == task]
            if was and {self.kind[node] for node in was} != {kind}:
                assert acts == [Stop, Start]
            else:  # on its own kind it only takes or only gives up
                assert acts in ([], [Grow], [Shrink], [Start])
                assert set(was) <= set(nodes) or set(nodes) <= set(was)
        assert set(decision.kinds) <= set(self.plan.holdings)
        assert with_kinds or not decision.kinds


@pytest.mark.parametrize("solver", [EXACT, GREEDY, EQUAL_SHARE], ids=["exact", "greedy", "equal-share"])
@settings(max_examples=40)
@given(storm=storms())
def test_every_decision_keeps_to_the_kinds(solver: Solver, storm: list[Moment]) -> None:
    harvester, watch = Harvester(solver=solver, objective=THROUGHPUT), Watch()
    for moment in storm:
        watch.absorb(moment, harvester)
        decision = harvester.decide(harvester.time_s)
        assert decision.fallback == ""
        watch.decide(decision, harvester)


@settings(max_examples=40)
@given(storms())
def test_deciding_following_and_going_on_elsewhere_come_to_the_same(storm: list[Moment]) -> None:
    deciding, following = (Harvester(solver=EXACT, objective=THROUGHPUT, fallback=GREEDY) for _ in range(2))
    for moment in storm:
        moved = Harvester(solver=EXACT, objective=THROUGHPUT, fallback=GREEDY)
        moved.restore(wire.decode(wire.encode(deciding.snapshot), type(deciding.snapshot)))
        assert moved.snapshot == deciding.snapshot
        for harvester in (deciding, following, moved):
            harvester.absorb(*moment)
        decision = deciding.decide(deciding.time_s)
        assert moved.decide(moved.time_s).same_as(decision)
        following.follow(wire.decode(wire.encode(decision), type(decision)))
        assert moved.snapshot == following.snapshot == deciding.snapshot


@settings(max_examples=40)
@given(storms())
def test_a_name_for_the_only_kind_changes_no_decision(storm: list[Moment]) -> None:
    """Tasks that run alike everywhere are decided alike, whether all nodes have a kind or none has."""
    plain, named = (Harvester(solver=EXACT, objective=THROUGHPUT) for _ in range(2))
    for moment in storm:
        for harvester, kind in ((plain, ""), (named, "fast")):
            harvester.absorb(*(_without_kinds(event, kind) for event in moment))
        one, other = plain.decide(plain.time_s), named.decide(named.time_s)
        assert (one.actions, one.sizes, one.value, one.notes) == (other.actions, other.sizes, other.value, other.notes)
        assert not one.kinds


def _without_kinds(event: Event, kind: str) -> Event:
    if isinstance(event, NodesJoined):
        return NodesJoined(time_s=event.time_s, nodes=event.nodes, kind=kind)
    if isinstance(event, TaskSubmitted):
        spec = event.spec
        plain = TaskSpec(name=spec.name, curve=spec.curve, min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)
        return TaskSubmitted(time_s=event.time_s, spec=plain)
    if isinstance(event, TaskMeasured):
        return TaskMeasured(time_s=event.time_s, task=event.task, start_cost_s=7.0)
    return event
