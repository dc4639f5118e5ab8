"""Prices of the kinds, plans that fit and are near the optimum at these prices, and the exact division of a core.

The prices are those at which the bound is lowest, from the linear relaxation. The division is a dynamic programme over
the used nodes of each kind, kept sparse.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from time import perf_counter
from typing import Any, Final

import numpy as np

from bftrain.values.table import Columns
from bftrain_solvers.answers import DeadlinePassed
from bftrain_solvers.arrays import Floats, Integers, Mask
from bftrain_solvers.value_grid import UNREACHABLE_LOSS, ValueGrid

# The relaxation of this many columns takes about a third of a second; the time grows with the square
_COLUMNS_IN_A_SECOND: Final = 20_000
_MOST_STATES: Final = 100_000  # states after a row; with more the search is given up
_PAIRED: Final = 600  # changes in the exhaustive search of pairs
_MOST_PAIRS: Final = 60  # every exchange gains; further exchanges gain little


@dataclass(frozen=True, slots=True)
class KindPrices:
    """Integer prices by kind, the loss of every column at them, and the bound, in units of the grid.

    ``likely`` is the column of each row with the largest part in the relaxation.
    """

    entries: Floats
    prices: Integers
    losses: Integers
    bound: int
    likely: Integers

    def worth(self, plan: Integers) -> int:
        """Return the sum of a plan's entries."""
        return sum(map(int, self.entries[np.arange(len(plan)), plan].tolist()))


def priced(grid: ValueGrid, columns: Columns, pools: Integers, stop_at: float) -> KindPrices:
    """Return good prices. Any prices give valid losses and a valid bound; with these the core is small."""
    found, likely = _relaxed(grid, columns, pools, stop_at)
    prices = np.rint(np.maximum(found, 0.0)).astype(np.int64)
    paid = grid.whole - np.append(prices, 0)[columns.kind_of] * columns.nodes
    if grid.allowed is not None:
        paid[~grid.allowed] = -2 * UNREACHABLE_LOSS
    best = paid.max(axis=1)
    # In numbers of any size
    bound = sum(best.tolist()) + sum(price * pool for price, pool in zip(prices.tolist(), pools.tolist(), strict=True))
    return KindPrices(grid.entries, prices, best[:, None] - paid, bound, likely)


