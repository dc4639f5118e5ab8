"""Plans with few changes, for problems whose best value is known already.

Without costs of rescaling the best value depends only on the tasks and the number of nodes, not on the present sizes,
and is remembered. The rule for ties prefers the plan of that value with the fewest changes. Mostly one or two are
enough, and a direct search for these takes far less time than another proof of the value.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats, Integers, Mask
from bftrain_solvers.row_kinds import RowKinds
from bftrain_solvers.value_grid import ValueGrid

_MOST_KEPT: Final = 4096
_MOST_KINDS: Final = 24
_MOST_PAIRS: Final = 20_000
_MOST_PLANS: Final = 200
_LARGEST: Final = 2**62

_Key = tuple[int, float, frozenset[tuple[bytes, int]]]
_Change = tuple[int, int]  # a row, and by how many nodes its size changes


class BestValues:
    """Known best values, in multiples of the grid's unit, by rows and number of nodes."""

    def __init__(self) -> None:
        self._found: dict[_Key, int] = {}

    def key(self, values: Floats, kinds: RowKinds, grid: ValueGrid, pool: int) -> _Key | None:
        """Return the key of a best value; ``None`` if remembering it is of no use.

        That is the case if equal rows all have the same present size, which is then a part of their values.
        """
        if not kinds.same_values or len(kinds) > _MOST_KINDS:
            return None
        counts: dict[bytes, int] = {}
        for row, count in zip(kinds.first.tolist(), kinds.count.tolist(), strict=True):
            mark = values[row].tobytes()
            counts[mark] = counts.get(mark, 0) + count
        return pool, grid.unit, frozenset(counts.items())

    def get(self, key: _Key) -> int | None:
        """Return the value, if it is known."""
        return self._found.get(key)

    def keep(self, key: _Key, grid: ValueGrid, kinds: RowKinds, sizes: Integers) -> None:
        """Store the value of the best ``sizes``."""
        if len(self._found) >= _MOST_KEPT:
            self._found.clear()
        entries = sum(grid.whole[kinds.of_row, sizes].tolist())
        self._found[key] = -(-entries // grid.weight)  # each change takes off one, all together less than a unit


def few_changes(grid: ValueGrid, kinds: RowKinds, held: Integers, pool: int, value: int) -> list[int] | None:
    """Return the best plan of this ``value`` if it changes at most two sizes; ``held`` are the present ones by kind."""
    width, kind = grid.entries.shape[1], np.arange(len(kinds))
    if held.max() >= width or (grid.allowed is not None and not grid.allowed[kind, held].all()):
        return None
    now, idle = held[kinds.of_row].tolist(), pool - int(held @ kinds.count)
    whole = grid.whole
    staying = sum(whole[kind, held][kinds.of_row].tolist())
    missing = value * grid.weight - staying
    if missing == 0 or idle < 0 or abs(missing) > _LARGEST:
        return now if missing == 0 and idle >= 0 else None
    changed = np.arange(width) != held[:, None]
    if grid.allowed is not None:
        changed &= grid.allowed
    of_kind, size = changed.nonzero()
    gains, nodes = whole[of_kind, size] - whole[of_kind, held[of_kind]], size - held[of_kind]
    found = _single(gains == missing - 1, of_kind, nodes, idle, kinds)
    if not found:
        found = _pairs(gains, missing - 2, of_kind, nodes, idle, kinds)
    plans = []
    for changes in found:
        plan = now.copy()
        for row, more in changes:
            plan[row] += more
        plans.append(plan)
    return max(plans, default=None)


def _single(reached: Mask, of_kind: Integers, nodes: Integers, idle: int, kinds: RowKinds) -> list[list[_Change]]:
    """Return the single changes that the rule for ties prefers, all with the fewest nodes."""
    there = np.flatnonzero(reached & (nodes <= idle))
    if there.size == 0:
        return []
    best = there[nodes[there] == nodes[there].min()]
    return [
        _placed(kinds, ((kind, more),)) for kind, more in zip(of_kind[best].tolist(), nodes[best].tolist(), strict=True)
    ]


def _pairs(
    gains: Integers, wanted: int, of_kind: Integers, nodes: Integers, idle: int, kinds: RowKinds
) -> list[list[_Change]]:
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
    return [_placed(kinds, ((a, x), (b, y))) for a, x, b, y in zip(*(each.tolist() for each in columns), strict=True)]


def _placed(kinds: RowKinds, changes: tuple[tuple[int, int], ...]) -> list[_Change]:
    """Return the rows that change: of equal rows the first ones grow and the last ones shrink."""
    found: list[_Change] = []
    for kind in {kind for kind, _ in changes}:
        rows = kinds.rows(kind)
        mine = sorted((more for each, more in changes if each == kind), reverse=True)
        growing = [more for more in mine if more > 0]
        shrinking = mine[len(growing) :]
        found.extend(zip(rows, growing, strict=False))
        found.extend(zip(rows[len(rows) - len(shrinking) :], shrinking, strict=True))
    return found
