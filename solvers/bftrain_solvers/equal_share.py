"""``equal-share``: the same number of nodes for every task, as far as minima and maxima allow; speeds do not count."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from bftrain.values.capabilities import SolverCapabilities
from bftrain_solvers.rule_based import RuleSolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bftrain.values.table import ValueTable


def _by_sizes(
    name: str, rule: Callable[[Sequence[Sequence[int]], int], list[int]], *, kinds: bool = False
) -> RuleSolver:
    """Make a solver of a rule that looks only at the allowed sizes and the pool."""

    def divide(table: ValueTable) -> list[int]:
        if table.columns.several:
            return _by_kind(table, rule)
        return rule([np.flatnonzero(row > -np.inf).tolist() for row in table.values], table.problem.pool)

    return RuleSolver(
        name, "speeds and costs not looked at", divide, SolverCapabilities(any_coupling=True, node_kinds=kinds)
    )


def _by_kind(table: ValueTable, rule: Callable[[Sequence[Sequence[int]], int], list[int]]) -> list[int]:
    """Send every task to one kind of nodes, then divide each kind; gives columns.

    In their order the tasks go where most nodes are for each of those who are there; the kind that a task runs on
    counts twice, so that tasks do not wander.
    """
    pools, blocks = list(table.problem.by_kind.values()), [block for _, block in table.columns.blocks()]
    there: list[list[tuple[int, list[int]]]] = [[] for _ in pools]  # the tasks on each kind, and their sizes there
    for place, (task, row) in enumerate(zip(table.problem.tasks, table.values, strict=True)):
        sizes = [[0, *(np.flatnonzero(row[block] > -np.inf) + 1).tolist()] for block in blocks]
        runs = [
            kind
            for kind in range(len(pools))
            if len(sizes[kind]) > 1 and sizes[kind][1] <= _room(there[kind], pools[kind])
        ]
        if runs:
            own = table.kinds.index(task.kind) if task.size and task.kind in table.kinds else -1
            kind = max(runs, key=lambda kind: ((1 + (kind == own)) * pools[kind] / (1 + len(there[kind])), kind == own))
            there[kind].append((place, sizes[kind]))
    chosen = [0] * len(table.values)
    for tasks, pool, block in zip(there, pools, blocks, strict=True):
        for (place, _), size in zip(tasks, rule([sizes for _, sizes in tasks], pool), strict=True):
            chosen[place] = block.start + size - 1 if size else 0
    return chosen


def _room(tasks: Sequence[tuple[int, list[int]]], pool: int) -> int:
    """Give how many nodes are left when all ``tasks`` have their smallest size."""
    return pool - sum(sizes[1] for _, sizes in tasks)


def fill_evenly(allowed: Sequence[Sequence[int]], pool: int) -> list[int]:
    """Raise the task with fewest nodes to its next allowed size, the earlier task first, until no step fits.

    ``allowed`` holds the allowed sizes of every task, rising from 0.
    """
    chosen = [0] * len(allowed)
    free = pool
    queue: list[tuple[int, int, int]] = []  # size now, task, place of that size among the task's allowed sizes
    for task in range(len(allowed)):
        heappush(queue, (0, task, 0))
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
    """Follow the rule of the published replayer.

    The share of a task is ``pool // tasks``. A task whose minimum is below the share gets it, up to its maximum;
    any other gets nothing. What is left goes to the tasks in their order, each up to its maximum (a task
    that is still at nothing only if its minimum is left).
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


solver = _by_sizes("equal-share", fill_evenly, kinds=True)
published = _by_sizes("equal-share-published", published_rule)
