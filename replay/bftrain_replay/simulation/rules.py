"""Rules of a simulation: how time passes, how tasks advance, and when decisions take effect.

docs/explanation/semantics.md has the realistic and the published rules with their formulas. The published rules are
exactly the study's: arrivals and completions between two events of the log go unnoticed, so a task that completes keeps
its nodes until the next event, and its work meanwhile is lost.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain.topology import place_of
from bftrain.values.task import TaskSpec, with_places
from bftrain.values.wire import NOTHING
from bftrain_datasets.log.eventlog import EventLog, NodeRun
from bftrain_replay.simulation.progress_kept import COPIES, DISK, MEMORY, TASK, ProgressKept
from bftrain_replay.simulation.replay_settings import MEASURED, PUBLISHED, YES, ReplaySettings
from bftrain_replay.simulation.task_progress import (
    CopiesProgress,
    DiskProgress,
    MemoryProgress,
    SampleLoss,
    TaskProgress,
)
from bftrain_replay.simulation.timeline import EventTimeline
from bftrain_replay.simulation.wrong_speeds import LearntSpeeds, WrongSpeeds


class PublishedTimeline(EventTimeline):
    """Moments are the events at ``event_times_s``; arrivals and completions take effect at the next event."""

    __slots__ = ("_event_times", "_next_event_s")

    def __init__(self, log: EventLog, tasks: Iterable[TaskSpec], event_times_s: NDArray[np.float64]) -> None:
        super().__init__(log, tasks)
        self._event_times = iter(event_times_s.tolist())
        self._next_event_s: float = next(self._event_times, math.inf)

    def next_s(self) -> float:
        """Return the time of the next event, infinite if no event is left."""
        return self._next_event_s

    def nodes_at(self, now_s: float) -> tuple[NodeRun, NodeRun] | None:
        """Return the nodes that leave and join at ``now_s``, if any, and move on to the next event."""
        while self._next_event_s <= now_s:
            self._next_event_s = next(self._event_times, math.inf)
        return super().nodes_at(now_s)


class PublishedProgress(TaskProgress):
    """Costs are subtracted from the work done immediately, even below zero."""

    __slots__ = ("_last_size", "_last_speed")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._last_size, self._last_speed = 0, 0.0  # its last ones: nodes may leave before it is noticed as done

    @property
    def expected_finish_s(self) -> float:
        """When its work is done, which is already past if that was not noticed yet."""
        return self._settled_s if self.done_samples >= self.work_samples else super().expected_finish_s

    def advance_to(self, now_s: float) -> None:
        """Add the time since the last call, even after the work is complete."""
        seconds = self._pass(now_s)
        if seconds > 0.0:
            self.done_samples += self.speed * seconds
            self._slowed(self.speed * seconds, seconds, now_s)
            self._last_size, self._last_speed = self.size, self.speed

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:  # noqa: ARG002 - no effect here
        """Release all nodes and wait; this costs the same as shrinking."""
        self.shrink(now_s, self.size, preempted=preempted)

    def finish(self, now_s: float) -> None:
        """Notice that its work is done; work beyond the end is lost."""
        self.advance_to(now_s)
        beyond = max(self.done_samples - self.work_samples, 0.0)
        self._lose(SampleLoss.UNNOTICED, beyond, self._last_size, self._last_speed, now_s)
        self._change(now_s, 0)
        self.done_samples = self.work_samples
        self.finish_s = now_s

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:  # noqa: ARG002 - paid immediately, so nothing lapses
        self.done_samples -= samples
        self._lose(loss, samples, self._size_before, self._speed_before, self._changed_s)


class ReplayRules:
    """The rules by which the engine simulates; these are the realistic ones.

    Completions are separate moments, costs are paid out of progress, and progress never decreases.
    """

    losses_first = False  # whether departures are handled before the completions of the same moment

    def __init__(
        self,
        kept: ProgressKept | None = None,
        racks: Mapping[str, str] = NOTHING,
        wrong: WrongSpeeds | None = None,
        learnt: LearntSpeeds | None = None,
    ) -> None:
        self.place_of = place_of(racks)  # maps a node to its host or rack
        self.wrong, self.learnt = wrong, learnt  # wrong speeds in decisions, and their correction by measurements
        self._kept = kept or ProgressKept(TASK)

    def timeline(self, log: EventLog, tasks: Iterable[TaskSpec]) -> EventTimeline:
        """Return the timeline: every change, arrival and completion has a separate moment."""
        return EventTimeline(log, tasks)

    def progress(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
        """Return the progress of a task that arrives."""
        kept, disk_s, copy_s = self._kept
        if kept == MEMORY and disk_s is not None:
            return MemoryProgress(spec, speeds, now_s, disk_s)
        if kept == COPIES and disk_s is not None and copy_s is not None:
            return CopiesProgress(spec, speeds, now_s, disk_s, copy_s)
        if kept == DISK and disk_s is not None:
            return DiskProgress(spec, speeds, now_s, disk_s)
        return TaskProgress(spec, speeds, now_s)


class PublishedRules(ReplayRules):
    """The rules of the published replayer: arrivals and completions are noticed only at events of the log."""

    losses_first = True

    def __init__(self, event_times_s: NDArray[np.float64], racks: Mapping[str, str] = NOTHING) -> None:
        super().__init__(racks=racks)
        self._event_times_s = event_times_s

    def timeline(self, log: EventLog, tasks: Iterable[TaskSpec]) -> EventTimeline:
        """Return the timeline: only events of the log are moments."""
        return PublishedTimeline(log, tasks, self._event_times_s)

    def progress(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
        """Return the progress of a task that arrives."""
        return PublishedProgress(spec, speeds, now_s)


def rules_of(settings: ReplaySettings, event_times_s: NDArray[np.float64]) -> ReplayRules:
    """Build the rules that ``settings`` name, for a log with its counted events at ``event_times_s``."""
    if settings.semantics == PUBLISHED:
        return PublishedRules(event_times_s, settings.racks)
    wrong = WrongSpeeds(settings.speed_error, settings.profiled, settings.seed) if settings.speed_error else None
    learnt = LearntSpeeds() if wrong is not None and settings.learning == YES else None
    return ReplayRules(settings.progress_kept, settings.racks, wrong, learnt)


def as_replayed(tasks: Iterable[TaskSpec], settings: ReplaySettings) -> tuple[TaskSpec, ...]:
    """Return the tasks with the replayed costs; with the published rules starting is free."""
    start_cost_s = 0.0 if settings.semantics == PUBLISHED else settings.start_cost_s
    given = {"grow_cost_s": settings.grow_cost_s, "shrink_cost_s": settings.shrink_cost_s, "start_cost_s": start_cost_s}
    if settings.cost_factor == 1.0 and set(given.values()) == {None}:
        return tuple(tasks)

    def costs(spec: TaskSpec) -> dict[str, float]:
        return {
            name: (getattr(spec, name) if cost is None else cost) * settings.cost_factor for name, cost in given.items()
        }

    return tuple(replace(spec, **costs(spec)) for spec in tasks)


def placed_in(log: EventLog, tasks: Iterable[TaskSpec], racks: Mapping[str, str]) -> tuple[TaskSpec, ...]:
    """Add the largest host or rack size to tasks that have placement speeds and do not set it."""
    return with_places(
        tasks, lambda: max(Counter(filter(None, map(place_of(racks), log.node_names))).values(), default=None)
    )


class DecisionDelay:
    """When the next decision takes effect: ``due_s``, infinite while no event has called for one.

    ``latency_s`` counts from the event, ``min_interval_s`` between decisions. If ``measured``, the latency is the run
    time of the latest solution.
    """

    __slots__ = ("_last_s", "_latency_s", "_measured", "_min_interval_s", "due_s")

    def __init__(self, latency_s: float = 0.0, min_interval_s: float = 0.0, *, measured: bool = False) -> None:
        self._latency_s, self._min_interval_s, self._measured = latency_s, min_interval_s, measured
        self._last_s, self.due_s = -math.inf, math.inf

    @classmethod
    def of(cls, settings: ReplaySettings) -> DecisionDelay:
        """Build the delay that ``settings`` describe."""
        latency_s = settings.decision_latency_s
        if latency_s == MEASURED:
            return cls(0.0, settings.min_interval_s, measured=True)
        return cls(float(latency_s), settings.min_interval_s)

    def call(self, now_s: float) -> None:
        """Record an event that calls for a decision; one under way takes it into account."""
        if self.due_s == math.inf:
            self.due_s = max(now_s, self._last_s + self._min_interval_s) + self._latency_s

    def decided(self, now_s: float, took_s: float) -> None:
        """Record that a decision took effect, and the solver's run time."""
        self._last_s = now_s
        self.due_s = math.inf
        if self._measured:
            self._latency_s = took_s
