"""Fair: how long a task would take alone on its n-th part of everything.

A run in thought: at every moment the nodes that are idle are divided evenly over the n tasks that are there, and each
uses its part as well as it can, by itself, on sizes that there are nodes for. A part of less than its smallest size is
used for a part of the time; what a task cannot use is lost, not given to others. A task is there from its submission
until its work is done in this run, so n does not depend on who decided in the real one, and all policies are held
against the same.

The completion time of a task over this time is rho, the measure of finish-time fairness: at most 1 for all means that
no task would have been better off with an equal part of everything.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.kinds import ANY_KIND, curve_on
from bftrain_replay.metrics.speed_on_part import ConcaveSpeeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bftrain.values.curve import SpeedCurve
    from bftrain.values.task import TaskSpec

_STEPS: Final = 256  # of the pool that are looked at in one go
_SAME: Final = 1e-12  # relative; ends that are so close are one

_Class = tuple["tuple[tuple[str, SpeedCurve], ...]", int, int]


@dataclass(frozen=True, slots=True)
class IdlePools:
    """Idle nodes over time: ``counts[kind][i]`` from ``times_s[i]`` to the next, the last to ``end_s``."""

    times_s: NDArray[np.float64]
    counts: Mapping[str, NDArray[np.int64]]
    end_s: float

    @classmethod
    def of_one_kind(cls, times_s: NDArray[np.float64], nodes: NDArray[np.int64], end_s: float) -> IdlePools:
        """Return a pool of one kind."""
        return cls(times_s, {ANY_KIND: nodes}, end_s)

    @property
    def largest(self) -> dict[str, int]:
        """The most nodes of each kind that were ever idle at once."""
        return {kind: int(nodes.max(initial=0)) for kind, nodes in self.counts.items()}

    @property
    def mean(self) -> dict[str, float]:
        """How many nodes of each kind were idle on average."""
        lengths = np.diff(self.times_s, append=self.end_s)
        whole_s = float(lengths.sum())
        return {kind: float(nodes @ lengths) / whole_s if whole_s else 0.0 for kind, nodes in self.counts.items()}


def shortest_s(spec: TaskSpec, largest: Mapping[str, int]) -> float | None:
    """Give what the work of a task takes at least: at its fastest size from the begin, with nothing lost.

    ``largest`` has the most nodes of each kind. ``None``: it has no end, or runs nowhere.
    """
    if spec.work_samples is None:
        return None
    fastest = max((_fastest(spec, curve_on(spec, kind), most) for kind, most in largest.items()), default=0.0)
    return spec.work_samples / fastest if fastest > 0.0 else None


def alone_s(specs: Sequence[TaskSpec], pools: IdlePools) -> list[float | None]:
    """Give for each task how long its work would take on its n-th part; ``None`` where it has no end, or none there.

    Times count from the first of the pool. After the end of the pool it stays as it was on average.
    """
    if all(spec.work_samples is None for spec in specs) or not pools.times_s.size:
        return [None] * len(specs)
    return _Division(specs, pools).run()


def _fastest(spec: TaskSpec, curve: SpeedCurve | None, most: int) -> float:
    """Give the highest speed at the sizes that so many nodes allow: at a point of the curve, or at an end."""
    largest = min(spec.max_nodes, most)
    if curve is None or largest < spec.min_nodes:
        return 0.0
    corners = (spec.min_nodes, largest, *(size for size in curve.nodes if spec.min_nodes < size < largest))
    return max(map(curve.speed, corners))


class _Division:
    """The run in thought. Tasks with the same curves and sizes are of one class: all of it advance alike."""

    def __init__(self, specs: Sequence[TaskSpec], pools: IdlePools) -> None:
        self._specs = specs
        self._pools = pools
        self._begins = [max(spec.submit_s, 0.0) for spec in specs]
        self._coming = sorted(range(len(specs)), key=self._begins.__getitem__, reverse=True)
        self._class_of: list[int] = []
        self._classes: list[list[tuple[str, ConcaveSpeeds]]] = []
        self._largest = pools.largest
        known: dict[_Class, int] = {}
        for spec in specs:
            by_kind = tuple((kind, curve) for kind in pools.counts if (curve := curve_on(spec, kind)) is not None)
            key = (by_kind, spec.min_nodes, spec.max_nodes)
            if key not in known:
                known[key] = len(self._classes)
                uses = [
                    (kind, ConcaveSpeeds(curve, spec.min_nodes, spec.max_nodes, self._largest[kind]))
                    for kind, curve in by_kind
                ]
                self._classes.append([(kind, each) for kind, each in uses if each.possible])
            self._class_of.append(known[key])
        self._done: list[float] = [0.0] * len(self._classes)  # samples that one of the class would have done by now
        # By class: those that are there, by the samples of the class at which they are done
        self._there: list[list[tuple[float, int]]] = [[] for _ in self._classes]
        self._active: list[int] = []  # classes with a present task
        self._count = 0  # tasks that are there
        self._now_s = 0.0
        self._ends: list[float | None] = [None] * len(specs)

    def run(self) -> list[float | None]:
        times, place = self._pools.times_s, 0
        self._now_s = float(times[0])
        while self._now_s < self._pools.end_s:
            self._arrive()
            until_s = min(self._begins[self._coming[-1]] if self._coming else math.inf, self._pools.end_s)
            if not self._active:
                if not self._coming:
                    break
                self._now_s = until_s
                continue
            place = max(int(np.searchsorted(times, self._now_s, side="right")) - 1, place)
            last = min(int(np.searchsorted(times, until_s, side="left")), place + _STEPS)
            begins = np.concatenate(([self._now_s], times[place + 1 : last]))
            end_s = min(until_s, float(times[last]) if last < times.size else math.inf)
            counts = {kind: nodes[place:last] for kind, nodes in self._pools.counts.items()}
            self._advance(begins, end_s, counts)
        self._arrive()
        self._finish()
        return [None if end is None else end - begin for end, begin in zip(self._ends, self._begins, strict=True)]

    def _arrive(self) -> None:
        """Let in who has come by now."""
        while self._coming and self._begins[self._coming[-1]] <= self._now_s:
            task = self._coming.pop()
            self._count += 1
            work, cls = self._specs[task].work_samples, self._class_of[task]
            if work is not None and self._classes[cls]:
                if not self._there[cls]:
                    self._active.append(cls)
                heapq.heappush(self._there[cls], (self._done[cls] + work, task))

    def _advance(self, begins: NDArray[np.float64], end_s: float, counts: Mapping[str, NDArray[np.int64]]) -> None:
        """Go on to ``end_s``, or to when the first one is done, through steps of the pool."""
        if begins.size == 1:
            now = {kind: int(nodes[0]) for kind, nodes in counts.items()}
            self._rest(now, now, end_s)
            return
        speeds = np.array([self._speeds(cls, counts) for cls in self._active])
        edges = np.append(begins, end_s)
        done = np.cumsum(speeds * np.diff(edges), axis=1)
        left = np.array(self._left())
        ended = (done >= left[:, None]).any(axis=0)
        if not ended.any():
            self._settle(done[:, -1].tolist(), end_s)
            return
        step = int(ended.argmax())
        before = done[:, step - 1] if step else np.zeros(len(self._active))
        with np.errstate(divide="ignore"):
            seconds = float(((left - before) / speeds[:, step]).min())
        self._settle((before + speeds[:, step] * seconds).tolist(), float(edges[step]) + seconds)

    def _rest(self, nodes: Mapping[str, float], counts: Mapping[str, int], end_s: float) -> bool:
        """Go on to ``end_s``, or to when the first one is done, while the pool is at rest; says whether time passed.

        ``nodes`` are divided; ``counts`` say which sizes there are nodes for.
        """
        speeds = [self._speed(cls, nodes, counts) for cls in self._active]
        need_s = [left / speed if speed else math.inf for left, speed in zip(self._left(), speeds, strict=True)]
        seconds = min(*need_s, end_s - self._now_s) if need_s else math.inf
        if seconds == math.inf:
            return False
        # The very moment where it reaches that, regardless of rounding
        now_s = end_s if seconds == end_s - self._now_s else self._now_s + seconds
        self._settle([speed * seconds for speed in speeds], now_s)
        return True

    def _finish(self) -> None:
        """Go on after the end of the pool: as many nodes as there were on average, in sizes that there ever were."""
        mean = self._pools.mean
        while self._active and self._rest(mean, self._largest, math.inf):
            pass

    def _left(self) -> list[float]:
        """Give what is left to do by class, for who is through first."""
        return [self._there[cls][0][0] - self._done[cls] for cls in self._active]

    def _settle(self, gained: Sequence[float], now_s: float) -> None:
        """Book what was done by ``now_s``, and let go who is through."""
        self._now_s = now_s
        for cls, samples in zip(self._active, gained, strict=True):
            self._done[cls] += samples
            there = self._there[cls]
            while there and there[0][0] <= self._done[cls] * (1.0 + _SAME):
                _, task = heapq.heappop(there)
                self._ends[task] = now_s
                self._count -= 1
        self._active = [cls for cls in self._active if self._there[cls]]

    def _speed(self, cls: int, nodes: Mapping[str, float], counts: Mapping[str, int]) -> float:
        """Give the speed of one of the class on an n-th part of these nodes."""
        there = self._classes[cls]
        if len(there) == 1:
            kind, uses = there[0]
            return uses.speed(nodes[kind] / self._count, counts[kind])
        rates = []  # as in _speeds, in plain numbers: they are few, and this is asked for often
        for kind, uses in there:
            part = nodes[kind] / self._count
            use = uses.within(counts[kind])
            if use is not None and part > 0.0:
                time = min(part / use.steady, 1.0)
                rates.append((use.speed(part) / time, time))
        total, left = 0.0, 1.0
        for rate, time in sorted(rates, reverse=True):
            total += rate * min(time, left)
            left = max(0.0, left - time)
        return total

    def _speeds(self, cls: int, counts: Mapping[str, NDArray[np.int64]]) -> NDArray[np.float64]:
        """Give the speed of one of the class in each step, on an n-th part of these nodes."""
        uses = [(counts[kind] / self._count, counts[kind], each) for kind, each in self._classes[cls]]
        if len(uses) == 1:
            parts, nodes, each = uses[0]
            return each.speeds(parts, nodes)
        # It runs on one kind at a time: on the one that is fastest for as long as it has nodes of it, then on the next
        speeds = np.array([each.speeds(parts, nodes) for parts, nodes, each in uses])
        times = np.array([np.minimum(parts / each.steady(nodes), 1.0) for parts, nodes, each in uses])
        rates = np.divide(speeds, times, out=np.zeros_like(speeds), where=times > 0.0)
        order = np.argsort(-rates, axis=0, kind="stable")
        times, rates = (np.take_along_axis(each, order, axis=0) for each in (times, rates))
        before = np.cumsum(times, axis=0) - times
        total: NDArray[np.float64] = (rates * np.clip(1.0 - before, 0.0, times)).sum(axis=0)
        return total
