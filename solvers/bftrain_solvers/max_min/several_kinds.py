"""Max-min allocation over several node kinds: raise the worst-off task while all tasks still fit.

The method of :mod:`bftrain_solvers.max_min.one_kind`, but checking whether all tasks fit is a separate search, since
every task may move to another kind. While all tasks can rise, they rise many levels in one step. If several tasks share
the lowest level and not all of them can rise, the fewest possible stay; a choice that matters is left open in a band.

Once all levels are known, the remainder is a sum with a penalty for falling below a level that exceeds all possible
gains: the ordinary search maximises it. If the choice of tasks at a level was arbitrary, a bound limits the additional
work of other plans with equal levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import Final

import numpy as np

from bftrain.deciding.levels import GroupLevels, LevelCoupling
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import Columns, ValueTable
from bftrain_solvers.answers import DeadlinePassed, answer
from bftrain_solvers.arrays import Floats, Integers, Mask
from bftrain_solvers.highs import solver as highs
from bftrain_solvers.max_min.feasibility import IMPOSSIBLE_USE, FeasibilityUnknown, FeasibleOptions, ResourceDemands
from bftrain_solvers.max_min.one_kind import OTHERS, at_most, levelled, more_than_all, work_done
from bftrain_solvers.node_kinds.search import best_columns, solved

_ROUNDING: Final = 1e-12  # relative
_FOR_LEVELS: Final = 0.8  # share of the time; the remainder is for the leftover nodes
_LEAST_S: Final = 0.05  # minimum time for a first plan
_WORDS: Final = "raised step by step"
_UNSURE: Final = "ties between equally badly-off tasks were broken by the last plan that fits"
_MOST_BANDS: Final = 3  # simultaneously open bands


@dataclass(frozen=True, slots=True)
class LevelStepsByKind:
    """``levels[task, rung]`` rise from the level without nodes; ``needs[task, rung, kind]`` are the nodes for them.

    Beyond the last rung of a task, its level is infinite, and no number of nodes is enough for it.
    """

    levels: Floats
    needs: Integers

    def level(self, rungs: Integers) -> Floats:
        """Return the level of every task."""
        return self.levels[np.arange(len(rungs)), rungs]

    def need(self, rungs: Integers) -> Integers:
        """Return the number of nodes that every task needs on each kind."""
        return self.needs[np.arange(len(rungs)), rungs]


def steps_by_kind(
    scores: Floats, counted: Sequence[int], columns: Columns, stop_at: float = np.inf
) -> LevelStepsByKind:
    """Return the level steps of the ``counted`` tasks from their scores by column; raise after ``stop_at``."""
    each = []
    for row in scores[list(counted)]:
        if perf_counter() > stop_at:
            raise DeadlinePassed
        risen = [np.maximum.accumulate(row[block]) for _, block in columns.blocks()]
        above = np.unique(np.concatenate(risen))
        own = np.concatenate((row[:1], above[above > row[0]]))
        nodes = [np.searchsorted(reached, own[1:]) + 1 for reached in risen]
        enough = [
            np.where(more <= len(reached), more, IMPOSSIBLE_USE) for more, reached in zip(nodes, risen, strict=True)
        ]
        each.append((own, np.column_stack([np.append(0, more) for more in enough])))
    most = 1 + max((len(own) for own, _ in each), default=0)
    levels = np.full((len(each), most), np.inf)
    needs = np.full((len(each), most, len(columns.kinds)), IMPOSSIBLE_USE, dtype=np.int64)
    for who, (own, needed) in enumerate(each):
        levels[who, : len(own)], needs[who, : len(own)] = own, needed
    return LevelStepsByKind(levels, needs)


@dataclass(frozen=True, slots=True)
class OpenLevel:
    """``count`` of the ``members`` stay at ``level``, on ``rungs``; the choice is still open.

    A place at the low level is a resource like the nodes of a kind: a task that takes one needs only the nodes of that
    level.
    """

    level: float
    count: int
    members: Mask
    rungs: Integers


@dataclass
class LevelsReachedByKind:
    """The step of every task: ``rungs``; ``stuck`` tasks stay there, ``bands`` contain tasks kept lower for now.

    Tasks with equal ``same`` are interchangeable; of these the ones that do most, by ``spare``, go up. ``sure`` is
    false if a rule decided which task stays where that affects levels; ``choice_at`` is the first level at which it
    could have been another task. ``reached`` is the last level that was found, ``worst`` the first one.
    """

    steps_by_kind: LevelStepsByKind
    limits: Integers
    same: Sequence[bytes]
    spare: Floats
    stop_at: float
    bands: list[OpenLevel] = field(default_factory=list)
    sure: bool = True
    choice_at: float = np.inf
    worst: float | None = None
    reached: float = -np.inf

    def __post_init__(self) -> None:
        count = len(self.same)
        self.rungs: Integers = np.zeros(count, dtype=np.int64)
        self.stuck: Mask = np.zeros(count, dtype=np.bool_)
        self.room = FeasibleOptions(self._needs(self.rungs, []), np.zeros(count, dtype=np.int64), self.stop_at)
        self._levels = np.unique(self.steps_by_kind.levels[np.isfinite(self.steps_by_kind.levels)])

    @property
    def known(self) -> int:
        """The number of worst-off tasks with known levels."""
        return int(self.stuck.sum()) + sum(band.count for band in self.bands)

    @property
    def lowest(self) -> float:
        """The lowest level of the tasks that may still rise; infinite without such tasks."""
        return float(self.steps_by_kind.level(self.rungs)[~self.stuck].min(initial=np.inf))

    def run(self, wanted: int) -> None:
        """Find the levels of the ``wanted`` worst-off."""
        step = 1
        while self.known < wanted and self.lowest < np.inf:
            # Raise all tasks until the worst-off is this many levels higher, if all fit there
            place = int(np.searchsorted(self._levels, self.lowest)) + step
            rungs = self._rungs_at(float(self._levels[place]) if place < len(self._levels) else np.inf)
            if self.room.ask(self._needs(rungs, self.bands)):
                self.rungs = rungs
                step *= 2
            elif step > 1:
                step //= 2
            elif self._stays(wanted):
                return
        while self.bands and self.lowest == np.inf:  # the remaining tasks are in a band
            if int(self.bands[0].members.sum()) > self.bands[0].count:
                self._chosen(self.bands[0])
            self._close(0)

    def options(self) -> tuple[Integers, Integers]:
        """Return the kind of every task, and the number of nodes that it needs there."""
        kinds = len(self.limits)
        band, kind = np.divmod(self.room.chosen, kinds)
        nodes: Integers = self.room.needs.uses[np.arange(len(band)), self.room.chosen, kind]
        return kind, nodes

    def within_reach(self, stop_at: float) -> float:
        """Return the highest level not proven unreachable for all rising tasks by ``stop_at``."""
        if not self._levels.size:
            return np.inf
        low, high = int(np.searchsorted(self._levels, self.lowest)), len(self._levels)
        while high - low > 1 and perf_counter() <= stop_at:
            middle = (low + high) // 2
            rungs = self._rungs_at(float(self._levels[middle]))
            low, high = (low, middle) if self.room.excluded(self._needs(rungs, self.bands)) else (middle, high)
        return float(self._levels[high - 1])

    def _needs(self, rungs: Integers, bands: Sequence[OpenLevel]) -> ResourceDemands:
        """Return the demands of every task: the nodes for its rung, or a place in a band and its nodes."""
        kinds = self.limits.size
        uses = np.zeros((len(rungs), kinds * (1 + len(bands)), kinds + len(bands)), dtype=np.int64)
        each = np.arange(kinds)
        uses[:, each, each] = self.steps_by_kind.need(rungs)
        for number, band in enumerate(bands):
            options = kinds * (1 + number) + each
            uses[:, options, each] = np.where(
                band.members[:, None], self.steps_by_kind.need(band.rungs), IMPOSSIBLE_USE
            )
            uses[:, options, kinds + number] = 1
        counts = np.array([band.count for band in bands], dtype=np.int64)
        return ResourceDemands(uses, np.concatenate((self.limits, counts)))

    def _rungs_at(self, level: float) -> Integers:
        lowest = (self.steps_by_kind.levels < level).sum(axis=1)  # rung of every task at or above the level
        return np.where(self.stuck, self.rungs, np.maximum(self.rungs, lowest))

    def _stays(self, wanted: int) -> bool:
        """Find which tasks stay at the lowest level, which not all can leave; return whether ``wanted`` are known."""
        level = self.reached = self.lowest
        self.worst = level if self.worst is None else self.worst
        if self.known + 1 >= wanted:
            return True
        tied = ~self.stuck & (self.steps_by_kind.level(self.rungs) == level)
        ended = tied & np.isinf(self.steps_by_kind.level(self.rungs + tied))
        ended &= ~np.logical_or.reduce([np.zeros_like(tied), *(band.members for band in self.bands)])
        if ended.any():
            self._stick(ended)
            self._settle()
            return False
        # Minimum number of tied tasks that must stay; an answer with exactly this number is reused
        few, fewest = 1, int(tied.sum())
        while few < fewest:
            middle = (few + fewest) // 2
            band = OpenLevel(level, middle, tied, self.rungs)
            if self.room.ask(self._needs(self.rungs + tied, [*self.bands, band])):
                fewest = middle
            else:
                few = middle + 1
        if fewest == int(tied.sum()):
            self._stick(tied)
        elif self.known + fewest >= wanted:
            return True
        else:
            self.bands.append(OpenLevel(level, fewest, tied, self.rungs))
            self.rungs = self.rungs + tied
        self._settle()
        return False

    def _stick(self, who: Mask) -> None:
        """Fix tasks on their rungs, outside of any band."""
        self.stuck |= who
        self.bands = [replace(band, members=band.members & ~who) for band in self.bands]

    def _settle(self) -> None:
        """Choose the staying tasks of a band if forced, if all are interchangeable, or with too many open bands."""
        number = 0
        while number < len(self.bands):
            band = self.bands[number]
            if int(band.members.sum()) > band.count:
                if self._alike(band):
                    self._exchange(number)
                elif len(self.bands) > _MOST_BANDS:
                    self.sure = False
                    self._chosen(band)
                else:
                    number += 1
                    continue
            self._close(number)
            number = 0

    def _chosen(self, band: OpenLevel) -> None:
        """Record the first level that the choice could affect: the level of any band with a common member."""
        levels = [each.level for each in self.bands if (each.members & band.members).any()]
        self.choice_at = min([*levels, self.choice_at])

    def _alike(self, band: OpenLevel) -> bool:
        """Return whether all members of a band are interchangeable."""
        members = np.flatnonzero(band.members)
        others = [each.members[members] for each in self.bands]
        return (
            len({self.same[place] for place in members.tolist()}) == 1
            and np.unique(self.rungs[members]).size == 1
            and all(each.all() or not each.any() for each in others)
        )

    def _exchange(self, number: int) -> None:
        """Keep at the low level the interchangeable members of a band with the lowest maximum of ``spare``."""
        members = np.flatnonzero(self.bands[number].members)
        low = self.room.chosen[members] // len(self.limits) == number + 1
        rows = self.spare[members]
        if (rows != rows[:1]).any():
            self._chosen(self.bands[number])
        first_low = members[np.argsort(~low, kind="stable")]
        least = members[np.argsort(rows.max(axis=1), kind="stable")]
        self.room.chosen[least] = self.room.chosen[first_low]

    def _close(self, number: int) -> None:
        """Remove a band: members that are low in the last answer stay, the remaining members rise."""
        kinds, band = len(self.limits), self.bands.pop(number)
        who = np.equal(self.room.chosen // kinds, number + 1)
        self.rungs = np.where(who, band.rungs, self.rungs)
        chosen = self.room.chosen - np.where(who, kinds * (1 + number), 0)
        self.room.chosen = chosen - np.where(chosen >= kinds * (2 + number), kinds, 0)
        self._stick(who)
        self.room.needs = self._needs(self.rungs, self.bands)


def worst_first_over_kinds(table: ValueTable, coupling: LevelCoupling | GroupLevels, limits: Limits) -> Solution:
    """Return sizes and kinds; where a group is one participant, from a mixed-integer programme."""
    if isinstance(coupling, LevelCoupling):
        return _over_kinds(table, table.values, coupling.counted, coupling.spare, coupling.first, limits)
    if any(group.fifo for group in coupling.groups):
        return highs.solve(table, limits)
    scores, counted = table.values.copy(), []
    for group in coupling.groups:
        for place, weight in zip(group.places, group.weights, strict=True):
            scores[place] *= sum(group.weights) / (group.weight * weight)
            counted.append(place)
    return _over_kinds(table, scores, counted, coupling.spare, None, limits)


def _over_kinds(
    table: ValueTable, scores: Floats, counted: Sequence[int], spare: Floats, first: int | None, limits: Limits
) -> Solution:
    """Raise the ``first`` worst-off of the ``counted`` tasks, or all, by ``scores``; then maximise ``spare``."""
    started = perf_counter()
    scores = levelled(scores, counted, started + limits.deadline_s + _LEAST_S / 2.0)
    rise = LevelsReachedByKind(
        steps_by_kind(scores, counted, table.columns, started + limits.deadline_s + _LEAST_S / 2.0),
        np.array(list(table.problem.by_kind.values()), dtype=np.int64),
        same=[scores[place].tobytes() for place in counted],
        spare=spare[list(counted)],
        stop_at=started + _FOR_LEVELS * limits.deadline_s,
    )
    cut = False
    try:
        rise.run(len(counted) if first is None else first)
    except FeasibilityUnknown:
        cut = True
    leftover = LeftoverNodes(table, scores, counted, spare, rise, cut=cut)
    columns, termination, rest_words = leftover.divide(started + limits.deadline_s)
    value = table.value_at(columns)
    # The highest level of the worst-off or, if it was not found, the highest level not proven unreachable
    reach = rise.within_reach(started + limits.deadline_s + _LEAST_S / 2.0) if cut or rise.worst is None else inf
    within = reach if rise.worst is None else rise.worst
    bound = max(value, value if rise.worst is None and within == inf else within)
    proven = value >= bound - _ROUNDING * abs(bound)
    words = _WORDS if rise.sure else _UNSURE
    if cut:
        following = sorted(scores[place, columns[place]] for place in counted)[min(rise.known, len(counted) - 1)]
        words = (
            f"out of time: the {rise.known} lowest levels are optimal, the next level is {following:.6g} and could "
            f"reach {reach:.6g}, higher levels are not proven"
        )
    words = "; ".join(filter(None, (words, rest_words)))
    if cut or not proven:
        termination = Termination.TIME_LIMIT
    return answer(table, columns, "exact", termination, proven=proven, bound=bound, words=words, started=started)


@dataclass(frozen=True)
class LeftoverNodes:
    """Assigns nodes that no level needs where they do most, while no task falls below its level.

    ``rise`` contains the levels of the ``counted`` tasks, ``spare`` the work per second at every column.
    """

    table: ValueTable
    scores: Floats
    counted: Sequence[int]
    spare: Floats
    rise: LevelsReachedByKind
    cut: bool

    def divide(self, stop_at: float) -> tuple[list[int], Termination, str]:
        """Return the columns with the largest ``spare``, and the unproven part."""
        kinds, nodes = self.rise.options()
        begins = [block.start for _, block in self.table.columns.blocks()]
        start = [0] * len(self.scores)  # the columns of the last answer
        for place, kind, needed in zip(self.counted, kinds.tolist(), nodes.tolist(), strict=True):
            start[place] = begins[kind] + needed - 1 if needed else 0
        plain = self._less(self._below())
        limits = Limits(deadline_s=max(stop_at - perf_counter(), _LEAST_S))
        found = solved(plain, limits, "exact", highs, start)
        columns = plain.chosen(found.sizes, found.kinds) or start
        proven = found.quality is Quality.PROVEN
        open_by = 0.0 if proven or found.bound is None or found.value is None else found.bound - found.value
        done = work_done(self.spare, columns)
        words = [at_most("with the same at each level", open_by, done)]
        if self.rise.choice_at < inf and not self.cut:
            words.append(at_most(OTHERS, self._others(columns, stop_at), done))
        return columns, Termination.OPTIMAL if proven else found.termination, "; ".join(filter(None, words))

    def _below(self) -> Floats:
        """Return a penalty for every column: positive below a task's level, and lower for the low levels of bands.

        With the factor of :meth:`_less` it dominates all gains, so only tasks in bands fall below their level.
        """
        floors = self.rise.steps_by_kind.level(self.rise.rungs)
        if not self.cut:
            floors = np.where(self.rise.stuck, floors, np.minimum(floors, self.rise.reached))
        ratio, bands = float(len(self.counted) + 1), self.rise.bands
        rows = self.scores[list(self.counted)]
        worse = np.where(rows < floors[:, None], ratio ** len(bands), 0.0)
        for number, band in enumerate(bands):
            low = band.members[:, None] & (rows >= band.level) & (rows < floors[:, None])
            worse = np.where(low, ratio ** (len(bands) - 1 - number), worse)
        return worse

    def _less(self, below: Floats) -> ValueTable:
        """Return the table of work at every column, minus a dominating penalty where it is ``below``."""
        finite = np.where(np.isfinite(self.spare), self.spare, 0.0)
        finite[list(self.counted)] -= more_than_all(self.spare) * below
        return ValueTable(problem=self.table.problem, values=np.where(np.isfinite(self.table.values), finite, -inf))

    def _others(self, columns: Sequence[int], stop_at: float) -> float:
        """Return a bound on how much more plans may do that choose other tasks for the open levels."""
        floors = np.minimum(self.rise.steps_by_kind.level(self.rise.rungs), self.rise.choice_at)
        for band in self.rise.bands:
            floors = np.where(band.members, np.minimum(floors, band.level), floors)
        plain = self._less((self.scores[list(self.counted)] < floors[:, None]).astype(np.float64))
        now = perf_counter()
        found = best_columns(plain, now, start=columns, prices_by=max(stop_at, now + _LEAST_S))
        most = plain.value_at(found.columns) if found.bound is None else found.bound
        return most - work_done(self.spare, columns)
