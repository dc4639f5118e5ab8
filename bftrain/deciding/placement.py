"""Placement: which nodes, once sizes are decided.

A task keeps what it holds. Beyond that, nodes that became idle together are kept together on as few tasks as
possible, because they tend to be taken back together: one task then pays for the loss, not many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice


class GroupedPlacement:
    """Keeps groups together; among equals prefers nodes idle for long, which leave less often than fresh ones."""

    name = "grouped"

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Give up the groups of which least is held, the freshest first."""
        share = Counter(held.values())
        by_worth = sorted(held, key=lambda node: (share[held[node]], -held[node]))
        return by_worth[:count]

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Take from groups already held, then the smallest group that is large enough, else the largest."""
        chosen: list[str] = []
        mine = Counter(group for group in held.values() if group in free)
        for group, _ in sorted(mine.items(), key=lambda item: (-item[1], item[0])):
            chosen.extend(islice(free[group], count - len(chosen)))
        if len(chosen) < count:
            others = {group: len(nodes) for group, nodes in free.items() if group not in mine}
            for group in _fitting(others, count - len(chosen)):
                chosen.extend(islice(free[group], count - len(chosen)))
        return chosen


def _fitting(sizes: Mapping[int, int], wanted: int) -> Iterator[int]:
    """Name the largest groups while they are all too small, then the smallest of those that are large enough."""
    by_size = sorted((-size, group) for group, size in sizes.items())
    for place, (negative, group) in enumerate(by_size):
        if -negative >= wanted:
            yield min((-negative, group) for negative, group in by_size[place:] if -negative >= wanted)[1]
            return
        yield group
        wanted += negative


grouped = GroupedPlacement()
