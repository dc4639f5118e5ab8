"""The best sizes of an additive table: by compiled code if possible, otherwise with numpy."""

from __future__ import annotations

from collections.abc import Sequence

from bftrain_solvers.arrays import Floats
from bftrain_solvers.knapsack.compiled_knapsack import compiled_knapsack
from bftrain_solvers.knapsack.numpy_knapsack import KnapsackResult, LastPrice, best_sizes_with_numpy


def best_sizes(
    values: Floats,
    present: Sequence[int],
    pool: int,
    stop_at: float,
    last: LastPrice | None = None,
    row_numbers: Sequence[int] | None = None,
) -> KnapsackResult:
    """Choose sizes as :func:`best_sizes_with_numpy` does, with the same answer.

    Compiled code only accepts problems of a few milliseconds, so it needs no deadline.
    """
    compiled = compiled_knapsack()
    if compiled is not None and (sizes := compiled.best_sizes(values, present, pool, row_numbers)) is not None:
        return KnapsackResult(sizes, None)
    return best_sizes_with_numpy(values, present, pool, stop_at, last, row_numbers)
