"""Holders: which task holds which node, where nodes come and go. On a cluster that stays, numbers are enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_replay.rounds.node_supply import NodeChange, NodeSupply

    Places = NDArray[np.intp]

_FREE = -1


class NodeHolders:
    """The nodes that are there: ``count`` by kind, and who holds each. Free ones are given by number."""

    __slots__ = ("_here", "_holder", "_kind_of", "_stays", "count")

    def __init__(self, supply: NodeSupply) -> None:
        self._kind_of = supply.kind_of
        self._stays = supply.stays
        self._here = np.zeros(supply.kind_of.size, dtype=bool)
        self._holder = np.full(supply.kind_of.size, _FREE, dtype=np.intp)
        self.count: Places = np.zeros(len(supply.kinds), dtype=np.intp)

    def change(self, change: NodeChange) -> Places:
        """Take in that nodes have left and joined; gives the tasks that held one of those that left: they stop."""
        hit = self._holding(change.left) if change.left.size else np.empty(0, dtype=np.intp)
        self.release(hit)
        self._here[change.left] = False
        self._here[change.joined] = True
        self.count = np.bincount(self._kind_of[self._here], minlength=self.count.size)
        return hit

    def _holding(self, nodes: Places) -> Places:
        holders = self._holder[nodes]
        hit: Places = np.unique(holders[holders != _FREE])
        return hit

    def release(self, tasks: Places) -> None:
        """Free all nodes of these tasks."""
        if tasks.size and not self._stays:
            self._holder[np.isin(self._holder, tasks)] = _FREE

    def give(self, tasks: Places, kind: Places, nodes: Places) -> None:
        """Give each of these tasks so many nodes of a kind; as many are free."""
        if self._stays:
            return
        for number in np.unique(kind).tolist():
            own = kind == number
            holders = np.repeat(tasks[own], nodes[own])
            free = np.flatnonzero(self._here & (self._holder == _FREE) & (self._kind_of == number))
            self._holder[free[: holders.size]] = holders
