"""Plans with at most two changes, for problems whose best value is known already.

The rule for ties prefers the plan of the best value with the fewest changes. Mostly one or two are enough, and a direct
search for these takes far less time than another proof of the value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Integers, Mask
from bftrain_solvers.row_kinds import RowKinds
from bftrain_solvers.value_grid import ValueGrid

_MOST_PAIRS: Final = 20_000
_MOST_PLANS: Final = 200
_LARGEST: Final = 2**62

Change = tuple[int, int]  # a kind of rows, and by how many nodes the size of one of them changes


def few_changes(grid: ValueGrid, kinds: RowKinds, held: Integers, pool: int, value: int) -> list[int] | None:
    """Return the best plan of this ``value`` if it changes at most two sizes; ``held`` are the present ones by kind."""
    width, kind = grid.entries.shape[1], np.arange(len(kinds))
    if held.max() >= width or (grid.allowed is not None and not grid.allowed[kind, held].all()):
        return None
    whole, idle = grid.whole, pool - int(held @ kinds.count)
    own = zip(whole[kind, held].tolist(), kinds.count.tolist(), strict=True)
    missing = value * grid.weight - sum(entry * rows for entry, rows in own)
    if missing == 0 or idle < 0 or abs(missing) > _LARGEST:
        return held[kinds.of_row].tolist() if missing == 0 and idle >= 0 else None
    changed = np.arange(width) != held[:, None]
    if grid.allowed is not None:
        changed &= grid.allowed
    of_kind, size = changed.nonzero()
    gains, nodes = whole[of_kind, size] - whole[of_kind, held[of_kind]], size - held[of_kind]
    found = _single(gains == missing - 1, of_kind, nodes, idle)
    if not found:
        found = _pairs(gains, missing - 2, of_kind, nodes, idle, kinds)
    return first_of(found, kinds, held)


def first_of(found: Iterable[list[Change]], kinds: RowKinds, held: Integers) -> list[int] | None:
    """Return the plan of these that gives most to the first row in which they differ, without impossible ones.

    A plan is impossible if it changes more rows of a kind than there are.
    """
    now, rows = held[kinds.of_row].tolist(), dict[int, list[int]]()
    best: list[int] | None = None
    for changes in found:
        plan = now.copy()
        by_kind: dict[int, list[int]] = {}
        for kind, more in changes:
            by_kind.setdefault(kind, []).append(more)
        for kind, mine in by_kind.items():
            if kind not in rows:
                rows[kind] = kinds.rows(kind)
            if len(mine) > len(rows[kind]):
                break
            _place(plan, rows[kind], sorted(mine, reverse=True))
        else:
            best = plan if best is None else max(best, plan)
    return best


def _place(plan: list[int], rows: list[int], changes: list[int]) -> None:
    """Apply changes, the largest first, to equal rows: the first ones grow and the last ones shrink."""
    growing = sum(more > 0 for more in changes)
    shrinking = len(changes) - growing
    for row, more in zip((*rows[:growing], *rows[len(rows) - shrinking :]), changes, strict=True):
        plan[row] += more


def _single(reached: Mask, of_kind: Integers, nodes: Integers, idle: int) -> list[list[Change]]:
    """Return the single changes that the rule for ties prefers, all with the fewest nodes."""
    there = np.flatnonzero(reached & (nodes <= idle))
    if there.size == 0:
        return []
    best = there[nodes[there] == nodes[there].min()]
    return [[change] for change in zip(of_kind[best].tolist(), nodes[best].tolist(), strict=True)]


def _pairs(
    gains: Integers, wanted: int, of_kind: Integers, nodes: Integers, idle: int, kinds: RowKinds
) -> list[list[Change]]:
    """Return the pairs of changes that gain ``wanted`` with the fewest nodes; empty if they are too many."""
    order = gains.argsort()
    ranked = gains[order]
    low, high = (ranked.searchsorted(wanted - ranked, side) for side in ("left", "right"))
    many = high - low
    total = int(many.sum())
    if not 0 < total <= _MOST_PAIRS:
        return []
    one = np.repeat(np.arange(order.size), many)
    other = np.arange(total) - np.repeat(many.cumsum() - many, many) + low[one]
    one, other = order[one], order[other]
    together = nodes[one] + nodes[other]
    fine = (one <= other) & (together <= idle)
    fine &= (of_kind[one] != of_kind[other]) | (kinds.count[of_kind[one]] > 1)
    one, other, together = one[fine], other[fine], together[fine]
    if one.size == 0:
        return []
    fewest = together == together.min()
    one, other = one[fewest], other[fewest]
    if one.size > _MOST_PLANS:
        return []
    columns = (of_kind[one], nodes[one], of_kind[other], nodes[other])
    return [[(a, x), (b, y)] for a, x, b, y in zip(*(each.tolist() for each in columns), strict=True)]
