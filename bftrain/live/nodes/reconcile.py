"""Reconcile: what we remember against what is. The outside world wins; what follows are events like any others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from bftrain.live.model.node_kinds import NodeKinds
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState
from bftrain.live.nodes.usable_nodes import NodesSeen
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)

_ALIKE: Final = NodeKinds()


class StoredState(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal leads to: the pool, the unfinished tasks and which of them are paused; and the tasks kept.

    Tasks ``held_up`` cannot be run now: they hold no nodes until they can. Nodes of the
    pool that are ``mistaken`` are of another kind by now.
    """

    pool: frozenset[str]
    mistaken: frozenset[str] = frozenset()
    unfinished: tuple[str, ...]
    paused: frozenset[str] = frozenset()
    kept: tuple[LiveTaskRecord, ...] = ()
    held_up: frozenset[str] = frozenset()


def nodes(
    pool: Collection[str],
    ours: Collection[str],
    time_s: float,
    kinds: NodeKinds,
    mistaken: Collection[str] = (),
) -> Iterator[Event]:
    """Give the events after which the pool is what is ours, each of its kind; departures first.

    Nodes that are ``mistaken`` for ones of another kind leave, and join as what they are.
    """
    left = set(pool).difference(ours).union(mistaken)
    if left:
        yield NodesLeft(time_s=time_s, nodes=tuple(sorted(left)))
    for kind, joined in kinds.parted(sorted(set(ours).difference(set(pool) - left))):
        yield NodesJoined(time_s=time_s, nodes=joined, kind=kind)


def tasks(remembered: StoredState, time_s: float) -> Iterator[Event]:
    """Give the events after which the decision core has the tasks that are kept, as their owners want them.

    An owner's wish is written down before the event that it leads to; what lies between the two is made up for here.
    """
    wanted = {kept.name: kept for kept in remembered.kept if kept.unfinished}
    for name in remembered.unfinished:
        if name not in wanted:
            yield TaskCancelled(time_s=time_s, task=name)  # what to run for it is unknown
    for name, kept in wanted.items():
        if name not in remembered.unfinished:
            yield TaskSubmitted(time_s=time_s, spec=kept.spec)
        paused = name in remembered.paused
        waits = kept.state is LiveTaskState.PAUSED or name in remembered.held_up
        if waits and not paused:
            yield TaskPaused(time_s=time_s, task=name)
        elif paused and not waits:
            yield TaskResumed(time_s=time_s, task=name)


def reconciled(
    remembered: StoredState, world: NodesSeen, time_s: float, kinds: NodeKinds = _ALIKE
) -> tuple[Event, ...]:
    """Give all that must be taken in before anything else happens."""
    moved = nodes(remembered.pool, world.ours, time_s, kinds, remembered.mistaken)
    return (*moved, *tasks(remembered, time_s))
