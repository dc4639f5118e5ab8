"""One connection of the manager with the agent at its other end, and the workers that run there."""

from __future__ import annotations

from dataclasses import dataclass, field

from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker on an agent's node; one without a task belongs to no launcher, and is to end."""

    task: str | None
    slot: int


@dataclass(eq=False)
class AgentConnection:
    """One connection; ``node`` and what follows from it are known once the agent has registered."""

    sealed: AuthenticatedStream
    since: float
    wire: NonblockingSocket | None = None
    node: str = ""
    address: str = ""
    slots: int = 0
    heard_at: float = 0.0
    noticed: bool = False  # its node will be taken soon
    workers: dict[str, RunningWorker] = field(default_factory=dict)

    def say(self, message: Message) -> None:
        """Send a message."""
        if self.wire is not None:
            self.wire.send(self.sealed.seal(message))

    def end(self, reason: str) -> None:
        """Close the connection."""
        if self.wire is not None:
            self.wire.end(reason)
