"""Reconciles the stored state with all reports: the usable nodes, and the events that correct the state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet

from bftrain.live.model.site_config import NodeKinds
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState
from bftrain.node_units import node_of
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskCancelled, TaskPaused, TaskResumed, TaskSubmitted


class NodeTracker:
    """Combines the reports of the scheduler, the agents and operators on nodes.

    ``agents_suffice``: a connected agent proves that its node is ours. ``agents_used``: without agents a node is ours
    by the scheduler's report alone.
    """

    def __init__(self, *, agents_suffice: bool, agents_used: bool) -> None:
        self._agents_suffice = agents_suffice
        self.agents_used = agents_used
        self.allowed: set[str] = set()  # nodes that the scheduler lends us
        self.taken: set[str] = set()  # nodes that it has reclaimed since
        self.present: set[str] = set()  # an agent is registered there
        self.expected: set[str] = set()  # nodes whose agents may still reconnect after a restart
        self.drained: frozenset[str] = frozenset()  # nodes that must not be used
        self.to_leave: frozenset[str] = frozenset()  # drained by the scheduler
        self.noticed: set[str] = set()  # nodes whose preemption was announced by their agents
        self.until_s: dict[str, float] = {}  # expected times of preemption, if known
        self.closed = False  # no nodes are used any longer
        self.paused = False  # no node is used during a pause

    @property
    def usable(self) -> AbstractSet[str]:
        """The nodes to use now, without nodes in doubt; not to be kept, as it may change with the next report.

        Called for every event, so thousands of nodes are copied only if necessary.
        """
        if self.paused:
            return frozenset()
        found: AbstractSet[str] = self.allowed
        if self.agents_used:
            found = self.present | self.expected if self.expected else self.present
            if not self._agents_suffice and not found <= self.allowed:
                found = found & self.allowed
        for without in (self.taken, self.not_to_use, self.noticed):
            found = found - without if without else found
        return found

    @property
    def not_to_use(self) -> frozenset[str]:
        """The nodes that we leave by ourselves: drained by operators or the scheduler; and their GPUs."""
        left = self.drained | self.to_leave
        known = (self.present, self.expected, self.allowed) if left else ()
        return left.union(name for names in known for name in names if node_of(name) in left)

    @property
    def ours(self) -> AbstractSet[str]:
        """The nodes to use now; empty once it is closed. Not to be kept, as it may change with the next report."""
        return frozenset() if self.closed else self.usable

    def allow(self, nodes: Collection[str], until_s: float | None) -> None:
        """Record that the scheduler lets us use nodes."""
        self.allowed.update(nodes)
        self.taken.difference_update(nodes)
        for node in nodes:
            if until_s is None:
                self.until_s.pop(node, None)
            else:
                self.until_s[node] = until_s

    def take(self, nodes: Collection[str]) -> None:
        """Record that the scheduler takes nodes back. If agents suffice, a new agent makes them ours again."""
        self.allowed.difference_update(nodes)
        if self._agents_suffice:
            self.taken.update(self.present.union(self.expected).intersection(nodes))
            self.expected -= set(nodes)  # their pilots have finished, and all processes in them
        for node in nodes:
            self.until_s.pop(node, None)

    def set_allowed(self, nodes: Collection[str]) -> None:
        """Record the complete set of nodes that the scheduler lets us use."""
        self.take(self.allowed.difference(nodes))
        self.allowed = set(nodes)

    def came(self, node: str) -> None:
        """Record that an agent registered."""
        self.went(node)
        self.present.add(node)

    def went(self, node: str) -> None:
        """Record that an agent disconnected, and forget the node's earlier reports."""
        self.present.discard(node)
        self.expected.discard(node)
        self.taken.discard(node)
        self.noticed.discard(node)

    def expect(self, nodes: Iterable[str]) -> None:
        """Set the nodes whose agents still have time to reconnect."""
        self.expected = set(nodes) - self.present


def node_events(
    pool: AbstractSet[str], ours: AbstractSet[str], time_s: float, kinds: NodeKinds, mistaken: Collection[str] = ()
) -> Iterator[Event]:
    """Yield the events that turn ``pool`` into ``ours``, one node kind per event; departures first.

    Nodes of a ``mistaken`` kind leave, and join with the right one.
    """
    left = {*(pool - ours), *mistaken}
    if left:
        yield NodesLeft(time_s=time_s, nodes=tuple(sorted(left)))
    for kind, joined in kinds.parted(sorted((ours - pool) | (ours & left))):
        yield NodesJoined(time_s=time_s, nodes=joined, kind=kind)


def task_events(
    unfinished: Collection[str],
    paused: Collection[str],
    records: Iterable[LiveTaskRecord],
    held_up: Collection[str],
    time_s: float,
) -> Iterator[Event]:
    """Yield the events that bring the decision core's tasks in line with the stored ones and their owners' requests.

    ``unfinished`` and ``paused`` come from the decision core. Tasks ``held_up`` cannot run now and therefore get no
    nodes. Requests are stored before their event; a crash between the two is repaired here.
    """
    wanted = {record.name: record for record in records if record.unfinished}
    for name in unfinished:
        if name not in wanted:
            yield TaskCancelled(time_s=time_s, task=name)  # the program of such a task is unknown
    for name, record in wanted.items():
        if name not in unfinished:
            yield TaskSubmitted(time_s=time_s, spec=record.spec)
        waits = record.state is LiveTaskState.PAUSED or name in held_up
        if waits and name not in paused:
            yield TaskPaused(time_s=time_s, task=name)
        elif name in paused and not waits:
            yield TaskResumed(time_s=time_s, task=name)
