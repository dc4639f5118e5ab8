"""Equal rows of a value table: results for one row are computed once for all.

Tasks of one model and equal size have equal entries, so a hundred tasks often reduce to a dozen kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from bftrain_solvers.arrays import Floats, Integers

_FEW_ROWS: Final = 16  # minimum number of rows for the search of equal rows
_FACTOR: Final = 0x1E3779B97F4A7C15  # odd, with irregular bits
_KEPT: Final = 256


class RowKinds(msgspec.Struct, frozen=True, eq=False):
    """``first`` and ``count``: the first row of each kind and its number of rows; ``of_row``: the kind of each row."""

    first: Integers
    count: Integers
    of_row: Integers

    def __len__(self) -> int:
        return self.first.size

    def rows(self, kind: int) -> list[int]:
        """Return the rows of a kind, in their order."""
        found: list[int] = (self.of_row == kind).nonzero()[0].tolist()
        return found


def kinds_of_rows(values: Floats, present: Sequence[int], row_numbers: Sequence[int] | None = None) -> RowKinds:
    """Find the rows with equal ``values`` that hold the same size now; ``row_numbers`` are equal where rows are."""
    count, width = values.shape
    if count <= _FEW_ROWS:
        return _each_of_its_own(count)
    if row_numbers is not None:
        return _kinds_by_number(row_numbers, present)
    held = np.array(present)
    factors = _factors(width + 1)
    # Equal rows have equal numbers; the converse is verified
    numbers = values.view(np.int64) @ factors[:width] + held * factors[width]
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
    if not ((values == values[like]).all() and (held == held[like]).all()):
        return _each_of_its_own(count)
    counts = np.empty_like(starts)
    counts[:-1] = starts[1:] - starts[:-1]
    counts[-1] = count - starts[-1]
    return RowKinds(first, counts, of_row)


def _kinds_by_number(numbers: Sequence[int], present: Sequence[int]) -> RowKinds:
    different = len(set(numbers))
    if different == len(numbers):
        return _each_of_its_own(different)
    pairs = list(zip(numbers, present, strict=True))
    first = dict(zip(reversed(pairs), range(len(pairs) - 1, -1, -1), strict=True))  # the first of equal rows wins
    kind = dict(zip(first, range(len(first)), strict=True))
    of_row = np.array(list(map(kind.__getitem__, pairs)))
    return RowKinds(np.array(list(first.values())), np.bincount(of_row), of_row)


def _each_of_its_own(count: int) -> RowKinds:
    rows = np.arange(count)
    return RowKinds(rows, np.ones(count, dtype=np.int64), rows)


@lru_cache(maxsize=_KEPT)
def _factors(count: int) -> Integers:
    """Return so many odd numbers, by which whole numbers are multiplied without regard to overflow."""
    with np.errstate(over="ignore"):
        found: Integers = np.arange(1, count + 1) * _FACTOR
    found = (found ^ (found >> 29)) * _FACTOR | 1
    found.setflags(write=False)
    return found
