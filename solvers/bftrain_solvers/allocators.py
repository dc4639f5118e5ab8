"""Allocators: known rules that say who gets how many nodes, without looking for the best. Baselines and fall-backs.

None of them looks at the objective or at what rescaling costs. Where nodes have several kinds, each task
takes the kind on which it is fastest with what is still free there.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.capabilities import SolverCapabilities
from bftrain_solvers.rule_based import RuleSolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from bftrain.values.problem import CompetingTask
    from bftrain.values.table import ValueTable

    Speeds = NDArray[np.float64]

_MOST_SETS: Final = 1_000  # of kinds that are looked at together


class FreeNodes:
    """The columns of a table, and how many nodes of each kind are still free."""

    def __init__(self, table: ValueTable) -> None:
        self.table = table
        self.tasks = table.problem.tasks
        self.chosen = [0] * len(self.tasks)
        self._left = np.array([*table.problem.by_kind.values(), 0])  # the last is for column 0, which needs none
        self._nodes, self._kind_of = table.nodes, table.kind_of

    def speeds(self, place: int) -> Speeds:
        """Speeds of a task in samples/s by column; -inf where it may not be."""
        return np.where(np.isfinite(self.table.values[place]), self.table.speeds(place), -inf)

    def fits(self) -> NDArray[np.bool_]:
        """Say which columns there are the nodes for."""
        return self._nodes <= self._left[self._kind_of]

    def give(self, place: int, column: int) -> None:
        """Give a task what ``column`` stands for, in place of what it was given."""
        for taken, sign in ((self.chosen[place], 1), (column, -1)):
            self._left[self._kind_of[taken]] += sign * self._nodes[taken]
        self.chosen[place] = column

    def fastest(self, place: int, within: NDArray[np.bool_]) -> int:
        """Give the fastest of these columns, of equal ones the one with fewest nodes; 0 if none of them runs."""
        speeds = np.where(within, self.speeds(place), -inf)
        best = np.flatnonzero(speeds >= max(float(speeds.max()), 0.0))
        return int(best[self._nodes[best].argmin()]) if best.size else 0

    def nodes(self, place: int) -> int:
        """Say how many nodes a task was given."""
        return int(self._nodes[self.chosen[place]])

    def next_faster(self, place: int) -> int:
        """Give the next column of a task's kind that fits and is faster, its smallest if it has none yet; else 0."""
        now = self.chosen[place]
        if not now:
            return self.smallest(place)
        speeds = self.speeds(place)
        free = int(self._left[self._kind_of[now]]) + int(self._nodes[now])
        of_kind = (self._kind_of == self._kind_of[now]) & (self._nodes > self._nodes[now]) & (self._nodes <= free)
        faster = np.flatnonzero(of_kind & (speeds > speeds[now]))
        return int(faster[0]) if faster.size else 0

    def smallest(self, place: int) -> int:
        """Give the column with the fewest nodes that fits and runs, of equal ones the fastest; 0 if there is none."""
        speeds = self.speeds(place)
        runs = np.flatnonzero(self.fits() & (speeds > 0.0))
        if not runs.size:
            return 0
        return int(runs[np.lexsort((-speeds[runs], self._nodes[runs]))[0]])

    def reaches(self, place: int, column: int) -> bool:
        """Say whether a task can go on to a column of the kind that it is on."""
        now = self.chosen[place]
        return bool(self._nodes[column] - self._nodes[now] <= self._left[self._kind_of[now]])

    def step(self, place: int, times: Speeds) -> tuple[float, int] | None:
        """Give the step up on the same kind that saves most of ``times`` a node, and what it saves."""
        now = self.chosen[place]
        room = int(self._left[self._kind_of[now]])
        further = self._nodes - self._nodes[now]
        reachable = np.flatnonzero((self._kind_of == self._kind_of[now]) & (further > 0) & (further <= room))
        saved = (times[now] - times[reachable]) / further[reachable]
        if not saved.size or saved.max() <= 0.0:
            return None
        best = int(saved.argmax())
        return float(saved[best]), int(reachable[best])


