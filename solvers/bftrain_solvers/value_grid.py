"""Table entries as whole numbers: sums are exact, so equal plans are equal and the best one is proven best.

Sizes so costly that no best plan has them are removed before they drown other entries in rounding: every solver
computes to a number of digits of the largest entry. A cost of 1e15 s, meant as "never", would leave no digits for the
other entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, fsum, inf, ldexp, ulp
from typing import Final

import msgspec
import numpy as np

from bftrain.values.table import Columns
from bftrain_solvers.allocators import largest_gains
from bftrain_solvers.answers import staying
from bftrain_solvers.arrays import Floats, Integers, Mask

# An entry must fit into the 53 bits of a float's integers; an entry times a size into 59 bits, so differences, and
# sums that are cut off at UNREACHABLE_LOSS, stay within 63
_ENTRY_BITS: Final = 52
_PRODUCT_BITS: Final = 59
_SMALLEST_FLOAT: Final = ulp(0.0)
UNREACHABLE_LOSS: Final = 2**61  # a loss that no choice within reach has

_LOPSIDED: Final = 16.0  # entries this many times larger than a plan's value may swamp small ones
_ROUNDING: Final = 2.0**-50  # a few roundings, relative to the largest entry
_MORE: Final = 1.0 + 1e-9  # tolerance for rounding
_ROUNDS: Final = 4  # each round lowers the known plan's loss, so the next removes more; further rounds gain little


class ValueGrid(msgspec.Struct, frozen=True, eq=False):
    """``entries[j, n]``: value in multiples of ``unit`` times ``weight``, less 1 if the size changes.

    ``weight`` exceeds the number of rows, so all changes together count less than one unit of value. Sizes that are not
    allowed contain ``-inf``. ``unit`` is a power of two: its multiples are exact. If costs are so large that no digits
    would remain for other entries, entries outside all best plans are removed, and ``raised`` is the amount subtracted
    from the value of every plan.
    """

    entries: Floats
    allowed: Mask | None  # None: all sizes are
    unit: float
    weight: int
    raised: float = 0.0

    @property
    def whole(self) -> Integers:
        """The entries, 0 where a size is not allowed."""
        entries = self.entries if self.allowed is None else np.where(self.allowed, self.entries, 0.0)
        return entries.astype(np.int64)


def grid_of(
    values: Floats, present: Integers, pools: Sequence[int], columns: Columns | None = None, stop_at: float = inf
) -> ValueGrid:
    """Round ``values`` to the finest grid there is room for: 2**-42 of the largest for 1,000 rows of 65 sizes.

    ``columns`` describes the columns for several node kinds, with ``pools`` nodes of each.
    """
    width = values.shape[1]
    allowed, smallest, largest = _range(values)
    raised, unit = 0.0, _SMALLEST_FLOAT
    if lopsided(values, present, smallest, largest):
        clear = cleared(values, present, pools, columns, stop_at)
        values, raised = clear.values, clear.raised
        unit = ldexp(1.0, frexp(max(clear.rounding, _SMALLEST_FLOAT))[1])  # finer than that, equal values are not
        allowed, smallest, largest = _range(values)
    largest = max(largest, -smallest)
    row_bits = len(values).bit_length()
    bits = min(_ENTRY_BITS, _PRODUCT_BITS - width.bit_length()) - row_bits
    unit = max(ldexp(1.0, frexp(largest)[1] - bits), unit) if largest > 0.0 else 1.0
    weight = 1 << row_bits
    entries = np.rint(values / unit)
    entries *= weight
    entries -= 1.0
    staying = (present < width).nonzero()[0]
    entries[staying, present[staying]] += 1.0
    return ValueGrid(entries, allowed, unit, weight, raised)


def _range(values: Floats) -> tuple[Mask | None, float, float]:
    """Return the mask of allowed sizes, ``None`` if all are, and their smallest and largest value."""
    smallest, largest = float(np.minimum.reduce(values, axis=None)), float(np.maximum.reduce(values, axis=None))
    if smallest > -np.inf:
        return None, smallest, largest
    allowed = values > -np.inf
    return allowed, float(values.min(where=allowed, initial=0.0)), largest


@dataclass(frozen=True, slots=True)
class PrunedRows:
    """Rows less their largest entry, the sum of these largest entries, and a bound of their rounding errors."""

    values: Floats
    raised: float
    rounding: float


def lopsided(values: Floats, present: Integers, smallest: float, largest: float) -> bool:
    """Return whether the best plan might be worth far less than the largest magnitude of an entry.

    It is worth at least as much as two plans: to serve only the task with the largest entry, and to keep all sizes.
    """
    if smallest >= 0.0:
        return False
    enough = max(largest, -smallest) / _LOPSIDED
    if largest + min(0.0, float(values[:, 0].sum())) >= enough:
        return False
    inside = np.where(present < values.shape[1], present, 0)
    return float(values[np.arange(len(values)), inside].sum()) < enough


def cleared(
    values: Floats, present: Integers, pools: Sequence[int], columns: Columns | None = None, stop_at: float = inf
) -> PrunedRows:
    """Remove sizes that lose more than a known plan does in total, or leave too few nodes for other rows.

    ``columns`` describe the columns of ``values``, if they are not the sizes 0, 1, ... The plan is improved until
    ``stop_at``; a worse one removes less.
    """
    rows, sizes, pool = np.arange(len(values)), np.arange(values.shape[1]), sum(pools)
    # Some plan: the better one of two, by marginal gain, or all tasks stay that may
    stay = staying(values, present)
    if columns is not None and columns.several:
        plan = np.array(largest_gains(values, [block for _, block in columns.blocks()], pools, stop_at), dtype=np.int64)
        nodes, kinds = columns.nodes[stay], columns.kind_of[stay]
        fits = all(int(nodes[kinds == kind].sum()) <= count for kind, count in enumerate(pools))
    else:  # columns may count from a task's minimum instead of 0
        columns = None
        plan = np.array(largest_gains(values, [slice(1, sizes.size)], [pool], stop_at), dtype=np.int64)
        fits = int(stay.sum()) <= pool
    if fits:
        plan = max(plan, stay, key=lambda plan: fsum(values[rows, plan].tolist()))
    for _ in range(_ROUNDS):
        best = values.max(axis=1)
        losses = best[:, None] - values
        least = np.isfinite(losses).argmax(axis=1)
        hopeless = losses > _MORE * losses[rows, plan].sum()
        if columns is None:
            left = pool - int(least.sum()) + least
            hopeless |= sizes > left[:, None]
        if np.isneginf(values[hopeless]).all():
            break
        values = np.where(hopeless, -np.inf, values)
    best = values.max(axis=1)
    rounding = _ROUNDING * float(np.abs(values).max(where=values > -np.inf, initial=0.0))
    return PrunedRows(values - best[:, None], fsum(best.tolist()), rounding)
