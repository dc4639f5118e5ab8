"""LevelsReachedByKind: over several kinds of nodes the worst-off task rises as long as all tasks still fit.

As on one kind (:mod:`bftrain_solvers.max_min.one_kind`), but whether there is room is a question of its own, since
every task may change to another kind. While all can rise, they do so many levels at once. Where several are equally
badly off and not all of them can rise, as few as possible stay; if it matters who, that is left open in a band.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.max_min.feasibility import FeasibleOptions
from bftrain_solvers.max_min.open_levels import OpenLevel, needs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_solvers.max_min.demands import ResourceDemands
    from bftrain_solvers.max_min.steps_by_kind import LevelStepsByKind

    Numbers = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Entries = NDArray[np.float64]

_MOST_BANDS: Final = 3  # open at once


@dataclass
class LevelsReachedByKind:
    """The step of every task: ``rungs``; those ``stuck`` stay there, ``bands`` holds tasks kept lower for now.

    Who is the ``same`` may change places with another one; then those who could do most, by ``spare``, go up. ``sure``
    says that it was never left to a rule who stays where that matters to levels, ``choice_at`` is the first level at
    which it could have been another task. ``reached`` is the last level that was found, ``worst`` the first one.
    """

    stairs: LevelStepsByKind
    limits: Numbers
    same: Sequence[bytes]
    spare: Entries
    stop_at: float
    bands: list[OpenLevel] = field(default_factory=list)
    sure: bool = True
    choice_at: float = np.inf
    worst: float | None = None
    reached: float = -np.inf

    def __post_init__(self) -> None:
        people = len(self.same)
        self.rungs: Numbers = np.zeros(people, dtype=np.int64)
        self.stuck: Mask = np.zeros(people, dtype=np.bool_)
        self.room = FeasibleOptions(self._needs(self.rungs, []), np.zeros(people, dtype=np.int64), self.stop_at)
        self._levels = np.unique(self.stairs.levels[np.isfinite(self.stairs.levels)])

    @property
    def known(self) -> int:
        """How many of the worst-off are known."""
        return int(self.stuck.sum()) + sum(band.count for band in self.bands)

    @property
    def lowest(self) -> float:
        """The level of the worst-off of those who may still go up; infinite if there are none."""
        return float(self.stairs.level(self.rungs)[~self.stuck].min(initial=np.inf))

    def run(self, wanted: int) -> None:
        """Find the levels of the ``wanted`` worst-off."""
        step = 1
        while self.known < wanted and self.lowest < np.inf:
            if self._leaps(step):
                step *= 2
            elif step > 1:
                step //= 2
            elif self._stays(wanted):
                return
        while self.bands and self.lowest == np.inf:  # the tasks left are in one of them
            if int(self.bands[0].members.sum()) > self.bands[0].count:
                self._chosen(self.bands[0])
            self._close(0, self._low(0))

    def options(self) -> tuple[Numbers, Numbers]:
        """Return the kind that every task is on, and how many nodes of it that task needs."""
        kinds = len(self.limits)
        band, kind = np.divmod(self.room.chosen, kinds)
        nodes: Numbers = self.room.needs.uses[np.arange(len(band)), self.room.chosen, kind]
        return kind, nodes

    def within_reach(self) -> float:
        """Give the highest level of which it is not known yet that not all who go up can be there."""
        if not self._levels.size:
            return np.inf
        low, high = int(np.searchsorted(self._levels, self.lowest)), len(self._levels)
        while high - low > 1:
            middle = (low + high) // 2
            rungs = self._rungs_at(float(self._levels[middle]))
            low, high = (low, middle) if self.room.excluded(self._needs(rungs, self.bands)) else (middle, high)
        return float(self._levels[low])

    def _needs(self, rungs: Numbers, bands: Sequence[OpenLevel]) -> ResourceDemands:
        return needs_of(self.stairs, rungs, bands, self.limits)

    def _rungs_at(self, level: float) -> Numbers:
        return np.where(self.stuck, self.rungs, np.maximum(self.rungs, self.stairs.rungs_at(level)))

    def _leaps(self, step: int) -> bool:
        """Raise all to where the worst-off is so many levels higher, if all find room there."""
        place = int(np.searchsorted(self._levels, self.lowest)) + step
        rungs = self._rungs_at(float(self._levels[place]) if place < len(self._levels) else np.inf)
        if not self.room.ask(self._needs(rungs, self.bands)):
            return False
        self.rungs = rungs
        return True

    def _stays(self, wanted: int) -> bool:
        """Find who stays at the lowest level, which not all can leave; says whether that is all that was wanted."""
        level = self.reached = self.lowest
        self.worst = level if self.worst is None else self.worst
        if self.known + 1 >= wanted:
            return True
        tied = ~self.stuck & (self.stairs.level(self.rungs) == level)
        ended = tied & np.isinf(self.stairs.level(self.rungs + tied))
        ended &= ~np.logical_or.reduce([np.zeros_like(tied), *(band.members for band in self.bands)])
        if ended.any():
            self._stick(ended)
            self._settle()
            return False
        fewest = self._fewest(tied, level)
        if fewest == int(tied.sum()):
            self._stick(tied)
        elif self.known + fewest >= wanted:
            return True
        else:
            self.bands.append(OpenLevel(level, fewest, tied, self.rungs))
            self.rungs = self.rungs + tied
        self._settle()
        return False

    def _fewest(self, tied: Mask, level: float) -> int:
        """Say how few of the ``tied`` have to stay, and take over an answer in which only so many do."""
        few, many = 1, int(tied.sum())
        while few < many:
            middle = (few + many) // 2
            band = OpenLevel(level, middle, tied, self.rungs)
            if self.room.ask(self._needs(self.rungs + tied, [*self.bands, band])):
                many = middle
            else:
                few = middle + 1
        return many

    def _stick(self, who: Mask) -> None:
        """Say of some that they stay on their rungs, and so are in no band."""
        self.stuck |= who
        self.bands = [band.without(who) for band in self.bands]

    def _low(self, number: int) -> Mask:
        """Say who is low in a band, in the last answer."""
        low: Mask = self.room.chosen // len(self.limits) == number + 1
        return low

    def _settle(self) -> None:
        """Choose the tasks that stay in a band: no other could, all are alike, or too many are open."""
        number = 0
        while number < len(self.bands):
            band = self.bands[number]
            if int(band.members.sum()) == band.count:
                self._close(number, self._low(number))
            elif self._alike(band):
                self._exchange(number)
                self._close(number, self._low(number))
            elif len(self.bands) > _MOST_BANDS:
                self.sure = False
                self._chosen(band)
                self._close(number, self._low(number))
            else:
                number += 1
                continue
            number = 0

    def _chosen(self, band: OpenLevel) -> None:
        """Remember from which level on it could be another task: that of any band that a member might be in."""
        levels = [each.level for each in self.bands if (each.members & band.members).any()]
        self.choice_at = min([*levels, self.choice_at])

    def _alike(self, band: OpenLevel) -> bool:
        """Say whether all members may change places."""
        members = np.flatnonzero(band.members)
        others = [each.members[members] for each in self.bands]
        return (
            len({self.same[place] for place in members.tolist()}) == 1
            and np.unique(self.rungs[members]).size == 1
            and all(each.all() or not each.any() for each in others)
        )

    def _exchange(self, number: int) -> None:
        """Let those stay in a band, of members who are alike, who have least to gain."""
        members, low = np.flatnonzero(self.bands[number].members), self._low(number)
        rows = self.spare[members]
        if (rows != rows[:1]).any():
            self._chosen(self.bands[number])
        first_low = members[np.argsort(~low[members], kind="stable")]
        least = members[np.argsort(rows.max(axis=1), kind="stable")]
        self.room.chosen[least] = self.room.chosen[first_low]

    def _close(self, number: int, who: Mask) -> None:
        """Take a band away: those ``who`` are in it stay, all others do not."""
        kinds, band = len(self.limits), self.bands.pop(number)
        self.rungs = np.where(who, band.rungs, self.rungs)
        self.room.chosen = self.room.chosen - np.where(who, kinds * (1 + number), 0)
        self.room.chosen = self.room.chosen - np.where(self.room.chosen >= kinds * (2 + number), kinds, 0)
        self._stick(who)
        self.room.needs = self._needs(self.rungs, self.bands)
