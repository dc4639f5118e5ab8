"""Search for the best column (kind and size) of every task within the nodes; for ``exact`` and ``max_min``.

The linear relaxation prices a node of each kind. The loss of a column is its distance to the task's best column at
these prices, and the core contains the columns with small losses. The core grows until it provably contains the best
plan. HiGHS solves the remainder if the search gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np
from msgspec.structs import replace

from bftrain.ports import Solver
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.allocators import largest_gains
from bftrain_solvers.answers import DeadlinePassed, answer, staying
from bftrain_solvers.arrays import Integers, Mask
from bftrain_solvers.node_kinds.plans import (
    DivisionTooLarge,
    KindCapacities,
    KindPrices,
    best_division,
    exchanged,
    fitting,
    improved,
    priced,
)
from bftrain_solvers.value_grid import UNREACHABLE_LOSS, ValueGrid, grid_of

_FIRST_CORE: Final = 32  # columns in the first core, apart from columns without a loss
_GROWTH: Final = 2  # factor by which the losses in the core grow
_SMALL_CORES: Final = (32, 96, 256)  # columns in the cores that improve the first plan
_FEW_STATES: Final = 3_000  # states kept after each row in these cores
_MANY: Final = 500  # rows above which the search is skipped if it has too little time
_PREPARED_S: Final = 1e-7  # seconds per entry until there is a first plan


@dataclass(frozen=True, slots=True)
class KindSearchResult:
    """Columns in row sequence. ``bound`` is ``None`` if they are proven optimal, otherwise an upper bound of all plans.

    ``open`` contains possible columns of a better plan, if the search was given up because of their number.
    """

    columns: list[int]
    bound: float | None
    termination: Termination = Termination.OPTIMAL
    open: Mask | None = None


def best_columns(
    table: ValueTable,
    stop_at: float,
    relative_gap: float = 0.0,
    start: Sequence[int] | None = None,
    *,
    prices_by: float | None = None,
) -> KindSearchResult:
    """Choose a column in each row of ``table``, within the available nodes of every kind.

    The sum is maximised; ties are broken by the fewest changes of present columns. After ``stop_at``, or when the sum
    is within ``relative_gap`` of the bound, the best plan so far is returned. ``start`` is a feasible plan. Prices, and
    with them a good bound, may take until ``prices_by``.
    """
    prices_by = stop_at if prices_by is None else prices_by
    columns, counts = table.columns, list(table.problem.by_kind.values())
    pools = np.array(counts, dtype=np.int64)
    present = columns.present(table.problem.tasks)
    grid = grid_of(table.values, present, counts, columns, stop_at)
    some, takes = columns.kind_of >= 0, np.zeros((len(columns), pools.size), dtype=np.int64)
    takes[np.flatnonzero(some), columns.kind_of[some]] = columns.nodes[some]
    space = KindCapacities(takes, pools)
    wanted = grid.entries.argmax(axis=1)
    if (space.idle(wanted) >= 0).all():
        return KindSearchResult(wanted.tolist(), None)
    # What follows takes a while even if it is cut short
    if perf_counter() + _PREPARED_S * grid.entries.size > prices_by and len(wanted) > _MANY:
        most = sum(map(int, grid.entries.max(axis=1).tolist()))
        known = staying(table.values, present).tolist() if start is None else list(start)
        return KindSearchResult(known, _bound(grid, most), Termination.TIME_LIMIT)
    at = priced(grid, columns, pools, prices_by)
    # Start with the best of a few feasible plans: near the relaxation, by marginal gain, no changes, the known plan
    gained = largest_gains(table.values, [block for _, block in columns.blocks()], counts, stop_at)
    starts = [
        fitting(space, at.losses, at.likely, stop_at),
        np.array(gained, dtype=np.int64),
        staying(table.values, present),
        None if start is None else np.array(start, dtype=np.int64),
    ]
    # Only starts without removed columns count; the second or the third start justified the removal
    rows = np.arange(len(wanted))
    fine = [plan for plan in starts if plan is not None and np.isfinite(grid.entries[rows, plan]).all()]
    if not fine:  # the deadline stopped largest_gains before the plan that justified the removal
        known = max((plan.tolist() for plan in starts[1:] if plan is not None), key=table.value_at)
        return KindSearchResult(known, _bound(grid, at.bound), Termination.TIME_LIMIT)
    best = max((improved(space, grid.entries, plan, stop_at) for plan in fine), key=at.worth)
    plan = exchanged(space, at.losses, grid.entries, best, stop_at)
    worth = at.worth(plan)
    if at.bound - worth >= UNREACHABLE_LOSS:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound), Termination.GAP)
    return _searched(grid, at, space, plan, int(min(relative_gap, 1.0) * abs(worth)), stop_at)


def _searched(
    grid: ValueGrid, at: KindPrices, space: KindCapacities, plan: Integers, enough: int, stop_at: float
) -> KindSearchResult:
    """Search for a plan within a loss, and raise the loss until there is one.

    The first one found is the best: all plans that lose less were searched. A good plan known beforehand limits the
    search.
    """
    known, none_below = at.bound - at.worth(plan), 0
    losses = np.sort(at.losses[(at.losses > 0) & (at.losses < known)])
    try:
        # First improve the plan within growing sets of the columns with least loss, without searching all of them
        with suppress(DivisionTooLarge):
            for size in _SMALL_CORES if losses.size else ():
                cutoff = int(losses[min(size, losses.size - 1)])
                better = best_division(at, space, cutoff, at.bound - at.worth(plan), stop_at, most=_FEW_STATES)
                plan = plan if better is None else better
        known = at.bound - at.worth(plan)
        below = min(known, 1 + int(losses[min(_FIRST_CORE, losses.size - 1)])) if losses.size else known
        while known - none_below > enough and none_below < below:
            better = best_division(at, space, below, below, stop_at)
            if better is not None:
                return KindSearchResult(better.tolist(), None)
            none_below, below = below, min(known, _GROWTH * below)
    except DeadlinePassed:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.TIME_LIMIT)
    except DivisionTooLarge:
        return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.GAP, at.losses <= known)
    if known <= none_below:
        return KindSearchResult(plan.tolist(), None)
    return KindSearchResult(plan.tolist(), _bound(grid, at.bound - none_below), Termination.GAP)


def _bound(grid: ValueGrid, bound: int) -> float:
    """Return the bound as a value, plus what rounding to the grid may have hidden."""
    return (bound / grid.weight + len(grid.entries)) * grid.unit + grid.raised


def solved(
    table: ValueTable, limits: Limits, name: str, further: Solver, start: Sequence[int] | None = None
) -> Solution:
    """Search, and let ``further`` solve the open part in the remaining time; answer as ``name``.

    ``start`` is a feasible plan; the answer is no worse.
    """
    started = perf_counter()
    found = best_columns(table, started + limits.deadline_s, limits.relative_gap, start)
    proven = found.bound is None
    own = answer(table, found.columns, name, found.termination, proven=proven, bound=found.bound, started=started)
    left_s = limits.deadline_s - (perf_counter() - started)
    if found.open is not None and left_s > 0.0:
        found.open[:, 0] = True  # no nodes: always allowed
        few = ValueTable(problem=table.problem, values=np.where(found.open, table.values, -np.inf))
        tried = replace(limits, deadline_s=left_s)
        own = _better(own, further.solve(few, tried), f"search given up, {further.name} asked")
    return replace(own, wall_s=perf_counter() - started)


def _better(own: Solution, second: Solution, words: str) -> Solution:
    """Return the better plan of the two with the better bound.

    All plans better than the first are open to the second.
    """
    words = f"{words}: {second.solver_words}"
    if second.value is None or own.value is None:
        return replace(own, solver_words=words)
    best = second if second.value >= own.value else own
    value = max(second.value, own.value)
    proven = second.termination is Termination.OPTIMAL
    bounds = [bound for bound in (own.bound, second.bound) if bound is not None]
    return replace(
        own,
        sizes=best.sizes,
        kinds=best.kinds,
        value=value,
        bound=value if proven else max(value, min(bounds)),
        termination=second.termination,
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver_words=words,
    )
