"""Prices of the kinds: those at which the bound is lowest, from the linear relaxation; and what is lost at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bftrain_solvers.knapsack.grid import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.columns import Columns
    from bftrain_solvers.knapsack.grid import ValueGrid

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KindPrices:
    """Whole prices by kind, the loss of every column at them, and the bound, in units of the grid.

    ``likely`` is the column of each row that the relaxation has most of.
    """

    entries: NDArray[np.float64]
    prices: Numbers
    losses: Numbers
    bound: int
    likely: Numbers

    def worth(self, plan: Numbers) -> int:
        """Add up the entries of a plan."""
        return sum(map(int, self.entries[np.arange(len(plan)), plan].tolist()))


def priced(grid: ValueGrid, columns: Columns, pools: Numbers) -> KindPrices:
    """Find good prices. Any would give losses and a bound that hold; with these the core is small."""
    whole = np.where(_allowed(grid), grid.entries, 0.0).astype(np.int64)
    found, likely = _relaxed(grid, columns, pools)
    prices = np.rint(np.maximum(found, 0.0)).astype(np.int64)
    paid = whole - _due(prices, columns)
    paid[~_allowed(grid)] = -2 * NEVER
    best = paid.max(axis=1)
    return KindPrices(grid.entries, prices, best[:, None] - paid, _sum(best) + _sum(prices, pools), likely)


def _sum(numbers: Numbers, times: Numbers | None = None) -> int:
    """Add up, in numbers of any size."""
    many = [1] * numbers.size if times is None else times.tolist()
    return sum(number * count for number, count in zip(numbers.tolist(), many, strict=True))


def _due(prices: Numbers, columns: Columns) -> Numbers:
    """Give the price of the nodes of each column."""
    due: Numbers = np.append(prices, 0)[columns.kind_of] * columns.nodes
    return due


def _allowed(grid: ValueGrid) -> NDArray[np.bool_]:
    return np.ones(grid.entries.shape, dtype=np.bool_) if grid.allowed is None else grid.allowed


def _relaxed(grid: ValueGrid, columns: Columns, pools: Numbers) -> tuple[NDArray[np.float64], Numbers]:
    """Let every row have parts of columns that add up to one: the best prices, and the largest part of each row."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    entries = grid.entries
    rows, cols = np.nonzero(_corners(entries, columns))
    scale = float(np.abs(entries[rows, cols]).max(initial=1.0))
    count, kinds = rows.size, columns.kind_of[cols]
    places = np.arange(count)
    used = kinds >= 0
    capacity = csr_array((columns.nodes[cols][used], (kinds[used], places[used])), shape=(pools.size, count))
    convex = csr_array((np.ones(count), (rows, places)), shape=(len(entries), count))
    solve: Any = linprog  # its types do not know that arrays may be sparse
    result = solve(
        -entries[rows, cols] / scale,
        A_ub=capacity.astype(np.float64),
        b_ub=pools.astype(np.float64),
        A_eq=convex,
        b_eq=np.ones(len(entries)),
        bounds=(0, None),
        method="highs",
    )
    if result.status != 0:  # any prices hold, and the search does what it can with these
        return np.zeros(pools.size), entries.argmax(axis=1)
    parts = np.zeros(entries.shape)
    parts[rows, cols] = result.x
    return -np.asarray(result.ineqlin.marginals) * scale, parts.argmax(axis=1)


def _corners(entries: NDArray[np.float64], columns: Columns) -> NDArray[np.bool_]:
    """Say which columns the relaxation may use: those between which the entries of a kind bend downwards.

    What lies on or below the line between its neighbours is no better than parts of these.
    """
    allowed = entries > -np.inf
    corners = allowed.copy()
    nothing = np.where(allowed[:, :1], entries[:, :1], -np.inf)
    for _, block in columns.blocks():
        if block.stop - block.start == 0:
            continue
        own = np.hstack((nothing, entries[:, block], np.full_like(nothing, -np.inf)))
        known = own > -np.inf
        steps = np.diff(np.where(known, own, 0.0), axis=1)
        inside = known[:, :-2] & known[:, 2:]
        corners[:, block] &= ~inside | (steps[:, 1:] < steps[:, :-1])
    return corners
