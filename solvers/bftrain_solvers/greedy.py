"""``greedy``: give nodes where they bring most per node, again and again, until nothing is gained."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain import __version__
from bftrain.ports import Availability
from bftrain_solvers.answers import by_rule, refusal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.solution import Limits, Solution
    from bftrain.values.table import ValueTable


class Greedy:
    """Marginal gain: the step, of any length, with the largest gain per added node is taken first.

    It starts from nothing, sees the costs of rescaling in the table, and never takes a step back. With concave
    rows and no costs it is exact; otherwise it is a good start and a fallback that cannot fail.
    """

    name: Final = "greedy"

    def available(self) -> Availability:
        """It is always available."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - it is done before any limit
        """Choose one size per task."""
        started = perf_counter()
        refused = refusal(table, self.name)
        if refused is not None:
            return refused
        chosen = marginal_gain(table.values, table.problem.pool)
        return by_rule(table, chosen, self.name, "largest gain per node first", started)


def marginal_gain(values: NDArray[np.float64], pool: int) -> list[int]:
    """Choose a column in each row of ``values`` with a sum of at most ``pool``."""
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


solver = Greedy()
