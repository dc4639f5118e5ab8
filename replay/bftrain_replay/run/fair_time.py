"""Fair time: a task's duration alone on 1/n of everything.

It is computed in a hypothetical run: at every moment the idle nodes are divided evenly among the n present tasks, and
each uses its part as well as possible, on sizes available in the pool. A part below a task's smallest size is used for
a fraction of the time; capacity a task cannot use is lost, not redistributed. A task is present from its submission
until its work is done in this run, so n is independent of the real policy, and all policies are compared with the same
run.

A task runs only on its sizes and divides its time between them: its speed on a part of the nodes is the least concave
curve over its speeds at these sizes. Sizes above the number of nodes are excluded, and a task does not run while the
pool is below its smallest size.

A task's completion time divided by this time is rho, the measure of finish-time fairness. If rho is 1 or less for all
tasks, no task would have been better off with an equal part of everything.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

_STRAIGHT: Final = 1e-12  # relative; points this close below a line count as on it
_KEPT: Final = 512  # cached node counts per curve

_Point = tuple[float, float]


class ConcaveSpeed(msgspec.Struct, frozen=True, dict=True):
    """The least concave curve over the feasible sizes of a task."""

    nodes: Floats
    rate: Floats

    @cached_property
    def steady(self) -> float:
        """Return the smallest number of nodes on which the task runs all the time."""
        return float(self.nodes[1])

    @cached_property
    def steep(self) -> float:
        """Return the speed per node below that number."""
        return float(self.rate[1] / self.nodes[1])

    def speed(self, part: float) -> float:
        """Return the speed on this number of nodes."""
        if part <= self.steady:
            return part * self.steep  # fast path, for most parts
        return float(np.interp(part, self.nodes, self.rate))


class ConcaveSpeeds:
    """One task's concave curves on one node kind, by number of nodes, up to ``most``."""

    def __init__(self, curve: SpeedCurve, smallest: int, largest: int, most: int) -> None:
        self._curve, self._smallest, self._largest = curve, smallest, largest
        self._by_count: dict[int, ConcaveSpeed | None] = {}  # curves that differ from the whole one
        points = self._points(largest)
        self._whole = concave_hull(points)
        # Ranges of sizes in which the concave curve lies above the measured one. A pool that ends inside such a range
        # has a lower curve, as the larger size that supports it is missing
        self._bends = () if self._whole is None else tuple(_bends(points, self._whole))
        self.possible = most >= smallest and self.within(most) is not None
        # Fast path: most parts are below the full-time size, with enough nodes for that size
        self._first, self._steep = (0.0, 0.0) if self._whole is None else (self._whole.steady, self._whole.steep)
        self._enough = self._first if self._bends and self._bends[0][0] == 0.0 else smallest

    def within(self, count: int) -> ConcaveSpeed | None:
        """Return the curve in a pool of this number of nodes; ``None`` if the task does not run in it."""
        whole = self._whole
        if count < self._smallest or whole is None or count >= whole.nodes[-1]:
            return None if count < self._smallest else whole
        if count >= whole.steady and not any(low < count < high for low, high in self._bends):
            return whole
        if count not in self._by_count:
            if len(self._by_count) == _KEPT:
                self._by_count.clear()
            self._by_count[count] = concave_hull(self._points(min(self._largest, count)))
        return self._by_count[count]

    def speed(self, part: float, count: int) -> float:
        """Return the speed on this part of a pool of ``count`` nodes."""
        if part <= self._first and count >= self._enough:
            return part * self._steep
        use = self._whole if count >= self._smallest else None
        if self._bends and any(low < count < high and part > low for low, high in self._bends):
            use = self.within(count)
        return 0.0 if use is None else use.speed(part)

    def speeds(self, parts: Floats, counts: Counts) -> Floats:
        """Return the speeds on these parts of pools with these numbers of nodes."""
        whole = self._whole
        if whole is None:
            return np.zeros_like(parts)
        speeds = np.interp(parts, whole.nodes, whole.rate)
        if self._smallest > 1:
            speeds[counts < self._smallest] = 0.0
        for low, high in self._bends:
            odd = np.flatnonzero((counts > low) & (counts < high) & (parts > low) & (counts >= self._smallest))
            for place, count, part in zip(odd.tolist(), counts[odd].tolist(), parts[odd].tolist(), strict=True):
                speeds[place] = self.speed(part, count)
        return speeds

    def steady(self, counts: Counts) -> Floats:
        """Return the full-time size in pools with these numbers of nodes: 1 where the task does not run."""
        whole = self._whole
        if whole is None:
            return np.ones(counts.size)
        # Up to this size speed per node is constant; a change would be a bend
        steady: Floats = np.clip(counts.astype(np.float64), 1.0, whole.steady)
        if self._bends and self._bends[0][0] == 0.0:
            for place in np.flatnonzero((counts >= self._smallest) & (counts < whole.steady)).tolist():
                use = self.within(int(counts[place]))
                steady[place] = 1.0 if use is None else use.steady
        return steady

    def _points(self, largest: int) -> list[_Point]:
        """Return the breakpoints of the measured curve up to the largest size: sizes with their speeds."""
        between = (size for size in self._curve.nodes if self._smallest < size < largest)
        return [(float(size), self._curve.speed(size)) for size in sorted({self._smallest, largest, *between})]


