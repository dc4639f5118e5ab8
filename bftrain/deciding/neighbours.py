"""Placement by neighbourhood: tasks get nodes that lie close together, because such nodes are taken back together.

Batch schedulers give a job nodes that are close in the machine, and names are given along the machine. A job that
starts then takes nodes from few tasks, not from many.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from bftrain.values.ordered_nodes import OrderedNodes

_NUMBER: Final = re.compile(r"(\d+)")
_NUMBERS: Final = 3  # of a name that count, the last ones; those before are part of its letters
_BASE: Final = 1000  # how far apart two nodes are whose numbers before the last differ by one
_SPAN: Final = _BASE**_NUMBERS  # of the nodes with the same letters


@lru_cache(maxsize=2**18)
def position(node: str) -> int:
    """Return where a node lies: names with the same letters and close numbers are close."""
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
    """Keeps the nodes of each task close together by their names."""

    name = "neighbours"

    position = staticmethod(position)

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Give up the nodes farthest from the middle of those that are held."""
        middle = _middle(held)
        return sorted(held, key=lambda node: (-abs(position(node) - middle), node))[:count]

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take from nodes that are not ordered yet."""
        return self.take_ordered(
            held, OrderedNodes(position, (node for group in free.values() for node in group)), count
        )

    def take_ordered(self, held: Mapping[str, int], free: OrderedNodes, count: int) -> Sequence[str]:
        """Take those nearest to the middle of what is held; for a start, those that lie closest together."""
        places = free.places
        if held:
            # Of neighbouring nodes that lie nearest to a point, the farthest one is nearer than in any other window
            middle = _middle(held)
            ends = np.maximum(middle - places[: len(places) - count + 1], places[count - 1 :] - middle)
            first = int(ends.argmin())
        else:
            first = int((places[count - 1 :] - places[: len(places) - count + 1]).argmin())
        return free.between(first, first + count)


def _middle(held: Mapping[str, int]) -> int:
    places = sorted(map(position, held))
    return places[len(places) // 2]


neighbours = NeighbourPlacement()
