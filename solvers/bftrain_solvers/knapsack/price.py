"""The price of a node: at it, the tasks want as many nodes as there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import Fault
from bftrain_solvers.knapsack.grid import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.knapsack.grid import ValueGrid

    Choice = NDArray[np.int64]

_QUICK_TRIES = 20
_MOST_TRIES = 100_000  # each try raises or lowers the price past a bend of some row: there are fewer


@dataclass(frozen=True, slots=True)
class NodePrice:
    """The price is ``rise / run`` per node; losses are multiplied by ``run`` so that they are whole numbers.

    ``least`` and ``most`` are the smallest and largest sizes without a loss; the pool lies between their sums.
    """

    rise: int
    run: int
    losses: NDArray[np.int64]
    least: Choice
    most: Choice


def priced(grid: ValueGrid, wanted: Choice, pool: int) -> NodePrice:
    """Find the price and the losses at it. ``wanted`` are the sizes wanted for nothing; their sum is above ``pool``."""
    fewest = np.zeros(len(wanted), dtype=np.int64) if grid.allowed is None else grid.allowed.argmax(axis=1)
    low, high = _bracket(grid.entries, wanted, fewest, pool)
    found = _exact(grid, low, high, pool, _QUICK_TRIES)
    if found is None:  # the bracket came out of rounded numbers: start again from one that is certain
        found = _exact(grid, wanted, fewest, pool, _MOST_TRIES)
    if found is None:
        raise Fault("no price was found at which the tasks want what there is", where="solver 'exact'")
    return found


def _bracket(entries: NDArray[np.float64], low: Choice, high: Choice, pool: int) -> tuple[Choice, Choice]:
    """Close in, in floating point, on the sizes wanted just below (too many) and just above the price.

    The price tried next is where the two lines meet that the sizes known so far put under the best total.
    """
    rows, width = entries.shape
    row = np.arange(rows)
    sizes = np.arange(width, dtype=np.float64)
    low_nodes, low_value = int(low.sum()), float(entries[row, low].sum())
    high_nodes, high_value = int(high.sum()), float(entries[row, high].sum())
    paid = np.empty_like(entries)
    while True:
        price = (low_value - high_value) / (low_nodes - high_nodes)
        np.subtract(entries, price * sizes, out=paid)
        best = paid.argmax(axis=1)
        nodes = int(best.sum())
        if not high_nodes < nodes < low_nodes:
            return low, high
        value = float(entries[row, best].sum())
        if value - low_value <= price * (nodes - low_nodes) + 1e-15 * abs(low_value):
            return low, high
        if nodes > pool:
            low, low_nodes, low_value = best, nodes, value
        else:
            high, high_nodes, high_value = best, nodes, value


def _exact(grid: ValueGrid, low: Choice, high: Choice, pool: int, tries: int) -> NodePrice | None:
    """Close in on the price in whole numbers; each try takes the slope of one row between its two sizes."""
    whole, sizes = _whole(grid), np.arange(grid.entries.shape[1])
    for _ in range(tries):
        slope = _slope(whole, low, high)
        if slope is None:
            return None
        rise, run = slope
        losses = _losses(whole, sizes, grid.allowed, rise, run)
        least = losses.argmin(axis=1)
        if int(least.sum()) > pool:
            low = least
            continue
        most = sizes[-1] - losses[:, ::-1].argmin(axis=1)
        if int(most.sum()) < pool:
            high = most
            continue
        return NodePrice(rise, run, losses, least, most)
    return None


def _whole(grid: ValueGrid) -> NDArray[np.int64]:
    entries = grid.entries if grid.allowed is None else np.where(grid.allowed, grid.entries, 0.0)
    return entries.astype(np.int64)


def _slope(whole: NDArray[np.int64], low: Choice, high: Choice) -> tuple[int, int] | None:
    """Rise and run of the row whose slope between the two sizes is nearest to that of all rows together."""
    rows = np.flatnonzero(low > high)
    if rows.size == 0:
        return None
    runs = low[rows] - high[rows]
    rises = whole[rows, low[rows]] - whole[rows, high[rows]]
    overall = float(rises.sum(dtype=np.float64)) / float(runs.sum())
    nearest = int(np.abs(rises / runs - overall).argmin())
    return int(rises[nearest]), int(runs[nearest])


def _losses(
    whole: NDArray[np.int64], sizes: NDArray[np.int64], allowed: NDArray[np.bool_] | None, rise: int, run: int
) -> NDArray[np.int64]:
    paid = whole * run
    paid -= rise * sizes
    if allowed is not None:
        np.copyto(paid, -NEVER, where=~allowed)
    losses: NDArray[np.int64] = np.subtract(paid.max(axis=1, keepdims=True), paid, out=paid)
    return losses
