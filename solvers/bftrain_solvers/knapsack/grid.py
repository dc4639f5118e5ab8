"""Entries as whole numbers: sums of them are exact, so equal plans are equal and the best one is proven best."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp, ulp
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# An entry has to fit into the 53 bits in which a float is a whole number; an entry times a size into 59 bits, so that
# differences, and sums that are cut off at NEVER, stay within 63
_ENTRY_BITS: Final = 52
_PRODUCT_BITS: Final = 59
_SMALLEST_FLOAT: Final = ulp(0.0)
NEVER: Final = 2**61  # a loss that no choice within reach has


@dataclass(frozen=True, slots=True)
class Grid:
    """``entries[j, n]``: value in multiples of ``unit`` times ``weight``, less 1 if the size changes.

    ``weight`` is larger than the number of rows, so that all changes together count less than one unit of value.
    Sizes that are not allowed hold ``-inf``. ``unit`` is a power of two: values that are multiples of it are exact.
    """

    entries: NDArray[np.float64]
    allowed: NDArray[np.bool_] | None  # None: all sizes are
    unit: float
    weight: int


def grid_of(values: NDArray[np.float64], present: NDArray[np.int64]) -> Grid:
    """Round ``values`` to the finest grid there is room for: 2**-42 of the largest for 1,000 rows of 65 sizes."""
    rows, width = values.shape
    smallest = float(values.min())
    allowed = None
    if smallest == -np.inf:
        allowed = values > -np.inf
        smallest = float(values.min(where=allowed, initial=0.0))
    largest = max(float(values.max()), -smallest)
    row_bits = rows.bit_length()
    bits = min(_ENTRY_BITS, _PRODUCT_BITS - width.bit_length()) - row_bits
    unit = max(ldexp(1.0, frexp(largest)[1] - bits), _SMALLEST_FLOAT) if largest > 0.0 else 1.0
    weight = 1 << row_bits
    entries = values / unit
    np.rint(entries, out=entries)
    entries *= weight
    entries -= 1.0
    staying = np.flatnonzero(present < width)
    entries[staying, present[staying]] += 1.0
    return Grid(entries, allowed, unit, weight)
