"""The core of a problem: the few sizes that may be in a best plan.

At a price each size has a loss, and the best plan loses no more than any known plan. Two bounds exclude most sizes:
a larger loss of the size itself, and a larger total loss after the required exchange of nodes with other tasks,
estimated by the least loss per node.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from bftrain_solvers.arrays import Integers
from bftrain_solvers.knapsack.row_kinds import RowKinds
from bftrain_solvers.knapsack.stages import Stage
from bftrain_solvers.value_grid import NEVER

_DEAR: Final = 1e290  # exceeds any loss, even times the nodes of a table
_ROUNDING: Final = 1.0 + 1e-9


class NodePrice(msgspec.Struct, frozen=True, eq=False):
    """The price is ``rise / run`` per node; losses are multiplied by ``run`` to make them integers.

    ``least`` and ``most`` are the smallest and largest sizes without a loss; the pool lies between their sums. All
    arrays are indexed by row kind.
    """

    rise: int
    run: int
    losses: Integers
    least: Integers
    most: Integers

    def least_known(self, sizes: Integers, idle: int, kinds: RowKinds, held: Integers, pool: int) -> int:
        """Return the smallest loss of some plans: ``sizes``, the present ones, and these with one change.

        ``sizes`` lose only their ``idle`` nodes; ``held`` are the present sizes by kind.
        """
        losses, rise, width = self.losses, self.rise, self.losses.shape[1]
        known = rise * idle
        place = (losses < known).ravel().nonzero()[0]  # the loss of a plan is at least the loss of each size
        (kind, size), loss = np.divmod(place, width), losses.take(place)
        at_most = np.bincount(kinds.of_row[sizes > self.least[kinds.of_row]], minlength=kinds.first.size)
        for here, there in ((self.least, at_most < kinds.count), (self.most, at_most > 0)):
            idle_then = idle + here[kind] - size
            total = loss + rise * idle_then
            known = int(np.minimum.reduce(total[(idle_then >= 0) & there[kind]], initial=known))
        idle = pool - int(held @ kinds.count)
        if idle < 0 or int(np.maximum.reduce(held)) >= width:
            return known
        lost = losses[np.arange(kinds.first.size), held]
        largest = int(np.maximum.reduce(lost))
        if largest >= known or float(lost.astype(np.float64) @ kinds.count) >= NEVER:  # not allowed, or too large
            return known
        staying = int(lost @ kinds.count) + rise * idle
        if 0 <= staying - largest - rise * width < NEVER:
            more = size - held[kind]
            total = loss - lost[kind] - rise * more + staying
            known = int(np.minimum.reduce(total[more <= idle], initial=known))
        return min(known, staying)


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """Sizes that may be in a plan as good as a known one: their kinds of rows, sizes and losses.

    Losses are relative to the kind's minimum. The sum of these minima is subtracted from ``budget``, the remaining
    allowed loss; a plan loses ``fixed`` more.
    """

    kind: Integers
    size: Integers
    losses: Integers
    lossy: Integers  # the losses above 0
    fixed: int
    budget: int

    @classmethod
    def of(cls, at_price: NodePrice, kinds: RowKinds, pool: int, known: int) -> Candidates:
        """Return the candidates; ``known`` is the loss of some plan."""
        place = (at_price.losses <= known).ravel().nonzero()[0]
        (kind, size), loss = np.divmod(place, at_price.losses.shape[1]), at_price.losses.take(place)
        above, below = size - at_price.least[kind], at_price.most[kind] - size
        given, taken = above < 0, below < 0
        by_giving = float((loss[given] / -above[given]).min(initial=_DEAR))
        by_taking = float((loss[taken] / -below[taken]).min(initial=float(at_price.rise)))
        short = above - (pool - int(at_price.least @ kinds.count))  # nodes that other tasks must release for it
        spare = below - (int(at_price.most @ kinds.count) - pool)  # nodes that other tasks must take, or that stay idle
        others = np.maximum(by_giving * np.maximum(short, 0), by_taking * np.maximum(spare, 0))
        kept = loss + others <= known * _ROUNDING
        kind, size, loss = kind[kept], size[kept], loss[kept]
        least = np.minimum.reduceat(loss, kind.searchsorted(np.arange(kinds.first.size)))
        fixed = int(least @ kinds.count)
        if fixed:
            loss = loss - least[kind]
            kept = loss <= known - fixed
            kind, size, loss = kind[kept], size[kept], loss[kept]
        return cls(kind, size, loss, loss[loss > 0], fixed, known - fixed)

    def cutoff(self, size: int) -> int:
        """Return the loss of the ``size``-th cheapest candidate, or the budget if there are fewer."""
        if size >= self.lossy.size:
            return self.budget
        return min(self.budget, int(np.partition(self.lossy, size - 1)[size - 1]))

    def core(self, kinds: RowKinds, cutoff: int) -> Core:
        """Return the core of the sizes with a loss of up to ``cutoff``."""
        kind, size, loss = self.kind, self.size, self.losses
        if cutoff < self.budget:
            kept = loss <= cutoff
            kind, size, loss = kind[kept], size[kept], loss[kept]
        begins = kind.searchsorted(np.arange(kinds.first.size))
        least: list[int] = size[begins][kinds.of_row].tolist()
        stages: list[tuple[int, Stage]] = []
        sizes, losses, ends = size.tolist(), loss.tolist(), np.append(begins[1:], size.size)
        for each in (ends > begins + 1).nonzero()[0].tolist():
            begin, end = int(begins[each]), int(ends[each])
            stages.extend(_stages_of(kinds.rows(each), sizes[begin:end], losses[begin:end], self.budget, least))
        stages.sort(key=lambda stage: stage[0])
        return Core(least, [row for row, _ in stages], [stage for _, stage in stages])


def _stages_of(
    rows: list[int], sizes: list[int], losses: list[int], budget: int, least: list[int]
) -> list[tuple[int, Stage]]:
    """Return the stages of equal rows; raise the ``least`` of rows that need fewer sizes.

    If only one size has no loss, few rows can have another size. Equal rows are sorted by descending size, so larger
    sizes are only needed for the first few rows, and smaller sizes for the last few.
    """
    stage = ([size - sizes[0] for size in sizes], losses)
    free = losses.index(0) if losses.count(0) == 1 else None
    if free is None:
        return [(row, stage) for row in rows]
    larger, smaller = losses[free + 1 :], losses[:free]
    growing = min(len(rows), budget // min(larger)) if larger else 0
    shrinking = min(len(rows), budget // min(smaller)) if smaller else 0
    if growing + shrinking >= len(rows):
        return [(row, stage) for row in rows]
    for row in rows[: len(rows) - shrinking]:
        least[row] = sizes[free]
    up: Stage = ([size - sizes[free] for size in sizes[free:]], losses[free:])
    down: Stage = (stage[0][: free + 1], losses[: free + 1])
    return [*((row, up) for row in rows[:growing]), *((row, down) for row in rows[len(rows) - shrinking :])]


class Core(msgspec.Struct, frozen=True, eq=False):
    """The ``least`` size of each row, and the ``stages`` of those ``rows`` that have a choice."""

    least: list[int]
    rows: list[int]
    stages: list[Stage]

    def divided(self, more: list[int]) -> list[int]:
        """Return the sizes of all rows; rows with a choice get ``more`` nodes than their minimum."""
        sizes = self.least.copy()
        for row, nodes in zip(self.rows, more, strict=True):
            sizes[row] += nodes
        return sizes
