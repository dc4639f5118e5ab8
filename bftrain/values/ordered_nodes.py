"""OrderedNodes: nodes sorted by position; small changes are inserted, large ones merged."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

_FEW = 32  # up to this number, nodes are inserted one by one


class OrderedNodes:
    """Nodes ordered by position, those of the same position by name."""

    __slots__ = ("_nodes", "_places", "_position")

    def __init__(self, position: Callable[[str], int], nodes: Iterable[str] = ()) -> None:
        self._position = position
        self._nodes = sorted(sorted(nodes), key=position)
        self._places = array("q", list(map(position, self._nodes)))

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def places(self) -> NDArray[np.int64]:
        """The positions in order, as a copy."""
        return np.array(self._places, dtype=np.int64)

    def between(self, first: int, end: int) -> list[str]:
        """Return the nodes with indices from ``first`` up to, but not including, ``end``."""
        return self._nodes[first:end]

    def add(self, nodes: Collection[str]) -> None:
        """Insert nodes that are not contained yet."""
        if len(nodes) > _FEW:
            self._merge(OrderedNodes(self._position, nodes))
            return
        for node in nodes:
            index = self._index(node)
            self._nodes.insert(index, node)
            self._places.insert(index, self._position(node))

    def remove(self, nodes: Collection[str]) -> None:
        """Remove nodes that are contained."""
        chosen = list(nodes)
        place = self._index(chosen[0]) if chosen else 0
        if self._nodes[place : place + len(chosen)] == chosen:  # in the order in which `between` returned them
            del self._nodes[place : place + len(chosen)]
            del self._places[place : place + len(chosen)]
            return
        for first, end in _runs(sorted(map(self._index, nodes))):
            del self._nodes[first:end]
            del self._places[first:end]

    def _merge(self, others: OrderedNodes) -> None:
        place = self._index(others._nodes[0])
        if place == self._index(others._nodes[-1]):  # all are adjacent, as the nodes of one job mostly are
            self._nodes[place:place] = others._nodes
            self._places[place:place] = others._places
            return
        nodes: list[str] = []
        places = array("q")
        done = 0
        for node, place in zip(others._nodes, others._places, strict=True):
            index = self._index(node)
            nodes += self._nodes[done:index]
            places += self._places[done:index]
            nodes.append(node)
            places.append(place)
            done = index
        self._nodes = nodes + self._nodes[done:]
        self._places = places + self._places[done:]

    def _index(self, node: str) -> int:
        place = self._position(node)
        index = bisect_left(self._places, place)
        while index < len(self._nodes) and self._places[index] == place and self._nodes[index] < node:
            index += 1
        return index


def _runs(indices: list[int]) -> Iterator[tuple[int, int]]:
    """Split rising indices into runs without gaps, the last run first, so that removing one does not shift another."""
    end = len(indices)
    for at in range(len(indices) - 1, -1, -1):
        if at == 0 or indices[at - 1] != indices[at] - 1:
            yield indices[at], indices[end - 1] + 1
            end = at
