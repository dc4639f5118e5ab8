"""LevelStepsByKind: the levels of each task, and the fewest nodes of each kind that reach them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.max_min.demands import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.columns import Columns

    Numbers = NDArray[np.int64]
    Entries = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LevelStepsByKind:
    """``levels[who, rung]`` rise from what is had without any node; ``needs[who, rung, kind]`` reach them.

    Where the rungs of a task end, its level is infinite, and no number of nodes is enough for it.
    """

    levels: Entries
    needs: Numbers

    def level(self, rungs: Numbers) -> Entries:
        """Return how well off every task is."""
        return self.levels[np.arange(len(rungs)), rungs]

    def need(self, rungs: Numbers) -> Numbers:
        """Give how many nodes of each kind, if they are of that kind, every task needs at least."""
        return self.needs[np.arange(len(rungs)), rungs]

    def rungs_at(self, level: float) -> Numbers:
        """Return the lowest rung of every task that is at ``level`` or above."""
        found: Numbers = (self.levels < level).sum(axis=1)
        return found


def stairs(scores: Entries, counted: Sequence[int], columns: Columns) -> LevelStepsByKind:
    """Make the stairs of those ``counted``, by what they score at every column."""
    each = [_of_one(scores[place], columns) for place in counted]
    most = 1 + max((len(levels) for levels, _ in each), default=0)
    levels = np.full((len(each), most), np.inf)
    needs = np.full((len(each), most, len(columns.kinds)), NEVER, dtype=np.int64)
    for who, (own, nodes) in enumerate(each):
        levels[who, : len(own)], needs[who, : len(own)] = own, nodes
    return LevelStepsByKind(levels, needs)


def _of_one(row: Entries, columns: Columns) -> tuple[Entries, Numbers]:
    risen = [np.maximum.accumulate(row[block]) for _, block in columns.blocks()]
    above = np.unique(np.concatenate(risen))
    levels = np.concatenate((row[:1], above[above > row[0]]))
    needs = np.zeros((len(levels), len(risen)), dtype=np.int64)
    for kind, reached in enumerate(risen):
        nodes = np.searchsorted(reached, levels[1:]) + 1
        needs[1:, kind] = np.where(nodes <= len(reached), nodes, NEVER)
    return levels, needs