def _in_order(key: Callable[[CompetingTask, Speeds], float]) -> Callable[[ValueTable], list[int]]:
    """Make a rule by which one task after the other, the least ``key`` first, takes all that makes it faster."""

    def rule(table: ValueTable) -> list[int]:
        yard = FreeNodes(table)
        keys = [key(task, yard.speeds(place)) for place, task in enumerate(yard.tasks)]
        for place in sorted(range(len(keys)), key=keys.__getitem__):
            yard.give(place, yard.fastest(place, yard.fits()))
        return yard.chosen

    return rule


def _served(task: CompetingTask) -> float:
    """Node-seconds that a task had, by weight."""
    return task.held_node_s / task.weight if task.weight > 0.0 else inf


def _remaining_s(task: CompetingTask, speeds: Speeds) -> float:
    """Seconds that a task still takes at its best; what is not known, or never runs, takes for ever."""
    best = float(speeds.max())
    return inf if task.work_left_samples is None or best <= 0.0 else task.work_left_samples / best


def own_part(table: ValueTable) -> list[int]:
    """Give every task an n-th part of the nodes, and no more. Tasks that cannot run on that take turns on the rest."""
    yard = FreeNodes(table)
    part = table.problem.pool // max(len(yard.tasks), 1)
    for place in range(len(yard.tasks)):
        yard.give(place, yard.fastest(place, yard.fits() & (table.nodes <= part)))
    _take_turns(yard, (place for place, column in enumerate(yard.chosen) if not column))
    return yard.chosen


def _take_turns(yard: FreeNodes, places: Iterable[int]) -> None:
    """Let those who had least so far run on their smallest size, as far as nodes reach."""
    for place in sorted(places, key=lambda place: _served(yard.tasks[place])):
        yard.give(place, yard.smallest(place))


def by_weight(table: ValueTable) -> list[int]:
    """Give nodes by weight: the task with least for its weight goes to its next size, until no step fits."""
    if not table.columns.several:
        return _targets(table, _everywhere(table))
    yard = FreeNodes(table)
    runs = _runs_on(table, yard)
    targets = _targets(table, runs)

    def turn(place: int) -> tuple[bool, int, int]:
        """Those with the least choice first, for the others find something else; who has no weight is last."""
        return yard.tasks[place].weight <= 0.0, runs[place].bit_count(), -targets[place]

    for place in sorted(range(len(targets)), key=turn):
        yard.give(place, yard.fastest(place, yard.fits() & (table.nodes <= targets[place])))
    _by_weight_of_the_rest(yard)
    return yard.chosen


def _everywhere(table: ValueTable) -> list[int]:
    return [1] * len(table.problem.tasks)


def _runs_on(table: ValueTable, yard: FreeNodes) -> list[int]:
    """Say on which kinds each task runs at all: a number that has a bit for each of them."""
    found = []
    for place in range(len(yard.tasks)):
        kinds = np.unique(table.kind_of[(table.nodes > 0) & (yard.speeds(place) > 0.0)])
        found.append(sum(1 << int(kind) for kind in kinds))
    return found


def _by_weight_of_the_rest(yard: FreeNodes) -> None:
    """Divide the rest: the task with least for its weight goes on to the next size that makes it faster."""

    def had(place: int) -> float:
        weight = yard.tasks[place].weight
        return yard.nodes(place) / weight if weight > 0.0 else inf

    queue = [(had(place), place) for place in range(len(yard.tasks))]
    heapify(queue)
    while queue:
        _, place = heappop(queue)
        column = yard.next_faster(place)
        if column:
            yard.give(place, column)
            heappush(queue, (had(place), place))


