"""Value tables written down entry by entry, and the best sizes in them found the slow, obvious way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from bftrain import AllocationProblem, CompetingTask, SpeedCurve, ValueTable
from tests.helpers.named_parts import THROUGHPUT, table_for

_CURVE = SpeedCurve(nodes=(1,), rate=(1.0,))


def table_of(values: ArrayLike, pool: int, present: Sequence[int] | None = None) -> ValueTable:
    """Return a table of these entries; the tasks are called t0, t1, ... and hold ``present`` nodes."""
    entries = np.array(values, dtype=np.float64)
    rows, width = entries.shape
    sizes = present or [0] * rows
    tasks = tuple(
        CompetingTask(name=f"t{row}", size=sizes[row], max_nodes=max(width - 1, 1), curve=_CURVE) for row in range(rows)
    )
    return ValueTable(problem=AllocationProblem(pool=pool, horizon_s=1.0, tasks=tasks), values=entries)


def table_of_problem(problem: AllocationProblem) -> ValueTable:
    """Return the table by which solvers decide, for the usual objective."""
    return table_for(THROUGHPUT, problem)


def best_sizes_by_trying_all(table: ValueTable) -> list[int]:
    """Try every choice: largest sum, then fewest rescales, then fewest nodes, then more for the earlier task.

    The sums are those of floats, so use whole numbers where equal sums matter.
    """
    present = [task.size for task in table.problem.tasks]
    best: tuple[float, int, int, tuple[int, ...]] = (-inf, 0, 0, ())
    for sizes in product(*(np.flatnonzero(row > -inf).tolist() for row in table.values)):
        if sum(sizes) <= table.problem.pool:
            value = sum(float(table.values[row, size]) for row, size in enumerate(sizes))
            rescales = sum(size != was for size, was in zip(sizes, present, strict=True))
            best = max(best, (value, -rescales, -sum(sizes), sizes))
    return list(best[3])


def best_sizes_by_plain_programme(table: ValueTable) -> list[int]:
    """Find the same by a dynamic programme over every node and every size, in whole numbers of any length."""
    pool, rows = table.problem.pool, len(table.values)
    # best[task][nodes]: (value, -rescales) of this task and the later ones with exactly so many nodes
    best: list[list[tuple[int, int] | None]] = [[None] * (pool + 1) for _ in range(rows + 1)]
    best[rows][0] = (0, 0)
    choices = [
        [
            (size, int(value), -(size != task.size))
            for size, value in enumerate(row.tolist())
            if value > -inf and size <= pool
        ]
        for row, task in zip(table.values, table.problem.tasks, strict=True)
    ]
    for task in reversed(range(rows)):
        for size, value, change in choices[task]:
            for nodes in range(size, pool + 1):
                later = best[task + 1][nodes - size]
                if later is not None:
                    found = (later[0] + value, later[1] + change)
                    known = best[task][nodes]
                    best[task][nodes] = found if known is None else max(known, found)
    top = max(found for found in best[0] if found is not None)
    nodes = best[0].index(top)
    chosen = []
    for task in range(rows):
        for size, value, change in reversed(choices[task]):
            later = best[task + 1][nodes - size] if size <= nodes else None
            if later is not None and (later[0] + value, later[1] + change) == best[task][nodes]:
                chosen.append(size)
                nodes -= size
                break
    return chosen
