"""Steps: what went on, one row for each stretch of rounds that went alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RoundStep(NamedTuple):
    """Some rounds in a row. The last figures are counts of tasks; ``used_node_s`` and ``samples`` are sums."""

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


class RoundSteps:
    """All steps of a run."""

    def __init__(self) -> None:
        self._rows: list[RoundStep] = []
        self.by_user: list[NDArray[np.float64]] = []  # of each step, node-seconds of every user

    def __len__(self) -> int:
        """How many steps there are."""
        return len(self._rows)

    def add(self, step: RoundStep, by_user: NDArray[np.float64]) -> None:
        """Take one down."""
        self._rows.append(step)
        self.by_user.append(by_user)

    def column(self, name: str) -> NDArray[np.float64]:
        """Give one column."""
        place = RoundStep._fields.index(name)
        return np.array([row[place] for row in self._rows], dtype=np.float64)

    def table(self) -> dict[str, list[float]]:
        """Give all columns by name."""
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(RoundStep._fields)
        return dict(zip(RoundStep._fields, map(list, columns), strict=True))
