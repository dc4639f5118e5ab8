"""The copy of the state outside the task: sent to a copy server in the background, and read back after all nodes left.

Rank 0 sends it from its latest in-memory copy, so training waits for that copy only. Pieces that did not change are not
sent again.
"""

from __future__ import annotations

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final

from bftrain_elastic.errors import BadCommit, BadMessage
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.wire.copy_stream import (
    PIECE_BYTES,
    CopyPiece,
    CopyRefused,
    CopyState,
    CopyStream,
    EndCopy,
    GetCopy,
    PutCopy,
    digest_of,
    digest_of_all,
)
from bftrain_elastic.wire.worker_messages import CopyPlace, SendCopies
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.background_save import SavingStopped
from bftrain_elastic.worker.checkpoint_file import SavedCommit
from bftrain_elastic.worker.process_groups import aside
from bftrain_elastic.worker.state_tree import StateTree, size_of

_PAUSE_S: Final = 1.0  # least pause between two copies, and at least as long as sending takes: half the link is free
_LONGEST_RETRY_S: Final = 60.0
_CONNECT_S: Final = 3.0
_TOGETHER_BYTES: Final = 1024 * 1024  # smaller parts travel together
_NO_STEP: Final = -1


class Sending:
    """One attempt to send a copy. Any thread may abandon it: nothing is sent after that."""

    def __init__(self) -> None:
        self.abandoned = False
        self._stream: CopyStream | None = None
        self._lock = threading.Lock()

    def use(self, stream: CopyStream) -> None:
        """Send over this connection."""
        with self._lock:
            self._stream = stream
        stream.go_on = self.go_on
        self.go_on()

    def go_on(self) -> None:
        """Raise :class:`SavingStopped` if the attempt was abandoned."""
        if self.abandoned:
            raise SavingStopped

    def abandon(self) -> None:
        """End the attempt, and free the state."""
        with self._lock:
            self.abandoned = True
            if self._stream is not None:
                self._stream.abort()


