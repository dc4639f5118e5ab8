"""Plans with more than two changes, for problems whose best value is known already.

Rows that lose nothing as they are hardly change. So the table of losses by nodes is built from the few other rows and
from a few changes, not from all rows as in :mod:`bftrain_solvers.stages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Integers, Mask
from bftrain_solvers.core import NodePrice
from bftrain_solvers.few_changes import Change, first_of
from bftrain_solvers.row_kinds import RowKinds
from bftrain_solvers.value_grid import NEVER, ValueGrid

_MOST_ROWS: Final = 12  # rows that lose something as they are, and as many changes of others
_MOST_PLANS: Final = 200
_LARGEST: Final = NEVER >> 5  # sums of the losses of all these rows stay below NEVER


class _Moves:
    """What a row may do: the number of nodes by which its size changes, and what it then loses. ``kind`` is its own."""

    def __init__(self, kind: Integers, nodes: Integers, loss: Integers) -> None:
        self.kind, self.nodes, self.loss = kind, nodes, loss
        self.first, self.last = (int(nodes.min()), int(nodes.max())) if nodes.size else (0, 0)
        self.listed = list(zip(kind.tolist(), nodes.tolist(), loss.tolist(), strict=True))

    @classmethod
    def best(cls, kind: Integers, nodes: Integers, loss: Integers) -> _Moves:
        """Keep for each number of nodes the moves that lose least, by rising number."""
        order = np.lexsort((loss, nodes))
        kind, nodes, loss = kind[order], nodes[order], loss[order]
        first = nodes.searchsorted(nodes)
        kept = loss == loss[first]
        return cls(kind[kept], nodes[kept], loss[kept])


class _Losses:
    """The smallest loss of some rows by the nodes that they take more than now: ``loss[i]`` for ``low + i``."""

    def __init__(self, loss: Integers, low: int) -> None:
        self.loss, self.low = loss, low

    def leading(self, moves: _Moves, nodes: int, loss: int) -> list[int]:
        """Return the places of the ``moves`` that lose ``loss`` together with these rows, and take ``nodes``."""
        place = (nodes - self.low) - moves.nodes
        fine = self.loss.take(place, mode="clip") + moves.loss == loss
        fine &= (place >= 0) & (place < self.loss.size)
        found: list[int] = fine.nonzero()[0].tolist()
        return found

    def after(self, moves: _Moves, *, staying: bool = False) -> _Losses:
        """Return the table with one more row, which does one of its ``moves``, or also none if ``staying``."""
        first, last = min(moves.first, 0), max(moves.last, 0)
        span, size = last - first, self.loss.size
        padded = np.full(size + 2 * span, NEVER)
        padded[span : span + size] = self.loss
        step = padded.itemsize
        shifted = np.ndarray((span + 1, size + span), np.int64, padded, 0, (step, step))
        moved = shifted[last - moves.nodes]
        moved += moves.loss[:, None]
        found = moved.min(axis=0)
        if staying:
            np.minimum(found, shifted[last], out=found)
        return _Losses(found, self.low + first)


def more_changes(
    grid: ValueGrid, kinds: RowKinds, held: Integers, pool: int, value: int, at_price: NodePrice
) -> list[int] | None:
    """Return the best plan of this ``value`` if it changes few sizes; ``held`` are the present ones by kind.

    Sizes that lose nothing at ``at_price`` need no change for their own sake.
    """
    losses, kind, idle = at_price.losses, np.arange(len(kinds)), pool - int(held @ kinds.count)
    if idle < 0 or held.max() >= losses.shape[1] or (grid.allowed is not None and not grid.allowed[kind, held].all()):
        return None
    rise, run, count = at_price.rise, at_price.run, kinds.count.tolist()
    # The loss of a plan of this value, but for its changes, each of which loses ``run``
    least = at_price.least
    paid = (grid.whole[kind, least] * run - rise * least).tolist()
    own = sum(each * rows for each, rows in zip(paid, count, strict=True))
    goal = own + rise * pool - run * grid.weight * value
    limit = goal + run * (grid.weight - 1)
    lossy = losses[kind, held] > 0
    losing = [each for each in lossy.nonzero()[0].tolist() for _ in range(count[each])]
    if not 0 <= limit < _LARGEST or len(losing) > _MOST_ROWS:
        return None
    search = _Search(losses <= limit, losses, held, lossy, losing)
    if (best := search.fewest(goal, run, idle, rise)) is None:
        return None
    found = list(islice(search.plans(*best), _MOST_PLANS + 1))
    return first_of(found, kinds, held) if len(found) <= _MOST_PLANS else None


class _Search:
    """The tables of rows that lose something as they are, one after the other, and then of changes of other rows."""

    def __init__(self, fine: Mask, losses: Integers, held: Integers, lossy: Mask, losing: list[int]) -> None:
        kind, size = fine.nonzero()
        nodes, loss = size - held[kind], losses[kind, size]
        others = ~lossy[kind] & (nodes != 0)
        self._others = _Moves.best(kind[others], nodes[others], loss[others])
        parts = {each: slice(*kind.searchsorted((each, each + 1)).tolist()) for each in losing}
        moves = {each: _Moves(kind[part], nodes[part], loss[part]) for each, part in parts.items()}
        self._rows = [moves[each] for each in losing]
        self._first = (
            {more: (place, lost) for place, (_, more, lost) in enumerate(self._rows[0].listed)} if losing else {}
        )
        self._tables = [_Losses(np.zeros(1, dtype=np.int64), 0)]
        for row in self._rows:
            self._tables.append(self._tables[-1].after(row))

    def fewest(self, goal: int, run: int, idle: int, rise: int) -> tuple[int, int] | None:
        """Return the nodes above the present ones, and the loss, of the plans with the fewest changes.

        Without its changes such a plan loses ``goal``, and ``run`` more with each. ``None``: there are too many.
        """
        for changes in range(_MOST_ROWS + 1):
            if changes:
                if not self._others.listed:
                    return None
                self._tables.append(self._tables[-1].after(self._others, staying=True))
            table = self._tables[-1]
            unused = idle - table.low  # of the smallest number of nodes
            if rise * unused >= NEVER:
                return None
            loss = table.loss[: max(0, unused + 1)]
            if loss.size == 0:
                continue
            total = loss + rise * np.arange(unused, unused - loss.size, -1)
            place = int(total.argmin())  # the first, which takes the fewest nodes
            if total[place] < goal:
                return None  # a change was counted more often than there are rows for it
            if total[place] <= goal + run * changes:
                return table.low + place, int(loss[place])
        return None

    def plans(self, nodes: int, loss: int) -> Iterator[list[Change]]:
        """Yield the changes of all plans with this loss; a kind may have fewer rows than changes."""
        rows = len(self._rows)
        for changes in range(len(self._tables) - rows):
            for others, nodes_left, loss_left in self._changes_of_others(rows + changes, nodes, loss, 0):
                for own in self._changes_of_rows(rows, nodes_left, loss_left, 0):
                    yield others + own

    def _changes_of_others(
        self, layer: int, nodes: int, loss: int, first: int
    ) -> Iterator[tuple[list[Change], int, int]]:
        """Yield as many changes of other rows as there are layers, and the nodes and the loss of the rest."""
        if layer == len(self._rows):
            yield [], nodes, loss
            return
        for place in self._tables[layer - 1].leading(self._others, nodes, loss):
            if place >= first:
                kind, more, lost = self._others.listed[place]
                for rest, nodes_left, loss_left in self._changes_of_others(layer - 1, nodes - more, loss - lost, place):
                    yield [(kind, more), *rest], nodes_left, loss_left

    def _changes_of_rows(self, row: int, nodes: int, loss: int, first: int) -> Iterator[list[Change]]:
        """Yield the changes of the first ``row`` rows; rows of one kind do not swap theirs."""
        if row <= 1:
            place, lost = self._first.get(nodes, (0, NEVER)) if row else (0, 0 if nodes == 0 else NEVER)
            if lost == loss and place >= first:
                yield [(self._rows[0].listed[0][0], nodes)] if nodes else []
            return
        moves = self._rows[row - 1]
        alike = self._rows[row - 2] is moves
        for place in self._tables[row - 1].leading(moves, nodes, loss):
            if place >= first:
                kind, more, lost = moves.listed[place]
                own = [(kind, more)] if more else []
                for others in self._changes_of_rows(row - 1, nodes - more, loss - lost, place if alike else 0):
                    yield own + others
