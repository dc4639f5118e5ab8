"""LeftoverNodes: nodes that no level needs go where they do most, and no task falls below its level."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.solution import Limits, Quality, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.highs import solver as highs
from bftrain_solvers.max_min.equal_plans import OTHERS
from bftrain_solvers.max_min.solver_words import at_most
from bftrain_solvers.node_kinds.search import best_columns
from bftrain_solvers.node_kinds.solving import solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_solvers.max_min.several_kinds import LevelsReachedByKind

    Entries = NDArray[np.float64]

_LEAST_S: Final = 0.05  # for a first plan, even if there is no time at all


@dataclass(frozen=True, slots=True)
class DividedNodes:
    """Columns in the order of the tasks, and what is not proven of them."""

    columns: list[int]
    termination: Termination
    words: str


@dataclass(frozen=True)
class LeftoverNodes:
    """What ``rise`` found out about those ``counted``, and what is done at every column, a second: ``spare``."""

    table: ValueTable
    scores: Entries
    counted: Sequence[int]
    spare: Entries
    rise: LevelsReachedByKind
    cut: bool

    def divide(self, stop_at: float) -> DividedNodes:
        """Give the plan with most of ``spare``."""
        start = self._start()
        plain = self._less(self._below(self._floors()))
        limits = Limits(deadline_s=max(stop_at - perf_counter(), _LEAST_S))
        found = solved(plain, limits, "exact", highs, start)
        columns = plain.chosen(found.sizes, found.kinds) or start
        proven = found.quality is Quality.PROVEN
        open_by = 0.0 if proven or found.bound is None or found.value is None else found.bound - found.value
        done = self._done(columns)
        words = [at_most("with the same at each level", open_by, done)]
        if self.rise.choice_at < inf and not self.cut:
            words.append(at_most(OTHERS, self._others(columns), done))
        termination = Termination.OPTIMAL if proven else found.termination
        return DividedNodes(columns, termination, "; ".join(filter(None, words)))

    def _start(self) -> list[int]:
        """Give the columns of the last answer."""
        kinds, nodes = self.rise.options()
        begins = [block.start for _, block in self.table.columns.blocks()]
        columns = [0] * len(self.scores)
        for place, kind, needed in zip(self.counted, kinds.tolist(), nodes.tolist(), strict=True):
            columns[place] = begins[kind] + needed - 1 if needed else 0
        return columns

    def _floors(self) -> Entries:
        """Return the levels below which no counted task falls, except those in bands."""
        now = self.rise.stairs.level(self.rise.rungs)
        return now if self.cut else np.where(self.rise.stuck, now, np.minimum(now, self.rise.reached))

    def _below(self, floors: Entries) -> Entries:
        """Count how bad it is to be below: the lower, the worse, no matter how many others are above."""
        ratio, bands = float(len(self.counted) + 1), self.rise.bands
        rows = self.scores[list(self.counted)]
        worse = np.where(rows < floors[:, None], ratio ** len(bands), 0.0)
        for number, band in enumerate(bands):
            low = band.members[:, None] & (rows >= band.level) & (rows < floors[:, None])
            worse = np.where(low, ratio ** (len(bands) - 1 - number), worse)
        return worse

    def _less(self, below: Entries) -> ValueTable:
        """Give what is done at every column, less more than all of that where it is ``below``."""
        finite = np.where(np.isfinite(self.spare), self.spare, 0.0)
        most = 1.0 + 2.0 * float(np.abs(finite).max(axis=1, initial=0.0).sum())
        finite[list(self.counted)] -= most * below
        return ValueTable(problem=self.table.problem, values=np.where(np.isfinite(self.table.values), finite, -inf))

    def _done(self, columns: Sequence[int]) -> float:
        return float(self.spare[np.arange(len(columns)), columns].sum())

    def _others(self, columns: Sequence[int]) -> float:
        """Say how much more plans may do in which others stay at the levels that were open to choice, at most."""
        floors = np.minimum(self.rise.stairs.level(self.rise.rungs), self.rise.choice_at)
        for band in self.rise.bands:
            floors = np.where(band.members, np.minimum(floors, band.level), floors)
        plain = self._less((self.scores[list(self.counted)] < floors[:, None]).astype(np.float64))
        found = best_columns(plain, perf_counter(), start=columns)
        most = plain.value_at(found.columns) if found.bound is None else found.bound
        return most - self._done(columns)