def concave_hull(points: Sequence[_Point]) -> ConcaveSpeed | None:
    """Return the concave hull, without sizes below a line between two neighbours or no faster than a smaller size."""
    kept: list[_Point] = [(0.0, 0.0)]
    for point in points:
        if point[1] <= kept[-1][1]:
            continue  # more nodes, and no faster
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) <= _slope(kept[-1], point):
            kept.pop()
        kept.append(point)
    if len(kept) == 1:
        return None
    nodes, rate = (np.array(column) for column in zip(*kept, strict=True))
    return ConcaveSpeed(nodes, rate)


def _slope(one: _Point, two: _Point) -> float:
    return (two[1] - one[1]) / (two[0] - one[0])


def _bends(points: Sequence[_Point], hull: ConcaveSpeed) -> list[_Point]:
    """Return the ranges between neighbouring points of the hull in which a measured point lies below it."""
    found = []
    for (low, slow), (high, fast) in pairwise(zip(hull.nodes.tolist(), hull.rate.tolist(), strict=True)):
        slope = (fast - slow) / (high - low)
        between = [(size, speed) for size, speed in points if low < size < high]
        if any(speed < (slow + slope * (size - low)) * (1.0 - _STRAIGHT) for size, speed in between):
            found.append((low, high))
    return found


_STEPS: Final = 256  # pool steps per batch
_SAME: Final = 1e-12  # relative; closer finish times are merged

_Class = tuple["tuple[tuple[str, SpeedCurve], ...]", int, int]


class IdlePools(msgspec.Struct, frozen=True):
    """Idle nodes over time: ``counts[kind][i]`` from ``times_s[i]`` to the next, the last to ``end_s``."""

    times_s: NDArray[np.float64]
    counts: Mapping[str, NDArray[np.int64]]
    end_s: float

    @property
    def largest(self) -> dict[str, int]:
        """The peak number of idle nodes of each kind."""
        return {kind: int(nodes.max(initial=0)) for kind, nodes in self.counts.items()}

    @property
    def mean(self) -> dict[str, float]:
        """The mean number of idle nodes of each kind."""
        lengths = np.diff(self.times_s, append=self.end_s)
        whole_s = float(lengths.sum())
        return {kind: float(nodes @ lengths) / whole_s if whole_s else 0.0 for kind, nodes in self.counts.items()}


def shortest_s(spec: TaskSpec, largest: Mapping[str, int]) -> float | None:
    """Return the shortest time for the work of a task: at its fastest size from the beginning, without losses.

    ``largest`` is the peak number of nodes by kind. Return ``None`` for an endless task, or if it runs nowhere.
    """
    if spec.work_samples is None:
        return None
    fastest = max((_fastest(spec, spec.curve_on(kind), most) for kind, most in largest.items()), default=0.0)
    return spec.work_samples / fastest if fastest > 0.0 else None


def alone_s(specs: Sequence[TaskSpec], pools: IdlePools) -> list[float | None]:
    """Return each task's duration on its 1/n part; ``None`` for endless or impossible tasks.

    Times count from the start of the pool. After its end the pool stays at its mean.
    """
    if all(spec.work_samples is None for spec in specs) or not pools.times_s.size:
        return [None] * len(specs)
    return _Division(specs, pools).run()


def _fastest(spec: TaskSpec, curve: SpeedCurve | None, most: int) -> float:
    """Return the highest speed at the sizes that this many nodes allow: at a point of the curve, or at an end."""
    largest = min(spec.max_nodes, most)
    if curve is None or largest < spec.min_nodes:
        return 0.0
    corners = (spec.min_nodes, largest, *(size for size in curve.nodes if spec.min_nodes < size < largest))
    return max(map(curve.speed, corners))


