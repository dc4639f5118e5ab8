"""OpenLevel: a level at which a known number of tasks must stay, while it is undecided which of them.

A turn at staying low is a resource like the nodes of a kind: who takes one needs the nodes of the low level only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.max_min.demands import NEVER, ResourceDemands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_solvers.max_min.steps_by_kind import LevelStepsByKind

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OpenLevel:
    """``count`` of the ``members`` stay at ``level``; they are on ``rungs`` then."""

    level: float
    count: int
    members: NDArray[np.bool_]
    rungs: Numbers

    def without(self, who: NDArray[np.bool_]) -> OpenLevel:
        """Leave out the tasks that are known to be elsewhere."""
        return OpenLevel(self.level, self.count, self.members & ~who, self.rungs)


def needs_of(stairs: LevelStepsByKind, rungs: Numbers, bands: Sequence[OpenLevel], limits: Numbers) -> ResourceDemands:
    """Return the needs of every task: the nodes for its rung, or a turn in a band and the nodes for that."""
    people, kinds = len(rungs), limits.size
    uses = np.zeros((people, kinds * (1 + len(bands)), kinds + len(bands)), dtype=np.int64)
    each = np.arange(kinds)
    uses[:, each, each] = stairs.need(rungs)
    for number, band in enumerate(bands):
        options = kinds * (1 + number) + each
        uses[:, options, each] = np.where(band.members[:, None], stairs.need(band.rungs), NEVER)
        uses[:, options, kinds + number] = 1
    counts = np.array([band.count for band in bands], dtype=np.int64)
    return ResourceDemands(uses, np.concatenate((limits, counts)))
