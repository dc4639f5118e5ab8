"""Count the tasks that must wait because their minimum sizes do not fit the pool together."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.values.table import ValueTable

Entries = NDArray[np.float64]

_LARGEST: Final = 20_000_000  # numbers looked at to count exactly over several kinds; some 20 ms


def raisable(scores: Entries, counts: NDArray[np.bool_]) -> tuple[int, ...]:
    """Give the places of those tasks that count and are better off at some size than at none."""
    return tuple(np.flatnonzero(counts & (scores.max(axis=1, initial=-np.inf) > scores[:, 0])).tolist())


def waiting(table: ValueTable, scores: Entries, counted: tuple[int, ...]) -> int:
    """Say how many of the ``counted`` tasks must wait: not all smallest sizes that raise a score fit together.

    Kinds count separately. Over several kinds that are too large to count exactly it may be too many, never too few.
    """
    needs = _needs(table, scores, counted)
    pools = [table.problem.by_kind[kind] for kind in table.kinds]
    return len(counted) - together(needs, pools)


def _needs(table: ValueTable, scores: Entries, counted: tuple[int, ...]) -> NDArray[np.int64]:
    """Fewest nodes that raise a score, by task and kind; more than there are where none do."""
    rows = scores[list(counted)]
    raised = rows > rows[:, :1]
    needs = np.empty((len(counted), len(table.kinds)), dtype=np.int64)
    for number, kind in enumerate(table.kinds):
        none = table.problem.by_kind[kind] + 1
        here = raised & (table.kind_of == number)
        needs[:, number] = np.where(here, table.nodes, none).min(axis=1, initial=none)
    return needs


def together(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Count how many can have what they need at once."""
    if len(pools) == 1:
        return int(np.searchsorted(np.sort(needs[:, 0]).cumsum(), pools[0], side="right"))
    if prod(count + 1 for count in pools) * needs.size <= _LARGEST:
        return _most(needs, pools)
    return _one_after_the_other(needs, pools)


def _most(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Count over every number of free nodes of each kind, one task after the other."""
    most = np.zeros([count + 1 for count in pools], dtype=np.int32)
    for row in needs.tolist():
        before = most.copy()
        for axis, (need, count) in enumerate(zip(row, pools, strict=True)):
            if need <= count:
                ahead, behind = (np.moveaxis(array, axis, 0) for array in (most, before))
                np.maximum(ahead[need:], behind[: count + 1 - need] + 1, out=ahead[need:])
    return int(most.flat[-1])


def _one_after_the_other(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Place those with the least choice and the smallest needs first, each where least is missing then: a bound."""
    left = list(pools)
    there = needs <= np.array(pools)
    parts = np.where(there, needs / np.maximum(pools, 1), np.inf)
    placed = 0
    for place in np.lexsort((there.sum(axis=1), parts.min(axis=1, initial=np.inf))).tolist():
        fits = [kind for kind, free in enumerate(left) if there[place, kind] and needs[place, kind] <= free]
        if fits:
            kind = max(fits, key=lambda kind: (left[kind] - needs[place, kind]) / pools[kind])
            left[kind] -= int(needs[place, kind])
            placed += 1
    return placed
