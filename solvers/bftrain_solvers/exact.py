"""``exact``: the best sizes there are, and their proof."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain import __version__
from bftrain.ports import Availability
from bftrain.values.solution import Quality, Solution, Termination
from bftrain_solvers.answers import named, refusal, total

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.solution import Limits
    from bftrain.values.table import ValueTable

_NEVER: Final = np.int64(-(2**62))


class Exact:
    """A multiple-choice knapsack over sizes. Ties: fewest rescales, then fewest nodes, then earlier tasks get more."""

    name: Final = "exact"

    def available(self) -> Availability:
        """It is always available: it needs numpy only."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - fast enough for any limit
        """Choose one size per task."""
        started = perf_counter()
        refused = refusal(table, self.name)
        if refused is not None:
            return refused
        chosen = best_sizes(table.values, [task.size for task in table.problem.tasks], table.problem.pool)
        value = total(table, chosen)
        return Solution(
            sizes=named(table, chosen),
            value=value,
            bound=value,
            termination=Termination.OPTIMAL,
            quality=Quality.PROVEN,
            solver=self.name,
            wall_s=perf_counter() - started,
        )


def best_sizes(values: NDArray[np.float64], present: list[int], pool: int) -> list[int]:
    """Choose the column of each row: largest sum, then fewest changes from ``present``, fewest nodes, earlier rows."""
    tasks, width = values.shape
    if tasks == 0:
        return []
    worth = _keys(values, present)
    best = np.full((tasks + 1, pool + 1), _NEVER)
    best[tasks, 0] = 0  # exactly this many nodes are used by this task and the later ones
    for task in range(tasks - 1, -1, -1):
        for size in range(min(width - 1, pool) + 1):
            if worth[task, size] > _NEVER:
                part = best[task, size:]
                np.maximum(part, best[task + 1, : pool + 1 - size] + worth[task, size], out=part)
    nodes = int(best[0].argmax())
    chosen = []
    for task in range(tasks):
        sizes = np.arange(min(nodes, width - 1) + 1)
        with_rest = np.where(worth[task, sizes] > _NEVER, best[task + 1, nodes - sizes] + worth[task, sizes], _NEVER)
        size = int(np.flatnonzero(with_rest == best[task, nodes])[-1])
        chosen.append(size)
        nodes -= size
    return chosen


def _keys(values: NDArray[np.float64], present: list[int]) -> NDArray[np.int64]:
    """Whole numbers in the order of (value, fewest changes), so that sums of them are exact."""
    allowed = np.isfinite(values)
    largest = float(np.abs(values, where=allowed, out=np.zeros_like(values)).max())
    tasks = len(values)
    unit = 2.0 ** (np.ceil(np.log2(max(largest, 1e-300) * (tasks + 1) ** 2)) - 59)
    keys = np.where(allowed, np.rint(np.where(allowed, values, 0.0) / unit), 0.0).astype(np.int64) * (tasks + 1)
    keys -= np.arange(values.shape[1]) != np.asarray(present)[:, None]
    return np.where(allowed, keys, _NEVER)


solver = Exact()
