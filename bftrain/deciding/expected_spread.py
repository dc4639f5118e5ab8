"""ExpectedSpread: the speeds of tasks by size if they gain and lose nodes so that the rest is as close as possible.

A task keeps its nodes. So a size is expected on the places where the task holds most nodes, then on free nodes there,
then on the places with most free nodes. Placement may do worse if several tasks grow at once; replays count the real
speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from msgspec.structs import replace

from bftrain.deciding.pool import NodePool
from bftrain.deciding.task_table import TaskEntry
from bftrain.values.curve import ANY_KIND, SpeedCurve
from bftrain.values.problem import CompetingTask
from bftrain.values.spread import SpreadSpeeds


class ExpectedSpread:
    """The places of the free nodes of a pool at one moment, and the resulting speeds of tasks."""

    def __init__(self, pool: NodePool, place_of: Callable[[str], str]) -> None:
        self._pool, self._place_of = pool, place_of
        self._free: dict[str, Counter[str]] = {}  # free nodes by kind and place, cached

    def seen(self, entry: TaskEntry, task: CompetingTask) -> CompetingTask:
        """Return the task with its expected speeds."""
        spread = entry.decided.spread
        if spread is None:
            return task
        most = min(task.max_nodes, len(self._pool))
        if not task.curves:
            return replace(task, curve=self._curve(spread, task.curve, ANY_KIND, entry, most))
        curves = {kind: self._curve(spread, curve, kind, entry, most) for kind, curve in task.curves.items()}
        own = next((kind for kind, curve in task.curves.items() if curve == task.curve), None)
        return replace(task, curves=curves, curve=task.curve if own is None else curves[own])

    def _curve(self, spread: SpreadSpeeds, together: SpeedCurve, kind: str, entry: TaskEntry, most: int) -> SpeedCurve:
        if kind not in self._free:
            free = (node for group in self._pool.free_of(kind).values() for node in group)
            self._free[kind] = Counter(map(self._place_of, free))
        free_at = self._free[kind]
        held = Counter(map(self._place_of, entry.held)) if entry.kind == kind or not entry.held else Counter[str]()
        ends = list(_ends(held, free_at))
        points = sorted(_points(spread, together, ends, most))
        places = _places_at(points, ends)
        rates = (
            spread.speed(size, count, together.speed(size), kind) for size, count in zip(points, places, strict=True)
        )
        return SpeedCurve(nodes=tuple(points), rate=tuple(rates))


def _ends(held: Counter[str], free: Counter[str]) -> Iterator[int]:
    """Yield the largest size that fits on 1, 2, 3, ... places."""
    sizes = sorted(held.values(), reverse=True)
    beside = sum(free[place] for place in held)
    if sizes:
        yield from list(accumulate(sizes))[:-1]
        yield sum(sizes) + beside
    others = sorted((count for place, count in free.items() if place not in held and count), reverse=True)
    yield from (sum(sizes) + beside + more for more in accumulate(others))


def _points(spread: SpreadSpeeds, together: SpeedCurve, ends: Iterable[int], most: int) -> set[int]:
    """Return the sizes between which speeds are linear."""
    found = {1, most, *together.nodes, *(size for each in spread.speeds if each.curve for size in each.curve.nodes)}
    steps = spread.per_place
    for end in (*ends, *(range(steps, most, steps) if steps else ())):
        found |= {end, end + 1}
    return {size for size in found if 1 <= size <= most} or {1}


def _places_at(points: Sequence[int], ends: Sequence[int]) -> Iterator[int]:
    place = 0
    for size in points:
        while place < len(ends) - 1 and ends[place] < size:
            place += 1
        yield place + 1
