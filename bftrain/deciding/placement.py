"""Placement: chooses the nodes once sizes are decided.

A task keeps its nodes. Beyond that, nodes that are probably reclaimed together (neighbours, or nodes that became idle
together) go to as few tasks as possible: one task then bears the loss, not many. Other rules prefer few hosts and
racks.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrain.node_units import host_of, is_slot

K = TypeVar("K", int, str)
P = TypeVar("P", str, tuple[str, ...])


class GroupedPlacement:
    """Keeps groups together; prefers nodes idle for long, which leave less often than recent ones."""

    name = "grouped"

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return nodes to release: from the groups with the fewest nodes of the task, the most recent first."""
        share = Counter(held.values())
        by_worth = sorted(held, key=lambda node: (share[held[node]], -held[node]))
        return by_worth[:count]

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Return nodes to add: from the task's groups, then the smallest sufficient group, or the largest."""
        chosen: list[str] = []
        mine = Counter(group for group in held.values() if group in free)
        for group, _ in sorted(mine.items(), key=lambda item: (-item[1], item[0])):
            chosen.extend(islice(free[group], count - len(chosen)))
        if len(chosen) < count:
            others = {group: len(nodes) for group, nodes in free.items() if group not in mine}
            for group in fitting(others, count - len(chosen)):
                chosen.extend(islice(free[group], count - len(chosen)))
        return chosen


def fitting(sizes: Mapping[K, int], wanted: int) -> Iterator[K]:
    """Yield the largest groups while all are too small, then the smallest sufficient group."""
    by_size = sorted((-size, group) for group, size in sizes.items())
    for place, (negative, group) in enumerate(by_size):
        if -negative >= wanted:
            yield min((-negative, group) for negative, group in by_size[place:] if -negative >= wanted)[1]
            return
        yield group
        wanted += negative


grouped = GroupedPlacement()


_NUMBER: Final = re.compile(r"(\d+)")
_NUMBERS: Final = 3  # number of last numbers in a name that count; earlier numbers are treated as letters
_BASE: Final = 1000  # distance of two nodes whose second-last numbers differ by 1
_SPAN: Final = _BASE**_NUMBERS  # range of the positions of nodes with equal letters


@lru_cache(maxsize=2**18)
def position(node: str) -> int:
    """Return the position of a node: names with the same letters and close numbers are close."""
    letters, number = "", 0
    parts = _NUMBER.split(node)
    first = len(parts) - 2 * _NUMBERS
    for place, part in enumerate(parts):
        if place % 2 and place >= first:
            number = number * _BASE + int(part[-9:])
            letters += "#"
        else:
            letters += part
    return zlib.crc32(letters.encode()) * _SPAN + number % _SPAN


class NeighbourPlacement:
    """Keeps the nodes of each task close together by name, because such nodes are reclaimed together.

    Batch schedulers give a job neighbouring nodes, and node names follow the machine's layout. A starting
    job then takes nodes from few tasks.
    """

    name = "neighbours"

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return the nodes to release: the farthest from the middle of the task's nodes."""
        middle = _middle(held)
        return sorted(held, key=lambda node: (-abs(position(node) - middle), node))[:count]

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Return the nodes nearest to the middle of the task's nodes; for a start, the most compact set.

        GPUs or cores of the same node are closer than of different nodes. A start uses the node with the smallest
        sufficient number of free slots, which leaves whole nodes for larger tasks.
        """
        nodes, places = _by_position([node for group in free.values() for node in group])
        if count == len(nodes):
            return nodes
        if held:
            # The window of consecutive nodes nearest to a point is the window with the nearest farthest node
            middle = _middle(held)
            ends = np.maximum(middle - places[: len(places) - count + 1], places[count - 1 :] - middle)
            first = int(ends.argmin())
        else:
            spread = places[count - 1 :] - places[: len(places) - count + 1]
            if is_slot(nodes[0]):
                spread = spread + _BASE * _free_beside(places, count)
            first = int(spread.argmin())
        return nodes[first : first + count]


def _by_position(nodes: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Sort nodes by position, then by name; return also their positions."""
    places = np.fromiter(map(position, nodes), dtype=np.int64, count=len(nodes))
    order = places.argsort(kind="stable")
    places = places[order]
    if (places[1:] == places[:-1]).any() and nodes != (names := sorted(nodes)):
        return _by_position(names)
    return [nodes[place] for place in order.tolist()], places


