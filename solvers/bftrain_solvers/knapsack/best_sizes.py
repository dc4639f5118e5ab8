"""The multiple-choice knapsack over sizes, solved exactly in whole numbers: compiled, or by dynamic programming.

Terms: an *entry* is a row's number at a size; the *price* of a node is the amount it must earn; the *loss* of a size is
its distance to the row's best size, net of the price of nodes. A plan loses the sum of its sizes' losses, plus the
price of its idle nodes. At a good price the rows want about as many nodes as there are, and most sizes lose more than a
known plan. The remaining sizes are divided by a table over rows and nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_solvers.allocators import largest_gains
from bftrain_solvers.answers import DeadlinePassed, staying
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.knapsack.compiled_knapsack import compiled_knapsack
from bftrain_solvers.value_grid import UNREACHABLE_LOSS, ValueGrid, grid_of

_LARGEST_TABLE: Final = 10**8  # numbers of nodes, summed over all rows


class KnapsackResult(msgspec.Struct, frozen=True):
    """Sizes in row sequence. ``bound`` is ``None`` if they are proven optimal, otherwise an upper bound."""

    sizes: list[int]
    bound: float | None


def best_sizes(values: Floats, present: Sequence[int], pool: int, stop_at: float) -> KnapsackResult:
    """Choose a size in each row of ``values``, with a total of ``pool`` or less.

    The sum is maximised; ties are broken by the fewest sizes that differ from ``present``, then the fewest nodes, then
    the larger size in the first row that differs. After ``stop_at`` the best known plan is returned. Compiled code only
    accepts problems of a few milliseconds, so it needs no deadline.
    """
    compiled = compiled_knapsack()
    if compiled is not None and (sizes := compiled.best_sizes(values, present, pool)) is not None:
        return KnapsackResult(sizes, None)
    return best_sizes_with_numpy(values, present, pool, stop_at)


def best_sizes_with_numpy(values: Floats, present: Sequence[int], pool: int, stop_at: float) -> KnapsackResult:
    """Return the same as :func:`best_sizes`, without compiled code."""
    held, rows = np.array(present, dtype=np.int64), np.arange(len(values))
    grid = grid_of(values, held, [pool], stop_at=stop_at)
    wanted = grid.entries.argmax(axis=1)
    if int(wanted.sum()) <= pool:
        return KnapsackResult(wanted.tolist(), None)
    price, paid = _priced(grid, pool)
    best = paid.max(axis=1)
    losses: Integers = best[:, None] - paid
    gained = np.array(largest_gains(values, [slice(1, values.shape[1])], [pool], stop_at))
    plans = [plan for plan in (_by_price(losses, pool), gained, staying(values, held)) if int(plan.sum()) <= pool]
    lost = [sum(losses[rows, plan].tolist()) + price * (pool - int(plan.sum())) for plan in plans]
    known = plans[lost.index(min(lost))]
    try:
        if min(lost) < UNREACHABLE_LOSS:
            return KnapsackResult(_divided(losses, price, pool, min(lost), stop_at), None)
    except DeadlinePassed:
        pass
    bound = (sum(best.tolist()) + price * pool) / grid.weight * grid.unit + grid.raised
    return KnapsackResult(known.tolist(), bound)


def _priced(grid: ValueGrid, pool: int) -> tuple[int, Integers]:
    """Return the lowest whole price at which the rows' best sizes fit, and all entries net of it."""
    whole = grid.whole if grid.allowed is None else np.where(grid.allowed, grid.whole, -UNREACHABLE_LOSS)
    sizes = np.arange(whole.shape[1])
    low, high = 0, 1 + int(grid.whole.max()) - int(grid.whole.min())
    while high - low > 1:
        price = (low + high) // 2
        fits = int((whole - price * sizes).argmax(axis=1).sum()) <= pool
        low, high = (low, price) if fits else (price, high)
    return high, whole - high * sizes


def _by_price(losses: Integers, pool: int) -> Integers:
    """Return sizes that lose no more than the rounding of the price: the larger ones for the first rows that fit."""
    lossless = losses <= losses.shape[1]
    sizes: Integers = lossless.argmax(axis=1)
    steps = losses.shape[1] - 1 - lossless[:, ::-1].argmax(axis=1) - sizes
    fit = int(steps.cumsum().searchsorted(pool - int(sizes.sum()), side="right"))
    sizes[:fit] += steps[:fit]
    return sizes


def _divided(losses: Integers, price: int, pool: int, cutoff: int, stop_at: float) -> list[int]:
    """Return the plan with the least loss, which is at most ``cutoff``; raise if it takes too long."""
    choices = [np.flatnonzero(row) for row in losses <= cutoff]
    least = [int(sizes[0]) for sizes in choices]
    free = pool - sum(least)
    before = np.cumsum([0, *(int(sizes[-1]) - start for sizes, start in zip(choices, least, strict=True))])
    # Extra nodes of each row and its successors: limited by what earlier rows leave and by their own maxima
    lows = np.maximum(0, free - cutoff // price - before).tolist()
    highs = np.minimum(free, before[-1] - before).tolist()
    if sum(highs) - sum(lows) > _LARGEST_TABLE:
        raise DeadlinePassed
    table, taken = np.zeros(1, dtype=np.int64), list[NDArray[Any]]()
    for row in range(len(choices) - 1, -1, -1):
        if perf_counter() > stop_at:
            raise DeadlinePassed
        low, later = lows[row], table
        table = np.full(highs[row] - low + 1, UNREACHABLE_LOSS)
        choice = np.zeros(table.size, dtype=np.min_scalar_type(choices[row].size))
        for number, size in enumerate(choices[row].tolist()):
            shift = lows[row + 1] + size - least[row] - low
            start, end = max(0, shift), min(table.size, later.size + shift)
            if start < end:
                tried = later[start - shift : end - shift] + losses[row, size]
                better = tried <= table[start:end]  # the larger of equal sums wins
                np.copyto(table[start:end], tried, where=better)
                np.copyto(choice[start:end], number, where=better)
        taken.append(choice)
    nodes = lows[0] + int((table - price * np.arange(table.size)).argmin())
    sizes = []
    for row, choice in enumerate(reversed(taken)):
        sizes.append(int(choices[row][choice[nodes - lows[row]]]))
        nodes -= sizes[row] - least[row]
    return sizes
