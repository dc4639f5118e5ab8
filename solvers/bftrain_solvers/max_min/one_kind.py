"""Max-min allocation on one node kind: the worst-off task repeatedly takes its next step.

A task's level is its benefit at a size. LevelsReached raises the task with the lowest level until its next step does
not fit; that task is stuck, and the remaining tasks continue. Each raised task has the fewest nodes that lift it above
the stuck task, so no task could make room. This maximises the smallest level, then the second smallest, and so on. If
several tasks share the lowest level and not all can be raised, the largest possible number is raised.

GroupBudget: users share nodes by weight in the same way, and each user divides their nodes by a rule of their own.

Leftover nodes go to the tasks with the most additional work. If a tie was broken arbitrarily, plans with equal levels
but other stuck tasks may do more work. One knapsack bounds all of them: it keeps the level of the first tie and leaves
the fewest tasks below the next level. If its plan has equal levels, it is the answer; otherwise the difference is
reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from math import ceil, floor, inf, log10
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.levels import GroupLevels, LevelCoupling, UserGroup
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import DeadlinePassed
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.knapsack.best_sizes import best_sizes

OTHERS: Final = "with other tasks that are equally badly off"
_NOT_COMPARED: Final = "out of time: other, equally fair plans were not compared"
_UNSURE: Final = "ties between equally badly-off tasks were broken by a fixed rule, because a search would take long"
_WORTH_TELLING: Final = 1e-9  # relative
_ROUNDING: Final = 1e-12  # relative; some thousand times the rounding error of a few operations
_SORTED_S: Final = 1e-7  # seconds to sort a level
_LARGEST: Final = 20_000_000  # numbers examined to break a tie; about a second


def alike(levels: Floats) -> Floats:
    """Return levels with differences from rounding removed: each is replaced by the lowest of its group."""
    found, places = np.unique(levels, return_inverse=True)
    finite = np.isfinite(found)
    values = np.where(finite, found, 0.0)
    apart = np.diff(values) > _ROUNDING * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    begins = np.concatenate((np.ones(min(1, len(found)), dtype=bool), apart | ~finite[1:] | ~finite[:-1]))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(found)), 0))
    merged: Floats = found[first][places.reshape(-1)].reshape(levels.shape)
    return merged


@dataclass(frozen=True, slots=True)
class LevelSteps:
    """The ``sizes`` of a task at which its level rises, from size 0 on, and its ``levels`` there; a rung is an index.

    ``spare`` is the work at each size, if known: it breaks ties between tasks of equal level.
    """

    sizes: tuple[int, ...]
    levels: tuple[float, ...]
    spare: tuple[float, ...] = ()

    def rest(self, rung: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return further nodes and levels from ``rung`` on: tasks for which these are equal are interchangeable."""
        return tuple(size - self.sizes[rung] for size in self.sizes[rung:]), self.levels[rung:]


def level_steps(levels: Floats, pool: int, spare: Floats | None = None) -> LevelSteps:
    """Return the steps of one task from its levels by size; ``-inf`` marks sizes that are not allowed."""
    reached = levels[: pool + 1]
    before = np.maximum.accumulate(reached)[:-1]
    rungs = np.concatenate(([0], 1 + np.flatnonzero(reached[1:] > before)))
    done = () if spare is None else tuple(spare[rungs].tolist())
    return LevelSteps(tuple(rungs.tolist()), tuple(reached[rungs].tolist()), done)


def level_steps_of(levels: Floats, pool: int, stop_at: float, spare: Floats | None = None) -> list[LevelSteps]:
    """Return the steps of each row; raise :class:`DeadlinePassed` after ``stop_at``."""
    found = []
    for place, row in enumerate(levels):
        if perf_counter() > stop_at:
            raise DeadlinePassed
        found.append(level_steps(row, pool, None if spare is None else spare[place]))
    return found


