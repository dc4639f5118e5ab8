"""Inputs of the hub's thread: the agents' connections, authenticated by the secret, and calls of other threads."""

from __future__ import annotations

import os
import resource
import selectors
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Final, TypeVar

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import SpawnWorker
from bftrain_elastic.wire.authenticated_stream import ALIVE, AuthenticatedStream
from bftrain_elastic.wire.messages import Message, WireMessage
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket

# Maximum number of unregistered connections, at most a quarter of the file descriptors. After a restart, all agents of
# a large site connect within half a second.
_STRANGERS: Final = 8192
_ACCEPTS_PER_TURN: Final = 64  # connections accepted before their data is read


@dataclass(eq=False)
class AgentListener:
    """Accepts agents and passes on their messages.

    ``on_message`` is called with each message of an authenticated connection, ``on_lost`` once with the reason when a
    connection has closed.
    """

    selector: selectors.BaseSelector
    secret: bytes
    listen_at: tuple[str, int]
    _: KW_ONLY
    on_message: Callable[[AgentConnection, Message], None]
    on_lost: Callable[[AgentConnection, str], None]

    def __post_init__(self) -> None:
        """Bind the address; connections wait until :meth:`open`."""
        self._socket = socket.create_server(self.listen_at, backlog=1024)
        self._socket.settimeout(0)
        self._connections: dict[AgentConnection, None] = {}
        self._strangers: dict[AgentConnection, None] = {}  # unregistered connections, oldest first
        self._descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._opened = False
        self._look_at = 0.0  # monotonic time
        self._paused_until = 0.0  # monotonic time; 0: connections are accepted
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def open(self) -> None:
        """Accept connections; may be called again."""
        if not self._opened:
            self._opened = True
            self._listen()

    def tick(self, now: float) -> None:
        """Close connections that have been silent longer than their limit, and resume accepting after a pause."""
        if self._paused_until and now >= self._paused_until:
            self._paused_until = 0.0
            self._listen()
        if now < self._look_at:
            return
        self._look_at = now + TIMEOUTS.silence_check_s
        for connection in list(self._connections):
            patience_s = TIMEOUTS.agent_silence_s if connection.node else TIMEOUTS.authentication_s
            if now - connection.heard_at > patience_s:
                connection.ready(selectors.EVENT_READ)  # this process may have been stopped
                if (silent_s := now - connection.heard_at) > patience_s:
                    connection.end(f"no message for {silent_s:.0f} s")

    def end_all(self) -> None:
        """Close all connections."""
        for connection in list(self._connections):
            connection.end("the hub stops")

    def close(self) -> None:
        """Close the socket, after the selector."""
        self._socket.close()

    def _listen(self) -> None:
        self.selector.register(self._socket, selectors.EVENT_READ, lambda _: self._accept_all())

    def _pause(self, error: OSError) -> None:
        """Stop accepting for a moment: the selector would report waiting connections in an endless loop."""
        sys.stderr.write(
            f"bftrain: no agent can connect: {error.strerror}; it is tried again in {TIMEOUTS.accept_retry_s:g} s\n"
        )
        self.selector.unregister(self._socket)
        self._paused_until = time.monotonic() + TIMEOUTS.accept_retry_s

    def _accept_all(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:  # out of file descriptors or memory
                self._pause(error)
                return
            self._greet(accepted)

    def _greet(self, accepted: socket.socket) -> None:
        if len(self._strangers) >= min(_STRANGERS, self._descriptors // 4):  # silent clients must not keep agents out
            next(iter(self._strangers)).end("it did not register, and other clients wait")
        connection = AgentConnection(self.selector, accepted, self.secret, self._arrived, self._lost)
        self._connections[connection] = self._strangers[connection] = None

    def _arrived(self, connection: AgentConnection, data: bytes) -> None:
        try:
            for message in connection.sealed.feed(data):
                connection.heard_at = time.monotonic()
                if message is ALIVE and connection.node:
                    continue  # most messages of a large site
                self.on_message(connection, message)
                if connection.node:
                    self._strangers.pop(connection, None)
        except BadMessage as error:
            connection.end(str(error))
        except Exception:  # noqa: BLE001 - an error with one agent must not end the others
            traceback.print_exc()
            connection.end("its message could not be processed: see the manager's log")

    def _lost(self, connection: AgentConnection, reason: str) -> None:
        self._connections.pop(connection, None)
        self._strangers.pop(connection, None)
        self.on_lost(connection, reason)


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker on an agent's node. ``task`` is "" for a worker that no task accepts: it is being stopped."""

    task: str
    node: str
    slot: int


class AgentConnection(NonblockingSocket):
    """A connection; ``node`` and the following fields are set once the agent has registered."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        accepted: socket.socket,
        secret: bytes,
        on_data: Callable[[AgentConnection, bytes], None],
        on_end: Callable[[AgentConnection, str], None],
    ) -> None:
        super().__init__(selector, accepted, lambda data: on_data(self, data), lambda reason: on_end(self, reason))
        self.sealed = AuthenticatedStream(secret, "manager")
        self.heard_at = time.monotonic()  # time of the latest message, or of the connection
        self.node = ""
        self.identity = (0, "")  # pid and instance of the agent's process
        self.address = ""
        self.slots = 0
        self.noticed = False  # a preemption of its node was announced
        self.left_at = 0.0  # monotonic time of its farewell message; 0: none
        self.workers: dict[str, RunningWorker] = {}
        self.write(self.sealed.greeting)

    def has_room(self, order: SpawnWorker) -> bool:
        """Return whether a worker can start: no other task is here, its slot is free, no preemption is announced."""
        here = self.workers.values()
        return not self.noticed and all(one.task == order.task and one.slot != order.slot for one in here)

    def send(self, message: WireMessage) -> None:
        """Send a message."""
        self.write(self.sealed.seal(message.to_dict()))


R = TypeVar("R")


class ThreadCalls:
    """Calls queued for a thread; ``descriptor`` becomes readable when there are any."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()
        self.descriptor, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def call(self, function: Callable[[], object]) -> None:
        """Schedule ``function`` in the thread."""
        self._calls.append(function)
        with suppress(BlockingIOError):
            os.write(self._woken, b".")

    def ask(self, function: Callable[[], R], timeout_s: float = 60.0) -> R:
        """Run ``function`` in the thread, and return its result. Must not be called in that thread."""
        answer: Future[R] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller receives it
                answer.set_exception(error)

        self.call(run)
        return answer.result(timeout_s)

    def drain(self) -> None:
        """Read all wake-up bytes; in the thread."""
        with suppress(BlockingIOError):
            os.read(self.descriptor, 4096)

    def make_calls(self) -> None:
        """Run all queued calls; called in the thread."""
        while self._calls:
            try:
                self._calls.popleft()()
            except Exception:  # noqa: BLE001 - a failed call must not end the thread
                traceback.print_exc()

    def close_calls(self) -> None:
        """Reject further calls; the thread has stopped."""
        if self._woken >= 0:
            os.close(self.descriptor)
            os.close(self._woken)
            self.descriptor = self._woken = -1
