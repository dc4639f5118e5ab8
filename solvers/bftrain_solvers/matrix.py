"""The neutral form of a mixed-integer programme, which every MILP backend receives: columns, rows, integrality."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bftrain_solvers.arrays import Floats, Mask

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
    integer: Mask
    starts: Ints
    columns: Ints
    coefficients: Floats
    row_lower: Floats
    row_upper: Floats

    def with_row(self, coefficients: Floats, lower: float) -> ModelMatrix:
        """Return the programme with one more row, ``coefficients @ x >= lower``."""
        used = np.flatnonzero(coefficients).astype(np.int32)
        return replace(
            self,
            starts=np.append(self.starts, self.starts[-1] + np.int32(used.size)),
            columns=np.concatenate((self.columns, used)),
            coefficients=np.concatenate((self.coefficients, coefficients[used])),
            row_lower=np.append(self.row_lower, lower),
            row_upper=np.append(self.row_upper, np.inf),
        )

    def sparse(self) -> Any:  # noqa: ANN401 - scipy's types do not know that arrays may be sparse
        """Return ``A`` as a sparse array of scipy."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

        shape = (self.row_lower.size, self.objective.size)
        return csr_array((self.coefficients, self.columns, self.starts), shape=shape)


class MatrixBuilder:
    """Collects columns and rows incrementally."""

    def __init__(self) -> None:
        # As arrays, since conversion from lists takes a quarter of a second for 150,000 columns
        self._lower, self._upper, self._integer = array("d"), array("d"), array("b")
        self._starts, self._columns, self._coefficients = array("i", [0]), array("i"), array("d")
        self._row_lower, self._row_upper = array("d"), array("d")

    def column(self, lower: float, upper: float, *, integer: bool) -> int:
        """Add a column and return its number."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._lower) - 1

    def row(self, terms: dict[int, float], lower: float, upper: float) -> None:
        """Add ``lower <= sum of coefficient * column <= upper``."""
        self._columns.extend(terms)
        self._coefficients.extend(terms.values())
        self._starts.append(len(self._columns))
        self._row_lower.append(lower)
        self._row_upper.append(upper)

    def matrix(self, objective: dict[int, float]) -> ModelMatrix:
        """Return the whole programme with this objective."""
        return ModelMatrix(
            objective=self.dense(objective),
            lower=np.array(self._lower),
            upper=np.array(self._upper),
            integer=np.array(self._integer, dtype=np.bool_),
            starts=np.array(self._starts),
            columns=np.array(self._columns),
            coefficients=np.array(self._coefficients),
            row_lower=np.array(self._row_lower),
            row_upper=np.array(self._row_upper),
        )

    def dense(self, terms: dict[int, float]) -> Floats:
        """Return one number per column, 0 where no term is given."""
        found = np.zeros(len(self._lower))
        found[list(terms)] = list(terms.values())
        return found
