"""The link: an agent's connection to its manager, made again and again for as long as the agent has patience.

A manager welcomes the agent with its epoch, which rises with each start of the manager. An agent that has obeyed a
manager refuses all that were started before it, and carries out nothing that comes before a welcome.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Final

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from bftrain_elastic.wire.messages import Message, whole_of
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket

_HEARTBEAT_S: Final = 1.0
_RETRY_S: Final = 0.5
_CONNECT_S: Final = 0.15  # nothing else happens meanwhile, and a SIGTERM has to be answered within 0.2 s


class ManagerLink:
    """Hands what the manager says to ``on_message``; ``on_greeted`` is called when there is a manager again."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        manager: tuple[str, int],
        secret: bytes,
        *,
        on_message: Callable[[Message], None],
        on_greeted: Callable[[], None],
        note: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._manager = manager
        self._secret = secret
        self._on_message = on_message
        self._on_greeted = on_greeted
        self._note = note
        self._wire: NonblockingSocket | None = None
        self._sealed = AuthenticatedStream(secret, "agent")
        self._connect_at = 0.0
        self._beat_at = 0.0
        self._welcome = False  # it knows the secret, we do too, and it is not older than the one before
        self._refused = 0  # the epoch of the manager that was refused last
        self.epoch = 0  # of the newest manager that was obeyed
        self._lost_at = time.monotonic()
        self.trouble = ""  # why there is no manager

    @property
    def next_at(self) -> float:
        """When there is something to do next."""
        return self._connect_at if self._wire is None else self._beat_at

    @property
    def welcomed(self) -> bool:
        """Whether there is a manager."""
        return self._wire is not None and self._welcome

    @property
    def alone_s(self) -> float:
        """For how long there has been no manager."""
        return 0.0 if self.welcomed else time.monotonic() - self._lost_at

    def on_time(self) -> None:
        """Connect if there is no connection, or say that we live."""
        now = time.monotonic()
        if now < self.next_at:
            return
        if self._wire is None:
            self._connect_at = now + _RETRY_S
            self._connect()
        else:
            self._beat_at = now + _HEARTBEAT_S
            self.say({"type": "alive"})

    def say(self, message: Message) -> None:
        """Send to the manager, if there is one: a later manager asks for the state."""
        if self._wire is not None and self._sealed.greeted:
            self._wire.send(self._sealed.seal(message))

    def _connect(self) -> None:
        try:
            connection = socket.create_connection(self._manager, timeout=_CONNECT_S)
        except OSError as error:
            self.trouble = f"{self._manager[0]}:{self._manager[1]}: {error.strerror or error}"
            return
        self._sealed = AuthenticatedStream(self._secret, "agent")
        self._wire = NonblockingSocket(self._selector, connection, self._arrived, self._lost)
        self._wire.send(self._sealed.greeting)

    def _arrived(self, data: bytes) -> None:
        stranger = not self._sealed.greeted
        try:
            for message in self._sealed.feed(data):
                self._heard(message)
                if self._wire is None:  # it is refused
                    return
        except BadMessage as error:
            self._note(f"manager: {error}")
            if self._wire is not None:
                self._wire.end(str(error))
            return
        if stranger and self._sealed.greeted:
            self._on_greeted()

    def _heard(self, message: Message) -> None:
        if message.get("type") == "welcome":
            epoch = whole_of(message, "epoch") if "epoch" in message else 1
            if epoch < self.epoch:
                self._refuse(epoch)
                return
            self._welcome, self._refused, self.epoch = True, 0, epoch
        elif not self._welcome:
            raise BadMessage("it gives orders before it welcomed us")
        self._on_message(message)

    def _refuse(self, epoch: int) -> None:
        """Send an older manager away: another one has taken its place, and knows more."""
        if self._refused != epoch:  # once is enough
            self._refused = epoch
            self._note(f"manager: it is number {epoch}, and number {self.epoch} was obeyed: it is refused")
        if self._wire is not None:
            self._wire.end("it is older than the manager before")

    def _lost(self, reason: str) -> None:
        if self._welcome:
            self._lost_at = time.monotonic()
            self.trouble = reason
        elif self._refused:
            self.trouble = f"it is older than the manager before: number {self._refused}, not {self.epoch}"
        elif self._sealed.greeted:
            self.trouble = "it does not let us in; has it the same secret?"
        self._wire, self._welcome = None, False