class _Division:
    """The hypothetical run. Tasks with the same curves and sizes form a class and advance equally."""

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
            by_kind = tuple((kind, curve) for kind in pools.counts if (curve := spec.curve_on(kind)) is not None)
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
        # Present tasks by class, keyed by the class's samples at which they finish
        self._there: list[list[tuple[float, int]]] = [[] for _ in self._classes]
        self._active: list[int] = []  # classes with a current task
        self._count = 0  # number of present tasks
        self._pool: tuple[float, ...] = ()
        # Speeds by class and number of tasks, for the current pool
        self._known_speeds: dict[tuple[int, int], float] = {}
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
        # After the log continue with the mean number of nodes, in sizes up to the peak
        mean = self._pools.mean
        while self._active and self._rest(mean, self._largest, math.inf):
            pass
        return [None if end is None else end - begin for end, begin in zip(self._ends, self._begins, strict=True)]

    def _arrive(self) -> None:
        while self._coming and self._begins[self._coming[-1]] <= self._now_s:
            task = self._coming.pop()
            self._count += 1
            work, cls = self._specs[task].work_samples, self._class_of[task]
            if work is not None and self._classes[cls]:
                if not self._there[cls]:
                    self._active.append(cls)
                heapq.heappush(self._there[cls], (self._done[cls] + work, task))

    def _advance(self, begins: NDArray[np.float64], end_s: float, counts: Mapping[str, NDArray[np.int64]]) -> None:
        """Advance to ``end_s``, or until the first task is done, through steps of the pool."""
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
            need_s = (left - before) / speeds[:, step]
        seconds = float(need_s.min())
        gained = np.where(need_s == seconds, left, before + speeds[:, step] * seconds)
        self._settle(gained.tolist(), float(edges[step]) + seconds)

    def _rest(self, nodes: Mapping[str, float], counts: Mapping[str, int], end_s: float) -> bool:
        """Advance to ``end_s``, or until the first task is done, with a constant pool; return whether time passed.

        ``nodes`` are divided; ``counts`` limit the sizes.
        """
        if (pool := (*nodes.values(), *counts.values())) != self._pool:
            self._pool = pool
            self._known_speeds.clear()
        speeds = []
        for cls in self._active:
            key = cls, self._count
            if key not in self._known_speeds:
                self._known_speeds[key] = self._speed(cls, nodes, counts)
            speeds.append(self._known_speeds[key])
        left = self._left()
        need_s = [samples / speed if speed else math.inf for samples, speed in zip(left, speeds, strict=True)]
        seconds = min(*need_s, end_s - self._now_s) if need_s else math.inf
        if seconds == math.inf:
            return False
        # Exactly ``end_s`` if the interval ends first, without rounding
        now_s = end_s if seconds == end_s - self._now_s else self._now_s + seconds
        # Finished tasks gain exactly the samples left: for tiny work, speed times seconds may round to 0
        each = zip(left, speeds, need_s, strict=True)
        self._settle([samples if need == seconds else speed * seconds for samples, speed, need in each], now_s)
        return True

    def _left(self) -> list[float]:
        return [self._there[cls][0][0] - self._done[cls] for cls in self._active]

    def _settle(self, gained: Sequence[float], now_s: float) -> None:
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
        """Return the speed of one task of the class on 1/n of these nodes."""
        there = self._classes[cls]
        if len(there) == 1:
            kind, uses = there[0]
            return uses.speed(nodes[kind] / self._count, counts[kind])
        rates = []  # scalar version of _speeds: few values, requested often
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
        """Return the speed of one task of the class in each step, on 1/n of these nodes."""
        uses = [(counts[kind] / self._count, counts[kind], each) for kind, each in self._classes[cls]]
        if len(uses) == 1:
            parts, nodes, each = uses[0]
            return each.speeds(parts, nodes)
        # A task runs on one kind at a time: on its fastest kind while its share lasts, then on the next
        speeds = np.array([each.speeds(parts, nodes) for parts, nodes, each in uses])
        times = np.array([np.minimum(parts / each.steady(nodes), 1.0) for parts, nodes, each in uses])
        rates = np.divide(speeds, times, out=np.zeros_like(speeds), where=times > 0.0)
        order = np.argsort(-rates, axis=0, kind="stable")
        times, rates = (np.take_along_axis(each, order, axis=0) for each in (times, rates))
        before = np.cumsum(times, axis=0) - times
        total: NDArray[np.float64] = (rates * np.clip(1.0 - before, 0.0, times)).sum(axis=0)
        return total
