"""ExpectedSpread: the speeds of tasks by size, assuming that nodes are added and removed as compactly as possible.

A task keeps its nodes. A size is therefore expected on the places with most of its nodes, then on free nodes there,
then on the places with most free nodes. Placement may do worse if several tasks grow together; replays use the actual
speed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType

from bftrain.deciding.pool import NodePool
from bftrain.deciding.task_table import TaskEntry
from bftrain.values.curve import ANY_KIND, SpeedCurve
from bftrain.values.problem import CompetingTask
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.wire import unchecked


class ExpectedSpread:
    """The places of the free nodes of a pool at one moment, and the resulting speeds of tasks."""

    def __init__(self, pool: NodePool, place_of: Callable[[str], str]) -> None:
        self._pool, self._place_of = pool, place_of
        self._free: dict[str, dict[str, int]] = {}  # cache: free nodes by kind and place, the largest places first

    def with_expected_speeds(self, entry: TaskEntry, task: CompetingTask) -> CompetingTask:
        """Return the task with its expected speeds; the same object until a speed changes."""
        spread = entry.decided.spread
        if spread is None:
            return task
        held = Counter(map(self._place_of, entry.held))
        most = min(task.max_nodes, len(self._pool))

        def expected(kind: str, together: SpeedCurve) -> SpeedCurve:
            mine = held if entry.kind == kind else Counter[str]()
            return _curve(spread, together, kind, tuple(self._ends(kind, mine, most)), most)

        curves = {kind: expected(kind, curve) for kind, curve in task.curves.items()}
        own = next((kind for kind, curve in task.curves.items() if curve == task.curve), ANY_KIND)
        curve = curves[own] if own in curves else task.curve if curves else expected(ANY_KIND, task.curve)
        known = entry.expected
        if known is not None and known[0] is task and known[1].curve is curve and dict(known[1].curves) == curves:
            return known[1]
        found = unchecked(task, curve=curve, curves=MappingProxyType(curves) if curves else task.curves)
        entry.expected = (task, found)
        return found

    def _ends(self, kind: str, held: Counter[str], most: int) -> Iterator[int]:
        """Yield the largest sizes that lie on 1, 2, 3, ... places, up to ``most`` nodes."""
        free = self._free.get(kind)
        if free is None:
            nodes = (node for group in self._pool.free_of(kind).values() for node in group)
            free = self._free[kind] = dict(Counter(map(self._place_of, nodes)).most_common())
        counts = sorted(held.values(), reverse=True)
        if counts:
            counts[-1] += sum(free.get(place, 0) for place in held)
        for size in accumulate([*counts, *(count for place, count in free.items() if place not in held)]):
            yield min(size, most)
            if size >= most:
                return


@lru_cache(maxsize=4096)
def _curve(spread: SpreadSpeeds, together: SpeedCurve, kind: str, ends: tuple[int, ...], most: int) -> SpeedCurve:
    """Return the speeds by size; ``ends`` contains the largest sizes on 1, 2, 3, ... places."""
    points = sorted(_points(spread, together, ends, most))
    rates = []
    for size in points:
        places = max(1, min(bisect_left(ends, size) + 1, len(ends)))
        rates.append(spread.speed(size, places, together.speed(size), kind))
    return SpeedCurve(nodes=tuple(points), rate=tuple(rates))


def _points(spread: SpreadSpeeds, together: SpeedCurve, ends: Iterable[int], most: int) -> set[int]:
    """Return the sizes between which speeds are linear."""
    found = {1, most, *together.nodes, *(size for each in spread.speeds if each.curve for size in each.curve.nodes)}
    steps = spread.per_place
    for end in (*ends, *(range(steps, most, steps) if steps else ())):
        found |= {end, end + 1}
    return {size for size in found if 1 <= size <= most} or {1}
