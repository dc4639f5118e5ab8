"""Supply: which nodes there are, by kind and over time. A cluster always has all of its nodes, a log's come and go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bftrain.values.kinds import ANY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog


class NodeChange(NamedTuple):
    """At ``time_s`` some nodes leave the pool and others join it, by number."""

    time_s: float
    left: NDArray[np.intp]
    joined: NDArray[np.intp]


class NodeSupply:
    """Nodes by number: of which kind each is, and when they come and go (seconds since the begin).

    ``most`` is the largest number of each kind that there is at a time; ``stays`` says that nodes never leave, so that
    it does not matter who holds which.
    """

    def __init__(
        self, most: Mapping[str, int], kind_of: NDArray[np.intp], changes: Iterator[NodeChange], end_s: float = math.inf
    ) -> None:
        self.most = dict(most)
        self.kinds = tuple(most)
        self.kind_of = kind_of
        self.end_s = end_s
        self.stays = end_s == math.inf
        self._changes = changes
        self._next = next(changes, None)

    @property
    def next_s(self) -> float:
        """When the next nodes come or go; infinity if none will."""
        return math.inf if self._next is None else self._next.time_s

    def take(self) -> NodeChange:
        """Take the next change."""
        change = self._next
        assert change is not None  # noqa: S101 - callers look at next_s first
        self._next = next(self._changes, None)
        return change


def cluster(nodes: Mapping[str, int]) -> NodeSupply:
    """Give nodes that are there all the time: so many of each kind."""
    kind_of = np.repeat(np.arange(len(nodes)), list(nodes.values()))
    none = np.zeros(0, dtype=np.intp)
    return NodeSupply(nodes, kind_of, iter((NodeChange(0.0, none, np.arange(kind_of.size)),)))


def idle_nodes(log: EventLog) -> NodeSupply:
    """Give the idle nodes of a log, whose begin is second 0."""
    names = log.node_names
    number = {name: place for place, name in enumerate(names)}
    kinds, kind_of = _kinds(log)
    most, now = np.zeros(len(kinds), dtype=np.intp), np.zeros(len(kinds), dtype=np.intp)
    for _, left, joined in log.pool_changes():
        now -= np.bincount(kind_of[[number[name] for name in left]], minlength=len(kinds))
        now += np.bincount(kind_of[[number[name] for name in joined]], minlength=len(kinds))
        most = np.maximum(most, now)

    def changes() -> Iterator[NodeChange]:
        for time_s, left, joined in log.pool_changes():
            gone, come = ([number[name] for name in which] for which in (left, joined))
            yield NodeChange(time_s - log.start_s, np.array(gone, dtype=np.intp), np.array(come, dtype=np.intp))

    return NodeSupply(dict(zip(kinds, most.tolist(), strict=True)), kind_of, changes(), log.span_s)


def _kinds(log: EventLog) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Give the kinds of a log, and the number of the kind of each node."""
    if not log.kind_names:
        return (ANY_KIND,), np.zeros(len(log.node_names), dtype=np.intp)
    return log.kind_names, log.node_kinds.astype(np.intp)
