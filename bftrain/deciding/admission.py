"""Admission: stateless rules that choose the competing tasks. docs/reference/objectives.md compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from itertools import chain, islice
from math import isfinite
from typing import ClassVar, Final

from bftrain.errors import BadInput
from bftrain.ports import Queue
from bftrain.values.sharing import Entity, Inside
from bftrain.values.task import TaskSpec

MIN: Final = "min"  # a task demands its min_nodes
MAX: Final = "max"  # a task demands all nodes that it can use
DEMANDS: Final = (MIN, MAX)


class KindCapacity:
    """Capacity by node kind for admitted tasks: ``factor`` times the nodes of each kind; a task counts in one kind.

    Tasks that can use several kinds move to another kind if that frees capacity. The first task of a kind always
    fits. A later task fits if the free capacity covers its demand or, with ``over``, if any capacity is free.
    """

    def __init__(self, pools: Mapping[str, int], factor: float, demand: str, *, over: bool = False) -> None:
        self._pools, self._demand, self._over = pools, demand, over
        self._free = {kind: factor * count for kind, count in pools.items() if count}
        self._tasks_in: dict[str, list[str]] = {kind: [] for kind in self._free}
        self._demands: dict[str, dict[str, int]] = {}  # admitted task -> kind -> demand
        self._blocked: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether no further task fits."""
        if self._over:
            return all(room <= 0 for room in self._free.values())
        return len(self._blocked) == len(self._free)

    def take(self, name: str, spec: TaskSpec) -> bool:
        """Reserve capacity for a task; return whether it fits."""
        demands = self._demands_of(spec)
        kinds = sorted((kind for kind in demands if kind not in self._blocked), key=lambda kind: -self._free[kind])
        fitting = (kind for kind in kinds if self._fits(kind, demands[kind]))
        cleared = (kind for kind in kinds if self._make_room(kind, demands[kind], set()))
        kind = next(chain(fitting, cleared), None)
        if kind is None:
            return False
        self._demands[name] = {kind: demands[kind] for kind in kinds}
        self._assign(name, kind)
        return True

    def block_kinds(self, spec: TaskSpec) -> None:
        """Close the kinds that this task could use: no later task fits there."""
        self._blocked.update(self._demands_of(spec))

    def _demands_of(self, spec: TaskSpec) -> dict[str, int]:
        return {
            kind: spec.min_nodes if self._demand == MIN else min(spec.max_nodes, self._pools[kind])
            for kind in self._free
            if self._pools[kind] >= spec.min_nodes and spec.curve_on(kind) is not None
        }

    def _fits(self, kind: str, demand: int) -> bool:
        if self._over:
            return self._free[kind] > 0
        return not self._tasks_in[kind] or demand <= self._free[kind]

    def _assign(self, name: str, kind: str) -> None:
        self._tasks_in[kind].append(name)
        self._free[kind] -= self._demands[name][kind]

    def _make_room(self, kind: str, demand: int, tried: set[str]) -> bool:
        """Move tasks to kinds not in ``tried`` until ``demand`` fits into ``kind``."""
        tried.add(kind)
        for name in tuple(self._tasks_in[kind]):
            for other, needed in self._demands[name].items():
                if other not in tried and (self._fits(other, needed) or self._make_room(other, needed, tried)):
                    self._tasks_in[kind].remove(name)
                    self._free[kind] += self._demands[name][kind]
                    self._assign(name, other)
                    break
            if self._fits(kind, demand):
                tried.discard(kind)
                return True
        return False


@dataclass(frozen=True, slots=True)
class FirstComeAdmission:
    """The ``max_tasks`` oldest unfinished tasks compete; later tasks wait for one of them to finish."""

    max_tasks: int = 35
    name: ClassVar[str] = "first-come"

    def choose(self, queue: Queue) -> Sequence[str]:
        """Return the first ``max_tasks`` names."""
        return tuple(islice(queue, self.max_tasks))


