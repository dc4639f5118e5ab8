"""Storms of random events, and a naive model of what must come of them, rebuilt from the actions alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from bftrain import (
    Action,
    Cause,
    Decision,
    Event,
    Grow,
    Harvester,
    NodesJoined,
    NodesLeft,
    Plan,
    Release,
    Shrink,
    SpeedCurve,
    Start,
    Stop,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    apply_actions,
)

NODES = [f"n{number}" for number in range(12)]
TASKS = list("abcdef")


@dataclass(frozen=True)
class Moment:
    """Events of one moment; now and then there is no decision before the next one."""

    events: tuple[Event, ...]
    decided: bool


_OF_A_TASK = {"F": TaskFinished, "C": TaskCancelled, "P": TaskPaused, "R": TaskResumed, "X": TaskFailed}
_costs = st.sampled_from([0.0, 0.0, 5.0, 60.0, 500.0])


@st.composite
def _curves(draw: DrawFn) -> SpeedCurve:
    sizes = sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4)))
    return SpeedCurve(nodes=tuple(sizes), rate=tuple(draw(st.sampled_from([0.0, 1.0, 7.5, 40.0])) for _ in sizes))


@st.composite
def specs(draw: DrawFn) -> TaskSpec:
    smallest = draw(st.integers(1, 4))
    return TaskSpec(
        name=draw(st.sampled_from(TASKS)),
        curve=draw(_curves()),
        min_nodes=smallest,
        max_nodes=draw(st.integers(smallest, 8)),
        grow_cost_s=draw(_costs),
        shrink_cost_s=draw(_costs),
        start_cost_s=draw(_costs),
        deadline_s=draw(st.none() | st.just(100.0)),
    )


@st.composite
def _events(draw: DrawFn, time_s: float) -> Event:
    some = st.lists(st.sampled_from(NODES), min_size=1, max_size=9, unique=True)
    task = st.sampled_from(TASKS)
    match draw(st.sampled_from("JJJJLLLSSSSFCXXMPPR")):
        case "J":
            return NodesJoined(time_s=time_s, nodes=tuple(draw(some)))
        case "L":
            return NodesLeft(time_s=time_s, nodes=tuple(draw(some)))
        case "S":
            return TaskSubmitted(time_s=time_s, spec=draw(specs()))
        case ("F" | "C" | "P" | "R" | "X") as letter:
            return _OF_A_TASK[letter](time_s=time_s, task=draw(task))
        case _:
            return TaskMeasured(
                time_s=time_s,
                task=draw(task),
                curve=draw(st.none() | _curves()),
                grow_cost_s=draw(st.none() | _costs),
                start_cost_s=draw(st.none() | _costs),
                work_left_samples=draw(st.none() | st.just(9.0)),
            )


@st.composite
def storms(draw: DrawFn) -> list[Moment]:
    """Moments in order of time, the first with a full pool and tasks enough to compete for it."""
    opening: list[Event] = [NodesJoined(time_s=0.0, nodes=tuple(NODES[:8]))]
    opening += [TaskSubmitted(time_s=0.0, spec=draw(specs())) for _ in range(3)]
    moments = [Moment(tuple(opening), decided=True)]
    time_s = 0.0
    for _ in range(draw(st.integers(1, 14))):
        time_s += draw(st.sampled_from([0.0, 0.5, 30.0]))
        events = draw(st.lists(_events(time_s), min_size=1, max_size=4))
        moments.append(Moment(tuple(events), decided=draw(st.integers(0, 4)) > 0))
    return moments


@dataclass
class Expected:
    """What is known of an unfinished task."""

    smallest: int
    largest: int
    failures: int = 0
    paused: bool = False


@dataclass
class Model:
    """The pool and the tasks as a child would keep them; who holds what comes from the actions alone."""

    max_failures: int
    pool: set[str] = field(default_factory=set)
    tasks: dict[str, Expected] = field(default_factory=dict)
    plan: Plan = field(default_factory=lambda: Plan(holdings={}))
    notes: int = 0

    def absorb(self, events: Sequence[Event], actions: Sequence[Action]) -> None:
        """Check what was demanded at once, and follow it."""
        left = {node for event in events if isinstance(event, NodesLeft) for node in event.nodes}
        self.notes += bool(left - self.pool)
        demanded = self._departures(left & self.pool)
        assert sorted(map(_as_demanded, actions[: len(demanded)]), key=str) == sorted(demanded, key=str)
        if demanded:
            assert isinstance(actions[0], Release)
        self.plan = apply_actions(self.plan, actions[: len(demanded)])
        self.pool -= left
        rest = list(actions[len(demanded) :])
        for number, event in enumerate(events):
            self._take_in(event, events[number:], rest)
        assert rest == []

    def _departures(self, gone: set[str]) -> list[tuple[object, ...]]:
        if not gone:
            return []
        demanded: list[tuple[object, ...]] = [(Release, None, frozenset(gone), None)]
        for task, nodes in self.plan.holdings.items():
            lost = gone & set(nodes)
            rest = set(nodes) - gone
            if lost and len(rest) >= self.tasks[task].smallest:
                demanded.append((Shrink, task, frozenset(lost), Cause.PREEMPTED))
            elif lost:
                cause = Cause.BELOW_MINIMUM if rest else Cause.PREEMPTED
                demanded.append((Stop, task, frozenset(nodes), cause))
        return demanded

    def _take_in(self, event: Event, later: Sequence[Event], rest: list[Action]) -> None:
        match event:
            case NodesJoined(nodes=nodes):
                gone = {node for other in later if isinstance(other, NodesLeft) for node in other.nodes}
                self.notes += bool(self.pool & (set(nodes) - gone))
                self.pool |= set(nodes) - gone
            case TaskSubmitted(spec=spec) if spec.name in self.tasks:
                self.notes += 1
            case TaskSubmitted(spec=spec):
                self.notes += spec.curve.last_measured < spec.max_nodes
                self.tasks[spec.name] = Expected(spec.min_nodes, spec.max_nodes)
            case NodesLeft():
                pass
            case _ if event.task not in self.tasks:
                self.notes += 1
            case _:
                self._happened(event, rest)

    def _happened(self, event: Event, rest: list[Action]) -> None:
        match event:
            case TaskFinished(task=task):
                self._over(task)
            case TaskCancelled(task=task):
                self._stopped(task, Cause.CANCELLED, rest)
                self._over(task)
            case TaskPaused(task=task):
                self._stopped(task, Cause.PAUSED, rest)
                self.tasks[task].paused = True
            case TaskResumed(task=task):
                self.tasks[task].paused = False
            case TaskFailed(task=task):
                self._stopped(task, Cause.FAILED, rest)
                self.tasks[task].failures += 1
                if self.tasks[task].failures >= self.max_failures:
                    self.notes += 1
                    self._over(task)

    def _stopped(self, task: str, cause: Cause, rest: list[Action]) -> None:
        if task in self.plan.holdings:
            assert _as_demanded(rest[0]) == (Stop, task, frozenset(self.plan.holdings[task]), cause)
            self.plan = apply_actions(self.plan, [rest.pop(0)])

    def _over(self, task: str) -> None:
        """The processes of a finished task are gone by themselves, so no action says so."""
        del self.tasks[task]
        self.plan = Plan(holdings={name: nodes for name, nodes in self.plan.holdings.items() if name != task})

    def decided(self, decision: Decision) -> None:
        """Check a decision, and follow it."""
        before = self.plan
        _check_order(decision.actions)
        for action in decision.actions:
            held = set(before.holdings.get(action.task, ()))
            if isinstance(action, Start):
                assert not held
            elif isinstance(action, Stop):
                assert set(action.nodes) == held
            elif isinstance(action, Shrink):
                assert set(action.nodes) < held
            else:
                assert held.isdisjoint(action.nodes)
                assert held
        self.plan = apply_actions(self.plan, decision.actions)  # a Plan refuses a node that serves two tasks
        self.check_plan()
        assert {name: size for name, size in decision.sizes.items() if size} == self.plan.sizes
        assert decision.pool == len(self.pool)
        assert decision.used == sum(self.plan.sizes.values()) <= decision.pool
        assert set(decision.sizes) <= set(self.tasks)

    def check_plan(self) -> None:
        for task, nodes in self.plan.holdings.items():
            assert set(nodes) <= self.pool
            assert not self.tasks[task].paused
            assert self.tasks[task].smallest <= len(nodes) <= self.tasks[task].largest


def _as_demanded(action: Action) -> tuple[object, ...]:
    return (type(action), getattr(action, "task", None), frozenset(action.nodes), getattr(action, "cause", None))


def _check_order(actions: Sequence[Action]) -> None:
    """Every task is named once, so it only grows or only shrinks; and all give up before any takes."""
    assert not any(isinstance(action, Release) for action in actions)
    tasks = [action.task for action in actions if not isinstance(action, Release)]
    assert len(set(tasks)) == len(tasks)
    takes = [isinstance(action, (Start, Grow)) for action in actions]
    assert takes == sorted(takes)
    assert all(action.cause is Cause.DECIDED for action in actions if isinstance(action, (Shrink, Stop)))


def process_steps(harvester: Harvester, storm: Iterable[Moment], model: Model | None = None) -> list[Decision]:
    """Take a harvester through a storm, checking every step against the model; gives the decisions."""
    decisions: list[Decision] = []
    owed: list[Action] = []
    for moment in storm:
        actions = harvester.absorb(*moment.events)
        owed.extend(actions)
        assert harvester.owed == tuple(owed)
        if model is not None:
            model.absorb(moment.events, actions)
            assert harvester.plan == model.plan
            model.check_plan()
        if not moment.decided:
            continue
        decision = harvester.decide(moment.events[-1].time_s)
        decisions.append(decision)
        assert decision.at_once == tuple(owed)
        assert (decision.number, decision.time_s) == (len(decisions), moment.events[-1].time_s)
        owed.clear()
        if model is not None:
            model.decided(decision)
            assert harvester.plan == model.plan
            assert harvester.pool_size == len(model.pool)
            assert harvester.unfinished == tuple(model.tasks)
            assert len([note for note in decision.notes if "'unknown'" not in note]) == model.notes
            model.notes = 0
    return decisions