@dataclass(slots=True)
class LevelsReached:
    """The rung of every task in ``rungs``; ``stuck`` lists tasks that cannot be raised, the worst-off first.

    ``sure`` is false if a tie was too large to search, so another plan may be better. ``chosen`` is the number of stuck
    tasks before the first tie that was broken arbitrarily; tasks with equal ``same`` are interchangeable.
    """

    step_lists: Sequence[LevelSteps]
    rungs: list[int]
    free: int
    stuck: list[int] = field(default_factory=list)
    sure: bool = True
    same: Sequence[bytes] = ()
    chosen: int | None = None
    stop_at: float = inf

    @classmethod
    def begin(
        cls, step_lists: Sequence[LevelSteps], pool: int, same: Sequence[bytes] = (), stop_at: float = inf
    ) -> LevelsReached:
        """Return the state with every task at its lowest rung."""
        return cls(step_lists, [0] * len(step_lists), pool, same=same, stop_at=stop_at)

    def level(self, place: int) -> float:
        """Return the current level of a task."""
        return self.step_lists[place].levels[self.rungs[place]]

    def size(self, place: int) -> int:
        """Return the current number of nodes of a task."""
        return self.step_lists[place].sizes[self.rungs[place]]

    def sizes(self) -> list[int]:
        """Return the current numbers of nodes of all tasks."""
        return [self.size(place) for place in range(len(self.step_lists))]

    def run(self, first: int | None = None) -> LevelsReached:
        """Raise the worst-off task until no task can be raised, or until the ``first`` tasks are stuck."""
        wanted = len(self.step_lists) if first is None else min(first, len(self.step_lists))
        queue = self._queue()
        while queue and len(self.stuck) < wanted:
            if perf_counter() > self.stop_at:
                raise DeadlinePassed
            if not self.free:  # all tasks are stuck
                self.stuck.extend(place for _, place in sorted(queue))
                break
            lowest = queue[0][0]
            tied = []
            while queue and queue[0][0] == lowest:
                tied.append(heappop(queue)[1])
            raised = self._raised(tied, queue, wanted - len(self.stuck))
            if raised is None:  # a search has placed all tasks
                break
            self.stuck.extend(place for place in tied if place not in raised)
            for place in raised:
                self.free -= self._step(place)
                self.rungs[place] += 1
                heappush(queue, (self.level(place), place))
        return self

    def landings(self) -> Iterator[tuple[int, list[int]]]:
        """Yield nodes used and rungs each time all tasks have left a level, as if nodes were unlimited.

        With a limit, tasks are raised in the same way up to the last of these states that fits.
        """
        used = 0
        yield used, list(self.rungs)
        queue = self._queue()
        while queue:
            if perf_counter() > self.stop_at:
                raise DeadlinePassed
            lowest = queue[0][0]
            while queue and queue[0][0] == lowest:
                place = heappop(queue)[1]
                if step := self._step(place):
                    used += step
                    self.rungs[place] += 1
                    heappush(queue, (self.level(place), place))
            yield used, list(self.rungs)

    def _queue(self) -> list[tuple[float, int]]:
        return sorted((self.level(place), place) for place in range(len(self.step_lists)))  # also a heap

    def _step(self, place: int) -> int:
        """Return the nodes that a task needs for its next rung; 0 on the last rung."""
        sizes, rung = self.step_lists[place].sizes, self.rungs[place]
        return sizes[rung + 1] - sizes[rung] if rung + 1 < len(sizes) else 0

    def _raised(self, tied: list[int], queue: Sequence[tuple[float, int]], wanted: int) -> Sequence[int] | None:
        """Choose which ``tied`` tasks are raised: all, or the largest possible number, small steps first.

        If the choice affects later levels, search the remainder for the best plan, apply it and return ``None``.
        """
        movable = [place for place in tied if 0 < self._step(place) <= self.free]
        if sum(map(self._step, movable)) <= self.free:
            return movable
        if self.chosen is None and (not self.same or len({self.same[place] for place in movable}) > 1):
            self.chosen = len(self.stuck)
        order = sorted(movable, key=self._cheapest_first)
        fits = int(np.searchsorted(np.cumsum(list(map(self._step, order))), self.free, side="right"))
        raised, left = order[:fits], order[fits:]
        if len(left) >= wanted - len(tied) + len(movable) or self._all_the_same(movable, raised, left):
            return raised
        others = [place for _, place in queue]
        options = {}  # the rungs that each could end on, and how many nodes they are from here
        for place in (*movable, *others):
            rung, now = self.rungs[place], self.size(place)
            further = enumerate(self.step_lists[place].sizes[rung:], rung)
            options[place] = [(each, size - now) for each, size in further if size - now <= self.free]
        if sum(map(len, options.values())) * (self.free + 1) * len(options) > _LARGEST:
            self.sure = False
            return raised
        for place, (rung, nodes) in _searched(self.step_lists, options, self.free).items():
            self.rungs[place] = rung
            self.free -= nodes
        self.stuck.extend(sorted({*tied, *others}, key=lambda place: (self.level(place), place)))
        return None

    def _cheapest_first(self, place: int) -> tuple[int, float, float, int]:
        steps, rung = self.step_lists[place], self.rungs[place]
        gain = steps.spare[rung + 1] - steps.spare[rung] if steps.spare else 0.0
        return self._step(place), -steps.levels[rung + 1], -gain, place

    def _all_the_same(self, movable: list[int], raised: list[int], left: list[int]) -> bool:
        """Return whether no other choice than ``raised`` can be better."""
        idle = self.free - sum(map(self._step, raised))
        if self._step(left[0]) - self._step(raised[-1]) > idle:
            return True  # no other choice of this size fits, even with the largest step replaced by the smallest
        one, *more = (self.step_lists[place].rest(self.rungs[place]) for place in movable)
        if all(other == one for other in more):
            return True
        # Where all steps are alike and use up all nodes, the best next levels are all that matters
        return idle == 0 and self._step(raised[0]) == self._step(left[-1])


