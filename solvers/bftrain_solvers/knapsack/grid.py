"""Entries as whole numbers: sums of them are exact, so equal plans are equal and the best one is proven best."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp, ulp
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.prune_hopeless_sizes import cleared, lopsided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.columns import Columns

# An entry has to fit into the 53 bits in which a float is a whole number; an entry times a size into 59 bits, so that
# differences, and sums that are cut off at NEVER, stay within 63
_ENTRY_BITS: Final = 52
_PRODUCT_BITS: Final = 59
_SMALLEST_FLOAT: Final = ulp(0.0)
NEVER: Final = 2**61  # a loss that no choice within reach has


@dataclass(frozen=True, slots=True)
class ValueGrid:
    """``entries[j, n]``: value in multiples of ``unit`` times ``weight``, less 1 if the size changes.

    ``weight`` is larger than the number of rows, so that all changes together count less than one unit of value.
    Sizes that are not allowed hold ``-inf``. ``unit`` is a power of two: values that are multiples of it are exact.
    Where costs are so large that they would leave no digits for the rest, entries of no best plan are not allowed,
    and ``raised`` is what has been taken off the value of every plan.
    """

    entries: NDArray[np.float64]
    allowed: NDArray[np.bool_] | None  # None: all sizes are
    unit: float
    weight: int
    raised: float = 0.0


def grid_of(
    values: NDArray[np.float64], present: NDArray[np.int64], pools: Sequence[int], columns: Columns | None = None
) -> ValueGrid:
    """Round ``values`` to the finest grid there is room for: 2**-42 of the largest for 1,000 rows of 65 sizes.

    ``columns`` say what the columns are where there are several kinds of nodes, ``pools`` of each.
    """
    rows, width = values.shape
    allowed, smallest, largest = _range(values)
    raised, unit = 0.0, _SMALLEST_FLOAT
    if lopsided(values, present, smallest, largest):
        clear = cleared(values, present, pools, columns)
        values, raised = clear.values, clear.raised
        unit = ldexp(1.0, frexp(max(clear.rounding, _SMALLEST_FLOAT))[1])  # finer than that, equal values are not
        allowed, smallest, largest = _range(values)
    largest = max(largest, -smallest)
    row_bits = rows.bit_length()
    bits = min(_ENTRY_BITS, _PRODUCT_BITS - width.bit_length()) - row_bits
    unit = max(ldexp(1.0, frexp(largest)[1] - bits), unit) if largest > 0.0 else 1.0
    weight = 1 << row_bits
    entries = values / unit
    np.rint(entries, out=entries)
    entries *= weight
    entries -= 1.0
    staying = np.flatnonzero(present < width)
    entries[staying, present[staying]] += 1.0
    return ValueGrid(entries, allowed, unit, weight, raised)


def _range(values: NDArray[np.float64]) -> tuple[NDArray[np.bool_] | None, float, float]:
    """Which sizes are allowed, ``None`` if all are; their smallest and largest value."""
    smallest, largest = float(values.min()), float(values.max())
    if smallest > -np.inf:
        return None, smallest, largest
    allowed = values > -np.inf
    return allowed, float(values.min(where=allowed, initial=0.0)), largest
