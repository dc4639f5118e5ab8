"""Plans with more than two changes, for problems whose best value is known already.

Rows that lose nothing as they are hardly change. So the table of losses by nodes is built from the few other rows and
from a few changes, not from all rows as in :mod:`bftrain_solvers.stages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Integers
from bftrain_solvers.core import NodePrice
from bftrain_solvers.few_changes import Change, first_of
from bftrain_solvers.row_kinds import RowKinds
from bftrain_solvers.value_grid import NEVER, ValueGrid

_MOST_ROWS: Final = 12  # rows that lose something as they are, and as many changes of others
_MOST_PLANS: Final = 200
_LARGEST: Final = NEVER >> 5  # sums of the losses of all these rows stay below NEVER


class _Moves:
    """Changes of one row of a ``kind``: by how many ``nodes``, and the ``loss`` of the row after each."""

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

    def at(self, nodes: int) -> int:
        """Return the smallest loss with so many nodes."""
        place = nodes - self.low
        return int(self.loss[place]) if 0 <= place < self.loss.size else NEVER

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
    rise, run, least = at_price.rise, at_price.run, at_price.least
    # The loss of a plan of this value, but for its changes, each of which loses ``run``
    paid = (grid.whole[kind, least] * run - rise * least).tolist()
    own = sum(each * rows for each, rows in zip(paid, kinds.count.tolist(), strict=True))
    goal = own + rise * pool - run * grid.weight * value
    limit = goal + run * (grid.weight - 1)
    lossy = losses[kind, held] > 0
    losing: list[int] = lossy[kinds.of_row].nonzero()[0].tolist()
    if not 0 <= limit < _LARGEST or len(losing) > _MOST_ROWS:
        return None
    of_kind, size = (losses <= limit).nonzero()
    nodes, loss = size - held[of_kind], losses[of_kind, size]
    others = ~lossy[of_kind] & (nodes != 0)
    search = _Search(_Moves.best(of_kind[others], nodes[others], loss[others]))
    for row in reversed(losing):
        part = slice(*of_kind.searchsorted((kinds.of_row[row], kinds.of_row[row] + 1)).tolist())
        search.add_row(row, _Moves(of_kind[part], nodes[part], loss[part]))
    best = search.fewest(goal, run, idle, rise)
    return None if best is None else search.first_plan(*best, kinds, held)


class _Search:
    """The tables of rows that lose something as they are, one after the other, and then of changes of ``others``."""

    def __init__(self, others: _Moves) -> None:
        self._others = others
        self._rows: list[tuple[int, _Moves]] = []  # from the last to the first
        self._tables = [_Losses(np.zeros(1, dtype=np.int64), 0)]

    def add_row(self, row: int, moves: _Moves) -> None:
        self._rows.append((row, moves))
        self._tables.append(self._tables[-1].after(moves))

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

    def first_plan(self, nodes: int, loss: int, kinds: RowKinds, held: Integers) -> list[int] | None:
        """Return of the plans with this loss the one that gives more to the first row in which two differ.

        Losing rows and others do not meet, so for each number of nodes of the former both parts are chosen alone.
        """
        by_nodes: dict[int, list[list[Change]]] = {}
        found = list(islice(self._changes(nodes, loss), _MOST_PLANS + 1))
        if len(found) > _MOST_PLANS:
            return None
        for changes in found:
            by_nodes.setdefault(nodes - sum(more for _, more in changes), []).append(changes)
        plans = []
        for taken, changes_of_others in by_nodes.items():
            plan = first_of(changes_of_others, kinds, held)
            if plan is not None:
                self._add_most_first(plan, taken)
                plans.append(plan)
        return max(plans, default=None)

    def _changes(self, nodes: int, loss: int) -> Iterator[list[Change]]:
        """Yield the changes of others; a kind may have fewer rows than changes."""
        for count in range(len(self._tables) - len(self._rows)):
            yield from self._so_many(count, nodes, loss, 0)

    def _so_many(self, count: int, nodes: int, loss: int, first: int) -> Iterator[list[Change]]:
        rows = len(self._rows)
        if count == 0:
            if self._tables[rows].at(nodes) == loss:
                yield []
            return
        for place in self._tables[rows + count - 1].leading(self._others, nodes, loss):
            if place >= first:
                kind, more, lost = self._others.listed[place]
                for rest in self._so_many(count - 1, nodes - more, loss - lost, place):
                    yield [(kind, more), *rest]

    def _add_most_first(self, plan: list[int], nodes: int) -> None:
        """Change the losing rows by so many nodes in all, and give each the most in order."""
        loss = self._tables[len(self._rows)].at(nodes)
        for (row, moves), later in zip(reversed(self._rows), reversed(self._tables[: len(self._rows)]), strict=True):
            _, more, lost = moves.listed[later.leading(moves, nodes, loss)[-1]]
            plan[row] += more
            nodes, loss = nodes - more, loss - lost
