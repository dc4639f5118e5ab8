"""Round nodes: arrival and departure, host locations, and the choice of nodes for a gang."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, zip_longest
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.placement import fitting
from bftrain.errors import BadInput
from bftrain.topology import place_of
from bftrain.values.curve import ANY_KIND
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import largest_by_kind
from bftrain_replay.rounds.round_inputs import Ints
from bftrain_replay.rounds.round_settings import CONSOLIDATED, FIRST_FREE, SCATTERED

_FREE: Final = -1


class NodeChange(NamedTuple):
    """At ``time_s`` these node numbers leave and join the pool."""

    time_s: float
    left: Ints
    joined: Ints


class NodeSupply:
    """Nodes by number: the kind of each, and its arrival and departure (seconds since the start).

    ``most`` is the peak number of each kind; ``stays`` is true if nodes never leave. ``host_of`` is each node's host or
    rack number (-1: no host), or ``None`` if locations are unknown.
    """

    def __init__(
        self,
        most: Mapping[str, int],
        kind_of: Ints,
        changes: Iterator[NodeChange],
        end_s: float = math.inf,
        host_of: Ints | None = None,
    ) -> None:
        self.most = dict(most)
        self.kinds = tuple(most)
        self.kind_of = kind_of
        self.host_of = host_of
        self.end_s = end_s
        self.stays = end_s == math.inf
        self._changes = changes
        self._next = next(changes, None)

    def largest_host(self) -> int | None:
        """Return the number of nodes of the largest host, if hosts are known; nodes in no rack are on none."""
        known = np.zeros(0, dtype=np.intp) if self.host_of is None else self.host_of[self.host_of >= 0]
        return int(np.bincount(known).max()) if known.size else None

    @property
    def next_s(self) -> float:
        """The time of the next change; infinite if no change is left."""
        return math.inf if self._next is None else self._next.time_s

    def take(self) -> NodeChange:
        """Return the next change and move on."""
        change = self._next
        assert change is not None  # noqa: S101 - callers look at next_s first
        self._next = next(self._changes, None)
        return change


def cluster(nodes: Mapping[str, int], per_host: Mapping[str, int] | None = None) -> NodeSupply:
    """Return permanent nodes of each kind with a fixed number per host; the last host of a kind may have fewer."""
    kind_of = np.repeat(np.arange(len(nodes)), list(nodes.values()))
    none, hosts = np.zeros(0, dtype=np.intp), None
    if per_host:
        hosts, first = none, 0
        for kind, count in nodes.items():
            size = per_host.get(kind, per_host.get(ANY_KIND))
            if size is None:
                raise BadInput(f"lacks the number of '{kind}' nodes per host", where="per_host", fix="add it")
            hosts = np.concatenate((hosts, first + np.arange(count) // size))
            first = int(hosts[-1]) + 1
    return NodeSupply(nodes, kind_of, iter((NodeChange(0.0, none, np.arange(kind_of.size)),)), host_of=hosts)


def idle_nodes(log: EventLog, racks: Mapping[str, str] | None = None) -> NodeSupply:
    """Return the idle nodes of a log, from its start at second 0: GPUs on their hosts, whole nodes in their racks."""
    names = log.node_names
    number = {name: place for place, name in enumerate(names)}
    kind_of = log.node_kinds.astype(np.intp) if log.kind_names else np.zeros(len(names), dtype=np.intp)

    def changes() -> Iterator[NodeChange]:
        for time_s, left, joined in log.pool_changes():
            gone, come = ([number[name] for name in which] for which in (left, joined))
            yield NodeChange(time_s - log.start_s, np.array(gone, dtype=np.intp), np.array(come, dtype=np.intp))

    places = list(map(place_of(racks or {}), names))
    number_of = {place: count for count, place in enumerate(dict.fromkeys(filter(None, places)))}
    hosts = np.array([number_of.get(place, -1) for place in places], dtype=np.intp) if number_of else None
    return NodeSupply(largest_by_kind(log), kind_of, changes(), log.span_s, hosts)


class NodeHolders:
    """The current nodes: ``count`` by kind, and each node's holder. ``hosts`` is the number of hosts of each task.

    Without hosts free nodes are assigned by number, and not tracked on a cluster, where nodes are interchangeable.
    """

    __slots__ = ("_choose", "_here", "_holder", "_host_of", "_kind_of", "_tracks", "count", "hosts")

    def __init__(self, supply: NodeSupply, tasks: int, placement: str) -> None:
        self._kind_of, self._host_of = supply.kind_of, supply.host_of
        self._tracks = not supply.stays or supply.host_of is not None
        self._choose = _CHOICES[placement]
        self._here = np.zeros(supply.kind_of.size, dtype=bool)
        self._holder = np.full(supply.kind_of.size, _FREE, dtype=np.intp)
        self.count: Ints = np.zeros(len(supply.kinds), dtype=np.intp)
        self.hosts: Ints = np.zeros(tasks, dtype=np.intp)

    def change(self, change: NodeChange) -> Ints:
        """Apply a change; return the tasks on leaving nodes. These tasks stop."""
        holders = self._holder[change.left]
        hit: Ints = np.unique(holders[holders != _FREE])
        self.release(hit)
        self._here[change.left] = False
        self._here[change.joined] = True
        self.count = np.bincount(self._kind_of[self._here], minlength=self.count.size)
        return hit

    def by_host(self, tasks: Ints) -> tuple[Ints, Ints]:
        """Return the nodes of each task by host, and the current nodes of each kind by host."""
        assert self._host_of is not None  # noqa: S101 - callers know the hosts
        hosts = int(self._host_of.max()) + 1
        own, here = np.zeros((hosts, tasks.size), dtype=np.intp), np.zeros((hosts, self.count.size), dtype=np.intp)
        order = np.argsort(tasks)
        held = np.flatnonzero(np.isin(self._holder, tasks))
        np.add.at(own, (self._host_of[held], order[np.searchsorted(tasks[order], self._holder[held])]), 1)
        present = np.flatnonzero(self._here)
        np.add.at(here, (self._host_of[present], self._kind_of[present]), 1)
        return own, here

    def release(self, tasks: Ints) -> None:
        """Free all nodes of these tasks."""
        if tasks.size and self._tracks:
            self._holder[np.isin(self._holder, tasks)] = _FREE

    def give(self, tasks: Ints, kind: Ints, nodes: Ints, fresh: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """Assign this many nodes of a kind to each task (enough are free); return the tasks that had to move.

        Tasks that are not ``fresh`` keep their nodes. The first free nodes are reassigned every round. Without hosts no
        task has to move.
        """
        if self._host_of is not None:
            moved = np.zeros(tasks.size, dtype=bool)
            again = self._choose is _first_free
            before = [np.flatnonzero(self._holder == task) for task in tasks.tolist()] if again else []
            if again:
                self.release(tasks)
            for count in sorted(set(nodes[nodes > 0].tolist()), reverse=True):  # large gangs find few hosts that fit
                own = np.flatnonzero(nodes == count).tolist()
                for each in own if again else ():
                    if not fresh[each] and (self._holder[before[each]] == _FREE).all():
                        self._holder[before[each]] = tasks[each]
                    else:
                        moved[each] = not fresh[each]
                for each in own:
                    if fresh[each] or moved[each]:
                        self._give_one(int(tasks[each]), int(kind[each]), count)
            return moved
        if self._tracks:
            for number in np.unique(kind[fresh]).tolist():
                own = fresh & (kind == number)
                holders = np.repeat(tasks[own], nodes[own])
                self._holder[self._free(number)[: holders.size]] = holders
        return None

    def _free(self, kind: int) -> Ints:
        return np.flatnonzero(self._here & (self._holder == _FREE) & (self._kind_of == kind))

    def _give_one(self, task: int, kind: int, count: int) -> None:
        assert self._host_of is not None  # noqa: S101 - asked before
        by_host: dict[int, list[int]] = {}
        free = self._free(kind)
        for node, host in zip(free.tolist(), self._host_of[free].tolist(), strict=True):
            by_host.setdefault(host, []).append(node)
        chosen = self._choose(by_host, count)
        self._holder[chosen] = task
        self.hosts[task] = len(set(self._host_of[chosen].tolist()))


def _on_few(free: Mapping[int, list[int]], count: int) -> list[int]:
    """Take the smallest host with enough free nodes; otherwise the largest host, then repeat for the rest."""
    hosts = fitting({host: len(nodes) for host, nodes in free.items()}, count)
    return list(chain.from_iterable(free[host] for host in hosts))[:count]


def _on_many(free: Mapping[int, list[int]], count: int) -> list[int]:
    """Take one node per host in turn, starting with the host with the most free nodes."""
    in_turn = zip_longest(*sorted(free.values(), key=len, reverse=True))
    return [node for row in in_turn for node in row if node is not None][:count]


def _first_free(free: Mapping[int, list[int]], count: int) -> list[int]:
    """Take the first nodes, as hosts are listed."""
    return list(chain.from_iterable(free.values()))[:count]


_CHOICES: Final[Mapping[str, Callable[[Mapping[int, list[int]], int], list[int]]]] = {
    CONSOLIDATED: _on_few,
    SCATTERED: _on_many,
    FIRST_FREE: _first_free,
}
