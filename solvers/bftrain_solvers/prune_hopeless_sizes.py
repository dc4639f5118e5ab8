"""Remove sizes so costly that no best plan has them, before they drown other entries in rounding.

Every solver computes to a number of digits of the largest entry. A cost of 1e15 s, meant as "never", would leave
none for the entries among which there is something to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.greedy import gain_by_kind, marginal_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.columns import Columns

    Values = NDArray[np.float64]

_LOPSIDED: Final = 16.0  # an entry so many times larger than what a plan comes to may drown something
_ROUNDING: Final = 2.0**-50  # a few roundings, relative to the largest entry
_MORE: Final = 1.0 + 1e-9  # what is as good but for rounding stays
_ROUNDS: Final = 4  # each takes out what only the last one showed to be hopeless; more gain next to nothing


@dataclass(frozen=True, slots=True)
class PrunedRows:
    """Rows less their largest entry, the sum of these largest entries, and how far rounding may be off in them."""

    values: Values
    raised: float
    rounding: float


def lopsided(values: Values, present: NDArray[np.int64], smallest: float, largest: float) -> bool:
    """Say whether the best plan might come to far less than the largest or the smallest entry does.

    Without losses it comes to the largest entry at least. Else it is as good as letting all tasks stay, and as good
    as giving one task what brings most, and the others nothing.
    """
    if smallest >= 0.0:
        return False
    enough = max(largest, -smallest) / _LOPSIDED
    if largest + min(0.0, float(values[:, 0].sum())) >= enough:
        return False
    width = values.shape[1]
    return float(values[np.arange(len(values)), np.where(present < width, present, 0)].sum()) < enough


def cleared(
    values: Values, present: NDArray[np.int64], pools: Sequence[int], columns: Columns | None = None
) -> PrunedRows:
    """Take out what stays further behind than some plan does in all, or leaves the others too few nodes.

    ``columns`` say what the columns of ``values`` are, if not the sizes 0, 1, ...
    """
    rows, sizes = np.arange(len(values)), np.arange(values.shape[1])
    several = columns is not None and columns.several
    plan = _some_plan(values, present, pools, columns if several else None)
    pool = sum(pools)
    for _ in range(_ROUNDS):
        best = values.max(axis=1)
        losses = best[:, None] - values
        least = np.isfinite(losses).argmax(axis=1)
        hopeless = losses > _MORE * losses[rows, plan].sum()
        if not several:
            left = pool - int(least.sum()) + least
            hopeless |= sizes > left[:, None]
        if np.isneginf(values[hopeless]).all():
            break
        values = np.where(hopeless, -np.inf, values)
    best = values.max(axis=1)
    rounding = _ROUNDING * float(np.abs(values).max(where=values > -np.inf, initial=0.0))
    return PrunedRows(values - best[:, None], fsum(best.tolist()), rounding)


def _some_plan(
    values: Values, present: NDArray[np.int64], pools: Sequence[int], columns: Columns | None
) -> NDArray[np.int64]:
    """Give the better of two plans: by marginal gain, or all tasks stay that may."""
    rows = np.arange(len(values))
    gained = marginal_gain(values, sum(pools)) if columns is None else gain_by_kind(values, columns, pools)
    by_gain = np.array(gained, dtype=np.int64)
    staying = np.where(present < values.shape[1], present, 0)
    staying = np.where(values[rows, staying] > -np.inf, staying, 0)
    if not _fits(staying, pools, columns):
        return by_gain
    return max(by_gain, staying, key=lambda plan: fsum(values[rows, plan].tolist()))


def _fits(plan: NDArray[np.int64], pools: Sequence[int], columns: Columns | None) -> bool:
    """Say whether there are the nodes for it: columns may count from what a task needs at least, not from none."""
    if columns is None:
        return int(plan.sum()) <= sum(pools)
    nodes, kinds = columns.nodes[plan], columns.kind_of[plan]
    return all(int(nodes[kinds == kind].sum()) <= count for kind, count in enumerate(pools))
