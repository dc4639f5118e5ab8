"""Allocators: simple allocation rules without an optimality search. Baselines and fallbacks.

Only ``greedy`` uses the objective and the costs of rescaling; the equal-share rules ignore even the speeds. With
several node kinds, ``fifo``, ``las`` and ``srtf`` give each task the kind on which it is fastest with the free nodes;
``equal-share-published`` supports a single kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from time import perf_counter
from typing import Final

import numpy as np

from bftrain.ports import SolverCapabilities
from bftrain.values.problem import CompetingTask
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import DeadlinePassed, RuleSolver, in_time
from bftrain_solvers.arrays import Floats, Integers, Mask

SizeRule = Callable[[Sequence[Sequence[int]], int], list[int]]  # the allowed sizes of every task, the pool

_MOST_SETS: Final = 1_000  # sets of kinds to consider
_ROWS_AT_ONCE: Final = 64  # rows between checks of the clock


class FreeNodes:
    """The columns of a table, and the free nodes of each kind."""

    def __init__(self, table: ValueTable, stop_at: float) -> None:
        if perf_counter() > stop_at:
            raise DeadlinePassed
        self.table, self._stop_at = table, stop_at
        self._speeds = np.where(np.isfinite(table.values), table.all_speeds(), -inf)
        self.tasks = table.problem.tasks
        self.chosen = [0] * len(self.tasks)
        self._left = np.array([*table.problem.by_kind.values(), 0])  # the last entry is for column 0: no nodes
        self._nodes, self._kind_of = table.nodes, table.kind_of

    def speeds(self, place: int) -> Floats:
        """Return the speeds of a task in samples/s by column; -inf where it may not run."""
        if perf_counter() > self._stop_at:
            raise DeadlinePassed
        row: Floats = self._speeds[place]
        return row

    def fits(self) -> Mask:
        """Return a mask of the columns for which there are enough free nodes."""
        return self._nodes <= self._left[self._kind_of]

    def give(self, place: int, column: int) -> None:
        """Assign ``column`` to a task, in place of its former column."""
        for taken, sign in ((self.chosen[place], 1), (column, -1)):
            self._left[self._kind_of[taken]] += sign * self._nodes[taken]
        self.chosen[place] = column

    def fastest(self, place: int, within: Mask) -> int:
        """Return the fastest of these columns (ties: the fewest nodes); 0 if no column runs."""
        speeds = np.where(within, self.speeds(place), -inf)
        best = np.flatnonzero(speeds >= max(float(speeds.max()), 0.0))
        return int(best[self._nodes[best].argmin()]) if best.size else 0

    def room(self, place: int) -> int:
        """Return the number of free nodes of a task's kind."""
        return int(self._left[self._kind_of[self.chosen[place]]])

    def further(self, place: int) -> tuple[Integers, Integers]:
        """Return the larger columns on a task's kind that fit, and their additional nodes."""
        if perf_counter() > self._stop_at:
            raise DeadlinePassed
        now = self.chosen[place]
        more = self._nodes - self._nodes[now]
        columns = np.flatnonzero((self._kind_of == self._kind_of[now]) & (more > 0) & (more <= self.room(place)))
        return columns, more[columns]

    def smallest(self, place: int) -> int:
        """Return the smallest column that fits and runs (ties: the fastest); 0 if there is no such column."""
        speeds = self.speeds(place)
        runs = np.flatnonzero(self.fits() & (speeds > 0.0))
        if not runs.size:
            return 0
        return int(runs[np.lexsort((-speeds[runs], self._nodes[runs]))[0]])


def _allowed_sizes(values: Floats) -> Iterator[list[int]]:
    """Yield the allowed sizes of each row, computed for all rows together."""
    rows, sizes = np.nonzero(values > -np.inf)
    ends, found = rows.searchsorted(np.arange(len(values) + 1)).tolist(), sizes.tolist()
    return (found[begin:end] for begin, end in pairwise(ends))