def _searched(
    step_lists: Sequence[LevelSteps], options: dict[int, list[tuple[int, int]]], free: int
) -> dict[int, tuple[int, int]]:
    """Return for each task the option (rung, nodes) that makes the sorted levels of all lexicographically largest.

    Dynamic programming over tasks: if one plan for the first tasks is better than another, it stays better after an
    equal addition. ``best[n]`` contains the sorted levels of the best plan on n nodes so far.
    """
    levels = sorted({step_lists[place].levels[rung] for place, rungs in options.items() for rung, _ in rungs})
    rank = {level: place for place, level in enumerate(levels)}
    best = np.empty((free + 1, 0), dtype=np.int32)
    taken: list[tuple[int, NDArray[np.int32]]] = []
    for place, rungs in options.items():
        longer = np.full((free + 1, best.shape[1] + 1), -1, dtype=np.int32)
        choice = np.zeros(free + 1, dtype=np.int32)
        for number, (rung, nodes) in enumerate(rungs):
            given = np.full((free + 1 - nodes, 1), rank[step_lists[place].levels[rung]], dtype=np.int32)
            tried = np.sort(np.concatenate((best[: free + 1 - nodes], given), axis=1), axis=1)
            known = longer[nodes:]
            first, rows = (tried != known).argmax(axis=1), np.arange(len(tried))  # first differences
            better = tried[rows, first] > known[rows, first]
            known[better] = tried[better]
            choice[nodes:][better] = number
        best = longer
        taken.append((place, choice))
    ends = {}
    for place, choice in reversed(taken):
        ends[place] = options[place][int(choice[free])]
        free -= ends[place][1]
    return ends