@dataclass(frozen=True, slots=True)
class AdmitAll:
    """All unfinished tasks compete; ``max_tasks`` is ignored."""

    max_tasks: InitVar[int] = 0
    name: ClassVar[str] = "all"

    def choose(self, queue: Queue) -> Sequence[str]:
        """Return all names."""
        return tuple(queue)


@dataclass(frozen=True, slots=True)
class LoadAdmission:
    """The oldest tasks compete while their total demand is at most ``factor`` times the pool, kind by kind.

    With ``demand = "min"`` a task demands its ``min_nodes``: up to a factor of 1 all competing tasks can run together.
    With ``"max"`` it demands the most nodes it can use. The first task in the queue always competes, and a task that
    demands more than the remainder blocks later tasks from the node kinds it could use, so no task
    starves. Tasks with a minimum above the current pool are skipped.
    """

    max_tasks: int = 35
    factor: float = 1.0
    demand: str = MIN
    name: ClassVar[str] = "load"

    def __post_init__(self) -> None:
        check_demand(self.factor, self.demand, "factor")

    def choose(self, queue: Queue) -> Sequence[str]:
        """Return names until their demand exceeds the capacity."""
        rooms, chosen = KindCapacity(queue.pools, self.factor, self.demand), list[str]()
        for name in queue:
            if len(chosen) == self.max_tasks or rooms.full:
                break
            spec = queue.spec(name)
            if rooms.take(name, spec):
                chosen.append(name)
            else:
                rooms.block_kinds(spec)
        return chosen


def check_number(given: object, name: str, *, above: float) -> None:
    """Raise an error unless ``given`` is a number above ``above``."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given <= above:
        raise BadInput(f"{name} must be a number above {above:g}, not {given!r}")


def check_demand(factor: float, demand: str, name: str) -> None:
    """Raise an error unless ``factor`` is a number above 0 and ``demand`` is known."""
    check_number(factor, name, above=0.0)
    if demand not in DEMANDS:
        raise BadInput(f"demand must be {' or '.join(DEMANDS)}, not {demand!r}")


@dataclass(frozen=True, slots=True)
class QuotaAdmission:
    """The oldest tasks compete, within the quotas of their users.

    A user has up to ``tasks`` competing tasks, with up to ``nodes`` nodes in total;
    a user without a quota has the default quota. A user's nodes are divided over their tasks evenly
    or to the oldest first, according to ``inside``.
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
            fix = "set admission to quota,nodes=16,tasks=4, or set quotas of users in a shares file"
            raise BadInput("no user has a quota", fix=fix)

    def choose(self, queue: Queue) -> Mapping[str, int]:
        """Return the competing tasks, each with its largest allowed size."""
        chosen: dict[str, int] = {}  # minima in queue order, later replaced by the largest sizes
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
                most = _divide_nodes([spec.min_nodes for spec in specs], most, nodes, inside)
            chosen.update(zip(mine, most, strict=True))
        return chosen

    def remark(self, spec: TaskSpec) -> str:
        """Return a warning if a submitted task exceeds its user's quota and can never run."""
        nodes, _, _ = self._quota(spec.user)
        if nodes is None or spec.min_nodes <= nodes:
            return ""
        return f"needs {spec.min_nodes} nodes and its user '{spec.user}' may use {nodes}: it never runs"

    def _quota(self, user: str) -> tuple[int | None, int | None, Inside]:
        own = self.entities.get(user) or Entity()
        nodes = self.nodes if own.nodes is None else own.nodes
        return nodes, self.tasks if own.tasks is None else own.tasks, own.inside


def _divide_nodes(least: Sequence[int], largest: Sequence[int], nodes: int, inside: Inside) -> list[int]:
    """Divide a user's nodes over tasks whose minima fit together: evenly, or oldest first.

    Evenly: raise the smallest sizes first until no node is left; ties go to the oldest task.
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
