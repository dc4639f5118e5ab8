"""Connections of an agent: to its manager, with reconnects until the agent gives up, and to its workers.

A manager welcomes the agent with its epoch, which rises with each start of the manager. An agent that has obeyed a
manager rejects all older ones, and closes a connection that sends orders before a welcome.
"""

from __future__ import annotations

import math
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import FROM_MANAGER, AgentRefused, Alive, Welcome
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from bftrain_elastic.wire.messages import PACKET_LIMIT, Message, WireMessage, decode, encode, read_message, text_of
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket
from bftrain_elastic.worker.agent_channel import is_ours


@dataclass(eq=False)
class ManagerLink:
    """Passes the manager's messages to ``on_message``.

    ``on_greeted`` is called once per connection, when messages can be sent: the agent then registers, and the manager
    welcomes it. ``note`` prints a line.
    """

    selector: selectors.BaseSelector
    manager: tuple[str, int]
    secret: bytes
    _: KW_ONLY
    on_message: Callable[[WireMessage], None]
    on_greeted: Callable[[], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        """Start without a connection."""
        self._wire: NonblockingSocket | None = None
        self._sealed = AuthenticatedStream(self.secret, "agent")
        self._connect_at = 0.0
        self._beat_at = 0.0
        self._welcomed = False  # both sides have proven the secret, and the manager is not older than the previous one
        self._rejected_epoch = 0  # epoch of the latest rejected manager
        self.welcome = Welcome(epoch=0)  # sent by the newest obeyed manager
        self._lost_at = self._alive_at = time.monotonic()
        self.silent = False  # the manager was lost because nothing arrived: it may run on behind a broken network
        self.trouble = ""  # reason for the missing manager

    @property
    def next_at(self) -> float:
        """The monotonic time of the next action."""
        return self._connect_at if self._wire is None else min(self._beat_at, self._silent_at)

    @property
    def welcomed(self) -> bool:
        """Whether a manager has welcomed the agent."""
        return self._wire is not None and self._welcomed

    @property
    def alone_s(self) -> float:
        """The seconds since the manager was lost; 0 while welcomed."""
        return 0.0 if self.welcomed else time.monotonic() - self._lost_at

    @property
    def _silent_at(self) -> float:
        silence_s = self.welcome.silence_s
        return math.inf if silence_s is None or not self._welcomed else self._alive_at + silence_s

    def on_time(self) -> None:
        """Connect if there is no connection, or send a heartbeat; drop a silent manager."""
        now = time.monotonic()
        if now < self.next_at:
            return
        wire = self._wire
        if wire is not None and now >= self._silent_at:
            wire.ready(selectors.EVENT_READ)  # messages may be waiting: this process may have been stopped
            if now >= self._silent_at:
                self.silent = True
                wire.end(f"no sign of life for {self.welcome.silence_s:g} s")
        if self._wire is None:
            self._connect_at = now + TIMEOUTS.connect_retry_s
            self._connect()
        elif now >= self._beat_at:
            self.send(Alive())

    def send(self, message: WireMessage) -> None:
        """Send to the manager if it is connected: a lost message is no harm, the next manager gets the whole state."""
        self._beat_at = time.monotonic() + TIMEOUTS.heartbeat_s  # any message counts as a heartbeat
        if self._wire is not None and self._sealed.greeted:
            self._wire.write(self._sealed.seal(message.to_dict()))

    def pause(self, reason: str, seconds: float) -> None:
        """Close the connection, and connect again later."""
        self._connect_at = time.monotonic() + seconds
        if self._wire is not None:
            self._wire.end(reason)

    def _connect(self) -> None:
        try:
            connection = socket.create_connection(self.manager, timeout=TIMEOUTS.connect_s)
        except OSError as error:
            self.trouble = f"{self.manager[0]}:{self.manager[1]}: {error.strerror or error}"
            return
        self._sealed = AuthenticatedStream(self.secret, "agent")
        self._wire = NonblockingSocket(self.selector, connection, self._arrived, self._lost)
        self._wire.write(self._sealed.greeting)

    def _arrived(self, data: bytes) -> None:
        was_greeted = self._sealed.greeted
        try:
            for message in self._sealed.feed(data):
                self._on_manager_message(message)
                if self._wire is None:  # the manager was rejected
                    return
        except BadMessage as error:
            self.note(f"manager: {error}")
            if self._wire is not None:
                self._wire.end(str(error))
            return
        if self._sealed.greeted and not was_greeted:
            self.on_greeted()

    def _on_manager_message(self, plain: Message) -> None:
        message = read_message(FROM_MANAGER, plain)
        if isinstance(message, Welcome):
            if message.epoch < self.welcome.epoch:  # a later manager has replaced this one
                if self._rejected_epoch != message.epoch:  # report this once
                    self._rejected_epoch = message.epoch
                    newer = f"this agent has obeyed a manager of epoch {self.welcome.epoch}"
                    self.note(f"manager of epoch {message.epoch} rejected: {newer}")
                if self._wire is not None:
                    self._wire.end("this manager is older than the last one")
                return
            self._welcomed, self._rejected_epoch, self.welcome = True, 0, message
            self.silent, self.trouble = False, ""
            self._alive_at = time.monotonic()
        elif not self._welcomed and not isinstance(message, AgentRefused):
            raise BadMessage("it sent orders before its welcome")
        elif isinstance(message, Alive):
            self._alive_at = time.monotonic()
        if message is None:
            self.note(f"the manager sent '{plain.get('type')}', which this version does not know")
        else:
            self.on_message(message)

    def _lost(self, reason: str) -> None:
        if self._welcomed:
            self._lost_at = time.monotonic()
            self.trouble = reason
        elif self._rejected_epoch:
            last = f"the last one ({self.welcome.epoch})"
            self.trouble = f"a manager of epoch {self._rejected_epoch}, older than {last}, was rejected"
        elif self._sealed.greeted:
            self.trouble = "it rejects this agent; does it use the same secret?"
        self._wire, self._welcomed = None, False


@dataclass(eq=False)
class WorkerSocket:
    """Passes workers' messages to ``on_message``, with the worker's name. ``is_known`` validates names."""

    selector: selectors.BaseSelector
    _: KW_ONLY
    is_known: Callable[[str], bool]
    on_message: Callable[[str, Message], None]
    note: Callable[[str], None]

    def __post_init__(self) -> None:
        """Listen."""
        self._connections: dict[socket.socket, str] = {}  # a connection has no name before its first message
        self.name = f"bftrain-agent-{secrets.token_hex(16)}"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.settimeout(0)
        self._listener.bind(f"\0{self.name}")  # an abstract name needs no file, and disappears with this process
        self._listener.listen(64)
        self.selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept_all())

    def send(self, worker: str, message: Message) -> None:
        """Send a message to a worker, if it is connected."""
        for connection in [one for one, name in self._connections.items() if name == worker]:
            try:
                connection.send(encode(message, limit=PACKET_LIMIT), socket.MSG_DONTWAIT)
            except OSError as error:
                self.note(f"{worker} does not receive: {error}")

    def drain(self, worker: str) -> None:
        """Read all remaining messages of a worker that has exited."""
        self._accept_all()
        for connection in [one for one, name in self._connections.items() if name in {"", worker}]:
            while connection in self._connections and self._arrived(connection):
                pass

    def _accept_all(self) -> None:
        try:
            while True:
                self._add_connection(self._listener.accept()[0])
        except (BlockingIOError, ConnectionError):
            pass
        except OSError:  # no file descriptor is free: the selector would report the waiting worker endlessly
            time.sleep(TIMEOUTS.worker_accept_s)

    def _add_connection(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        if not is_ours(connection):
            connection.close()
            return
        self._connections[connection] = ""
        self.selector.register(connection, selectors.EVENT_READ, lambda _: self._arrived(connection))

    def _arrived(self, connection: socket.socket) -> bool:
        """Read one packet; return whether there was one, and there may be more."""
        if connection not in self._connections:  # closed while other workers were served
            return False
        try:
            packet = connection.recv(PACKET_LIMIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            packet = b""
        if not packet:
            self.selector.unregister(connection)
            self._connections.pop(connection, None)
            connection.close()
            return False
        try:
            name, message = self._connections[connection], decode(packet)
            if message.get("type") == "hello":
                name = text_of(message, "worker")
                if self.is_known(name):
                    self._connections[connection] = name
            elif name:
                self.on_message(name, message)
        except BadMessage as error:
            self.note(f"{self._connections[connection] or 'a worker'}: {error}")
        return True