class GroupBudget:
    """The level of a user for every number of nodes (``worth``), and the ``sizes`` of the user's tasks there."""

    def __init__(self, group: UserGroup, entries: Floats, pool: int, stop_at: float = inf) -> None:
        self.group = group
        self._stop_at = stop_at
        self.sure = True
        self._rows = np.zeros((pool + 1, len(entries)), dtype=np.int64)
        if group.fifo:
            self._in_turn(entries, pool)
        else:
            self._together(entries, pool)
        self.worth: Floats = entries[np.arange(len(entries)), self._rows].sum(axis=1) / group.weight

    def sizes(self, nodes: int) -> dict[int, int]:
        """Return the size of each of the user's tasks, by place."""
        return dict(zip(self.group.places, self._rows[nodes].tolist(), strict=True))

    def _together(self, entries: Floats, pool: int) -> None:
        """Divide every number of nodes: the task with the lowest weighted level is raised first."""
        step_lists = level_steps_of(alike(entries / np.array(self.group.weights)[:, None]), pool, self._stop_at)
        landings = list(LevelsReached.begin(step_lists, 0, stop_at=self._stop_at).landings())
        for (used, rungs), (following, _) in pairwise(landings):
            for nodes in range(used, min(following, pool + 1)):
                climb = LevelsReached(step_lists, list(rungs), nodes - used, stop_at=self._stop_at)
                if nodes > used:
                    climb.run()
                    self.sure &= climb.sure
                self._rows[nodes] = climb.sizes()
        most, top = landings[-1]
        self._rows[most:] = LevelsReached(step_lists, top, 0).sizes()

    def _in_turn(self, entries: Floats, pool: int) -> None:
        """Divide every number of nodes in sequence: each task takes its smallest optimal size."""
        left: Integers = np.arange(pool + 1)
        for place, row in enumerate(entries):
            sizes = np.array(level_steps(row, pool).sizes)
            self._rows[:, place] = sizes[np.searchsorted(sizes, left, side="right") - 1]
            left = left - self._rows[:, place]


def divided(budgets: Sequence[GroupBudget], pool: int, stop_at: float = inf) -> tuple[dict[int, int], bool]:
    """Raise the worst-off user first; return the sizes of all tasks by place, and whether they are proven best."""
    worth = alike(np.array([budget.worth for budget in budgets]))
    climb = LevelsReached.begin(level_steps_of(worth, pool, stop_at), pool, stop_at=stop_at).run()
    sizes: dict[int, int] = {}
    for place, budget in enumerate(budgets):
        sizes.update(budget.sizes(climb.size(place)))
    return sizes, climb.sure and all(budget.sure for budget in budgets)


def worst_first(table: ValueTable, coupling: LevelCoupling | GroupLevels, stop_at: float) -> tuple[list[int], str]:
    """Return sizes in task sequence, and the unproven part; raise if the deadline passes before any plan."""
    if isinstance(coupling, LevelCoupling):
        return _by_levels(table, coupling, stop_at)
    pool = table.problem.pool
    budgets = [GroupBudget(group, table.values[list(group.places)], pool, stop_at) for group in coupling.groups]
    sizes, sure = divided(budgets, pool, stop_at)
    scores = levelled(table.values, list(sizes), stop_at)
    floors = {place: float(scores[place, size]) for place, size in sizes.items()}
    return _filled(table, scores, coupling.spare, floors, stop_at), "" if sure else _UNSURE


