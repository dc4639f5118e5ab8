"""Semantics: by which rules time passes and tasks advance. The engine is the same for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from bftrain_replay.simulation.progress_assumptions import TASK, ProgressKept
from bftrain_replay.simulation.progress_kept import progress_kept
from bftrain_replay.simulation.published_rules import PublishedProgress, PublishedTimeline
from bftrain_replay.simulation.replay_settings import PUBLISHED
from bftrain_replay.simulation.timeline import EventTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.simulation.task_progress import TaskProgress


class ReplayRules(Protocol):
    """What the engine leaves to the rules."""

    @property
    def losses_first(self) -> bool:
        """Whether what leaves is dealt with before tasks that have completed by then."""
        ...

    def timeline(self, log: EventLog, tasks: Iterable[TaskSpec]) -> EventTimeline:
        """Say when things happen."""
        ...

    def progress(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
        """Let a task arrive."""
        ...


class RealisticRules:
    """Completions are moments of their own, costs are paid out of progress, and progress never goes backwards."""

    losses_first = False

    def __init__(self, kept: ProgressKept | None = None) -> None:
        self._kept = kept or ProgressKept(TASK)

    def timeline(self, log: EventLog, tasks: Iterable[TaskSpec]) -> EventTimeline:
        """Give every change, arrival and completion its own moment."""
        return EventTimeline(log, tasks)

    def progress(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
        """Let a task arrive."""
        return progress_kept(self._kept, spec, speeds, now_s)


class PublishedRules:
    """The rules of the published replayer: nothing happens or is noticed but at events of the log."""

    losses_first = True

    def __init__(self, event_times_s: NDArray[np.float64]) -> None:
        self._event_times_s = event_times_s

    def timeline(self, log: EventLog, tasks: Iterable[TaskSpec]) -> EventTimeline:
        """Give a moment to every event, and to nothing else."""
        return PublishedTimeline(log, tasks, self._event_times_s)

    def progress(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> TaskProgress:
        """Let a task arrive."""
        return PublishedProgress(spec, speeds, now_s)


def semantics_of(settings: ReplaySettings, event_times_s: NDArray[np.float64]) -> ReplayRules:
    """Build the rules that ``settings`` name, for a log whose events that count are at ``event_times_s``."""
    if settings.semantics == PUBLISHED:
        return PublishedRules(event_times_s)
    return RealisticRules(settings.progress_kept)


def as_replayed(tasks: Iterable[TaskSpec], settings: ReplaySettings) -> tuple[TaskSpec, ...]:
    """Give the tasks with the costs that they are replayed with; in published rules starting costs nothing."""
    start_cost_s = 0.0 if settings.semantics == PUBLISHED else settings.start_cost_s
    given = {"grow_cost_s": settings.grow_cost_s, "shrink_cost_s": settings.shrink_cost_s, "start_cost_s": start_cost_s}
    if settings.cost_factor == 1.0 and set(given.values()) == {None}:
        return tuple(tasks)
    return tuple(replace(spec, **_costs(spec, given, settings.cost_factor)) for spec in tasks)


def _costs(spec: TaskSpec, given: Mapping[str, float | None], factor: float) -> dict[str, float]:
    """Give a task's costs: its own or the given ones, and so many times as much."""
    own = {name: getattr(spec, name) if cost is None else cost for name, cost in given.items()}
    return {name: cost * factor for name, cost in own.items()}