def largest_gains(values: Floats, blocks: Sequence[slice], pools: Sequence[int], stop_at: float = inf) -> list[int]:
    """Choose a column in each row of ``values``; the columns in ``blocks`` are 1, 2, ... nodes of a kind.

    Each iteration takes the step, of any length, with the largest gain per added node. It starts with no nodes,
    includes the rescaling costs in the table, and never reverses a step; a task stays on the kind of its first step.
    The result is optimal for concave rows of one kind without costs; otherwise it is a good start and a fallback that
    cannot fail. After ``stop_at`` the current choice is returned.
    """
    chosen, free = [0] * len(values), list(pools)
    counts = np.arange(1, values.shape[1] + 1)
    steps: list[tuple[float, int, int, int, int]] = []  # negative rate; row, kind, nodes and column of the step

    def add(row: int, kinds: Iterable[int]) -> None:
        """Queue the best step up that fits, if one gains anything."""
        entries, now = values[row], chosen[row]
        best = None
        for kind in kinds:
            start = now + 1 if now else blocks[kind].start
            gains = entries[start : min(blocks[kind].stop, start + free[kind])] - entries[now]
            if gains.size:
                rates = gains / counts[: gains.size]
                place = int(rates.argmax())
                rate = float(rates[place])
                if rate > 0.0 and (best is None or rate > -best[0]):
                    best = (-rate, row, kind, place + 1, start + place)
        if best is not None:
            heappush(steps, best)

    for row in range(len(values)):
        if perf_counter() > stop_at:
            break
        add(row, range(len(blocks)))
    while steps and perf_counter() < stop_at:
        _, row, kind, nodes, column = heappop(steps)
        if nodes <= free[kind]:
            free[kind] -= nodes
            chosen[row] = column
        # Other tasks may have taken the nodes of this step: find a shorter step, initially also on other kinds
        add(row, (kind,) if chosen[row] else range(len(blocks)))
    return chosen


def _divided(table: ValueTable, stop_at: float) -> list[int]:
    blocks = [block for _, block in table.columns.blocks()]
    return largest_gains(table.values, blocks, list(table.problem.by_kind.values()), stop_at)


def _in_order(key: Callable[[CompetingTask, Floats], float]) -> Callable[[ValueTable, float], list[int]]:
    """Return a rule that sorts tasks by ``key`` and gives each all nodes that make it faster."""

    def rule(table: ValueTable, stop_at: float) -> list[int]:
        free_nodes = FreeNodes(table, stop_at)
        keys = [key(task, free_nodes.speeds(place)) for place, task in enumerate(free_nodes.tasks)]
        for place in sorted(range(len(keys)), key=keys.__getitem__):
            free_nodes.give(place, free_nodes.fastest(place, free_nodes.fits()))
        return free_nodes.chosen

    return rule


def _remaining_s(task: CompetingTask, speeds: Floats) -> float:
    """Return the seconds that a task still takes at its best; infinite if unknown or if it never runs."""
    best = float(speeds.max())
    return inf if task.work_left_samples is None or best <= 0.0 else task.work_left_samples / best


def equal_part(table: ValueTable, stop_at: float) -> list[int]:
    """Assign every task an n-th part of the nodes. Tasks that cannot run on that share the rest in turn."""
    free_nodes = FreeNodes(table, stop_at)
    part = table.problem.pool // max(len(free_nodes.tasks), 1)
    for place in range(len(free_nodes.tasks)):
        free_nodes.give(place, free_nodes.fastest(place, free_nodes.fits() & (table.nodes <= part)))
    # The tasks with the least service so far run at their smallest size, as far as nodes suffice
    waiting = [place for place, column in enumerate(free_nodes.chosen) if not column]
    for place in sorted(waiting, key=lambda place: _service(free_nodes.tasks[place])):
        free_nodes.give(place, free_nodes.smallest(place))
    return free_nodes.chosen


def by_weight(table: ValueTable, stop_at: float) -> list[int]:
    """Assign nodes by weight: the task with least for its weight gets its next size, until no step fits."""
    tasks = table.problem.tasks
    if not table.columns.several:
        return _targets(table, [1] * len(tasks), stop_at)
    free_nodes = FreeNodes(table, stop_at)
    runs = []  # kinds on which each task runs, as a bit mask
    for place in range(len(tasks)):
        kinds = np.unique(table.kind_of[(table.nodes > 0) & (free_nodes.speeds(place) > 0.0)])
        runs.append(sum(1 << int(kind) for kind in kinds))
    targets = _targets(table, runs, stop_at)

    def turn(place: int) -> tuple[bool, int, int]:
        """Return the order: tasks with the least choice of kinds first, tasks without weight last."""
        return tasks[place].weight <= 0.0, runs[place].bit_count(), -targets[place]

    for place in sorted(range(len(tasks)), key=turn):
        free_nodes.give(place, free_nodes.fastest(place, free_nodes.fits() & (table.nodes <= targets[place])))
    # The task with the least service for its weight gets the next larger size that makes it faster
    queue = [(_by_weight(table.nodes[free_nodes.chosen[place]], task), place) for place, task in enumerate(tasks)]
    heapify(queue)
    while queue:
        _, place = heappop(queue)
        if now := free_nodes.chosen[place]:
            speeds, columns = free_nodes.speeds(place), free_nodes.further(place)[0]
            column = int(next(iter(columns[speeds[columns] > speeds[now]]), 0))
        else:
            column = free_nodes.smallest(place)
        if column:
            free_nodes.give(place, column)
            heappush(queue, (_by_weight(table.nodes[column], tasks[place]), place))
    return free_nodes.chosen


