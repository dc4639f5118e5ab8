"""Plans that fit, near to what is wanted: the way down to a plan, and small steps up from it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.knapsack.grid import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.columns import Columns

    Numbers = NDArray[np.int64]

_PAIRED: Final = 600  # changes of which all pairs are looked at
_MOST_PAIRS: Final = 60  # each gains; more of them gain next to nothing


@dataclass(frozen=True, slots=True)
class KindCapacities:
    """What every column takes of each kind (``takes[column, kind]``), and how much there is."""

    takes: Numbers
    pools: Numbers

    def idle(self, plan: Numbers) -> Numbers:
        """Give what ``plan`` leaves of each kind; below 0 where it takes more than there is."""
        left: Numbers = self.pools - self.takes[plan].sum(axis=0)
        return left


def space_of(columns: Columns, pools: Numbers) -> KindCapacities:
    """Give the room of a table."""
    takes = np.zeros((len(columns), pools.size), dtype=np.int64)
    some = columns.kind_of >= 0
    takes[np.flatnonzero(some), columns.kind_of[some]] = columns.nodes[some]
    return KindCapacities(takes, pools)


def fitting(space: KindCapacities, losses: Numbers, plan: Numbers) -> Numbers | None:
    """Change rows of ``plan`` until it fits, each time the one that loses least per node that there is not.

    ``None`` if that leads nowhere.
    """
    plan = plan.copy()
    allowed = losses < NEVER
    rows = np.arange(len(plan))
    while True:
        idle = space.idle(plan)
        lacking = int(np.minimum(idle, 0).sum())
        if lacking == 0:
            return plan
        then = idle + space.takes[plan][:, None, :] - space.takes[None, :, :]
        mended = np.minimum(then, 0).sum(axis=2) - lacking
        worse = np.where(allowed & (mended > 0), (losses - losses[rows, plan][:, None]) / np.maximum(mended, 1), np.inf)
        row, column = np.unravel_index(int(worse.argmin()), worse.shape)
        if worse[row, column] == np.inf:
            return None
        plan[row] = column


def improved(space: KindCapacities, entries: NDArray[np.float64], plan: Numbers, stop_at: float) -> Numbers:
    """Change one row after the other, each time the change that gains most and fits, until none gains."""
    plan = plan.copy()
    rows = np.arange(len(plan))
    while perf_counter() < stop_at:
        then = space.idle(plan) + space.takes[plan][:, None, :] - space.takes[None, :, :]
        gains = np.where((then >= 0).all(axis=2), entries - entries[rows, plan][:, None], -np.inf)
        row, column = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[row, column] <= 0.0:
            break
        plan[row] = column
    return plan


def exchanged(
    space: KindCapacities, losses: Numbers, entries: NDArray[np.float64], plan: Numbers, stop_at: float
) -> Numbers:
    """Change two rows at once, each time the two that gain most, out of the changes that lose least at the prices."""
    plan = plan.copy()
    rows = np.arange(len(plan))
    for _ in range(_MOST_PAIRS):
        if perf_counter() > stop_at:
            break
        worse = losses - losses[rows, plan][:, None]
        worse[rows, plan] = NEVER
        few = min(_PAIRED, worse.size)
        row, column = np.unravel_index(np.argpartition(worse, few - 1, axis=None)[:few], worse.shape)
        gains = entries[row, column] - entries[row, plan[row]]
        freed = space.takes[plan[row]] - space.takes[column]
        idle = space.idle(plan)
        total = gains[:, None] + gains[None, :]
        fits = (row[:, None] != row[None, :]) & (total > 0.0)
        for kind, left in enumerate(idle.tolist()):
            fits &= freed[:, kind][:, None] + freed[:, kind][None, :] >= -left
        total[~fits] = 0.0
        one, other = np.unravel_index(int(total.argmax()), total.shape)
        if total[one, other] <= 0.0:
            break
        plan[row[one]] = column[one]
        plan[row[other]] = column[other]
        plan = improved(space, entries, plan, stop_at)
    return plan
