"""Admission: who competes, by rules that need no memory. docs/admission.md says when to use which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite

from bftrain.deciding.admission_capacity import DEMANDS, MIN, KindCapacity
from bftrain.errors import BadInput
from bftrain.ports import Queue
from bftrain.values.sharing import Entity, Inside
from bftrain.values.task import TaskSpec


@dataclass(frozen=True, slots=True)
class FirstComeAdmission:
    """The ``max_tasks`` oldest unfinished tasks compete; the others wait until one of them is over."""

    max_tasks: int = 35
    name: str = "first-come"

    def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:  # noqa: ARG002 - others look at the pool
        """Take the first names."""
        return tuple(islice(waiting_or_running, self.max_tasks))


def first_come(max_tasks: int) -> FirstComeAdmission:
    """Build the admission; every registered admission is built from ``max_tasks`` and what else it names."""
    return FirstComeAdmission(max_tasks)


@dataclass(frozen=True, slots=True)
class AdmitAll:
    """All unfinished tasks compete, however many they are."""

    name: str = "all"

    def choose(self, queue: Queue) -> Sequence[str]:
        """Take all names."""
        return tuple(queue)


def admit_all(max_tasks: int) -> AdmitAll:  # noqa: ARG001 - the one that has no such limit
    """Build it."""
    return AdmitAll()


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
    name: str = "load"

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


def by_load(max_tasks: int, factor: float = 1.0, demand: str = MIN) -> LoadAdmission:
    """Build it."""
    return LoadAdmission(max_tasks, factor, demand)


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
    name: str = "quota"

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
            most = [spec.max_nodes for spec in specs] if nodes is None else _divided(specs, nodes, inside)
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


def quota(
    max_tasks: int, nodes: int | None = None, tasks: int | None = None, *, entities: Mapping[str, Entity]
) -> QuotaAdmission:
    """Build it; ``nodes`` and ``tasks`` are for users who have no quota of their own."""
    return QuotaAdmission(max_tasks, nodes, tasks, entities)


def _divided(specs: Sequence[TaskSpec], nodes: int, inside: Inside) -> list[int]:
    """Divide a user's nodes over tasks that get their minimum all of them: evenly, or the oldest first."""
    most = [spec.min_nodes for spec in specs]
    spare = nodes - sum(most)
    if inside is Inside.FIFO:
        for number, spec in enumerate(specs):
            more = min(spec.max_nodes - most[number], spare)
            most[number], spare = most[number] + more, spare - more
        return most
    return _levelled(most, [spec.max_nodes for spec in specs], spare)


def _levelled(least: Iterable[int], largest: Sequence[int], spare: int) -> list[int]:
    """Raise the smallest first until nothing is spare; of the same size, the oldest gets what does not divide."""
    sizes = list(least)
    while spare:
        growing = [number for number, size in enumerate(sizes) if size < largest[number]]
        if not growing:
            break
        low = min(sizes[number] for number in growing)
        lowest = [number for number in growing if sizes[number] == low]
        above = [sizes[number] for number in growing if sizes[number] > low] + [largest[number] for number in lowest]
        step = max(1, min(min(above) - low, spare // len(lowest)))
        for number in lowest[:spare]:
            sizes[number] += step
            spare -= step
    return sizes