def _by_weight(nodes: float, task: CompetingTask) -> float:
    """Return nodes, or node-seconds, divided by weight; a task without weight counts as the largest."""
    return float(nodes) / task.weight if task.weight > 0.0 else inf


def _service(task: CompetingTask) -> float:
    """Return past node-seconds, minus a turn on the task's current nodes, divided by weight."""
    return _by_weight(task.held_node_s - task.turn_s * task.size, task)


def _targets(table: ValueTable, runs: Sequence[int], stop_at: float) -> list[int]:
    """Return sizes by weight that respect the capacity of each set of kinds.

    A task may count on several kinds. ``runs`` is a bit mask of its possible kinds.
    """
    tasks = table.problem.tasks
    sizes = [np.unique(table.nodes[np.isfinite(row)]).tolist() for row in in_time(table.values, stop_at)]
    targets = [0] * len(tasks)
    # The nodes of every kind, and of every set of kinds to which tasks are confined
    counts = list(table.problem.by_kind.values())
    confined = {*runs, (1 << len(counts)) - 1} - {0}
    sets = set(confined)
    for kinds in confined:
        sets |= {kinds | other for other in sets}
        if len(sets) > _MOST_SETS:  # the rule stays a rule, only coarser
            sets = confined
            break
    free = {kinds: sum(count for kind, count in enumerate(counts) if kinds >> kind & 1) for kinds in sets}
    # Nodes by weight, task, index of its size among its sizes
    queue = [(_by_weight(0, task), place, 0) for place, task in enumerate(tasks) if runs[place]]
    heapify(queue)
    while queue:
        if perf_counter() > stop_at:
            raise DeadlinePassed
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
            heappush(queue, (_by_weight(bigger, tasks[place]), place, rung + 1))
    return targets


def most_time_saved(table: ValueTable, stop_at: float) -> list[int]:
    """Let all tasks run, those with least work left first; then give nodes where they save most time."""
    free_nodes = FreeNodes(table, stop_at)
    speeds = [free_nodes.speeds(place) for place in range(len(free_nodes.tasks))]
    left_s = [_remaining_s(task, speeds[place]) for place, task in enumerate(free_nodes.tasks)]
    for place in sorted(range(len(speeds)), key=left_s.__getitem__):
        free_nodes.give(place, free_nodes.smallest(place))
    times = [_times(task, speeds[place], table.problem.horizon_s) for place, task in enumerate(free_nodes.tasks)]
    queue: list[tuple[float, int, int, int]] = []  # negative time saved per node, task, column, nodes of the step

    def add(place: int) -> None:
        """Queue the step up on the same kind that saves most time per node."""
        columns, more = free_nodes.further(place)
        saved = (times[place][free_nodes.chosen[place]] - times[place][columns]) / more
        if saved.size and saved.max() > 0.0:
            best = int(saved.argmax())
            heappush(queue, (-float(saved[best]), place, int(columns[best]), int(more[best])))

    for place, column in enumerate(free_nodes.chosen):
        if column:
            add(place)
    while queue:
        _, place, column, nodes = heappop(queue)
        if nodes <= free_nodes.room(place):  # other tasks may have taken the nodes of this step
            free_nodes.give(place, column)
        add(place)
    return free_nodes.chosen


def _times(task: CompetingTask, speeds: Floats, horizon_s: float) -> Floats:
    """Return the seconds until completion by column.

    For a task without a known end, one horizon at its slowest speed is assumed.
    """
    runs = speeds > 0.0
    slowest = float(speeds.min(where=runs, initial=inf))
    work = task.work_left_samples if task.work_left_samples is not None else horizon_s * slowest
    return np.where(runs, work / np.where(runs, speeds, 1.0), inf)


def _by_sizes(name: str, rule: SizeRule, *, kinds: bool = False) -> RuleSolver:
    """Build a solver from a rule that uses only the allowed sizes and the pool."""

    def divide(table: ValueTable, stop_at: float) -> list[int]:
        if table.columns.several:
            return _by_kind(table, rule, stop_at)
        allowed: list[list[int]] = []
        for first in range(0, len(table.values), _ROWS_AT_ONCE):
            allowed += _allowed_sizes(table.values[first : first + _ROWS_AT_ONCE])
            if perf_counter() > stop_at:
                raise DeadlinePassed
        return rule(allowed, table.problem.pool)

    capabilities = SolverCapabilities(any_coupling=True, node_kinds=kinds)
    return RuleSolver(name, "speeds and costs not looked at", divide, capabilities)


