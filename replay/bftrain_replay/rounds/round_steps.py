"""The rounds of a run as rows: consecutive identical rounds are one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class RoundStep(NamedTuple):
    """Some consecutive rounds. The last figures are counts of tasks; ``used_node_s`` and ``samples`` are sums."""

    first_round: int
    rounds: int
    from_s: float
    to_s: float
    pool: int
    used_node_s: float
    samples: float
    running: int
    waiting: int
    started: int
    stopped: int
    taken: int
    done: int


@dataclass(frozen=True, slots=True, eq=False)
class RoundSteps:
    """All steps of a run."""

    rows: list[RoundStep] = field(default_factory=list)
    by_user: list[NDArray[np.float64]] = field(default_factory=list)  # node-seconds of every user in each step

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one column."""
        place = RoundStep._fields.index(name)
        return np.array([row[place] for row in self.rows], dtype=np.float64)

    def table(self) -> dict[str, list[float]]:
        """Return all columns by name."""
        columns = zip(*self.rows, strict=True) if self.rows else ((),) * len(RoundStep._fields)
        return dict(zip(RoundStep._fields, map(list, columns), strict=True))
