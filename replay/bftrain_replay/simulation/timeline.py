"""Timeline: the replayed part of a log, and its moments: node changes, arrivals, completions.

The virtual clock counts seconds from the log's start. Times are exact to fractions of a microsecond for any epoch of
the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.edits import chosen_nodes, chosen_window
from bftrain_datasets.log.eventlog import EventLog, NodeRun
from bftrain_datasets.workloads.task_generators import SaturatingWorkload
from bftrain_replay.simulation.replay_settings import CHOSEN, ReplaySettings
from bftrain_replay.simulation.task_progress import TaskProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The replayed part of a log.

    ``event_times_s`` are the times of the events that the published rules count, in seconds since the start of the
    part; the start is the first one.
    """

    log: EventLog
    event_times_s: NDArray[np.float64]


def select(log: EventLog, settings: ReplaySettings) -> LogSelection:
    """Apply the window, then skip events, then choose nodes: skipping counts the events of all nodes."""
    begin_s, end_s = chosen_window(log, settings.window or ":")
    inside = log.times[(log.times > begin_s) & (log.times < end_s)]
    times = np.concatenate(([begin_s], inside))
    if settings.skip_events >= times.size:
        raise BadInput(
            f"{settings.skip_events:,} events cannot be skipped",
            where="skip_events",
            fix=f"there are {times.size:,}, including the start",
        )
    times = times[settings.skip_events :]
    nodes = chosen_nodes(log, settings.nodes) if settings.nodes else None
    if nodes is None and times[0] == log.start_s and end_s == log.end_s:
        part = log  # unmodified, to keep its content hash
    else:
        part = log.select(nodes=nodes, window=(float(times[0]), end_s))
    return LogSelection(log=part, event_times_s=(part.times if settings.events == CHOSEN else times) - part.start_s)


def saturating_workload(log: EventLog, settings: ReplaySettings) -> SaturatingWorkload:
    """Return more trials than the idle nodes of the replayed part of ``log`` can finish."""
    return SaturatingWorkload.of(select(log, settings).log.idle_node_s, settings.max_tasks)


# A completion this near to another event is at the same moment: less is rounding, not time
SAME_MOMENT_S: Final = 1e-6


class EventTimeline:
    """The next events. Arrivals before the log's start happen at its start."""

    __slots__ = ("_arrivals", "_changes", "_finishes", "_next_change", "_next_spec", "_order")

    def __init__(self, log: EventLog, tasks: Iterable[TaskSpec]) -> None:
        self._changes = ((time_s - log.start_s, left, joined) for time_s, left, joined in log.pool_runs())
        self._next_change = next(self._changes, None)
        self._arrivals = iter(sorted(tasks, key=lambda spec: spec.submit_s))
        self._next_spec = next(self._arrivals, None)
        self._finishes: list[tuple[float, int, int, TaskProgress]] = []
        self._order = 0

    @property
    def arrivals_left(self) -> bool:
        """Whether arrivals remain."""
        return self._next_spec is not None

    def expect(self, task: TaskProgress) -> None:
        """Schedule the finish of ``task`` in place of the one scheduled before."""
        finish_s = task.expected_finish_s
        if finish_s < math.inf:
            self._order += 1
            heappush(self._finishes, (finish_s, self._order, task.version, task))

    def next_s(self) -> float:
        """Return the time of the next moment, infinite if none is left."""
        outside = math.inf
        if self._next_change is not None:
            outside = self._next_change[0]
        if self._next_spec is not None:
            outside = min(outside, max(self._next_spec.submit_s, 0.0))
        finish = self._next_finish_s()
        return finish if finish < outside - SAME_MOMENT_S else outside

    def nodes_at(self, now_s: float) -> tuple[NodeRun, NodeRun] | None:
        """Return the nodes that leave and join at ``now_s``, if any, and move on to the next change."""
        change = self._next_change
        if change is None or change[0] > now_s:
            return None
        self._next_change = next(self._changes, None)
        return change[1], change[2]

    def arrivals_at(self, now_s: float) -> Iterator[TaskSpec]:
        """Yield the tasks that are submitted up to ``now_s``."""
        while self._next_spec is not None and self._next_spec.submit_s <= now_s:
            yield self._next_spec
            self._next_spec = next(self._arrivals, None)

    def finishes_at(self, now_s: float) -> Iterator[TaskProgress]:
        """Yield the tasks that finish at ``now_s``."""
        while self._next_finish_s() <= now_s + SAME_MOMENT_S:
            yield heappop(self._finishes)[3]

    def _next_finish_s(self) -> float:
        finishes = self._finishes
        while finishes and (finishes[0][2] != finishes[0][3].version):
            heappop(finishes)  # scheduled before a change
        return finishes[0][0] if finishes else math.inf