def _by_levels(table: ValueTable, coupling: LevelCoupling, stop_at: float) -> tuple[list[int], str]:
    counted, scores = coupling.counted, levelled(table.values, coupling.counted, stop_at)
    pool, spare = table.problem.pool, coupling.spare
    step_lists = level_steps_of(scores[list(counted)], pool, stop_at, spare[list(counted)])
    same = [scores[place].tobytes() + spare[place].tobytes() for place in counted]
    climb = LevelsReached.begin(step_lists, pool, same, stop_at).run(coupling.first)
    known = climb.stuck[: coupling.first]
    floors = dict.fromkeys(counted, climb.level(known[-1]) if known else -inf)
    floors.update({counted[place]: climb.level(place) for place in known})
    sizes = _filled(table, scores, spare, floors, stop_at)
    if climb.chosen is None or not climb.sure:
        return sizes, "" if climb.sure else _UNSURE
    certain, levels = known[: climb.chosen], [climb.level(place) for place in known[climb.chosen :]]
    above = [level for level in levels if level > levels[0]] if levels else []
    if not above:  # no known level above the tie
        return sizes, ""
    floors = dict.fromkeys(counted, levels[0]) | {counted[place]: climb.level(place) for place in certain}
    free = [counted[place] for place in range(len(counted)) if place not in set(certain)]
    below = np.zeros(scores.shape, dtype=np.bool_)
    below[free] = scores[free] < min(above)
    relaxed = _filled(table, scores, spare - more_than_all(spare) * below, floors, stop_at)
    if perf_counter() >= stop_at:
        return sizes, _NOT_COMPARED
    if _reached(scores, coupling, relaxed) == _reached(scores, coupling, sizes):
        return relaxed, ""
    done, most = work_done(spare, sizes), work_done(spare, relaxed)
    return sizes, at_most(OTHERS, most - done, done)


def _reached(scores: Floats, coupling: LevelCoupling, sizes: Sequence[int]) -> list[float]:
    """Return the levels that count, the lowest first."""
    return sorted(float(scores[place, sizes[place]]) for place in coupling.counted)[: coupling.first]


def _filled(table: ValueTable, scores: Floats, spare: Floats, floors: Mapping[int, float], stop_at: float) -> list[int]:
    """Return the sizes with the largest sum of ``spare`` at which every task is at or above its floor."""
    values = np.where(np.isfinite(table.values), spare, -inf)
    for place, level in floors.items():
        values[place, scores[place] < level] = -inf
    least = np.isfinite(values).argmax(axis=1)
    rows, columns = np.ogrid[: values.shape[0], : values.shape[1]]
    shifted = columns + least[:, None]
    inside = shifted < values.shape[1]
    values = np.where(inside, values[rows, np.where(inside, shifted, 0)], -inf)
    present = np.array([task.size for task in table.problem.tasks], dtype=np.int64) - least
    present[present < 0] = values.shape[1]
    found = best_sizes(values, present.tolist(), table.problem.pool - int(least.sum()), stop_at)
    return [size + int(start) for size, start in zip(found.sizes, least, strict=True)]


def levelled(values: Floats, counted: Sequence[int], stop_at: float) -> Floats:
    """Return ``values`` with equal levels for ``counted`` tasks that differ only by rounding."""
    if perf_counter() + _SORTED_S * values.size > stop_at:  # there would be no time left after it
        raise DeadlinePassed
    scores = values.copy()
    scores[list(counted)] = alike(scores[list(counted)])
    return scores


def more_than_all(spare: Floats) -> float:
    """Return a cost larger than any gain in ``spare``."""
    return 1.0 + 2.0 * float(np.abs(np.where(np.isfinite(spare), spare, 0.0)).max(axis=1, initial=0.0).sum())


def work_done(spare: Floats, chosen: Sequence[int]) -> float:
    """Return the sum of ``spare`` at the chosen columns."""
    return float(spare[np.arange(len(chosen)), chosen].sum())


def at_most(words: str, more: float, done: float) -> str:
    """Return a text on how much more than ``done`` is possible; empty if negligible."""
    if more <= _WORTH_TELLING * abs(done):
        return ""
    number = 100.0 * more / abs(done) if done else more
    unit = 10.0 ** (floor(log10(number)) - 1)  # two digits, never less than there is
    return f"{words} {ceil(number / unit) * unit:.2g}{' %' if done else ''} more could be done, at most"
