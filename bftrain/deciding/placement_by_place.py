"""Placements by place: use the fewest possible racks and hosts for a task, or the most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from bftrain.deciding.placement import fitting, position
from bftrain.node_units import host_of

PlaceOf = Callable[[str], str]
Place = tuple[str, ...]  # a rack, and a host in it


class ConsolidatedPlacement:
    """Keeps a task on the fewest racks, and within these on the fewest hosts, given its present nodes.

    Among sufficient places it picks the smallest number of free nodes, which leaves whole places for larger tasks.
    """

    name = "consolidated"

    def __init__(self, levels: Sequence[PlaceOf] = (host_of,)) -> None:
        self._levels = tuple(levels)  # the largest places first

    def in_places(self, levels: Sequence[PlaceOf]) -> ConsolidatedPlacement:
        """Return the same for other places."""
        return ConsolidatedPlacement(levels)

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return nodes to release, from the places with the fewest nodes of the task."""
        return _few(list(held), count, self._levels)

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take nodes from the places with most nodes of the task, then from other places."""
        return _near(list(held), [node for group in free.values() for node in group], count, self._levels)


class ScatteredPlacement(ConsolidatedPlacement):
    """Spreads a task over the most places: for comparison, or if a resource of each place is scarce."""

    name = "scattered"

    def in_places(self, levels: Sequence[PlaceOf]) -> ScatteredPlacement:
        """Return the same for other places."""
        return ScatteredPlacement(levels)

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return nodes to release, from the places with the most nodes of the task."""
        at, mine = self._by_all(held), self._held(held)
        chosen: list[str] = []
        for _ in range(count):
            place = max((place for place in at if at[place]), key=lambda each: (self._at(mine, each), each))
            chosen.append(at[place].pop())
            mine.subtract(_within(place))
        return chosen

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take nodes from the places with fewest nodes of the task; ties: the most free nodes."""
        at, mine = self._by_all(node for group in free.values() for node in group), self._held(held)
        chosen: list[str] = []
        for _ in range(count):
            places = (place for place in at if at[place])
            place = min(places, key=lambda each: (self._at(mine, each), -len(at[each]), each))
            chosen.append(at[place].pop())
            mine.update(_within(place))
        return chosen

    def _by_all(self, nodes: Iterable[str]) -> dict[Place, list[str]]:
        """Return nodes by rack and host, from the last to the first."""
        found: dict[Place, list[str]] = {}
        for node in sorted(nodes, key=position, reverse=True):
            found.setdefault(tuple(place_of(node) for place_of in self._levels), []).append(node)
        return found

    def _held(self, held: Iterable[str]) -> Counter[Place]:
        return Counter(within for node in held for within in _within(tuple(each(node) for each in self._levels)))

    @staticmethod
    def _at(mine: Counter[Place], place: Place) -> tuple[int, ...]:
        """Return the task's nodes in the rack, and on the host."""
        return tuple(mine[within] for within in _within(place))


def _within(place: Place) -> list[Place]:
    return [place[: depth + 1] for depth in range(len(place))]


def _by_place(nodes: Iterable[str], place_of: PlaceOf) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
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
