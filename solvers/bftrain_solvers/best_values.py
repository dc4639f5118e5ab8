"""Best values of problems without costs of rescaling.

Without costs the best value depends only on the tasks and the number of nodes, not on the present sizes. So it is
remembered, and next time only the plan with the fewest changes is searched for: :mod:`bftrain_solvers.few_changes`.
"""

from __future__ import annotations

from typing import Final

from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.row_kinds import RowKinds
from bftrain_solvers.value_grid import ValueGrid

_MOST_KEPT: Final = 4096
_MOST_KINDS: Final = 24

_Key = tuple[int, float, frozenset[tuple[bytes, int]]]


class BestValues:
    """Known best values, in multiples of the grid's unit, by rows and number of nodes."""

    def __init__(self) -> None:
        self._found: dict[_Key, int] = {}

    def key(self, values: Floats, kinds: RowKinds, grid: ValueGrid, pool: int) -> _Key | None:
        """Return the key of a best value; ``None`` if remembering it is of no use.

        It is of none if equal rows all have the same present size, which is then a part of their values.
        """
        if not kinds.same_values or len(kinds) > _MOST_KINDS:
            return None
        counts: dict[bytes, int] = {}
        for row, count in zip(kinds.first.tolist(), kinds.count.tolist(), strict=True):
            content = values[row].tobytes()
            counts[content] = counts.get(content, 0) + count
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
