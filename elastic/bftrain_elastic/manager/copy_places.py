"""Copy places: on which node outside a task the in-memory copy of its state is, and which copies are there.

Nodes that joined together often leave together, so a copy goes to a node that joined at another time if there is one,
and to the one that is there longest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bftrain_elastic.wire.agent_messages import CopyHeld, CopyServing, DropCopy
from bftrain_elastic.wire.copy_stream import ROOM
from bftrain_elastic.wire.messages import Message, WireMessage
from bftrain_elastic.wire.worker_messages import CopyPlace

TOGETHER_S: Final = 60.0  # nodes whose agents started within this time joined together
_RETRY_S: Final = 60.0  # a node that refused a state is asked again after this time


@dataclass(eq=False)
class _Server:
    """A node with a copy server."""

    place: CopyPlace
    limit: int
    since: float  # start of its agent
    send: Callable[[WireMessage], None]
    held: dict[str, CopyHeld] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)  # task -> when the node had no room for its state

    def has_room(self, task: str, size: int, now: float) -> bool:
        """Return whether it takes the state of a task."""
        used = ROOM * sum(one.size for one in self.held.values() if one.task != task)
        return 0 < self.limit >= used + ROOM * size and now - self.refused.get(task, -_RETRY_S) >= _RETRY_S


class CopyPlaces:
    """Chooses the copy servers of tasks; ``emit`` receives the steps of their copies, and notes.

    Tasks are given by their identity, which no other task ever has.
    """

    def __init__(self, emit: Callable[[Message], None]) -> None:
        self._emit = emit
        self._servers: dict[str, _Server] = {}
        self._chosen: dict[str, str] = {}  # task -> node
        self._nodes: dict[str, Collection[str]] = {}  # task -> its own nodes
        self._size: dict[str, int] = {}  # task -> size of its state, once it is known
        self._steps: dict[str, int] = {}  # task -> reported step
        self._noted: dict[str, int] = {}  # task -> size in the latest note

    def serves(
        self, node: str, host: str, message: CopyServing, send: Callable[[WireMessage], None], now: float
    ) -> None:
        """Record the copy server of a node, with its copies."""
        self.left(node)
        self._servers[node] = _Server(CopyPlace(host, message.port), message.limit, now - message.age_s, send)
        for held in message.held:
            self.held(node, held, now)

    def held(self, node: str, message: CopyHeld, now: float) -> None:
        """Record that a node has a copy, or no room for it; a copy on another node is not needed any more then."""
        server, task = self._servers.get(node), message.task
        if server is None:
            return
        self._size[task] = message.size
        if message.step < 0:
            server.refused[task] = now
            return
        server.held[task] = message
        if self._chosen.setdefault(task, node) == node:
            for other, one in self._servers.items():
                if other != node and one.held.pop(task, None) is not None:
                    one.send(DropCopy(task))
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
        """Forget a task; its agents drop the copies."""
        for known in (self._chosen, self._nodes, self._size, self._steps, self._noted):
            known.pop(task, None)
        for server in self._servers.values():
            server.held.pop(task, None)
            server.refused.pop(task, None)

    def choose(self, task: str, nodes: Sequence[str], now: float) -> CopyPlace | None:
        """Return where a task on these nodes should send its copies: outside the task, always the same if possible."""
        if self._nodes.get(task) != nodes:
            self._nodes[task] = nodes
            self._tell(task)
        if not self._servers:
            return None
        size, node = self._size.get(task, 0), self._chosen.get(task)
        server = self._servers.get(node or "")
        if node is None or server is None or node in nodes or not server.has_room(task, size, now):
            node = self._best(task, nodes, size, now)
            if node is None:
                self._chosen.pop(task, None)
                return None
            self._chosen[task] = node
        return replace(self._servers[node].place, task=task)

    def _best(self, task: str, nodes: Sequence[str], size: int, now: float) -> str | None:
        """Return the best node for a copy: the oldest that joined at another time.

        On Summit's log the oldest node leaves with the task in 12 % of the losses of all its nodes, any other node
        that joined at another time in 52 %.
        """
        outside = [(node, one) for node, one in self._servers.items() if node not in nodes]
        free = [(node, one) for node, one in outside if one.has_room(task, size, now)]
        if not free:
            most = max((one.limit for _, one in outside), default=0)
            if most and size and self._noted.get(task) != size:
                self._noted[task] = size
                text = f"no copy of its state ({size / 1e6:,.0f} MB) is kept outside the task: no agent has room"
                need = f"agents keep up to {most / 1e6:,.0f} MB (copies_mb), and a state takes twice its size"
                self._emit({"type": "note", "task": task, "text": f"{text}; {need}"})
            return None
        joined = [self._servers[node].since for node in nodes if node in self._servers]

        def rank(named: tuple[str, _Server]) -> tuple[bool, float, str]:
            node, server = named
            together = any(abs(server.since - since) < TOGETHER_S for since in joined)
            return together, server.since, node

        return min(free, key=rank)[0]

    def newest(self, task: str) -> CopyPlace | None:
        """Return where the newest copy of a task is."""
        there = [(one.held[task], replace(one.place, task=task)) for one in self._servers.values() if task in one.held]
        return max(there, key=lambda one: (one[0].lineage, one[0].step))[1] if there else None

    def _tell(self, task: str) -> None:
        """Report the latest step that survives the loss of all nodes of the task, if it changed."""
        own = self._nodes.get(task, ())
        there = [one.held[task] for node, one in self._servers.items() if task in one.held and node not in own]
        newest = max(there, key=lambda one: (one.lineage, one.step), default=None)
        step = 0 if newest is None else newest.step
        if step != self._steps.get(task, 0):
            self._steps[task] = step
            node = next((node for node, one in self._servers.items() if newest in one.held.values()), "")
            self._emit({"type": "copied", "task": task, "step": step, "node": node})
