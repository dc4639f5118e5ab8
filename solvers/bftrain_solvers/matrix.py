"""The neutral form of a mixed-integer programme, which every MILP backend is handed: columns, rows, integrality."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMatrix:
    """Maximise ``objective @ x`` subject to ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    ``A`` is stored by rows: row ``i`` has the coefficients ``coefficients[starts[i]:starts[i + 1]]`` in the columns
    ``columns[starts[i]:starts[i + 1]]``. Columns where ``integer`` is true take whole numbers only.
    """

    objective: Floats
    lower: Floats
    upper: Floats
    integer: NDArray[np.bool_]
    starts: Ints
    columns: Ints
    coefficients: Floats
    row_lower: Floats
    row_upper: Floats

    def with_objective(self, objective: Floats) -> ModelMatrix:
        """The same programme with something else to maximise."""
        return self._replaced(objective=objective)

    def with_row(self, coefficients: Floats, lower: float) -> ModelMatrix:
        """The same programme with one more row, ``coefficients @ x >= lower``."""
        used = np.flatnonzero(coefficients).astype(np.int32)
        return self._replaced(
            starts=np.append(self.starts, self.starts[-1] + np.int32(used.size)),
            columns=np.concatenate((self.columns, used)),
            coefficients=np.concatenate((self.coefficients, coefficients[used])),
            row_lower=np.append(self.row_lower, lower),
            row_upper=np.append(self.row_upper, np.inf),
        )

    def _replaced(self, **changes: Floats | Ints) -> ModelMatrix:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return ModelMatrix(**{**fields, **changes})


class MatrixBuilder:
    """Collects columns and rows one after the other."""

    def __init__(self) -> None:
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._coefficients: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    @property
    def width(self) -> int:
        """Number of columns so far."""
        return len(self._lower)

    def column(self, lower: float, upper: float, *, integer: bool) -> int:
        """Add a column and give its number."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._lower) - 1

    def row(self, terms: dict[int, float], lower: float, upper: float) -> None:
        """Add ``lower <= sum of coefficient * column <= upper``."""
        self._columns.extend(terms.keys())
        self._coefficients.extend(terms.values())
        self._starts.append(len(self._columns))
        self._row_lower.append(lower)
        self._row_upper.append(upper)

    def matrix(self, objective: dict[int, float]) -> ModelMatrix:
        """Put it together."""
        return ModelMatrix(
            objective=self.dense(objective),
            lower=np.array(self._lower, dtype=np.float64),
            upper=np.array(self._upper, dtype=np.float64),
            integer=np.array(self._integer, dtype=np.bool_),
            starts=np.array(self._starts, dtype=np.int32),
            columns=np.array(self._columns, dtype=np.int32),
            coefficients=np.array(self._coefficients, dtype=np.float64),
            row_lower=np.array(self._row_lower, dtype=np.float64),
            row_upper=np.array(self._row_upper, dtype=np.float64),
        )

    def dense(self, terms: dict[int, float]) -> Floats:
        """One number per column."""
        found = np.zeros(self.width)
        found[list(terms)] = list(terms.values())
        return found