def _relaxed(grid: ValueGrid, columns: Columns, pools: Integers, stop_at: float) -> tuple[Floats, Integers]:
    """Solve the linear relaxation; return the best prices, and the column with the largest part in each row.

    If all rows take too long, every second, third, ... row is used with its part of the nodes. The prices are then
    nearly optimal, and each row gets its best column at these prices.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    entries = grid.entries
    left_s = stop_at - perf_counter()
    if left_s <= 0.0:
        return np.zeros(pools.size), entries.argmax(axis=1)
    corners = _corners(entries, columns)
    every = max(1, ceil(np.count_nonzero(corners) / (_COLUMNS_IN_A_SECOND * sqrt(left_s))))
    entries = entries[::every]
    rows, cols = np.nonzero(corners[::every])
    scale = float(np.abs(entries[rows, cols]).max(initial=1.0))
    count, kinds = rows.size, columns.kind_of[cols]
    places = np.arange(count)
    used = kinds >= 0
    capacity = csr_array((columns.nodes[cols][used], (kinds[used], places[used])), shape=(pools.size, count))
    convex = csr_array((np.ones(count), (rows, places)), shape=(len(entries), count))
    solve: Any = linprog  # its type hints lack sparse arrays
    result = solve(
        -entries[rows, cols] / scale,
        A_ub=capacity.astype(np.float64),
        b_ub=pools * (len(entries) / len(grid.entries)),
        A_eq=convex,
        b_eq=np.ones(len(entries)),
        bounds=(0, None),
        method="highs",
        options={"time_limit": max(stop_at - perf_counter(), 0.0)},
    )
    if result.status != 0:  # any prices are valid; the search uses these
        return np.zeros(pools.size), grid.entries.argmax(axis=1)
    prices: Floats = -np.asarray(result.ineqlin.marginals) * scale
    if every > 1:
        return prices, (grid.entries - np.append(prices, 0.0)[columns.kind_of] * columns.nodes).argmax(axis=1)
    parts = np.zeros(entries.shape)
    parts[rows, cols] = result.x
    return prices, parts.argmax(axis=1)


def _corners(entries: Floats, columns: Columns) -> Mask:
    """Return a mask of the columns on the concave hull of each kind: the relaxation only needs these."""
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


@dataclass(frozen=True, slots=True)
class KindCapacities:
    """The use of each kind by every column (``takes[column, kind]``), and the capacities."""

    takes: Integers
    pools: Integers

    def idle(self, plan: Integers) -> Integers:
        """Return the unused nodes of each kind; negative for overuse."""
        left: Integers = self.pools - self.takes[plan].sum(axis=0)
        return left


def fitting(space: KindCapacities, losses: Integers, plan: Integers, stop_at: float) -> Integers | None:
    """Change rows of ``plan`` until it fits, each time the row with the smallest loss per missing node.

    ``None`` if that fails, or not before ``stop_at``.
    """
    plan = plan.copy()
    allowed = losses < UNREACHABLE_LOSS
    rows = np.arange(len(plan))
    while perf_counter() < stop_at:
        idle = space.idle(plan)
        lacking = int(np.minimum(idle, 0).sum())
        if lacking == 0:
            return plan
        then = idle + space.takes[plan][:, None, :] - space.takes[None, :, :]
        mended = np.minimum(then, 0).sum(axis=2) - lacking
        worse = np.where(allowed & (mended > 0), (losses - losses[rows, plan][:, None]) / np.maximum(mended, 1), np.inf)
        row, column = np.unravel_index(int(worse.argmin()), worse.shape)
        if worse[row, column] == np.inf:
            return None
        plan[row] = column
    return None


def improved(space: KindCapacities, entries: Floats, plan: Integers, stop_at: float) -> Integers:
    """Change one row after the other, each time by the largest gain that fits, until none gains."""
    plan = plan.copy()
    rows = np.arange(len(plan))
    while perf_counter() < stop_at:
        then = space.idle(plan) + space.takes[plan][:, None, :] - space.takes[None, :, :]
        gains = np.where((then >= 0).all(axis=2), entries - entries[rows, plan][:, None], -np.inf)
        row, column = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[row, column] <= 0.0:
            break
        plan[row] = column
    return plan


def exchanged(space: KindCapacities, losses: Integers, entries: Floats, plan: Integers, stop_at: float) -> Integers:
    """Exchange pairs of rows, each time the pair with the largest gain, among changes of small loss at the prices."""
    plan = plan.copy()
    rows = np.arange(len(plan))
    for _ in range(_MOST_PAIRS):
        if perf_counter() > stop_at:
            break
        worse = losses - losses[rows, plan][:, None]
        worse[rows, plan] = UNREACHABLE_LOSS
        few = min(_PAIRED, worse.size)
        row, column = np.unravel_index(np.argpartition(worse, few - 1, axis=None)[:few], worse.shape)
        gains = entries[row, column] - entries[row, plan[row]]
        freed = space.takes[plan[row]] - space.takes[column]
        idle = space.idle(plan)
        total = gains[:, None] + gains[None, :]
        fits = (row[:, None] != row[None, :]) & (total > 0.0)
        for kind, left in enumerate(idle.tolist()):
            fits &= freed[:, kind][:, None] + freed[:, kind][None, :] >= -left
        total[~fits] = 0.0
        one, other = np.unravel_index(int(total.argmax()), total.shape)
        if total[one, other] <= 0.0:
            break
        plan[row[one]] = column[one]
        plan[row[other]] = column[other]
        plan = improved(space, entries, plan, stop_at)
    return plan


class DivisionTooLarge(Exception):
    """Too many states to search."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """The states after a row: the ``used`` nodes of each kind, the least loss, and its predecessor."""

    used: list[Integers]
    losses: Integers
    before: Integers
    column: Integers

    def only(self, kept: Integers) -> _Stage:
        return _Stage([used[kept] for used in self.used], self.losses[kept], self.before[kept], self.column[kept])


def best_division(
    at: KindPrices, space: KindCapacities, cutoff: int, below: int, stop_at: float, *, most: int | None = None
) -> Integers | None:
    """Return the plan with the smallest loss below ``below``, from columns with losses up to ``cutoff``.

    With ``most`` only that many states with the least loss are kept after each row: the plan is then a good one.
    """
    inside = at.losses <= min(cutoff, below - 1)
    fixed = inside.sum(axis=1) == 1
    plan: Integers = inside.argmax(axis=1).astype(np.int64)
    room = space.pools - space.takes[plan[fixed]].sum(axis=0)
    below -= int(at.losses[np.flatnonzero(fixed), plan[fixed]].sum())
    if (room < 0).any() or below <= 0:
        return None
    rows = np.flatnonzero(~fixed)
    # The widest choices last: the states before them are few
    rows = rows[np.argsort(inside[rows].sum(axis=1), kind="stable")]
    choices = [np.flatnonzero(inside[row]) for row in rows]
    spare = np.where(at.prices > 0, (below - 1) // np.maximum(at.prices, 1), room)  # nodes that may stay idle
    most_taken = [np.zeros_like(room), *(space.takes[columns].max(axis=0) for columns in reversed(choices))]
    coming = np.cumsum(most_taken, axis=0)[::-1]  # the most of each kind that the rows from each on can use
    nothing = np.zeros(1, dtype=np.int64)
    stages = [_Stage([nothing] * room.size, nothing, nothing, nothing)]
    for place, (row, columns) in enumerate(zip(rows.tolist(), choices, strict=True)):
        if perf_counter() > stop_at:
            raise DeadlinePassed
        least = room - spare - coming[place + 1]
        stages.append(_next(stages[-1], at.losses[row], columns, space, room, least, below))
        if most is not None and stages[-1].losses.size > most:
            kept = np.sort(np.argpartition(stages[-1].losses, most)[:most])
            stages[-1] = stages[-1].only(kept)
        if stages[-1].losses.size == 0:
            return None
    total = stages[-1].losses.copy()
    for used, free, price in zip(stages[-1].used, room.tolist(), at.prices.tolist(), strict=True):
        total += (free - used) * price  # price of idle nodes
    state = int(total.argmin())
    if total[state] >= below:
        return None
    for stage, row in zip(reversed(stages[1:]), rows[::-1].tolist(), strict=True):
        plan[row] = stage.column[state]
        state = int(stage.before[state])
    return plan


def _next(
    stage: _Stage,
    losses: Integers,
    columns: Integers,
    space: KindCapacities,
    room: Integers,
    least: Integers,
    below: int,
) -> _Stage:
    """Add one row with any of ``columns``; among states with equal node use, keep the smallest loss.

    Kept states use between ``least`` and ``room`` nodes, with a loss below ``below``.
    """
    enough = np.array(stage.used) >= least[:, None]
    everything = enough.all(axis=0)
    others = [np.delete(enough, kind, axis=0).all(axis=0) for kind in range(len(enough))]
    before: list[Integers] = []
    for column in columns.tolist():
        taken = space.takes[column]
        fine = stage.losses < below - int(losses[column])
        kind = int(taken.argmax())
        nodes = int(taken[kind])
        if nodes == 0:
            fine &= everything
        else:
            before_it = stage.used[kind]
            fine &= others[kind]
            fine &= before_it <= int(room[kind]) - nodes
            fine &= before_it >= int(least[kind]) - nodes
        before.append(np.flatnonzero(fine))
    origin = np.concatenate(before)
    if origin.size > _MOST_STATES:
        raise DivisionTooLarge
    chosen = np.repeat(columns, [states.size for states in before])
    lost = stage.losses[origin] + losses[chosen]
    used = [was[origin] + space.takes[chosen, kind] for kind, was in enumerate(stage.used)]
    order = np.lexsort((lost, *used))
    differ = np.zeros(order.size, dtype=np.bool_)
    differ[:1] = True
    for amounts in used:
        sorted_amounts = amounts[order]
        differ[1:] |= sorted_amounts[1:] != sorted_amounts[:-1]
    kept = order[differ]
    return _Stage(used, lost, origin, chosen).only(kept)
