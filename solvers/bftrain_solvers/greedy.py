"""``greedy``: give nodes where they bring most per node, again and again, until nothing is gained."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from bftrain.values.capabilities import SolverCapabilities
from bftrain_solvers.rule_based import RuleSolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.columns import Columns
    from bftrain.values.table import ValueTable


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


def gain_by_kind(values: NDArray[np.float64], columns: Columns, pools: Sequence[int]) -> list[int]:
    """Do the same with several kinds of nodes: ``pools`` of them; gives columns.

    The first step of a task takes it to the kind that brings it most per node, and there it stays.
    """
    chosen = [0] * len(values)
    free = list(pools)
    blocks = [block for _, block in columns.blocks()]
    steps: list[tuple[float, int, int, int]] = []
    for row in range(len(values)):
        _add_first(steps, values[row], row, blocks, free)
    heapify(steps)
    while steps:
        _, row, column, nodes = heappop(steps)
        kind = int(columns.kind_of[column])
        if nodes > free[kind] and chosen[row] == 0:  # another kind may be the better one now
            _add_first(steps, values[row], row, blocks, free)
            continue
        if nodes <= free[kind]:
            free[kind] -= nodes
            chosen[row] = column
        _add_further(steps, values[row], row, chosen[row], blocks[kind], free[kind])
    return chosen


def _add_first(
    steps: list[tuple[float, int, int, int]],
    row_values: NDArray[np.float64],
    row: int,
    blocks: Sequence[slice],
    free: Sequence[int],
) -> None:
    """Remember the best step up from nothing, to any kind: its rate, the row, the column it leads to, its nodes."""
    best: tuple[float, int, int] | None = None
    for block, left in zip(blocks, free, strict=True):
        found = _best_step(row_values[block][:left], float(row_values[0]))
        if found is not None and (best is None or found[0] > best[0]):
            best = (found[0], block.start + found[1] - 1, found[1])
    if best is not None:
        heappush(steps, (-best[0], row, best[1], best[2]))


def _add_further(
    steps: list[tuple[float, int, int, int]],
    row_values: NDArray[np.float64],
    row: int,
    column: int,
    block: slice,
    free: int,
) -> None:
    """Remember the best step up from ``column``, on the same kind."""
    found = _best_step(row_values[column + 1 : block.stop][:free], float(row_values[column]))
    if found is not None:
        heappush(steps, (-found[0], row, column + found[1], found[1]))


def _best_step(row_values: NDArray[np.float64], now: float) -> tuple[float, int] | None:
    """Give gain per node and nodes of the best step to one of ``row_values``, if one gains anything."""
    if row_values.size == 0:
        return None
    rates = (row_values - now) / np.arange(1, row_values.size + 1)
    best = int(rates.argmax())
    return (float(rates[best]), best + 1) if rates[best] > 0.0 else None


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


def _divided(table: ValueTable) -> list[int]:
    if table.columns.several:
        return gain_by_kind(table.values, table.columns, list(table.problem.by_kind.values()))
    return marginal_gain(table.values, table.problem.pool)


solver = RuleSolver("greedy", "largest gain per node first", _divided, SolverCapabilities(node_kinds=True))
