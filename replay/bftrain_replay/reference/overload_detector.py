"""Queueing: does the queue of a cluster grow without bound? Then a replay of it would tell nothing but its length.

It is said of a stretch of time, from when the queue was empty last until now, in which all of this holds:

- at least 100 tasks arrived in it, and it lasts ten times as long as a task takes on average at least;
- what arrived takes the whole cluster longer than the stretch, even less three standard deviations of such a sum (of
  arrivals at random with these sizes), and by a bound for any policy (``makespan_bound``);
- more tasks wait now than after three quarters of it, then more than after the half, and then than after a quarter.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from bftrain_replay.reference.makespan_bound import costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bftrain.values.task import TaskSpec

FEWEST: Final = 100  # arrivals
LONG: Final = 10.0  # times what a task takes at least, on average
DEVIATIONS: Final = 3.0
_QUARTERS: Final = (0.25, 0.5, 0.75)


class QueueDetector:
    """Watches arrivals and the queue."""

    __slots__ = ("_cost", "_costs", "_empty_s", "_squares", "_times", "_waiting")

    def __init__(self, nodes: Mapping[str, int], tasks: Sequence[TaskSpec]) -> None:
        self._costs = dict(zip((spec.name for spec in tasks), costs(tasks, nodes).tolist(), strict=True))
        self._begin(0.0)

    def _begin(self, now_s: float) -> None:
        self._empty_s = now_s
        self._cost = self._squares = 0.0
        self._times: list[float] = []
        self._waiting: list[int] = []

    def arrived(self, spec: TaskSpec, now_s: float) -> None:
        """A task arrived, and all earlier tasks have nodes if the queue was empty since."""
        if self._waiting and self._waiting[-1] == 0:
            self._begin(now_s)
        cost = self._costs[spec.name]
        self._cost += cost
        self._squares += cost * cost
        self._times.append(now_s)
        self._waiting.append(self._waiting[-1] if self._waiting else 0)

    def overloaded(self, now_s: float, waiting: int) -> bool:
        """Say whether the queue grows without bound, ``waiting`` tasks being without nodes now."""
        self._waiting[-1] = waiting
        count, lasts_s = len(self._times), now_s - self._empty_s
        if count < FEWEST or lasts_s < LONG * self._cost / count:
            return False
        if not self._cost - DEVIATIONS * math.sqrt(self._squares) > lasts_s:
            return False
        earlier = [self._waiting_at(self._empty_s + part * lasts_s) for part in _QUARTERS]
        return all(before < after for before, after in zip(earlier, [*earlier[1:], waiting], strict=True))

    def _waiting_at(self, time_s: float) -> int:
        place = bisect_right(self._times, time_s)
        return self._waiting[place - 1] if place else 0


class NoDetector:
    """Lets a queue grow: for runs with an end that was asked for."""

    def arrived(self, spec: TaskSpec, now_s: float) -> None:
        """Look at nothing."""

    def overloaded(self, now_s: float, waiting: int) -> bool:  # noqa: ARG002 - looks at nothing
        """Say that it does not."""
        return False