def _free_beside(places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return for each window of slots the free slots on its node; a huge number for windows over several nodes."""
    node = places // _BASE
    first, last = np.searchsorted(node, node, side="left"), np.searchsorted(node, node, side="right")
    windows = len(places) - count + 1
    within = node[:windows] == node[count - 1 :]
    return np.where(within, (last - first)[:windows], _BASE + 1)


def _middle(held: Mapping[str, int]) -> int:
    places = sorted(map(position, held))
    return places[len(places) // 2]


neighbours = NeighbourPlacement()


PlaceOf = Callable[[str], str]
Place = tuple[str, ...]  # a host, or a rack and a host in it


class ConsolidatedPlacement:
    """Keeps a task on the fewest racks, and within these on the fewest hosts, given its current nodes.

    Among sufficient places it picks the smallest number of free nodes, which leaves whole places for larger tasks.
    """

    name = "consolidated"

    def __init__(self, levels: Sequence[PlaceOf] = (host_of,)) -> None:
        self._levels = tuple(levels)  # the largest places first

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return nodes to release, from the places with the fewest nodes of the task."""
        return _few(list(held), count, self._levels)

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take nodes from the places with most nodes of the task, then from other places."""
        return _near(list(held), [node for group in free.values() for node in group], count, self._levels)


class ScatteredPlacement(ConsolidatedPlacement):
    """Spreads a task over the most places: for comparison, or if a resource of each place is scarce."""

    name = "scattered"

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return nodes to release, from the places with the most nodes of the task."""
        return self._one_by_one(held, held, count, leaving=True)

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take nodes from the places with fewest nodes of the task; ties: the most free nodes."""
        return self._one_by_one((node for group in free.values() for node in group), held, count, leaving=False)

    def _one_by_one(self, nodes: Iterable[str], held: Iterable[str], count: int, *, leaving: bool) -> list[str]:
        at = _by_place(sorted(nodes, key=position, reverse=True), self._place)
        mine = Counter(part for node in held for part in _parts(self._place(node)))

        def rank(place: Place) -> tuple[object, ...]:
            return tuple(mine[part] for part in _parts(place)), 0 if leaving else -len(at[place]), place

        chosen: list[str] = []
        for _ in range(count):
            place = (max if leaving else min)((place for place in at if at[place]), key=rank)
            chosen.append(at[place].pop())
            mine.update(dict.fromkeys(_parts(place), -1 if leaving else 1))
        return chosen

    def _place(self, node: str) -> Place:
        return tuple(place_of(node) for place_of in self._levels)


def _parts(place: Place) -> list[Place]:
    """Return the rack of a host, if known, and the host itself."""
    return [place[: depth + 1] for depth in range(len(place))]


def _by_place(nodes: Iterable[str], place_of: Callable[[str], P]) -> dict[P, list[str]]:
    found: dict[P, list[str]] = {}
    for node in nodes:
        found.setdefault(place_of(node), []).append(node)
    return found


def _few(held: list[str], count: int, levels: Sequence[PlaceOf]) -> list[str]:
    """Choose ``count`` of the task's nodes whose removal leaves the fewest places."""
    if not levels:
        return sorted(held, key=position)[len(held) - count :]
    chosen: list[str] = []
    at = _by_place(held, levels[0])
    for place in sorted(at, key=lambda each: (len(at[each]), each)):
        some = min(count - len(chosen), len(at[place]))
        chosen += at[place] if some == len(at[place]) else _few(at[place], some, levels[1:])
    return chosen


def _near(held: list[str], free: list[str], count: int, levels: Sequence[PlaceOf]) -> list[str]:
    """Choose ``count`` free nodes that, together with the task's nodes, use the fewest places."""
    if not levels:
        return sorted(free, key=position)[:count]
    chosen: list[str] = []
    mine, at = _by_place(held, levels[0]), _by_place(free, levels[0])
    own = sorted((place for place in at if place in mine), key=lambda place: (-len(mine[place]), place))
    sizes = {place: len(at[place]) for place in sorted(at) if place not in mine}
    for place in own:
        chosen += _near(mine[place], at[place], min(count - len(chosen), len(at[place])), levels[1:])
    if len(chosen) < count:
        for place in fitting(sizes, count - len(chosen)):
            chosen += _near([], at[place], min(count - len(chosen), len(at[place])), levels[1:])
    return chosen


consolidated = ConsolidatedPlacement()
scattered = ScatteredPlacement()
