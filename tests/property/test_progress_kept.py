"""What is done and lost, against a simulator that goes second by second and knows nothing of the engine's books."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

import bftrain
from bftrain import (
    Action,
    Cause,
    Decision,
    Event,
    EventLog,
    Grow,
    Harvester,
    Release,
    ReplaySettings,
    Shrink,
    SpeedCurve,
    Start,
    Stop,
    TaskSpec,
    build_harvester,
)
from bftrain_datasets.log.eventlog import log_from_pool_changes

NODES = tuple("abcdef")
LOST = {"preemption": 0.0, "rescaling": 0.0, "start_up": 0.0}


class Recorder:
    """A Harvester that takes down what it says, and when."""

    uses_work_left = chooses_batches = False

    def __init__(self, harvester: Harvester) -> None:
        self._harvester = harvester
        self.said: list[tuple[float, Action]] = []

    def absorb(self, *events: Event) -> Sequence[Action]:
        actions = self._harvester.absorb(*events)
        self.said += [(self._harvester.time_s, action) for action in actions]
        return actions

    def decide(self, time_s: float) -> Decision:
        decision = self._harvester.decide(time_s)
        self.said += [(time_s, action) for action in decision.actions]
        return decision


@dataclass
class Owed:
    """Samples that must be produced before anything counts; ``redo``: work that was done once already."""

    cause: str
    samples: float
    redo: bool


@dataclass
class Simulated:
    """One endless task, second by second. All times and speeds are whole numbers, so nothing falls between steps."""

    spec: TaskSpec
    kept: str
    period: int
    now: int = 0
    size: int = 0
    done: float = 0.0  # the furthest that it ever was
    at: float = 0.0  # where the training is now: behind ``done`` while it does something again
    saved: float = 0.0  # where it goes back to if nothing is left in memory
    saved_at: int = 0
    changed_at: int = 0
    done_at_change: float = 0.0
    waits: float = 0.0  # what rescaling and start-up will still take
    since_commit: float = 0.0  # how far it came since its last checkpoint
    owed: list[Owed] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=lambda: dict(LOST))

    def speed(self) -> float:
        return 0.0 if self.size == 0 else float(self.spec.curve.speeds(self.spec.max_nodes)[self.size])

    def run_until(self, time_s: float) -> None:
        assert time_s == int(time_s)
        while self.now < time_s:
            self.second()

    def second(self) -> None:
        made = self.speed()
        waited = min(self.waits, made)
        self.waits -= waited
        self.since_commit += made - waited
        while made > 0.0 and self.owed:
            paid = min(made, self.owed[0].samples)
            self.owed[0].samples -= paid
            self.lost[self.owed[0].cause] += paid
            self.at += paid if self.owed[0].redo else 0.0
            made -= paid
            if self.owed[0].samples == 0.0:
                del self.owed[0]
        self.done += made
        self.at += made
        self.now += 1
        if self.size and (self.now - self.saved_at) % self.period == 0:
            self.saved = self.at
        if self.size and (self.now - self.changed_at) % self.period == 0:
            self.since_commit = 0.0

    def act(self, action: Action) -> None:
        count = len(action.nodes)
        match action:
            case Start():
                self.resize(count)
                self.owe("start_up", self.spec.start_cost_s * self.speed(), redo=False, first=True)
                self.save()
            case Grow():
                cost = self.spec.grow_cost_s * self.speed()
                self.resize(self.size + count)
                self.owe("rescaling", cost, redo=False)
            case Shrink():
                self.shrink(count, preempted=action.cause is Cause.PREEMPTED)
            case Stop():
                self.stop(action.cause)

    def shrink(self, count: int, *, preempted: bool) -> None:
        cause = "preemption" if preempted else "rescaling"
        cost, redo = self.spec.shrink_cost_s * self.speed(), preempted and self.kept != "memory"
        if preempted and self.kept == "disk":
            cost = self.since_commit
        self.resize(self.size - count)
        self.owe(cause, cost, redo=redo)
        if self.size == 1:
            self.save()

    def stop(self, cause: Cause) -> None:
        preempted = cause in {Cause.PREEMPTED, Cause.BELOW_MINIMUM}
        cost = min(self.spec.shrink_cost_s * self.speed(), self.done - self.done_at_change)
        if preempted and self.kept == "disk":
            cost = self.since_commit
        if cause is Cause.PREEMPTED and self.kept == "memory":
            cost = self.at - self.saved
        self.resize(0)
        self.owed = [one for one in self.owed if one.redo]
        self.owe("preemption" if preempted else "rescaling", cost, redo=True)
        self.save()

    def resize(self, size: int) -> None:
        self.size, self.changed_at, self.done_at_change, self.since_commit = size, self.now, self.done, 0.0
        self.waits = math.fsum(one.samples for one in self.owed if not one.redo)

    def owe(self, cause: str, samples: float, *, redo: bool, first: bool = False) -> None:
        if samples > 0.0:
            self.owed.insert(0 if first else len(self.owed), Owed(cause, samples, redo))
        self.at -= samples if redo else 0.0
        self.waits = math.fsum(one.samples for one in self.owed if not one.redo)

    def save(self) -> None:
        self.saved, self.saved_at = self.at, self.now


@st.composite
def logs(draw: DrawFn) -> EventLog:
    """A log in which nodes come and go at whole seconds, several at once as often as not."""
    idle: set[str] = set()
    changes, now = [], 0
    for _ in range(draw(st.integers(1, 14))):
        moved = set(draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=6, unique=True)))
        if idle and draw(st.booleans()):
            moved = idle
        changes.append((float(now), tuple(sorted(moved - idle)), tuple(sorted(moved & idle))))
        idle ^= moved
        now += draw(st.integers(1, 120))
    return log_from_pool_changes(changes, node_names=NODES, begin_s=0.0, end_s=float(now))


@st.composite
def endless_tasks(draw: DrawFn) -> list[TaskSpec]:
    costs = st.sampled_from((0.0, 1.0, 7.0, 30.0))
    return [
        TaskSpec(
            name=f"t{number}",
            curve=SpeedCurve(nodes=(1, 2, 4), rate=draw(st.sampled_from(((8.0, 14.0, 20.0), (2.0, 4.0, 8.0))))),
            min_nodes=draw(st.integers(1, 3)),
            max_nodes=draw(st.integers(3, 5)),
            submit_s=float(draw(st.integers(0, 100))),
            grow_cost_s=draw(costs),
            shrink_cost_s=draw(costs),
            start_cost_s=draw(costs),
        )
        for number in range(draw(st.integers(1, 3)))
    ]


def simulated(spec: TaskSpec, how: ReplaySettings, said: Sequence[tuple[float, Action]], end_s: float) -> Simulated:
    kept = how.progress_kept
    assert kept is not None
    task = Simulated(spec, kept.kept, int(kept.disk_s or 1))
    for time_s, action in said:
        if not isinstance(action, Release) and action.task == spec.name:
            task.run_until(time_s)
            task.act(action)
    task.run_until(end_s)
    return task


@pytest.mark.parametrize("kept", ["memory", "disk", "task"])
@settings(max_examples=30)
@given(log=logs(), specs=endless_tasks(), period=st.integers(1, 90), solver=st.sampled_from(("exact", "equal-share")))
def test_done_and_lost_are_as_second_by_second(
    kept: str, log: EventLog, specs: list[TaskSpec], period: int, solver: str
) -> None:
    how = ReplaySettings(progress=kept if kept == "task" else f"{kept}:{period}", solver=solver, horizon_s=600.0)
    recorders: list[Recorder] = []  # of the replay, and then of those that it is held against

    def recorded(*given: Any, **more: Any) -> Recorder:  # noqa: ANN401 - as build_harvester() takes them
        recorders.append(Recorder(build_harvester(*given, **more)))
        return recorders[-1]

    with mock.patch("bftrain_replay.study.study.build_harvester", recorded):
        result = bftrain.replay(log, specs, how, watch=lambda name, *_: name == solver).result
    recorder = recorders[0]
    for spec, record in zip(specs, result.tasks, strict=True):
        if record.state == "not_arrived":
            continue
        wanted = simulated(spec, how, recorder.said, log.span_s)
        assert_same(wanted, record)


def assert_same(wanted: Simulated, record: Any) -> None:  # noqa: ANN401 - a record of a task
    near = {"rel": 1e-9, "abs": 1e-6}
    assert record.done_samples == pytest.approx(wanted.done, **near)
    assert record.lost_preemption_samples == pytest.approx(wanted.lost["preemption"], **near)
    assert record.lost_rescaling_samples == pytest.approx(wanted.lost["rescaling"], **near)
    assert record.lost_start_up_samples == pytest.approx(wanted.lost["start_up"], **near)
    assert record.owed_samples == pytest.approx(math.fsum(one.samples for one in wanted.owed), **near)
    # With any way of keeping progress, it is nowhere behind its begin
    assert -1e-6 <= wanted.saved <= wanted.done + 1e-6