def _targets(table: ValueTable, runs: Sequence[int]) -> list[int]:
    """Give sizes by weight such that of any kinds no more is given, to those who run on no others, than there is.

    A task may be reckoned to have nodes of several kinds. ``runs`` says on which it may have them.
    """
    tasks = table.problem.tasks
    sizes = [np.unique(table.nodes[np.isfinite(row)]).tolist() for row in table.values]
    targets = [0] * len(tasks)
    free = _free(list(table.problem.by_kind.values()), runs)
    queue: list[tuple[float, int, int]] = []  # nodes by weight, task, place of its size among its sizes
    for place, task in enumerate(tasks):
        if runs[place]:
            heappush(queue, (0.0 if task.weight > 0.0 else inf, place, 0))
    while queue:
        _, place, rung = heappop(queue)
        if rung + 1 == len(sizes[place]):
            continue
        bigger = sizes[place][rung + 1]
        concerned = [kinds for kinds in free if runs[place] & kinds == runs[place]]
        more = bigger - targets[place]
        if more <= min(free[kinds] for kinds in concerned):
            for kinds in concerned:
                free[kinds] -= more
            targets[place] = bigger
            weight = tasks[place].weight
            heappush(queue, (bigger / weight if weight > 0.0 else inf, place, rung + 1))
    return targets


def _free(counts: Sequence[int], runs: Sequence[int]) -> dict[int, int]:
    """Count the nodes of all kinds, and of those that any tasks are confined to together."""
    confined = {*runs, (1 << len(counts)) - 1} - {0}
    sets = set(confined)
    for kinds in confined:
        sets |= {kinds | other for other in sets}
        if len(sets) > _MOST_SETS:  # the rule stays a rule, only coarser
            sets = confined
            break
    return {kinds: sum(count for kind, count in enumerate(counts) if kinds >> kind & 1) for kinds in sets}


def by_time_saved(table: ValueTable) -> list[int]:
    """Let all run, those with least left first; then give nodes where they save most time to the end."""
    yard = FreeNodes(table)
    speeds = [yard.speeds(place) for place in range(len(yard.tasks))]
    left_s = [_remaining_s(task, speeds[place]) for place, task in enumerate(yard.tasks)]
    for place in sorted(range(len(speeds)), key=left_s.__getitem__):
        yard.give(place, yard.smallest(place))
    times = [_times(task, speeds[place], table.problem.horizon_s) for place, task in enumerate(yard.tasks)]
    queue: list[tuple[float, int, int]] = []

    def remember(place: int) -> None:
        found = yard.step(place, times[place])
        if found is not None:
            heappush(queue, (-found[0], place, found[1]))

    for place in (place for place, column in enumerate(yard.chosen) if column):
        remember(place)
    while queue:
        _, place, column = heappop(queue)
        if yard.reaches(place, column):
            yard.give(place, column)
        remember(place)
    return yard.chosen


def _times(task: CompetingTask, speeds: Speeds, horizon_s: float) -> Speeds:
    """Seconds to the end by column. A task without a known end counts as one with a horizon to go at its slowest."""
    runs = speeds > 0.0
    slowest = float(speeds.min(where=runs, initial=inf))
    work = task.work_left_samples if task.work_left_samples is not None else horizon_s * slowest
    return np.where(runs, work / np.where(runs, speeds, 1.0), inf)


def _allocator(name: str, words: str, rule: Callable[[ValueTable], list[int]], **looks_at: bool) -> RuleSolver:
    words = f"{words}; neither costs nor the objective looked at"
    return RuleSolver(name, words, rule, SolverCapabilities(any_coupling=True, node_kinds=True, **looks_at))


fifo = _allocator("fifo", "oldest first", _in_order(lambda task, _: -task.age_s), uses_history=True)
las = _allocator("las", "least node-time so far first", _in_order(lambda task, _: _served(task)), uses_history=True)
srtf = _allocator("srtf", "shortest time left first", _in_order(_remaining_s), uses_work_left=True)
isolated = _allocator("isolated", "every task an n-th part", own_part, uses_history=True)
proportional_share = _allocator("proportional-share", "nodes by weight", by_weight)
marginal_gain = _allocator("marginal-gain", "most time saved per node first", by_time_saved, uses_work_left=True)
