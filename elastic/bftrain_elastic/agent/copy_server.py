"""The copy server of an agent: keeps copies of the states of tasks on other nodes, in its memory.

It is a process of its own, so that large copies neither delay the agent nor end it when memory is short. It tells the
agent which copies it has; workers connect to it directly.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bftrain_elastic.agent.prefork_server import NOTICES
from bftrain_elastic.agent.process_tree import die_with
from bftrain_elastic.errors import BadMessage
from bftrain_elastic.timeouts import TIMEOUTS
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
    digest_of_all,
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
from bftrain_elastic.worker.checkpoint_file import fits_in_memory

_CONNECTIONS: Final = 256


@dataclass(eq=False, slots=True)
class _Copy:
    state: CopyState = field(default_factory=CopyState)
    size: int = 0
    pieces: tuple[tuple[bytearray, str], ...] = ()  # pieces and their digests
    spares: dict[int, bytearray] = field(default_factory=dict)  # memory for later pieces of these numbers

    def reuse(self, old: _Copy) -> None:
        """Reuse the memory of the previous copy: allocating memory takes longer than transferring a piece."""
        kept = {id(content) for content, _ in self.pieces}
        freed = {number: one for number, (one, _) in enumerate(old.pieces) if id(one) not in kept}
        self.spares = old.spares | freed


@dataclass(eq=False, slots=True)
class _Incoming:
    """A state that arrives: the pieces that differ from ``base``."""

    put: PutCopy
    base: _Copy
    spares: dict[int, bytearray]
    stream: CopyStream
    left: int  # bytes that may still arrive
    pieces: dict[int, tuple[bytearray, str]] = field(default_factory=dict)

    def receive(self, piece: CopyPiece) -> None:
        """Receive a piece."""
        if not 0 < piece.size <= self.left:
            raise BadMessage("the copy is larger than announced")
        self.left -= piece.size
        content = self.stream.piece(piece.size, self.spares.pop(piece.number, None))
        self.pieces[piece.number] = content, piece.digest  # the reader checks the digest, to save CPU time here

    def complete(self, end: EndCopy) -> _Copy:
        """Return the new copy."""
        by_number = dict(enumerate(self.base.pieces)) | self.pieces
        try:
            pieces = tuple(by_number[number] for number in range(end.pieces))
        except KeyError as error:
            raise BadMessage("a piece of the copy is missing") from error
        size = sum(len(content) for content, _ in pieces)
        if size > self.put.size or digest_of_all(digest for _, digest in pieces) != end.digest:
            raise BadMessage("the copy is not the announced one")
        state = CopyState(self.put.lineage, self.put.step, secrets.token_hex(16), end.digest)
        return _Copy(state, size, pieces)


class CopyServer:
    """Accepts workers, and keeps their copies within ``limit`` bytes."""

    def __init__(self, agent: socket.socket, address: str, secret: bytes, limit: int) -> None:
        self._agent, self._secret, self._limit = agent, secret, limit
        self._listener = socket.create_server((address, 0))
        self._lock = threading.Lock()  # guards the copies, also those that arrive
        self._copies: dict[str, _Copy] = {}
        self._incoming: dict[str, _Incoming] = {}
        self._readers = Counter[str]()  # connections that read the copy of a task
        self._telling = threading.Lock()  # guards the socket of the agent
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)

    def run(self) -> None:
        """Serve until the agent exits."""
        self._tell(messages.PreforkWarm())  # the agent waits for it, as for the message of a prefork server
        port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        self._tell(messages.CopyServing(port, self._limit))
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
                            self._cancel(task)
                            if self._copies.pop(task, None) is not None:
                                self._tell(messages.CopyDropped(task))

    def _tell(self, message: WireMessage) -> None:
        with self._telling, suppress(OSError):  # the agent has exited
            self._agent.sendall(encode(message.to_dict()) + b"\n")

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the server ends, or has no file descriptors left
                time.sleep(TIMEOUTS.copy_accept_retry_s)
                continue
            try:
                if self._slots.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                else:
                    connection.close()
            except RuntimeError:  # no thread can be started now
                connection.close()
                self._slots.release()

    def _serve(self, connection: socket.socket) -> None:
        stream = CopyStream(connection)
        authentication_limit = threading.Timer(TIMEOUTS.authentication_s, stream.abort)
        task = ""
        try:
            authentication_limit.start()
            task = text_of(decode(stream.line(GREETING_LIMIT)), "task")
            stream.greet(copy_key(self._secret, task), "manager")  # name of the accepting side
            message = stream.receive()
            authentication_limit.cancel()  # the first message proves the key
            connection.settimeout(TIMEOUTS.copy_idle_s)
            while True:
                self._on_message(stream, task, message)
                message = stream.receive()
        except (OSError, ValueError, BadMessage, MemoryError, RuntimeError):  # the worker connects again
            pass
        finally:
            authentication_limit.cancel()
            with self._lock:
                if task in self._incoming and self._incoming[task].stream is stream:
                    del self._incoming[task]
            stream.close()
            self._slots.release()

    def _on_message(self, stream: CopyStream, task: str, message: WireMessage) -> None:
        incoming = self._incoming.get(task)
        if isinstance(message, CopyPiece | EndCopy) and (incoming is None or incoming.stream is not stream):
            raise BadMessage("a piece that no copy expects")
        match message:
            case PutCopy():
                stream.send(self._begin(stream, task, message))
            case CopyPiece() if incoming is not None:
                incoming.receive(message)
            case EndCopy() if incoming is not None:
                stream.send(self._take(task, incoming, message))
            case GetCopy():
                self._give(stream, task)

    def _begin(self, stream: CopyStream, task: str, put: PutCopy) -> CopyState | CopyRefused:
        """Reserve memory for a state; return the current copy, or a refusal with its reason."""
        needed = ROOM * put.size
        with self._lock:
            present, other = self._copies.get(task, _Copy()), self._incoming.get(task)
            newest = max(_version(present.state), _version(other.put) if other is not None else (0, -1))
            if _version(put) < newest:
                return CopyRefused("a newer state of this task is here")
            self._cancel(task, unless=stream)
            reserved = self._reserved(task)
            too_large = sum(map(self._reserved, {*self._copies, *self._incoming})) - reserved + needed > self._limit
            if not too_large and (needed <= reserved or fits_in_memory(needed - reserved)):
                base = present if put.base == present.state.name else _Copy()
                self._incoming[task] = _Incoming(put, base, present.spares, stream, put.size)
                return present.state
        self._tell(messages.CopyHeld(task, put.lineage, -1, put.size))  # step -1: no room for it
        return CopyRefused("the copies would exceed the agent's limit" if too_large else "this node is short of memory")

    def _reserved(self, task: str) -> int:
        """Return the bytes that are reserved for a task."""
        copy, incoming = self._copies.get(task), self._incoming.get(task)
        return ROOM * max(copy.size if copy else 0, incoming.put.size if incoming else 0)

    def _cancel(self, task: str, unless: CopyStream | None = None) -> None:
        """Free the received part of a task's next copy, and cut its connection, ``unless`` it is this one."""
        if (incoming := self._incoming.pop(task, None)) is not None:
            incoming.pieces = {}
            if incoming.stream is not unless:
                incoming.stream.abort()

    def _take(self, task: str, incoming: _Incoming, end: EndCopy) -> CopyState:
        copy = incoming.complete(end)
        with self._lock:
            if self._incoming.get(task) is not incoming:
                raise BadMessage("the copy was dropped, or another one replaces it")
            del self._incoming[task]
            if not self._readers[task]:  # otherwise a connection still sends pieces of the previous copy
                copy.reuse(self._copies.get(task, _Copy()))
            self._copies[task] = copy
            # The agent learns of copies in their order
            self._tell(messages.CopyHeld(task, copy.state.lineage, copy.state.step, copy.size))
        return copy.state

    def _give(self, stream: CopyStream, task: str) -> None:
        with self._lock:
            copy = self._copies.get(task, _Copy())
            self._readers[task] += 1
        try:
            stream.send(copy.state)
            for number, (piece, digest) in enumerate(copy.pieces):
                stream.send(CopyPiece(number, len(piece), digest), piece)
            stream.send(CopyPiece(len(copy.pieces), 0))
        finally:
            with self._lock:
                self._readers -= Counter([task])  # also removes it at 0


def _version(one: CopyState | PutCopy) -> tuple[int, int]:
    return one.lineage, one.step


def serve(descriptor: int, agent_pid: int, *, address: str, secret: bytes, limit: int) -> None:
    """Run a copy server on its side of the agent's socket."""
    die_with(agent_pid)
    for number in (signal.SIGINT, *NOTICES):  # the agent decides when to exit
        signal.signal(number, signal.SIG_IGN)
    CopyServer(socket.socket(fileno=descriptor), address, secret, limit).run()
    os._exit(0)  # its threads wait for workers
