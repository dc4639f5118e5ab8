"""Compare plans with equal levels in which different tasks stay: does one of them do more work?

As many as stay at the first level at which there was a choice stay there in all of them. Of the plans in which no more
are below the next level (any of them), the one that does most is a sum, and no plan of the same levels does more.
Often it is one itself; else it says by how much more might be done at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.max_min.fill_leftover import filled
from bftrain_solvers.max_min.solver_words import at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.deciding.levels import LevelCoupling
    from bftrain.values.table import ValueTable
    from bftrain_solvers.max_min.one_kind import LevelsReached

    Entries = NDArray[np.float64]

OTHERS: Final = "with others at the same levels"
_NOT_COMPARED: Final = "out of time: plans with others at the same levels were not compared"


@dataclass(frozen=True, slots=True)
class SettledPlan:
    """Who is ``known`` to be stuck where, and the ``sizes`` that are best if it is just these."""

    climb: LevelsReached
    known: Sequence[int]
    sizes: list[int]


def of_equals(
    table: ValueTable, scores: Entries, coupling: LevelCoupling, settled: SettledPlan, stop_at: float
) -> tuple[list[int], str]:
    """Give the better sizes, if such were found, and what is not proven of them."""
    climb, known, counted = settled.climb, settled.known, coupling.counted
    certain, open_to_choice = known[: climb.chosen], known[climb.chosen :]
    levels = [climb.level(place) for place in open_to_choice]
    above = [level for level in levels if level > levels[0]] if levels else []
    if not above:  # all that is known is that no task is lower
        return settled.sizes, ""
    low, following = levels[0], min(above)
    floors = dict.fromkeys(counted, low) | {counted[place]: climb.level(place) for place in certain}
    free = [counted[place] for place in range(len(counted)) if place not in set(certain)]
    below = np.zeros(scores.shape, dtype=np.bool_)
    below[free] = scores[free] < following
    finite = np.where(np.isfinite(coupling.spare), coupling.spare, 0.0)
    much = 1.0 + 2.0 * float(np.abs(finite).max(axis=1, initial=0.0).sum())
    relaxed = filled(table, scores, coupling.spare - much * below, floors, stop_at)
    if perf_counter() >= stop_at:
        return settled.sizes, _NOT_COMPARED
    if reached(scores, coupling, relaxed) == reached(scores, coupling, settled.sizes):
        return relaxed, ""
    done, most = _done(coupling.spare, settled.sizes), _done(coupling.spare, relaxed)
    return settled.sizes, at_most(OTHERS, most - done, done)


def reached(scores: Entries, coupling: LevelCoupling, sizes: Sequence[int]) -> list[float]:
    """Give the levels that matter, the lowest first."""
    return sorted(float(scores[place, sizes[place]]) for place in coupling.counted)[: coupling.first]


def _done(spare: Entries, sizes: Sequence[int]) -> float:
    return float(spare[np.arange(len(sizes)), sizes].sum())
