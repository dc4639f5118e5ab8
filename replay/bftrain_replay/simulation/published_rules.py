"""The published rules, to the letter: so that old results can be compared with new ones.

They stand with their formulas in docs/semantics.md. Between events nothing is seen: a task that completes keeps its
nodes until the next event, and what it does meanwhile is lost.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bftrain_replay.simulation.task_progress import SampleLoss, TaskProgress
from bftrain_replay.simulation.timeline import EventTimeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog


class PublishedTimeline(EventTimeline):
    """Moments are the events at ``event_times_s``; arrivals and completions are noticed at the next of them."""

    __slots__ = ("_event_times", "_next_event_s")

    def __init__(self, log: EventLog, tasks: Iterable[TaskSpec], event_times_s: NDArray[np.float64]) -> None:
        super().__init__(log, tasks)
        self._event_times = iter(event_times_s.tolist())
        self._next_event_s: float = next(self._event_times, math.inf)

    def next_s(self) -> float:
        """Give the time of the next event, infinity if there is none."""
        return self._next_event_s

    def nodes_at(self, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Take the nodes that leave and those that join at ``now_s``, and go on to the next event."""
        while self._next_event_s <= now_s:
            self._next_event_s = next(self._event_times, math.inf)
        return super().nodes_at(now_s)


class PublishedProgress(TaskProgress):
    """Costs are taken off at once, work may go below zero, and only the size counts, not what is under way."""

    __slots__ = ("_last_size", "_last_speed")

    def __init__(self, spec: TaskSpec, speeds: Sequence[float], now_s: float) -> None:
        super().__init__(spec, speeds, now_s)
        self._last_size = 0  # in the stretch that was counted last
        self._last_speed = 0.0

    @property
    def expected_finish_s(self) -> float:
        """When its work is done; it may be done and not be noticed yet, even if its nodes have just left."""
        return self._settled_s if self.done_samples >= self.work_samples else super().expected_finish_s

    def settle(self, now_s: float) -> None:
        """Count the time since it was last settled, beyond the work that there is too."""
        seconds = self._pass(now_s)
        if seconds > 0.0:
            self.done_samples += self.speed * seconds
            self._last_size, self._last_speed = self.size, self.speed

    def stop(self, now_s: float, *, preempted: bool, some_remain: bool = False) -> None:  # noqa: ARG002 - all the same
        """Give up all nodes and wait; it costs what shrinking costs."""
        self.shrink(now_s, self.size, preempted=preempted)

    def finish(self, now_s: float) -> None:
        """Notice that its work is done; what it did beyond is lost."""
        self.settle(now_s)
        beyond = max(self.done_samples - self.work_samples, 0.0)
        self.lost_samples[SampleLoss.UNNOTICED] += beyond
        if self._last_speed > 0.0:
            self.lost_node_s[SampleLoss.UNNOTICED] += self._last_size * beyond / self._last_speed
        self._change(now_s, 0)
        self.done_samples = self.work_samples
        self.finish_s = now_s

    def _owe(self, loss: SampleLoss, samples: float, *, lapses: bool, first: bool = False) -> None:  # noqa: ARG002 - nothing is ever owed, so nothing lapses and nothing is first
        """Lose ``samples`` at once."""
        self.done_samples -= samples
        self.lost_samples[loss] += samples
        if self._speed_before > 0.0:
            self.lost_node_s[loss] += self._size_before * samples / self._speed_before