class OutsideCopy:
    """Sends the copies of one worker. ``aim`` is called by another thread, when the manager has chosen a server."""

    def __init__(self) -> None:
        self.place: CopyPlace | None = None
        self.step = _NO_STEP  # latest step that the server confirmed
        self._due_at = 0.0
        self._retry = RetryDelay(_PAUSE_S, _LONGEST_RETRY_S)
        self._stored: tuple[str, list[str]] = ("", [])  # name of the copy that the server has, digests of its pieces
        self._sending: tuple[Sending, threading.Thread, StateTree] | None = None

    def aim(self, order: SendCopies) -> None:
        """Send later copies to the server that the manager chose."""
        self.place, self.step, self._due_at, self._retry = order.copy, _NO_STEP, 0.0, RetryDelay(1.0, _LONGEST_RETRY_S)

    @property
    def due(self) -> bool:
        """Whether a copy should be sent."""
        now = time.monotonic()
        return self.place is not None and not self.busy and now >= self._due_at and not self._retry.waits(now)

    @property
    def busy(self) -> bool:
        """Whether a copy is being sent."""
        return self._sending is not None and self._sending[1].is_alive()

    def holds(self, tree: object) -> bool:
        """Return whether a tree is being sent."""
        return self._sending is not None and self.busy and self._sending[2] is tree

    def start(self, tree: StateTree, step: int, lineage: int) -> None:
        """Send a copy in a thread; the tree must not change until it is sent or abandoned."""
        sending = Sending()
        thread = threading.Thread(
            target=self.send, args=(tree, step, lineage, sending), name="bftrain-copying", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no thread can be started now
            self._retry.failed(time.monotonic())
        else:
            self._sending = sending, thread, tree

    def abandon(self) -> None:
        """Stop sending, without waiting; the tree may change after that."""
        if self._sending is not None:
            self._sending[0].abandon()
        self._sending = None

    def send(self, tree: StateTree, step: int, lineage: int, sending: Sending) -> None:
        """Send a copy, and wait until the server has confirmed it. A failure is never one of the training."""
        place, retry, began = self.place, self._retry, time.monotonic()
        if place is None:
            return
        try:
            self._send(place, tree, step, lineage, sending)
        except SavingStopped:
            return
        except Exception as error:  # noqa: BLE001 - such as of a lack of memory, which torch raises as RuntimeError
            if sending.abandoned:
                return
            retry.failed(time.monotonic())
            if not isinstance(error, OSError | BadMessage):
                sys.stderr.write(f"bftrain: no copy of the state was sent: {type(error).__name__}: {error}\n")
        else:
            retry.succeeded()
            ended = time.monotonic()
            self._due_at = ended + max(_PAUSE_S, ended - began)
            if place is self.place:
                self.step = step

    def _send(self, place: CopyPlace, tree: StateTree, step: int, lineage: int, sending: Sending) -> None:
        header, (base, before) = checkpoint_file.header_of(tree, step, lineage), self._stored
        digests: list[str] = []
        with connect(place, sending.use) as stream, aside(tree):
            stream.send(PutCopy(lineage, step, len(header) + size_of(tree), base))
            if _confirmed(stream).name != base:  # the server has another copy
                before = []
            for number, piece in enumerate(_pieces(chain(_cut(header), checkpoint_file.parts_of(tree, PIECE_BYTES)))):
                sending.go_on()
                digests.append(digest_of(piece))
                if before[number : number + 1] != digests[-1:]:
                    stream.send(CopyPiece(number, len(piece), digests[-1]), piece)
            stream.send(EndCopy(len(digests), digest_of_all(digests)))
            self._stored = _confirmed(stream).name, digests


def fetch(place: CopyPlace, newer_than: tuple[int, int], moved: Callable[[int], object]) -> SavedCommit | None:
    """Return the copy at a server, if its lineage and step are newer; ``moved`` is called with the received bytes."""
    with connect(place) as stream:
        stream.send(GetCopy())
        found = _confirmed(stream)
        if found.step < 0 or (found.lineage, found.step) <= newer_than:
            return None
        where, received = f"the copy at {place.host}", _Received(stream, moved)
        with io.BufferedReader(received, PIECE_BYTES) as file:
            commit = checkpoint_file.read(file, where)
            rest = file.read(1)
        version = commit.lineage, commit.step
        if rest or version != (found.lineage, found.step) or digest_of_all(received.digests) != found.digest:
            raise BadCommit("is damaged", where=where)
        return commit


@contextmanager
def connect(place: CopyPlace, use: Callable[[CopyStream], object] = lambda _: None) -> Iterator[CopyStream]:
    """Connect to a copy server, and prove the task's key; ``use`` receives the connection before anything is sent."""
    stream = CopyStream(socket.create_connection((place.host, place.port), timeout=_CONNECT_S))
    try:
        use(stream)
        stream.send_plain(json.dumps({"task": place.task}).encode())
        stream.greet(bytes.fromhex(place.key), "agent")
        yield stream
    finally:
        stream.close()


def _confirmed(stream: CopyStream) -> CopyState:
    answer = stream.receive()
    if isinstance(answer, CopyRefused):
        raise BadMessage(answer.reason)
    if not isinstance(answer, CopyState):
        raise BadMessage("an answer without a request")
    return answer


def _cut(header: bytes) -> list[bytes]:
    return [header[at : at + PIECE_BYTES] for at in range(0, len(header), PIECE_BYTES)]


def _pieces(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield parts in pieces: a large part, or several small ones together."""
    together = bytearray()
    for part in parts:
        if len(part) < _TOGETHER_BYTES:
            together += part
        if together and (len(part) >= _TOGETHER_BYTES or len(together) >= _TOGETHER_BYTES):
            yield together
            together = bytearray()
        if len(part) >= _TOGETHER_BYTES:
            yield part
    if together:
        yield together


class _Received(io.RawIOBase):
    """The content of a copy, as it arrives."""

    def __init__(self, stream: CopyStream, moved: Callable[[int], object]) -> None:
        super().__init__()
        self._stream, self._moved = stream, moved
        self.digests: list[str] = []  # digests of the received pieces
        self._bytes = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable bytes
        """Read some bytes; 0 at the end."""
        if not self._rest:
            self._rest = memoryview(self._next())
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _next(self) -> bytearray:
        message = self._stream.receive()
        if not isinstance(message, CopyPiece) or message.number != len(self.digests):
            raise BadMessage("a piece of the copy is missing")
        piece = self._stream.piece(message.size)
        if piece and digest_of(piece) != message.digest:
            raise BadCommit("is damaged", where=f"piece {message.number} of the copy")
        if piece:
            self.digests.append(message.digest)
        self._bytes += len(piece)
        self._moved(self._bytes)
        return piece
