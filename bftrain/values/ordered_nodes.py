"""OrderedNodes: nodes sorted by position. Neighbours often change together, so changes are applied run by run."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

_FEW = 32  # up to this number, runs are inserted one by one; more are merged


class OrderedNodes:
    """Nodes sorted by position, then by name."""

    __slots__ = ("_nodes", "_places", "_position")

    def __init__(self, position: Callable[[str], int], nodes: Iterable[str] = ()) -> None:
        self._position = position
        self._nodes, self._places = self._in_order(nodes)

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
        if not nodes:
            return
        names, places = self._in_order(nodes)
        index = self._index(places[0], names[0])
        if index == self._index(places[-1], names[-1]):  # typical for the nodes of a job
            self._nodes[index:index] = names
            self._places[index:index] = places
            return
        runs = list(self._runs(names, places))
        if len(runs) > _FEW:
            self._merge(names, places, runs)
            return
        for index, first, end in reversed(runs):  # reversed: an insertion must not shift earlier runs
            self._nodes[index:index] = names[first:end]
            self._places[index:index] = places[first:end]

    def remove(self, nodes: Collection[str]) -> None:
        """Remove nodes that are contained."""
        names = list(nodes)
        index = self._index(self._position(names[0]), names[0]) if names else 0
        if self._nodes[index : index + len(names)] == names:  # result of `between`
            del self._nodes[index : index + len(names)]
            del self._places[index : index + len(names)]
            return
        names, places = self._in_order(names)
        last = len(names)
        while last:  # reversed: a removal must not shift earlier runs
            end = index = self._index(places[last - 1], names[last - 1]) + 1
            while last and index and self._nodes[index - 1] == names[last - 1]:
                index, last = index - 1, last - 1
            del self._nodes[index:end]
            del self._places[index:end]

    def _in_order(self, nodes: Iterable[str]) -> tuple[list[str], array[int]]:
        names = sorted(nodes)
        places = list(map(self._position, names))
        if places != sorted(places):  # mostly names and positions have the same order
            names.sort(key=self._position)
            places.sort()
        return names, array("q", places)

    def _runs(self, names: list[str], places: array[int]) -> Iterator[tuple[int, int, int]]:
        """Split nodes into runs that fit between two present nodes; yield the index, start and end of each."""
        first, last = 0, len(names)
        while first < last:
            index = self._index(places[first], names[first])
            end = last
            if index < len(self._nodes):
                end = max(first + 1, bisect_left(places, self._places[index], first))
            yield index, first, end
            first = end

    def _merge(self, names: list[str], places: array[int], runs: Iterable[tuple[int, int, int]]) -> None:
        merged, merged_places, done = list[str](), array("q"), 0
        for index, first, end in runs:
            merged += self._nodes[done:index] + names[first:end]
            merged_places += self._places[done:index] + places[first:end]
            done = index
        self._nodes = merged + self._nodes[done:]
        self._places = merged_places + self._places[done:]

    def _index(self, place: int, node: str) -> int:
        index = bisect_left(self._places, place)
        while index < len(self._nodes) and self._places[index] == place and self._nodes[index] < node:
            index += 1
        return index
