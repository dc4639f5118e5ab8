"""GroupBudget: groups of tasks share nodes by weight, and each group divides its nodes by its own rule."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.max_min.equal_levels import alike
from bftrain_solvers.max_min.one_kind import LevelsReached
from bftrain_solvers.max_min.steps import ladder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.deciding.levels import UserGroup

    Entries = NDArray[np.float64]


class GroupBudget:
    """What a group makes of so many nodes: ``worth`` by nodes, and the ``sizes`` of its tasks."""

    def __init__(self, group: UserGroup, entries: Entries, pool: int) -> None:
        self.group = group
        self._entries = entries
        self.sure = True
        self._rows = _in_turn(entries, pool) if group.fifo else self._together(pool)
        self.worth: Entries = entries[np.arange(len(entries)), self._rows].sum(axis=1) / group.weight

    def sizes(self, nodes: int) -> dict[int, int]:
        """Give the sizes of its tasks by place."""
        return dict(zip(self.group.places, self._rows[nodes].tolist(), strict=True))

    def _together(self, pool: int) -> NDArray[np.int64]:
        """For every number of nodes, raise the worst-off by weight first."""
        levels = alike(self._entries / np.array(self.group.weights)[:, None])
        ladders = [ladder(row, pool) for row in levels]
        landings = list(LevelsReached.begin(ladders, 0).landings())
        rows = np.zeros((pool + 1, len(ladders)), dtype=np.int64)
        for (used, rungs), (following, _) in pairwise(landings):
            for nodes in range(used, min(following, pool + 1)):
                climb = LevelsReached(ladders, list(rungs), nodes - used)
                if nodes > used:
                    climb.run()
                    self.sure &= climb.sure
                rows[nodes] = climb.sizes()
        most, top = landings[-1]
        rows[most:] = LevelsReached(ladders, top, 0).sizes()
        return rows


def _in_turn(entries: Entries, pool: int) -> NDArray[np.int64]:
    """For every number of nodes: the first takes the smallest size that is best for it, the next has what is left."""
    left = np.arange(pool + 1)
    rows = np.zeros((pool + 1, len(entries)), dtype=np.int64)
    for place, row in enumerate(entries):
        steps = ladder(row, pool)
        rungs = np.array(steps.sizes)
        rows[:, place] = rungs[np.searchsorted(rungs, left, side="right") - 1]
        left = left - rows[:, place]
    return rows


def divided(purses: Sequence[GroupBudget], pool: int) -> tuple[dict[int, int], bool]:
    """Raise the worst-off group first; gives the sizes of all tasks by place, and whether that is proven."""
    worth = alike(np.array([purse.worth for purse in purses]))
    climb = LevelsReached.begin([ladder(row, pool) for row in worth], pool).run()
    sizes: dict[int, int] = {}
    for place, purse in enumerate(purses):
        sizes.update(purse.sizes(climb.size(place)))
    return sizes, climb.sure and all(purse.sure for purse in purses)
