"""Scaling of a programme to the range that solver libraries support, or its rejection if no scaling achieves that.

Libraries treat coefficients below 1e-9 as 0 and reject those above 1e15; they compute to absolute tolerances of 1e-6 to
1e-9. Rows and continuous columns are therefore multiplied by powers of two, which changes no digit. If a row's
coefficients still span such a range that a tolerance exceeds the smallest coefficient, the library would solve a
different problem: such a row is rejected.
"""

from __future__ import annotations

from dataclasses import replace
from math import ldexp
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.matrix import ModelMatrix

_OBJECTIVE_BITS: Final = 20  # coefficients of about 2**20 keep tolerances far below rounding
_ROW_BITS: Final = 10  # larger coefficients put tolerances of 1e-9 below rounding, and no plan would be feasible
_SPAN_BITS: Final = 36  # span of coefficients in a row: less than 1e-9 remains of smaller coefficients
_TIED_BITS: Final = 16  # the same, for numbers that can change by 1e-6 without choosing a size
_EASY: Final = (2.0**-20, 2.0**20)  # rows with coefficients in this range stay unscaled
_MOST_LIMIT: Final = 1e15  # libraries treat a limit above 1e20 as no limit
_OVERLOOKED: Final = 1e-3  # 1e-12 of the largest coefficient is 1e-9 of a value of this size or larger
_PASSES: Final = 16  # each halves how far the units of columns are from the right ones, in bits


class NumbersTooFarApart(Exception):
    """The coefficients of a row, or the row's limit, cannot be brought into the range that a library handles."""


def fitted(matrix: ModelMatrix) -> tuple[ModelMatrix, Integers]:
    """Return an equal programme with coefficients in range, and the power of two of each column's new unit."""
    sizes = np.abs(matrix.coefficients)
    used = sizes > 0.0
    units = np.zeros(matrix.objective.size, dtype=np.int64)
    if not used.any() or (sizes[used].min() >= _EASY[0] and sizes.max() <= _EASY[1]):
        return matrix, units
    row = np.repeat(np.arange(matrix.row_lower.size), np.diff(matrix.starts))[used]
    column, bits = matrix.columns[used].astype(np.int64), np.frexp(sizes[used])[1].astype(np.int64)
    free = ~matrix.integer
    by_row = np.zeros(matrix.row_lower.size, dtype=np.int64)
    for _ in range(_PASSES):  # rows and columns in turn, to the middle between the largest and the smallest
        by_row = -_middle(bits + units[column], row, by_row.size)
        units = np.where(free, -_middle(bits + by_row[row], column, units.size), 0)
    scaled = bits + units[column]
    largest = np.full(by_row.size, np.iinfo(np.int64).min)
    np.maximum.at(largest, row, scaled)
    if (span := (largest[row] - scaled).max()) > _SPAN_BITS:
        raise NumbersTooFarApart(f"coefficients of a row differ by a factor of 2**{span}")
    by_row = np.where(largest > np.iinfo(np.int64).min, _ROW_BITS - largest, 0)
    coefficients = np.ldexp(matrix.coefficients, np.repeat(by_row, np.diff(matrix.starts)) + units[matrix.columns])
    limits = [np.ldexp(side, by_row) for side in (matrix.row_lower, matrix.row_upper)]
    if any((np.isfinite(side) & (np.abs(side) > _MOST_LIMIT)).any() for side in limits):
        raise NumbersTooFarApart(f"a limit is more than {_MOST_LIMIT:g} times as large as the coefficients of its row")
    lower, upper = (np.ldexp(side, -units) for side in (matrix.lower, matrix.upper))
    fits = replace(
        matrix, coefficients=coefficients, row_lower=limits[0], row_upper=limits[1], lower=lower, upper=upper
    )
    return fits, units


def _middle(bits: Integers, group: Integers, count: int) -> Integers:
    """Return the middle of the largest and the smallest of ``bits`` in each group; 0 for an empty group."""
    largest, smallest = np.full(count, -(2**40)), np.full(count, 2**40)
    np.maximum.at(largest, group, bits)
    np.minimum.at(smallest, group, bits)
    return np.where(largest >= smallest, (largest + smallest) // 2, 0)


def scale_bits(coefficients: Floats) -> int:
    """Return the power of two that scales the largest coefficient to about ``2**_OBJECTIVE_BITS``."""
    largest = float(np.abs(coefficients).max(initial=0.0))
    return _OBJECTIVE_BITS - int(np.frexp(largest)[1]) if largest > 0.0 else 0


def resolved(matrix: ModelMatrix, objective: Floats, constant: float, value: float) -> bool:
    """Return whether the library's tolerance is negligible relative to ``value`` and its terms.

    The library treats plans as equal if they differ by 1e-6, with a largest coefficient of about 2**20. If the
    objective has a ``constant``, the value may be a small difference of large numbers. If rows tie the objective to the
    choice, as with the level of the worst-off, the possible error of a choice (1e-6) also matters.
    """
    row, sizes = np.repeat(np.arange(matrix.row_lower.size), np.diff(matrix.starts)), np.abs(matrix.coefficients)
    free = ~matrix.integer[matrix.columns] & (objective[matrix.columns] != 0.0) & (sizes > 0.0)
    worth = np.zeros(matrix.row_lower.size)  # value of 1 in a row, from the row's ties to the objective
    with np.errstate(over="ignore", invalid="ignore"):
        np.maximum.at(worth, row[free], np.abs(objective[matrix.columns[free]]) / sizes[free])
        tied = (sizes * worth[row])[matrix.integer[matrix.columns]]
    made_of = np.concatenate((np.abs(objective[matrix.integer]), tied))
    made_of = made_of[made_of != 0.0]
    largest, smallest = float(made_of.max(initial=0.0)), float(made_of.min(initial=np.inf))
    span_bits = _TIED_BITS if worth.any() else _SPAN_BITS
    alike = constant == 0.0 and smallest >= ldexp(largest, -span_bits)
    return alike or abs(value) >= _OVERLOOKED * largest
