"""Rows of a value table that are alike: what holds for one of them is computed once for all.

Tasks of one model that hold as many nodes have the same entries, so a hundred tasks are often a dozen kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats, Integers

_FEW_ROWS: Final = 16  # so few are not worth looking for
_FACTOR: Final = 0x1E3779B97F4A7C15  # odd, without a pattern
_KEPT: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class RowKinds:
    """``first`` and ``count``: the first row of each kind and how many there are; ``of_row``: the kind of each row.

    ``same_values`` says whether two kinds differ only in what they hold now.
    """

    first: Integers
    count: Integers
    of_row: Integers
    same_values: bool

    def __len__(self) -> int:
        return self.first.size

    def rows(self, kind: int) -> list[int]:
        """Return the rows of a kind, in their order."""
        found: list[int] = np.flatnonzero(self.of_row == kind).tolist()
        return found


def kinds_of_rows(values: Floats, present: Integers) -> RowKinds:
    """Find the rows with equal ``values`` that hold the same size now."""
    count, width = values.shape
    if count <= _FEW_ROWS:
        return _each_of_its_own(count)
    factors = _factors(width + 1)
    # Equal rows have equal numbers; whether others have is checked
    by_value = values.view(np.int64) @ factors[:width]
    numbers = by_value + present * factors[width]
    order = numbers.argsort(kind="stable")
    ranked = numbers[order]
    begins = np.empty(count, dtype=np.bool_)
    begins[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=begins[1:])
    starts = begins.nonzero()[0]
    first = order[starts]
    of_row = np.empty(count, dtype=np.int64)
    of_row[order] = begins.cumsum() - 1
    like = first[of_row]
    if not ((values == values[like]).all() and (present == present[like]).all()):
        return _each_of_its_own(count)
    counts = np.empty_like(starts)
    counts[:-1] = starts[1:] - starts[:-1]
    counts[-1] = count - starts[-1]
    return RowKinds(first, counts, of_row, len(set(by_value[first].tolist())) < first.size)


def _each_of_its_own(count: int) -> RowKinds:
    rows = np.arange(count)
    return RowKinds(rows, np.ones(count, dtype=np.int64), rows, same_values=False)


@lru_cache(maxsize=_KEPT)
def _factors(count: int) -> Integers:
    """Return so many odd numbers, by which whole numbers are multiplied without regard to overflow."""
    with np.errstate(over="ignore"):
        found: Integers = np.arange(1, count + 1) * _FACTOR
    found = (found ^ (found >> 29)) * _FACTOR | 1
    found.setflags(write=False)
    return found
