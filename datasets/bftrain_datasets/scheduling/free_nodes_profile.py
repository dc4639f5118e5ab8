"""FreeNodesProfile: how many nodes will be free from when on, as far as is planned."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class FreeNodesProfile:
    """From ``times[i]`` to ``times[i + 1]`` ``free[i]`` nodes are free; after the last time all are.

    A plan that does not fit makes ``free`` negative, which :meth:`least` tells.
    """

    __slots__ = ("free", "times")

    def __init__(self, now_s: float, nodes: int) -> None:
        self.times = [now_s]
        self.free = [nodes]

    @classmethod
    def of(cls, now_s: float, free: int, running: Iterable[tuple[float, int]], size: Sequence[int]) -> FreeNodesProfile:
        """Return the profile of what runs, given by its ends in order; ``free`` nodes are free now."""
        made = cls(now_s, free)
        times, steps = made.times, made.free
        for end_s, job in running:
            free += size[job]
            if end_s > times[-1]:
                times.append(end_s)
                steps.append(free)
            else:
                steps[-1] = free
        return made

    def earliest(self, size: int, length_s: float) -> float:
        """Give the first time from which ``size`` nodes are free for ``length_s``; all of them are in the end."""
        times, free = self.times, self.free
        count = len(times)
        at = 0
        while True:
            while free[at] < size:
                at += 1
            end_s = times[at] + length_s
            after = at + 1
            while after < count and times[after] < end_s:
                if free[after] < size:
                    break
                after += 1
            else:
                return times[at]
            at = after

    def sooner(self, size: int, length_s: float, begin_s: float, at: int) -> float | None:
        """Give an earlier time for what is planned from ``begin_s`` on, if there is one; ``at`` is where to look first.

        What is planned takes its nodes from ``begin_s`` on anyhow, so only what lies before that matters.
        """
        times, free = self.times, self.free
        while times[at] < begin_s:
            if free[at] < size:
                at += 1
                continue
            end_s = min(times[at] + length_s, begin_s)
            after = at + 1
            while times[after] < end_s:
                if free[after] < size:
                    break
                after += 1
            else:
                return times[at]
            at = after
        return None

    def take(self, begin_s: float, end_s: float, size: int) -> None:
        """Plan to use so many nodes."""
        self._change(begin_s, end_s, -size)

    def give(self, begin_s: float, end_s: float, size: int) -> None:
        """Give up what was planned."""
        self._change(begin_s, end_s, size)

    def least(self, begin_s: float, end_s: float) -> int:
        """Give how few nodes are free at any time from ``begin_s`` to ``end_s``."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        last = max(first + 1, bisect_left(self.times, end_s))
        return min(self.free[first:last])

    def forget(self, now_s: float) -> None:
        """Drop what lies before now."""
        first = bisect_right(self.times, now_s) - 1
        if first > 0:
            del self.times[:first], self.free[:first]
        self.times[0] = now_s

    def _change(self, begin_s: float, end_s: float, by: int) -> None:
        if end_s <= begin_s:
            return
        times, free = self.times, self.free
        first = bisect_left(times, begin_s)
        if first == len(times) or times[first] != begin_s:  # let a step begin here
            times.insert(first, begin_s)
            free.insert(first, free[first - 1])
        last = bisect_left(times, end_s, first)
        if last == len(times) or times[last] != end_s:
            times.insert(last, end_s)
            free.insert(last, free[last - 1])
        for place in range(first, last):
            free[place] += by
        for place in (last, first):
            if place and free[place] == free[place - 1]:  # drop a step at which nothing changes
                del times[place], free[place]
