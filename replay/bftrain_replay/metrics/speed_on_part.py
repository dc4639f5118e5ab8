"""Uses: how fast a task can be on a part of the nodes of a kind, by how many of them there are.

It runs on its sizes only, and divides its time between them: its speed on a part of the nodes is the least concave
curve over its speeds at these sizes. None of them is larger than the number of nodes, and where these are fewer than
its smallest size it does not run at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.curve import SpeedCurve

    Counts = NDArray[np.int64]
    Floats = NDArray[np.float64]

_STRAIGHT: Final = 1e-12  # relative; what lies so little below a line lies on it
_KEPT: Final = 512  # numbers of nodes for which a use is remembered

_Point = tuple[float, float]


@dataclass(frozen=True)
class ConcaveSpeed:
    """The least concave curve over the sizes of a task that there are nodes for."""

    nodes: Floats
    rate: Floats

    @cached_property
    def steady(self) -> float:
        """From how many nodes on it runs all the time."""
        return float(self.nodes[1])

    @cached_property
    def steep(self) -> float:
        """Speed per node up to there."""
        return float(self.rate[1] / self.nodes[1])

    def speed(self, part: float) -> float:
        """Give its speed on this part of the nodes."""
        if part <= self.steady:
            return part * self.steep  # most often so, and much the quickest
        return float(np.interp(part, self.nodes, self.rate))


class ConcaveSpeeds:
    """The uses of one task on the nodes of one kind, of which there are ``most`` at most."""

    def __init__(self, curve: SpeedCurve, smallest: int, largest: int, most: int) -> None:
        self._curve, self._smallest, self._largest = curve, smallest, largest
        self._by_count: dict[int, ConcaveSpeed | None] = {}  # where it is not the whole
        points = self._points(largest)
        self._whole = _hull(points)
        #: Numbers of nodes between which a size counts that does not where there are more
        self._bends = () if self._whole is None else tuple(_bends(points, self._whole))
        self.possible = most >= smallest and self.within(most) is not None
        # Most often a part is below where it runs all the time, and there are nodes enough for that: that must be quick
        self._first, self._steep = (0.0, 0.0) if self._whole is None else (self._whole.steady, self._whole.steep)
        self._enough = self._first if self._bends and self._bends[0][0] == 0.0 else smallest

    def within(self, count: int) -> ConcaveSpeed | None:
        """Give the use where there are so many nodes; ``None`` if it does not run on them."""
        whole = self._whole
        if count < self._smallest or whole is None or count >= whole.nodes[-1]:
            return None if count < self._smallest else whole
        if count >= whole.steady and not any(low < count < high for low, high in self._bends):
            return whole
        if count not in self._by_count:
            if len(self._by_count) == _KEPT:
                self._by_count.clear()
            self._by_count[count] = _hull(self._points(min(self._largest, count)))
        return self._by_count[count]

    def speed(self, part: float, count: int) -> float:
        """Give its speed on this part of so many nodes."""
        if part <= self._first and count >= self._enough:
            return part * self._steep
        use = self._whole if count >= self._smallest else None
        if self._bends and any(low < count < high and part > low for low, high in self._bends):
            use = self.within(count)
        return 0.0 if use is None else use.speed(part)

    def speeds(self, parts: Floats, counts: Counts) -> Floats:
        """Give its speed by the nodes that are its part, and by how many there are."""
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
        """Give from how many nodes on it runs all the time, by how many there are: 1 where it does not run."""
        whole = self._whole
        if whole is None:
            return np.ones(counts.size)
        # Up to there all of its sizes are as good by node, or else there is a bend
        steady: Floats = np.clip(counts.astype(np.float64), 1.0, whole.steady)
        if self._bends and self._bends[0][0] == 0.0:
            for place in np.flatnonzero((counts >= self._smallest) & (counts < whole.steady)).tolist():
                use = self.within(int(counts[place]))
                steady[place] = 1.0 if use is None else use.steady
        return steady

    def _points(self, largest: int) -> list[_Point]:
        """Give the sizes that matter with their speeds: the curve is straight between them."""
        between = (size for size in self._curve.nodes if self._smallest < size < largest)
        return [(float(size), self._curve.speed(size)) for size in sorted({self._smallest, largest, *between})]


def _hull(points: Sequence[_Point]) -> ConcaveSpeed | None:
    """Leave out the sizes below a straight line between two others, and those that are no faster than a smaller one."""
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
    """Give the stretches of the hull that have a size below them."""
    found = []
    for (low, slow), (high, fast) in pairwise(zip(hull.nodes.tolist(), hull.rate.tolist(), strict=True)):
        slope = (fast - slow) / (high - low)
        between = [(size, speed) for size, speed in points if low < size < high]
        if any(speed < (slow + slope * (size - low)) * (1.0 - _STRAIGHT) for size, speed in between):
            found.append((low, high))
    return found
