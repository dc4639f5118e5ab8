"""RowStore: caches rows of value tables between decisions, since few tasks change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.values.problem import CompetingTask

_FIRST_ROWS: Final = 64
_NUMBERED: Final = 256  # maximum columns: the contents of wider rows take too much memory to keep for comparison


class RowStore:
    """Rows of ``width`` columns in one array, each with its number: its place there. Up to ``most`` keys have one.

    A row is found by the very object that describes its task, or by a key: all that it depends on.
    """

    def __init__(self, width: int, most: int) -> None:
        self.width = width
        self.most = most
        self.numbered = width <= _NUMBERED  # whether equal rows have equal numbers
        self._rows = np.empty((min(most, _FIRST_ROWS), width))
        self._count = 0
        self._by_task: dict[int, int] = {}  # keys are identities; rows are kept alive, so ids stay unique
        self._tasks: list[CompetingTask] = []
        self._by_key: dict[object, int] = {}
        self._by_content: dict[bytes, int] = {}

    @property
    def room(self) -> int:
        """The number of keys that can still be added."""
        return self.most - len(self._by_key)

    def numbers(self, tasks: Sequence[CompetingTask]) -> list[int | None]:
        """Return the numbers of the rows of these tasks; ``None`` for unknown ones."""
        return list(map(self._by_task.get, map(id, tasks)))

    def number_of(self, key: object) -> int | None:
        """Return the number of the row with this key, if known."""
        return self._by_key.get(key)

    def add(self, key: object, row: NDArray[np.float64]) -> int:
        """Add a row, which may end before the last columns; return its number."""
        number = self._count
        if number == len(self._rows):
            larger = np.empty((min(self.most, 2 * number), self.width))
            larger[:number] = self._rows
            self._rows = larger
        self._rows[number, : row.size] = row
        self._rows[number, row.size :] = -np.inf
        if self.numbered:
            number = self._by_content.setdefault(self._rows[number].tobytes(), number)
        self._count += number == self._count
        self._by_key[key] = number
        return number

    def remember(self, task: CompetingTask, number: int) -> None:
        """Find a row by this object from now on."""
        if len(self._tasks) >= self.most:
            self._by_task.clear()
            self._tasks.clear()
        self._by_task[id(task)] = number
        self._tasks.append(task)

    def rows(self, numbers: Sequence[int], columns: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return a copy of rows: their first columns, so many, or those with these indices."""
        places = np.array(numbers, dtype=np.int64)
        if isinstance(columns, int):
            return self._rows[places, :columns]
        return self._rows[places[:, None], columns]
