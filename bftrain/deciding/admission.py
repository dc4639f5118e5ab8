"""Admission: who competes, by rules that need no memory. docs/admission.md says when to use which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import islice
from math import isfinite
from typing import ClassVar, Final

from bftrain.errors import BadInput
from bftrain.ports import Queue
from bftrain.values.sharing import Entity, Inside
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


@dataclass(frozen=True, slots=True)
class FirstComeAdmission:
    """The ``max_tasks`` oldest unfinished tasks compete; the others wait until one of them is over."""

    max_tasks: int = 35
    name: ClassVar[str] = "first-come"

    def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:  # noqa: ARG002 - others look at the pool
        """Take the first names."""
        return tuple(islice(waiting_or_running, self.max_tasks))


@dataclass(frozen=True, slots=True)
class AdmitAll:
    """All unfinished tasks compete, however many they are: ``max_tasks`` does not matter."""

    max_tasks: InitVar[int] = 0
    name: ClassVar[str] = "all"

    def choose(self, queue: Queue) -> Sequence[str]:
        """Take all names."""
        return tuple(queue)


@dataclass(frozen=True, slots=True)
class LoadAdmission:
    """The oldest tasks compete as long as all they demand is at most ``factor`` times the pool, kind by kind.

    With ``demand = "min"`` a task demands its ``min_nodes``: up to a factor of 1 all who compete can run at once. With
    ``"max"`` it demands as many as it can use. The first in the queue always competes, and a task that
    demands more than is left bars those behind it from the kinds of nodes that it could use, so that no task is
    overtaken for ever. Tasks for which all nodes together are too few, now, are passed over.
    """

    max_tasks: int = 35
    factor: float = 1.0
    demand: str = MIN
    name: ClassVar[str] = "load"

    def __post_init__(self) -> None:
        check_demand(self.factor, self.demand, "factor")

    def choose(self, queue: Queue) -> Sequence[str]:
        """Take names until they demand too much."""
        rooms, chosen = KindCapacity(queue.pools, self.factor, self.demand), list[str]()
        for name in queue:
            if len(chosen) == self.max_tasks or rooms.full:
                break
            spec = queue.spec(name)
            if rooms.take(name, spec):
                chosen.append(name)
            else:
                rooms.bar(spec)
        return chosen


def check_number(given: object, name: str, *, above: float) -> None:
    """Refuse what is no number, or not ``above`` this one."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given <= above:
        raise BadInput(f"{name} must be a number above {above:g}, not {given!r}")


def check_demand(factor: float, demand: str, name: str) -> None:
    """Refuse a factor that is no number above 0, and a demand that is not known."""
    check_number(factor, name, above=0.0)
    if demand not in DEMANDS:
        raise BadInput(f"demand must be {' or '.join(DEMANDS)}, not {demand!r}")


@dataclass(frozen=True, slots=True)
class QuotaAdmission:
    """The oldest tasks compete, as far as their users' quotas go.

    A user has at most so many ``tasks`` that compete at a time, and these hold at most so many ``nodes`` together:
    an own quota, or the one for all others. A user's nodes are divided over their tasks either evenly, or the
    oldest first, as ``inside`` says.
    """

    max_tasks: int = 35
    nodes: int | None = None
    tasks: int | None = None
    entities: Mapping[str, Entity] = field(default_factory=dict)
    name: ClassVar[str] = "quota"

    def __post_init__(self) -> None:
        for what in ("nodes", "tasks"):
            given = getattr(self, what)
            if given is not None and (not isinstance(given, int) or given < 1):
                raise BadInput(f"{what} must be a whole number of at least 1, not {given!r}")
        own = any(entity.nodes is not None or entity.tasks is not None for entity in self.entities.values())
        if self.nodes is None and self.tasks is None and not own:
            fix = "write quota,nodes=16,tasks=4, or give users their own in a shares file"
            raise BadInput("no user has a quota", fix=fix)

    def choose(self, queue: Queue) -> Mapping[str, int]:
        """Give those who compete, each with the most nodes that it may get."""
        chosen: dict[str, int] = {}  # in the order of the queue, each with the least it needs
        of_user: dict[str, list[str]] = {}
        left: dict[str, int] = {}
        for name in queue:
            if len(chosen) == self.max_tasks:
                break
            spec = queue.spec(name)
            nodes, tasks, _ = self._quota(spec.user)
            mine = of_user.setdefault(spec.user, [])
            room = left.setdefault(spec.user, queue.pool if nodes is None else nodes)
            within = (tasks is None or len(mine) < tasks) and (nodes is None or room >= spec.min_nodes)
            if within and queue.most_nodes(name):
                mine.append(name)
                left[spec.user] = room - spec.min_nodes
                chosen[name] = spec.min_nodes
        for user, mine in of_user.items():
            nodes, _, inside = self._quota(user)
            specs = [queue.spec(name) for name in mine]
            most = [spec.max_nodes for spec in specs]
            if nodes is not None:
                most = _divided([spec.min_nodes for spec in specs], most, nodes, inside)
            chosen.update(zip(mine, most, strict=True))
        return chosen

    def remark(self, spec: TaskSpec) -> str:
        """Say of a task that was submitted that it can never run."""
        nodes, _, _ = self._quota(spec.user)
        if nodes is None or spec.min_nodes <= nodes:
            return ""
        return f"needs {spec.min_nodes} nodes and its user '{spec.user}' may hold {nodes}: it never runs"

    def _quota(self, user: str) -> tuple[int | None, int | None, Inside]:
        own = self.entities.get(user) or Entity()
        nodes = self.nodes if own.nodes is None else own.nodes
        return nodes, self.tasks if own.tasks is None else own.tasks, own.inside


def _divided(least: Sequence[int], largest: Sequence[int], nodes: int, inside: Inside) -> list[int]:
    """Divide a user's nodes over tasks that get their minimum all of them: evenly, or the oldest first.

    Evenly: raise the smallest first until nothing is spare; of the same size, the oldest gets what does not divide.
    """
    sizes, spare = list(least), nodes - sum(least)
    if inside is Inside.FIFO:
        for number, most in enumerate(largest):
            more = min(most - sizes[number], spare)
            sizes[number], spare = sizes[number] + more, spare - more
    while spare and (growing := [number for number, size in enumerate(sizes) if size < largest[number]]):
        low = min(sizes[number] for number in growing)
        lowest = [number for number in growing if sizes[number] == low]
        above = [sizes[number] for number in growing if sizes[number] > low] + [largest[number] for number in lowest]
        step = max(1, min(min(above) - low, spare // len(lowest)))
        for number in lowest[:spare]:
            sizes[number] += step
            spare -= step
    return sizes
