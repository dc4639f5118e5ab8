"""The multiple-choice knapsack over sizes, solved exactly in whole numbers.

Terms: an *entry* is a row's number at a size; the *price* of a node is the amount it must earn; the *loss* of a size is
its distance to the row's best size, net of the price of nodes. At a good price the tasks want exactly the available
nodes, and the loss of almost every size is too large to be compensated. The remaining *core* is small
(:mod:`bftrain_solvers.knapsack.core`). It is divided over stages (:mod:`bftrain_solvers.knapsack.stages`), and grows
until it provably contains the best plan. Prices, losses and cores are computed once for all equal rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from bftrain.errors import Fault
from bftrain_solvers.answers import DeadlinePassed
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.knapsack.core import Candidates, Core, NodePrice
from bftrain_solvers.knapsack.row_kinds import RowKinds, kinds_of_rows
from bftrain_solvers.knapsack.stages import SearchBounds, Stage, best_division, least_loss, quick_division
from bftrain_solvers.value_grid import LARGEST_PRODUCT, NEVER, ValueGrid, grid_of

_QUICK_TRIES: Final = 20
_MOST_TRIES: Final = 100_000  # each try raises or lowers the price past a bend of some row: there are fewer
_FIRST_CORE: Final = 32  # sizes with a loss in the first core; measured: enough for most problems
_GROWTH: Final = 16
_FEW_ALIKE: Final = 3
_MOST_FREE: Final = 64
_MOST_CANDIDATES: Final = 64  # sizes with a loss, for an exhaustive search of sums


@dataclass(slots=True)
class LastPrice:
    """The last price, ``rise / run`` on a grid of ``unit`` and ``weight``, which is tried first.

    From one decision to the next few tasks change, so mostly it is right again. The best sizes are the same for any
    right price, so an answer does not depend on earlier calls.
    """

    rise: int = 0
    run: int = 0
    unit: float = 0.0
    weight: int = 0

    def fits(self, grid: ValueGrid) -> bool:
        """Return whether it is a price on ``grid`` at which no number overflows."""
        width = grid.entries.shape[1]
        alike = self.unit == grid.unit and self.weight == grid.weight
        return alike and 0 < self.run < width and self.rise * width <= LARGEST_PRODUCT

    def keep(self, found: NodePrice, grid: ValueGrid) -> None:
        """Store a price."""
        self.rise, self.run, self.unit, self.weight = found.rise, found.run, grid.unit, grid.weight


def priced(grid: ValueGrid, wanted: Integers, pool: int, copies: Integers, last: LastPrice | None = None) -> NodePrice:
    """Find the price and the losses at it. ``wanted`` are the sizes at a price of 0; their sum exceeds ``pool``.

    ``copies`` is the number of rows that each row of the grid represents.
    """
    fewest = np.zeros(len(wanted), dtype=np.int64) if grid.allowed is None else grid.allowed.argmax(axis=1)
    low, high = wanted, fewest
    if last is not None and last.fits(grid):
        tried = _losses_at(grid, grid.whole, last.rise, last.run)
        if int(tried.least @ copies) > pool:
            low = tried.least
        elif int(tried.most @ copies) < pool:
            high = tried.most
        else:
            return tried
    low, high = _bracket(grid.entries, low, high, pool, copies)
    found = _exact(grid, low, high, pool, copies, _QUICK_TRIES)
    if found is None:  # the bracket suffered from rounding: restart from a safe one
        found = _exact(grid, wanted, fewest, pool, copies, _MOST_TRIES)
    if found is None:
        raise Fault("no price was found at which the tasks want what there is", where="solver 'exact'")
    if last is not None:
        last.keep(found, grid)
    return found


def _bracket(entries: Floats, low: Integers, high: Integers, pool: int, copies: Integers) -> tuple[Integers, Integers]:
    """Return, in floating point, the desired sizes just below the price (too many nodes) and just above.

    Each next price is where the lines of the two known plans intersect.
    """
    rows, width = entries.shape
    row = np.arange(rows)
    sizes = np.arange(width, dtype=np.float64)
    count = copies.astype(np.float64)
    low_nodes, low_value = int(low @ copies), float(entries[row, low] @ count)
    high_nodes, high_value = int(high @ copies), float(entries[row, high] @ count)
    paid = np.empty_like(entries)
    while True:
        price = (low_value - high_value) / (low_nodes - high_nodes)
        np.subtract(entries, price * sizes, out=paid)
        best = paid.argmax(axis=1)
        nodes = int(best @ copies)
        if not high_nodes < nodes < low_nodes:
            return low, high
        value = float(entries[row, best] @ count)
        if value - low_value <= price * (nodes - low_nodes) + 1e-15 * abs(low_value):
            return low, high
        if nodes > pool:
            low, low_nodes, low_value = best, nodes, value
        else:
            high, high_nodes, high_value = best, nodes, value


def _exact(grid: ValueGrid, low: Integers, high: Integers, pool: int, copies: Integers, tries: int) -> NodePrice | None:
    """Narrow down the price in integers; each try is the slope of one row between its two sizes."""
    whole = grid.whole
    for _ in range(tries):
        rows = (low > high).nonzero()[0]
        if rows.size == 0:
            return None
        # Rise and run of the row whose slope between the two sizes is nearest to the slope of all rows together
        runs = low[rows] - high[rows]
        rises = whole[rows, low[rows]] - whole[rows, high[rows]]
        overall = float(rises.astype(np.float64) @ copies[rows]) / float(runs @ copies[rows])
        nearest = int(np.abs(rises / runs - overall).argmin())
        rise, run = int(rises[nearest]), int(runs[nearest])
        found = _losses_at(grid, whole, rise, run)
        if int(found.least @ copies) > pool:
            low = found.least
        elif int(found.most @ copies) < pool:
            high = found.most
        else:
            return found
    return None


def _losses_at(grid: ValueGrid, whole: Integers, rise: int, run: int) -> NodePrice:
    last = grid.entries.shape[1] - 1
    paid = whole * run
    paid -= rise * np.arange(last + 1)
    if grid.allowed is not None:
        np.copyto(paid, -NEVER, where=~grid.allowed)
    losses: Integers = np.subtract(np.maximum.reduce(paid, axis=1, keepdims=True), paid, out=paid)
    lossless = losses == 0
    least = lossless.argmax(axis=1)  # the first; of yes and no this is faster than the smallest number
    most = last - lossless[:, ::-1].argmax(axis=1)
    return NodePrice(rise, run, losses, least, most)


def fewer_stages(stages: list[Stage], cutoff: int) -> list[Stage] | None:
    """Return fewer stages, which allow a subset of the divisions and hardly miss a good one.

    Tasks with equal losses use the smallest size ``a`` and the largest size ``b`` without a loss. Only a few of them
    need another size in a good plan, because it has a loss, or because several such sizes can be replaced by ``a`` and
    ``b``. A few tasks therefore keep all sizes; the remaining ones use ``a`` or ``b``, in bundles of 1, 2, 4, ...
    tasks. Return ``None`` for a small number of such tasks.
    """
    if len(stages) <= _FEW_ALIKE:
        return None
    alike = Counter((tuple(nodes), tuple(losses)) for nodes, losses in stages)
    if max(alike.values()) <= _FEW_ALIKE:
        return None
    found: list[Stage] = []
    for (at, losing), count in alike.items():
        stage = (list(at), list(losing))
        lossless = [node for node, loss in zip(at, losing, strict=True) if loss == 0]
        a, b = lossless[0], lossless[-1]
        others = [loss for node, loss in zip(at, losing, strict=True) if node not in (a, b)]
        free = count if count <= _FEW_ALIKE else min(count, _free(others, b - a, cutoff))
        found.extend([stage] * free)
        found.extend(_bundles(a, b, count - free))
    return found


def _free(others: list[int], span: int, cutoff: int) -> int:
    """Return the limit on the number of identical tasks at a size other than ``a`` and ``b``."""
    if not others:
        return 0
    by_span = span - 1 if span > 1 else _MOST_FREE
    return by_span if min(others) == 0 else min(by_span, cutoff // min(others))


def _bundles(a: int, b: int, count: int) -> list[Stage]:
    if a == b:
        return [([a * count], [0])] if count else []
    found: list[Stage] = []
    size = 1
    while count > 0:
        size = min(size, count)
        found.append(([a * size, b * size], [0, 0]))
        count -= size
        size *= 2
    return found


class KnapsackResult(msgspec.Struct, frozen=True):
    """Sizes in row sequence. ``bound`` is ``None`` if they are proven optimal, otherwise an upper bound."""

    sizes: list[int]
    bound: float | None


def best_sizes_with_numpy(
    values: Floats,
    present: Sequence[int],
    pool: int,
    stop_at: float,
    last: LastPrice | None = None,
    row_numbers: Sequence[int] | None = None,
) -> KnapsackResult:
    """Choose a size in each row of ``values``, with a total of ``pool`` or less.

    The sum is maximised; ties are broken by the fewest sizes that differ from ``present``, then the fewest nodes, then
    the larger size in the first row that differs. After ``stop_at`` the best known plan is returned. ``last`` is the
    price that previous calls left for the next. ``row_numbers``, if given, are equal for equal rows.
    """
    kinds = kinds_of_rows(values, present, row_numbers)
    held = np.array([present[row] for row in kinds.first.tolist()], dtype=np.int64)
    grid = grid_of(values[kinds.first], held, [pool], stop_at=stop_at, copies=kinds.count)
    wanted = grid.entries.argmax(axis=1)
    if int(wanted @ kinds.count) <= pool:
        return KnapsackResult(wanted[kinds.of_row].tolist(), None)
    return _searched(grid, kinds, held, priced(grid, wanted, pool, kinds.count, last), pool, stop_at)


def _searched(
    grid: ValueGrid, kinds: RowKinds, held: Integers, at_price: NodePrice, pool: int, stop_at: float
) -> KnapsackResult:
    """Find the best sizes if not all rows can have their preferred size."""
    # Sizes without a loss, the larger sizes for the first rows; the idle remainder is smaller than one such step
    most = at_price.most[kinds.of_row]
    sizes = at_price.least[kinds.of_row]
    idle = pool - int(sizes.sum())
    taken = (most - sizes).cumsum()
    upto = int(taken.searchsorted(idle, side="right"))  # number of whole steps that fit
    sizes[:upto] = most[:upto]
    idle -= int(taken[upto - 1]) if upto else 0
    if idle == 0 or at_price.losses[kinds.of_row[upto], sizes[upto] + idle] == 0:
        # Without a loss, the first rows get their maximum and the next row gets the remainder: no best plan precedes it
        sizes[upto : upto + 1] += idle
        return KnapsackResult(sizes.tolist(), None)
    known = at_price.least_known(sizes, idle, kinds, held, pool)
    try:
        return KnapsackResult(_best(at_price, kinds, pool, known, stop_at), None)
    except DeadlinePassed:
        # No plan has more than all rows at their best with nodes paid for, and the whole pool's price
        best = grid.entries[np.arange(kinds.first.size), at_price.least] @ kinds.count.astype(np.float64)
        paid = at_price.rise / at_price.run * (pool - float(at_price.least @ kinds.count))
        return KnapsackResult(sizes.tolist(), float((best + paid) / grid.weight * grid.unit) + grid.raised)


def _best(at_price: NodePrice, kinds: RowKinds, pool: int, known: int, stop_at: float) -> list[int]:
    """Return the plan with the least loss that the tie-breaking rules prefer; ``known`` is the loss of a known plan.

    A core of all sizes whose loss does not exceed a known plan's loss contains all best plans. It is mostly small
    enough to be divided directly. Otherwise a smaller core grows until it yields a plan of that quality.
    """
    candidates = Candidates.of(at_price, kinds, pool, known)
    if candidates.lossy.size <= _MOST_CANDIDATES:
        core = candidates.core(kinds, candidates.budget)
        if (quick := quick_division(core.stages, _bounds(core, at_price, pool, candidates, stop_at))) is not None:
            return core.divided(quick[1])
    return _from_growing_core(at_price, kinds, pool, candidates, stop_at)


def _from_growing_core(
    at_price: NodePrice, kinds: RowKinds, pool: int, candidates: Candidates, stop_at: float
) -> list[int]:
    size = _FIRST_CORE
    while True:
        cutoff = candidates.cutoff(size)
        core = candidates.core(kinds, cutoff)
        bounds = _bounds(core, at_price, pool, candidates, stop_at)
        fewer = fewer_stages(core.stages, cutoff) if candidates.budget and bounds.nodes >= 0 else None
        if fewer is not None:
            loss = least_loss(fewer, bounds)
            candidates = Candidates.of(at_price, kinds, pool, loss + candidates.fixed)
            if loss > cutoff:
                size = max(_GROWTH * int((candidates.lossy <= cutoff).sum()), size + 1)
                continue
            cutoff = candidates.budget  # now with all stages, but no size that loses more
            core = candidates.core(kinds, cutoff)
            bounds = _bounds(core, at_price, pool, candidates, stop_at)
        division = _division(core, bounds)
        if division is not None and division[0] <= cutoff:
            return core.divided(division[1])
        if cutoff == candidates.budget:
            raise Fault("a core that holds a plan yielded none", where="solver 'exact'")
        if division is not None:
            candidates = Candidates.of(at_price, kinds, pool, division[0] + candidates.fixed)
        size = max(_GROWTH * int((candidates.lossy <= cutoff).sum()), size + 1)


def _division(core: Core, bounds: SearchBounds) -> tuple[int, list[int]] | None:
    if bounds.nodes < 0:  # the core does not contain any plan
        return None
    return quick_division(core.stages, bounds) or best_division(core.stages, bounds)


def _bounds(core: Core, at_price: NodePrice, pool: int, candidates: Candidates, stop_at: float) -> SearchBounds:
    return SearchBounds(pool - sum(core.least), at_price.rise, candidates.budget, stop_at)
