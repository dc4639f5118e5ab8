"""Copy places: which node outside a task keeps the in-memory copy of its state, and which nodes have copies.

Nodes that joined together often leave together. So a copy goes to the oldest node that joined at another time than the
task's nodes, if there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import ROOM
from bftrain_elastic.wire.messages import Message, WireMessage
from bftrain_elastic.wire.worker_messages import CopyPlace


@dataclass(eq=False)
class _Server:
    """A node with a copy server."""

    place: CopyPlace
    limit: int
    since: float  # start time of its agent
    send: Callable[[WireMessage], None]
    held: dict[str, CopyHeld] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)  # task -> when the node had no room for its state

    def has_room(self, task: str, size: int, now: float) -> bool:
        """Return whether it takes the state of a task."""
        used = ROOM * sum(one.size for one in self.held.values() if one.task != task)
        return (
            0 < self.limit >= used + ROOM * size
            and now - self.refused.get(task, -TIMEOUTS.copy_retry_s) >= TIMEOUTS.copy_retry_s
        )


@dataclass(eq=False)
class _Task:
    """A task with copies."""

    nodes: Collection[str] = ()  # its own nodes
    node: str = ""  # node chosen for its copy
    size: int = 0  # bytes of its state; 0: unknown
    step: int = 0  # latest reported step
    noted: int = 0  # size in the latest note


class CopyPlaces:
    """Chooses the copy servers of tasks; ``emit`` receives the steps of their copies, and notes.

    Tasks are given by their identity, which no other task ever has.
    """

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._servers: dict[str, _Server] = {}
        self._tasks: defaultdict[str, _Task] = defaultdict(_Task)

    def serves(
        self, node: str, host: str, message: CopyServing, send: Callable[[WireMessage], None], now: float
    ) -> None:
        """Record the copy server of a node, with its copies."""
        self.left(node)
        self._servers[node] = _Server(CopyPlace(host, message.port), message.limit, now - message.age_s, send)
        for held in message.held:
            self.held(node, held, now)

    def held(self, node: str, message: CopyHeld, now: float) -> None:
        """Record that a node has a copy, or no room for it. A copy on the chosen node replaces all others."""
        server, task = self._servers.get(node), message.task
        if server is None:
            return
        entry = self._tasks[task]
        entry.size = message.size
        if message.step < 0:
            server.refused[task] = now
            return
        server.held[task] = message
        entry.node = entry.node or node
        if entry.node == node:
            for other, one in self._servers.items():
                if other != node and one.held.pop(task, None) is not None:
                    one.send(DropCopy(task))
        self._tell(task)

    def dropped(self, node: str, task: str) -> None:
        """Record that a copy is gone: it may have been reported after the order to drop it was sent."""
        if (server := self._servers.get(node)) is not None and server.held.pop(task, None) is not None:
            self._tell(task)

    def leaves(self, node: str) -> None:
        """Record that a node leaves soon: its copies are needed elsewhere."""
        if (server := self._servers.get(node)) is not None:
            server.limit = 0

    def left(self, node: str) -> None:
        """Record that a node, and the copies there, are gone."""
        if (server := self._servers.pop(node, None)) is not None:
            for task in server.held:
                self._tell(task)

    def forget(self, task: str) -> None:
        """Forget a task; the caller lets the agents drop its copies."""
        self._tasks.pop(task, None)
        for server in self._servers.values():
            server.held.pop(task, None)
            server.refused.pop(task, None)

    def choose(self, task: str, nodes: Sequence[str], now: float) -> CopyPlace | None:
        """Return where a task on these nodes sends its copies: outside of them, to the same place while possible."""
        entry = self._tasks[task]
        if entry.nodes != nodes:
            entry.nodes = nodes
            self._tell(task)
        server = self._servers.get(entry.node)
        if server is None or entry.node in nodes or not server.has_room(task, entry.size, now):
            entry.node = self._best(task, entry, now)
        return self._place(entry.node, task) if entry.node else None

    def _place(self, node: str, task: str) -> CopyPlace:
        return replace(self._servers[node].place, task=task)

    def _best(self, task: str, entry: _Task, now: float) -> str:
        """Return the best node for a copy, or "" if none has room: the oldest that joined at another time.

        On Summit's log the oldest node leaves with the task in 12 % of the losses of all its nodes, any other node
        that joined at another time in 52 %.
        """
        nodes, size = entry.nodes, entry.size
        outside = {node: one for node, one in self._servers.items() if node not in nodes}
        free = [node for node, one in outside.items() if one.has_room(task, size, now)]
        if not free:
            most = max((one.limit for one in outside.values()), default=0)
            if most and size and entry.noted != size:
                entry.noted = size
                text = f"no copy of its state ({size / 1e6:,.0f} MB) is kept outside the task: no agent has room"
                need = f"agents keep up to {most / 1e6:,.0f} MB (copies_memory), and a state takes twice its size"
                self._emit({"type": "note", "task": task, "text": f"{text}; {need}"})
            return ""
        joined = [self._servers[node].since for node in nodes if node in self._servers]

        def rank(node: str) -> tuple[bool, float, str]:
            since = self._servers[node].since
            return any(abs(since - one) < TIMEOUTS.together_s for one in joined), since, node

        return min(free, key=rank)

    def newest(self, task: str) -> CopyPlace | None:
        """Return where the newest copy of a task is."""
        node, _ = self._newest(task)
        return self._place(node, task) if node else None

    def _newest(self, task: str, without: Collection[str] = ()) -> tuple[str, int]:
        """Return the node of the newest copy, and its step; "" and 0 without a copy."""
        copies = [
            (held.lineage, held.step, node)
            for node, one in self._servers.items()
            if node not in without and (held := one.held.get(task)) is not None
        ]
        _, step, node = max(copies, default=(0, 0, ""))
        return node, step

    def _tell(self, task: str) -> None:
        """Report the latest step that survives the loss of all nodes of the task, if it changed."""
        entry = self._tasks[task]
        node, step = self._newest(task, entry.nodes)
        if step != entry.step:
            entry.step = step
            self._emit({"type": "copied", "task": task, "step": step, "node": node})