def _by_kind(table: ValueTable, rule: SizeRule, stop_at: float) -> list[int]:
    """Assign every task to one kind of nodes, then divide each kind; return columns.

    In sequence, each task moves to the kind with the most nodes per task; its current kind counts double, which
    prevents oscillation.
    """
    pools, blocks = list(table.problem.by_kind.values()), [block for _, block in table.columns.blocks()]
    there: list[list[tuple[int, list[int]]]] = [[] for _ in pools]  # the tasks on each kind, and their sizes there
    room = list(pools)  # nodes left on each kind after all its tasks have their smallest size
    for place, (task, row) in in_time(enumerate(zip(table.problem.tasks, table.values, strict=True)), stop_at):
        sizes = [[0, *(np.flatnonzero(row[block] > -np.inf) + 1).tolist()] for block in blocks]
        runs = [kind for kind in range(len(pools)) if len(sizes[kind]) > 1 and sizes[kind][1] <= room[kind]]
        if runs:
            own = table.kinds.index(task.kind) if task.size and task.kind in table.kinds else -1
            kind = max(runs, key=lambda kind: ((1 + (kind == own)) * pools[kind] / (1 + len(there[kind])), kind == own))
            there[kind].append((place, sizes[kind]))
            room[kind] -= sizes[kind][1]
    chosen = [0] * len(table.values)
    for tasks, pool, block in zip(there, pools, blocks, strict=True):
        for (place, _), size in zip(tasks, rule([sizes for _, sizes in tasks], pool), strict=True):
            chosen[place] = block.start + size - 1 if size else 0
    return chosen


def fill_evenly(allowed: Sequence[Sequence[int]], pool: int) -> list[int]:
    """Raise the task with fewest nodes to its next allowed size, the earlier task first, until no step fits.

    ``allowed`` contains the allowed sizes of every task, increasing from 0.
    """
    chosen = [0] * len(allowed)
    free = pool
    queue = [(0, task, 0) for task in range(len(allowed))]  # size, task, index of the size in the allowed sizes
    while queue and free:
        size, task, place = heappop(queue)
        if place + 1 == len(allowed[task]):
            continue
        bigger = allowed[task][place + 1]
        if bigger - size <= free:
            free -= bigger - size
            chosen[task] = bigger
            heappush(queue, (bigger, task, place + 1))
    return chosen


def published_rule(allowed: Sequence[Sequence[int]], pool: int) -> list[int]:
    """Apply the rule of the published replayer.

    The share of a task is ``pool // tasks``. A task with a minimum below the share gets it, limited by its maximum; any
    other task gets no nodes. The remainder is distributed in sequence, up to each maximum (to a task without nodes only
    if its minimum is available).
    """
    share = pool // len(allowed) if allowed else 0
    chosen = [_at_most(sizes, share) if len(sizes) > 1 and share > sizes[1] else 0 for sizes in allowed]
    free = pool - sum(chosen)
    for task, sizes in enumerate(allowed):
        bigger = _at_most(sizes, chosen[task] + free)
        free -= bigger - chosen[task]
        chosen[task] = bigger
    return chosen


def _at_most(sizes: Sequence[int], limit: int) -> int:
    return max(size for size in sizes if size <= limit)


def _allocator(name: str, words: str, rule: Callable[[ValueTable, float], list[int]], **properties: bool) -> RuleSolver:
    words = f"{words}; neither costs nor the objective looked at"
    return RuleSolver(name, words, rule, SolverCapabilities(any_coupling=True, node_kinds=True, **properties))


fifo = _allocator("fifo", "oldest first", _in_order(lambda task, _: -task.age_s), uses_history=True)
las = _allocator("las", "least node-time so far first", _in_order(lambda task, _: _service(task)), uses_history=True)
srtf = _allocator("srtf", "shortest time left first", _in_order(_remaining_s), uses_work_left=True)
isolated = _allocator("isolated", "every task an n-th part", equal_part, uses_history=True)
proportional_share = _allocator("proportional-share", "nodes by weight", by_weight)
marginal_gain = _allocator("marginal-gain", "most time saved per node first", most_time_saved, uses_work_left=True)
equal_share = _by_sizes("equal-share", fill_evenly, kinds=True)
equal_share_published = _by_sizes("equal-share-published", published_rule)
greedy = RuleSolver("greedy", "largest gain per node first", _divided, SolverCapabilities(node_kinds=True))
