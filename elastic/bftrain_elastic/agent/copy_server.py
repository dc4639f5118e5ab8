"""The copy server of an agent: keeps copies of the states of tasks on other nodes, in its memory.

It is a process of its own, so that large copies neither delay the agent nor end it when memory is short. It tells the
agent which copies it has; workers connect to it directly.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bftrain_elastic.agent.prefork_server import NOTICES
from bftrain_elastic.agent.process_tree import die_with
from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire import agent_messages as messages
from bftrain_elastic.wire.copy_stream import (
    ROOM,
    CopyPiece,
    CopyRefused,
    CopyState,
    CopyStream,
    EndCopy,
    GetCopy,
    PutCopy,
    copy_key,
)
from bftrain_elastic.wire.messages import (
    GREETING_LIMIT,
    LINE_LIMIT,
    MessageLines,
    WireMessage,
    decode,
    encode,
    read_message,
    text_of,
)
from bftrain_elastic.worker.background_save import fits_in_memory

_CONNECTIONS: Final = 256
_PAUSE_S: Final = 0.1  # pause after a failed accept
_STRANGER_S: Final = 5.0  # time limit of authentication
_IDLE_S: Final = 600.0  # a worker that sends nothing for so long connects again


@dataclass(frozen=True, slots=True)
class _Copy:
    lineage: int = 0
    step: int = -1
    size: int = 0
    pieces: tuple[bytearray, ...] = ()
    digests: tuple[str, ...] = ()


@dataclass(slots=True)
class _Incoming:
    """A state that arrives: the pieces that changed."""

    lineage: int
    step: int
    left: int  # bytes that may still arrive
    pieces: dict[int, tuple[bytearray, str]] = field(default_factory=dict)

    def complete(self, count: int, before: _Copy) -> _Copy:
        """Return the new copy of ``count`` pieces."""
        found = []
        for number in range(count):
            if number not in self.pieces and number >= len(before.pieces):
                raise BadMessage(f"piece {number} of the copy is missing")
            old = (before.pieces[number], before.digests[number]) if number not in self.pieces else None
            found.append(old or self.pieces[number])
        size = sum(len(piece) for piece, _ in found)
        return _Copy(self.lineage, self.step, size, tuple(one for one, _ in found), tuple(two for _, two in found))


class CopyServer:
    """Accepts workers, and keeps their copies within ``limit`` bytes."""

    def __init__(self, agent: socket.socket, address: str, secret: bytes, limit: int) -> None:
        self._agent, self._secret, self._limit = agent, secret, limit
        self._listener = socket.create_server((address, 0))
        self._lock = threading.Lock()  # guards the copies and the socket of the agent
        self._copies: dict[str, _Copy] = {}
        self._room: dict[str, int] = {}  # reserved bytes by task
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)

    def run(self) -> None:
        """Serve until the agent exits."""
        self._tell(messages.PreforkWarm())
        self._tell(messages.CopyServing(self._listener.getsockname()[1], self._limit))
        threading.Thread(target=self._accept, daemon=True).start()
        with suppress(ConnectionError), self._agent:  # the agent may exit with unread messages
            self._follow()
        with suppress(OSError), self._listener:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the other thread

    def _follow(self) -> None:
        lines = MessageLines(LINE_LIMIT)
        while data := self._agent.recv(65536):
            for line in lines.feed(data):
                match read_message(messages.TO_PREFORK, decode(line)):
                    case messages.DropCopy(task=task):
                        with self._lock:
                            self._copies.pop(task, None)
                            self._room.pop(task, None)

    def _tell(self, message: WireMessage) -> None:
        with self._lock, suppress(OSError):  # the agent has exited
            self._agent.sendall(encode(message.to_dict()) + b"\n")

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the server ends, or has no file descriptors left
                time.sleep(_PAUSE_S)
                continue
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        stream = CopyStream(connection)
        try:
            stream.patience_s = _STRANGER_S
            task = text_of(decode(stream.line(GREETING_LIMIT)), "task")
            stream.greet(copy_key(self._secret, task), "manager")
            incoming: _Incoming | None = None
            while True:
                message = stream.receive()
                stream.patience_s = _IDLE_S  # the worker is authenticated
                incoming = self._on_message(stream, task, message, incoming)
        except (OSError, BadMessage, MemoryError):  # the worker connects again
            pass
        finally:
            stream.close()
            self._slots.release()

    def _on_message(
        self, stream: CopyStream, task: str, message: WireMessage, incoming: _Incoming | None
    ) -> _Incoming | None:
        match message:
            case PutCopy(lineage=lineage, step=step, size=size):
                present, reason = self._reserve(task, message)
                if reason:
                    stream.send(CopyRefused(reason))
                    return None
                stream.send(CopyState(present.lineage, present.step))
                return _Incoming(lineage, step, size)
            case CopyPiece(number=number, size=size, digest=digest) if incoming is not None and size <= incoming.left:
                incoming.left -= size
                incoming.pieces[number] = (stream.piece(size), digest)
                return incoming
            case EndCopy(pieces=count) if incoming is not None:
                self._take(task, incoming, count)
                stream.send(CopyState(incoming.lineage, incoming.step))
                return None
            case GetCopy():
                self._give(stream, task)
                return None
        raise BadMessage("a piece that no copy expects")

    def _reserve(self, task: str, put: PutCopy) -> tuple[_Copy, str]:
        """Reserve memory for a state; return the present copy, and the reason if that is impossible."""
        needed = ROOM * put.size
        with self._lock:
            present, reserved = self._copies.get(task, _Copy()), self._room.get(task, 0)
            if (put.lineage, put.step) < (present.lineage, present.step):
                return present, "a newer state of this task is here"
            others = sum(self._room.values()) - reserved
            too_large = others + needed > self._limit
            if not (too_large or (needed > reserved and not fits_in_memory(needed - reserved))):
                self._room[task] = needed
                return present, ""
            if present.step < 0:
                self._room.pop(task, None)
        self._tell(messages.CopyHeld(task, put.lineage, -1, put.size))
        return present, "the copies would exceed the agent's limit" if too_large else "this node is short of memory"

    def _take(self, task: str, incoming: _Incoming, count: int) -> None:
        with self._lock:
            copy = incoming.complete(count, self._copies.get(task, _Copy()))
            if ROOM * copy.size > self._room.get(task, 0):
                raise BadMessage("the copy was dropped, or is larger than announced")
            self._copies[task] = copy
        self._tell(messages.CopyHeld(task, copy.lineage, copy.step, copy.size))

    def _give(self, stream: CopyStream, task: str) -> None:
        with self._lock:
            copy = self._copies.get(task, _Copy())
        stream.send(CopyState(copy.lineage, copy.step))
        for number, (piece, digest) in enumerate(zip(copy.pieces, copy.digests, strict=True)):
            stream.send(CopyPiece(number, len(piece), digest), piece)
        stream.send(CopyPiece(len(copy.pieces), 0))


def serve(descriptor: int, agent_pid: int, *, address: str, secret: bytes, limit: int) -> None:
    """Run a copy server on its side of the agent's socket."""
    die_with(agent_pid)
    for number in (signal.SIGINT, *NOTICES):  # the agent decides when to exit
        signal.signal(number, signal.SIG_IGN)
    CopyServer(socket.socket(fileno=descriptor), address, secret, limit).run()
    os._exit(0)  # its threads wait for workers
