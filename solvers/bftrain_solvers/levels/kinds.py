"""Raising the worst-off first over several kinds of nodes: one sum after the other, each solved exactly.

Whether everybody can be at some level or above is asked as a sum: everybody below it costs one. The largest level for
which that comes to nothing is found in steps that double, then by halving. How many stay there is a sum too, and then
the next level is looked for, at which no more than these are below. With so many levels that sums of them would drown
in rounding, who is at the lowest is taken from the last answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import kinds_of, named
from bftrain_solvers.highs import solver as highs
from bftrain_solvers.levels.alike import alike
from bftrain_solvers.several.solving import solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Entries = NDArray[np.float64]

_MOST_BANDS: Final = 3  # levels at which it is counted how many stay, and not yet said who
_ROUNDING: Final = 1e-12  # relative
_FOR_LEVELS: Final = 0.8  # of the time; the rest is for what is left over
_WORDS: Final = "raised step by step"
_UNSURE: Final = "some of those equally badly off were chosen by the last answer"
_CUT: Final = "out of time: those at the lowest levels are as well off as can be, the others as time allowed"


class _OutOfTime(Exception):
    """There is no time for a further sum."""


@dataclass
class Rise:
    """How far everybody was raised. ``bands`` are levels and how many stay at them, ``floors`` those who stay."""

    table: ValueTable
    scores: Entries
    counted: Sequence[int]
    stop_at: float
    bands: list[tuple[float, int]] = field(default_factory=list)
    floors: dict[int, float] = field(default_factory=dict)
    base: float = -inf
    chosen: list[int] = field(default_factory=list)
    sure: bool = True
    worst: float | None = None  # the first level, above which not all can be

    def __post_init__(self) -> None:
        rows = self.scores[list(self.counted)]
        self._candidates: Entries = np.unique(rows[np.isfinite(rows)])
        self.chosen = [0] * len(self.scores)

    @property
    def known(self) -> int:
        """How many of the worst-off are known."""
        return len(self.floors) + sum(count for _, count in self.bands)

    def run(self, wanted: int) -> None:
        """Find the levels of the ``wanted`` worst-off."""
        while self.known < min(wanted, len(self.counted)):
            self._next()

    def _next(self) -> None:
        last = self.bands[-1][0] if self.bands else self.base
        above = self._candidates[self._candidates > last]
        # Where all others are in the last answer is within reach, and the next level seldom far from there
        ranked = sorted(self.scores[place, self.chosen[place]] for place in self._free())
        now = ranked[sum(count for _, count in self.bands)]
        low, high = int(np.searchsorted(above, now)) if self.bands or self.floors else 0, len(above) - 1
        step = 1
        while low < high and step:
            further = min(low + step, high)
            if self._reaches(float(above[further])):
                low, step = further, 2 * step
            else:
                high, step = further - 1, 0
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._reaches(float(above[middle])) else (low, middle - 1)
        level, free = float(above[low]), self._free()
        before = sum(count for _, count in self.bands)
        self.worst = level if self.worst is None else self.worst
        self.bands.append((level, len(free) - before))
        if low + 1 < len(above):  # how many have to stay at it, so that all others are above?
            chosen = self.solve(self.penalties(float(above[low + 1])))
            stay = sum(self.scores[place, chosen[place]] <= level for place in free) - before
            self.bands[-1] = (level, int(stay))
            self.chosen = chosen
        self._settle()

    def _free(self) -> list[int]:
        return [place for place in self.counted if place not in self.floors]

    def _settle(self) -> None:
        """Say who stays where only so many could, or where there are too many levels to leave it open."""
        while self.bands:
            level, count = self.bands[0]
            free = self._free()
            could = [place for place in free if (self.scores[place] == level).any()]
            if len(could) != count:
                if len(self.bands) < _MOST_BANDS:
                    return
                self.sure = False
                could = sorted(free, key=lambda place: self.scores[place, self.chosen[place]])[:count]
            self.floors.update(dict.fromkeys(could, level))
            self.base = level
            del self.bands[0]

    def _reaches(self, level: float) -> bool:
        """Say whether all can be at ``level`` or above but for those who stay below."""
        chosen = self.solve(self.penalties(level))
        below = [0] * len(self.bands)
        for place in self._free():
            score = self.scores[place, chosen[place]]
            if score >= level:
                continue
            place_in = sum(score >= band for band, _ in self.bands) - 1
            if place_in < 0:
                return False
            below[place_in] += 1
        if any(self.scores[place, chosen[place]] < floor for place, floor in self.floors.items()):
            return False
        within = all(found <= count for found, (_, count) in zip(below, self.bands, strict=True))
        if within:
            self.chosen = chosen
        return within

    def penalties(self, level: float) -> Entries:
        """Give what it costs to be below: the lower, the more, whoever many others are above."""
        entries = np.zeros_like(self.scores)
        ratio, steps = float(len(self.counted) + 1), len(self.bands)
        edges = [*(band for band, _ in self.bands), level]
        for place in self._free():
            row = self.scores[place]
            entries[place] = -(ratio**steps) * (row < edges[0])
            for number, (low, high) in enumerate(pairwise(edges)):
                entries[place] -= ratio ** (steps - 1 - number) * ((row >= low) & (row < high))
        for place, floor in self.floors.items():
            entries[place] = -(ratio**steps) * (self.scores[place] < floor)
        return entries

    def solve(self, entries: Entries) -> list[int]:
        """Give the columns with the largest sum of ``entries``, proven."""
        left_s = self.stop_at - perf_counter()
        if left_s <= 0.0:
            raise _OutOfTime
        values = np.where(np.isfinite(self.table.values), entries, -inf)
        plain = ValueTable(problem=self.table.problem, values=values)
        solution = solved(plain, Limits(deadline_s=left_s), "exact", highs)
        chosen = plain.chosen(solution.sizes, solution.kinds)
        if solution.quality is not Quality.PROVEN or chosen is None:
            raise _OutOfTime
        return chosen


def over_kinds(
    table: ValueTable, scores: Entries, counted: Sequence[int], spare: Entries, first: int | None, limits: Limits
) -> Solution:
    """Raise the ``first`` worst-off of those ``counted``, or all, by ``scores``; then take most of ``spare``."""
    started = perf_counter()
    scores = scores.copy()
    scores[list(counted)] = alike(scores[list(counted)])
    rise = Rise(table, scores, counted, started + _FOR_LEVELS * limits.deadline_s)
    done = True
    try:
        rise.run(len(counted) if first is None else first)
    except _OutOfTime:
        done = False
    rise.stop_at = started + limits.deadline_s
    try:
        rise.chosen = rise.solve(_left_over(rise, spare))
    except _OutOfTime:
        done = False
    value = table.value_at(rise.chosen)
    bound = rise.worst if counted else value
    proven = bound is not None and value >= bound - _ROUNDING * abs(bound)
    words = _WORDS if rise.sure else _UNSURE
    return Solution(
        sizes=named(table, rise.chosen),
        kinds=kinds_of(table, rise.chosen),
        value=value,
        bound=bound if bound is None else max(bound, value),
        termination=Termination.OPTIMAL if done and proven else Termination.TIME_LIMIT,
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver="exact",
        solver_words=words if done else _CUT,
        wall_s=perf_counter() - started,
    )


def _left_over(rise: Rise, spare: Entries) -> Entries:
    """Give what is done at each size, less far more than all of that for whoever would fall below where he is."""
    finite = np.where(np.isfinite(spare), spare, 0.0)
    most = 1.0 + 2.0 * float(np.abs(finite).max(axis=1, initial=0.0).sum())
    level = rise.bands[-1][0] if rise.bands else rise.base
    return finite + most * rise.penalties(level)
