"""LevelSteps: the sizes at which a task is better off than at every smaller size. No other size is ever needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LevelSteps:
    """``sizes`` rise from 0, and ``levels`` with them; a rung is a place in both.

    ``spare`` is what is done at each, where it is known: it decides who of those equally badly off is raised.
    """

    sizes: tuple[int, ...]
    levels: tuple[float, ...]
    spare: tuple[float, ...] = ()

    def step(self, rung: int) -> int | None:
        """Say how many nodes lead from ``rung`` to the next one; ``None`` at the top."""
        return self.sizes[rung + 1] - self.sizes[rung] if rung + 1 < len(self.sizes) else None

    def gain(self, rung: int) -> float:
        """Say how much more is done on the rung after ``rung``; 0 if that is not known."""
        return self.spare[rung + 1] - self.spare[rung] if self.spare else 0.0

    def rest(self, rung: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Give what is above ``rung``, in nodes from there: tasks with the same steps are alike."""
        return tuple(size - self.sizes[rung] for size in self.sizes[rung:]), self.levels[rung:]


def ladder(levels: NDArray[np.float64], pool: int, spare: NDArray[np.float64] | None = None) -> LevelSteps:
    """Make one of ``levels`` and ``spare`` by size, ``-inf`` where a size is not allowed; size 0 is."""
    reached = levels[: pool + 1]
    before = np.maximum.accumulate(reached)[:-1]
    rungs = np.concatenate(([0], 1 + np.flatnonzero(reached[1:] > before)))
    done = () if spare is None else tuple(spare[rungs].tolist())
    return LevelSteps(tuple(rungs.tolist()), tuple(reached[rungs].tolist()), done)
