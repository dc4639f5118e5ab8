"""The search for the best columns: prices, some plan, a core; repeated until the core is certain to hold the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.solution import Termination
from bftrain_solvers.greedy import gain_by_kind
from bftrain_solvers.knapsack.grid import NEVER, grid_of
from bftrain_solvers.node_kinds.division import DivisionTimeout, DivisionTooLarge, best_division
from bftrain_solvers.node_kinds.plans import exchanged, fitting, improved, space_of
from bftrain_solvers.node_kinds.prices import priced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.table import ValueTable
    from bftrain_solvers.knapsack.grid import ValueGrid
    from bftrain_solvers.node_kinds.plans import KindCapacities
    from bftrain_solvers.node_kinds.prices import KindPrices

    Numbers = NDArray[np.int64]

_FIRST_CORE: Final = 32  # columns with a loss in the first core
_GROWTH: Final = 2
_SMALL_CORES: Final = (32, 96, 256)
_FEW_STATES: Final = 3_000


@dataclass(frozen=True, slots=True)
class KindSearchResult:
    """Columns in the order of the rows. ``bound`` is ``None`` if they are proven best, else no plan has more.

    ``open`` are the columns that a better plan may have, where the search was given up because they are too many.
    """

    columns: list[int]
    bound: float | None
    termination: Termination = Termination.OPTIMAL
    open: NDArray[np.bool_] | None = None


def best_columns(
    table: ValueTable, stop_at: float, relative_gap: float = 0.0, start: Sequence[int] | None = None
) -> KindSearchResult:
    """Choose a column in each row of ``table``, with no more nodes of any kind than there are.

    Largest sum; of equal ones the fewest that differ from what is there. After ``stop_at``, or as soon as the sum is
    within ``relative_gap`` of the bound, what is known is returned. ``start`` is a plan that is known to fit.
    """
    columns, counts = table.columns, list(table.problem.by_kind.values())
    pools = np.array(counts, dtype=np.int64)
    grid = grid_of(table.values, columns.present(table.problem.tasks), counts, columns)
    space = space_of(columns, pools)
    wanted = grid.entries.argmax(axis=1)
    if (space.idle(wanted) >= 0).all():
        return KindSearchResult(wanted.tolist(), None)
    at = priced(grid, columns, pools)
    plan = _some_plan(table, grid, at, space, stop_at, start)
    worth = at.worth(plan)
    if at.bound - worth >= NEVER:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound), Termination.GAP)
    return _searched(grid, at, space, plan, int(min(relative_gap, 1.0) * abs(worth)), stop_at)


def _some_plan(
    table: ValueTable,
    grid: ValueGrid,
    at: KindPrices,
    space: KindCapacities,
    stop_at: float,
    start: Sequence[int] | None,
) -> Numbers:
    """Give the best of a few plans that fit: near the relaxation, by marginal gain, all tasks stay, the known one."""
    present = table.columns.present(table.problem.tasks)
    staying = np.where(present < len(table.columns), present, 0)
    rows = np.arange(len(staying))
    staying = np.where(table.values[rows, staying] > -np.inf, staying, 0)
    by_gain = np.array(gain_by_kind(table.values, table.columns, space.pools.tolist()), dtype=np.int64)
    known = None if start is None else np.array(start, dtype=np.int64)
    starts = [fitting(space, at.losses, at.likely), by_gain, staying, known]
    # What was taken out as hopeless is in no start; it was judged by the better one of the last two
    fine = [plan for plan in starts if plan is not None and np.isfinite(grid.entries[rows, plan]).all()]
    best = max((improved(space, grid.entries, plan, stop_at) for plan in fine), key=at.worth)
    return exchanged(space, at.losses, grid.entries, best, stop_at)


def _searched(
    grid: ValueGrid, at: KindPrices, space: KindCapacities, plan: Numbers, enough: int, stop_at: float
) -> KindSearchResult:
    """Look for a plan that loses less than so much, and allow more and more until there is one.

    The first one found is the best: all plans that lose less were looked at. A good plan known beforehand says how much
    is enough to look at.
    """
    known, none_below = at.bound - at.worth(plan), 0
    losses = np.sort(at.losses[(at.losses > 0) & (at.losses < known)])
    try:
        plan = _from_a_small_core(at, space, plan, losses, stop_at)
        known = at.bound - at.worth(plan)
        below = min(known, 1 + int(losses[min(_FIRST_CORE, losses.size - 1)])) if losses.size else known
        while known - none_below > enough and none_below < below:
            better = best_division(at, space, below, below, stop_at)
            if better is not None:
                return KindSearchResult(better.tolist(), None)
            none_below, below = below, min(known, _GROWTH * below)
    except DivisionTimeout:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.TIME_LIMIT)
    except DivisionTooLarge:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.GAP, at.losses <= known)
    if known <= none_below:
        return KindSearchResult(plan.tolist(), None)
    return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.GAP)


def _from_a_small_core(
    at: KindPrices, space: KindCapacities, plan: Numbers, losses: Numbers, stop_at: float
) -> Numbers:
    """Look for better plans among the columns that lose least, a few and then more, without looking at all of them."""
    for size in _SMALL_CORES if losses.size else ():
        cutoff = int(losses[min(size, losses.size - 1)])
        try:
            better = best_division(at, space, cutoff, at.bound - at.worth(plan), stop_at, most=_FEW_STATES)
        except DivisionTooLarge:
            break
        plan = plan if better is None else better
    return plan


def _bound(grid: ValueGrid, bound: int) -> float:
    """Give the bound as a value; what rounding to the grid may have hidden is added."""
    return (bound / grid.weight + len(grid.entries)) * grid.unit + grid.raised
