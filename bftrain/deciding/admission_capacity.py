"""KindCapacity: how many more tasks may compete for the nodes of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bftrain.values.task import TaskSpec

MIN: Final = "min"  # what a task cannot do without
MAX: Final = "max"  # what a task can use
DEMANDS: Final = (MIN, MAX)


class KindCapacity:
    """Every kind has room for ``factor`` times its nodes, and every task has its room in one kind.

    Tasks that can use several kinds move to another one where that makes room. The first task of a kind always has
    room. A later one has room if its demand is left, or, with ``over``, if anything is left.
    """

    def __init__(self, pools: Mapping[str, int], factor: float, demand: str, *, over: bool = False) -> None:
        self._pools, self._demand, self._over = pools, demand, over
        self._room = {kind: factor * count for kind, count in pools.items() if count}
        self._in: dict[str, list[str]] = {kind: [] for kind in self._room}
        self._demands: dict[str, dict[str, int]] = {}  # by task and kind, of those who have room
        self._barred: set[str] = set()

    @property
    def full(self) -> bool:
        """Return whether no task has room any more."""
        if self._over:
            return all(room <= 0 for room in self._room.values())
        return len(self._barred) == len(self._room)

    def take(self, name: str, spec: TaskSpec) -> bool:
        """Give a task room if there is some for it."""
        demands = self._of(spec)
        kinds = sorted((kind for kind in demands if kind not in self._barred), key=lambda kind: -self._room[kind])
        for kind in kinds:
            if self._fits(kind, demands[kind]):
                break
        else:
            for kind in kinds:
                if self._clear(kind, demands[kind], set()):
                    break
            else:
                return False
        self._demands[name] = {kind: demands[kind] for kind in kinds}
        self._put(name, kind)
        return True

    def bar(self, spec: TaskSpec) -> None:
        """Leave no room to other tasks in the kinds that this task could use."""
        self._barred.update(self._of(spec))

    def _of(self, spec: TaskSpec) -> dict[str, int]:
        """Give what it demands of every kind that has nodes enough for it."""
        return {
            kind: spec.min_nodes if self._demand == MIN else min(spec.max_nodes, self._pools[kind])
            for kind in self._room
            if self._pools[kind] >= spec.min_nodes and spec.curve_on(kind) is not None
        }

    def _fits(self, kind: str, demand: int) -> bool:
        if self._over:
            return self._room[kind] > 0
        return not self._in[kind] or demand <= self._room[kind]

    def _put(self, name: str, kind: str) -> None:
        self._in[kind].append(name)
        self._room[kind] -= self._demands[name][kind]

    def _clear(self, kind: str, demand: int, tried: set[str]) -> bool:
        """Move tasks to kinds that were not tried until so much fits into this one."""
        tried.add(kind)
        for name in tuple(self._in[kind]):
            for other, needed in self._demands[name].items():
                if other not in tried and (self._fits(other, needed) or self._clear(other, needed, tried)):
                    self._in[kind].remove(name)
                    self._room[kind] += self._demands[name][kind]
                    self._put(name, other)
                    break
            if self._fits(kind, demand):
                tried.discard(kind)
                return True
        return False
