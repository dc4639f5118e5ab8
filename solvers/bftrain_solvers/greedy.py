"""``greedy``: give nodes where they bring most per node, again and again, until nothing is gained."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.rule import RuleSolver

if TYPE_CHECKING:
    from numpy.typing import NDArray


def marginal_gain(values: NDArray[np.float64], pool: int) -> list[int]:
    """Choose a column in each row of ``values`` with a sum of at most ``pool``.

    The step, of any length, with the largest gain per added node is taken first. It starts from nothing, sees the
    costs of rescaling in the table, and never takes a step back. With concave rows and no costs it is exact;
    otherwise it is a good start and a fallback that cannot fail.
    """
    chosen = [0] * len(values)
    free = pool
    steps: list[tuple[float, int, int, int]] = []
    for row in range(len(values)):
        _add_step(steps, values[row], row, 0, free)
    heapify(steps)
    while steps:
        _, row, size, nodes = heappop(steps)
        if nodes > free:  # others took what this step was to use: look for a shorter one
            _add_step(steps, values[row], row, size, free)
            continue
        free -= nodes
        chosen[row] = size + nodes
        _add_step(steps, values[row], row, size + nodes, free)
    return chosen


def _add_step(
    steps: list[tuple[float, int, int, int]], row_values: NDArray[np.float64], row: int, size: int, free: int
) -> None:
    """Remember the best step up from ``size`` that fits into ``free`` nodes, if one gains anything."""
    gains = row_values[size + 1 : size + 1 + free] - row_values[size]
    if gains.size == 0:
        return
    rates = gains / np.arange(1, gains.size + 1)
    best = int(rates.argmax())
    if rates[best] > 0.0:
        heappush(steps, (-float(rates[best]), row, size, best + 1))


solver = RuleSolver(
    "greedy", "largest gain per node first", lambda table: marginal_gain(table.values, table.problem.pool)
)
