"""The copy of the state outside the task: sent to a copy server in the background, and read back after all nodes left.

Rank 0 sends it from its latest in-memory copy, so training waits for that copy only. Pieces that did not change are not
sent again.
"""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
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
)
from bftrain_elastic.wire.worker_messages import CopyPlace, SendCopies
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.checkpoint_file import SavedCommit
from bftrain_elastic.worker.process_groups import aside
from bftrain_elastic.worker.state_tree import StateTree, size_of

_PAUSE_S: Final = 1.0  # least pause between two copies, and at least as long as sending takes: half the link is free
_LONGEST_RETRY_S: Final = 60.0
_CONNECT_S: Final = 3.0
_TOGETHER_BYTES: Final = 1024 * 1024  # smaller parts travel together
_NO_STEP: Final = -1


class OutsideCopy:
    """Sends the copies of one worker. ``aim`` is called by another thread, when the manager has chosen a server."""

    def __init__(self) -> None:
        self.place: CopyPlace | None = None
        self.step = _NO_STEP  # latest step that the server confirmed
        self._due_at = 0.0
        self._retry = RetryDelay(_PAUSE_S, _LONGEST_RETRY_S)
        self._stream: CopyStream | None = None
        self._connected: CopyPlace | None = None
        self._digests: list[str] = []  # digests of the pieces that the server has

    def aim(self, order: SendCopies) -> None:
        """Send later copies to the server that the manager chose."""
        self.place, self.step, self._due_at, self._retry = order.copy, _NO_STEP, 0.0, RetryDelay(1.0, _LONGEST_RETRY_S)

    @property
    def due(self) -> bool:
        """Whether a copy should be sent."""
        now = time.monotonic()
        return self.place is not None and now >= self._due_at and not self._retry.waits(now)

    def send(self, tree: StateTree, step: int, lineage: int, go_on: Callable[[], object]) -> None:
        """Send a copy, and wait until the server has confirmed it; ``go_on`` may raise to stop."""
        place, retry, began = self.place, self._retry, time.monotonic()
        if place is None:
            return
        try:
            self._send(place, tree, step, lineage, go_on)
        except (OSError, BadMessage):
            self.close()
            retry.failed(time.monotonic())
        except BaseException:  # it was stopped
            self.close()
            raise
        else:
            retry.succeeded()
            ended = time.monotonic()
            self._due_at = ended + max(_PAUSE_S, ended - began)
            if place is self.place:
                self.step = step

    def _send(self, place: CopyPlace, tree: StateTree, step: int, lineage: int, go_on: Callable[[], object]) -> None:
        if self._stream is None or self._connected is not place:
            self.close()
            self._stream, self._connected = connect(place), place
        stream, header = self._stream, checkpoint_file.header_of(tree, step, lineage)
        stream.go_on = go_on
        stream.send(PutCopy(lineage, step, len(header) + size_of(tree)))
        if _confirmed(stream).step != self.step:  # the server lost the copy
            self._digests = []
        before, after = self._digests, []
        with aside(tree):
            for number, piece in enumerate(_pieces(chain(_cut(header), checkpoint_file.parts_of(tree, PIECE_BYTES)))):
                go_on()
                after.append(digest_of(piece))
                if before[number : number + 1] != after[-1:]:
                    stream.send(CopyPiece(number, len(piece), after[-1]), piece)
        stream.send(EndCopy(len(after)))
        _confirmed(stream)
        self._digests = after

    def close(self) -> None:
        """Close the connection; the next copy is sent as a whole."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._connected, self._digests = None, None, []


def fetch(place: CopyPlace, newer_than: tuple[int, int], moved: Callable[[int], object]) -> SavedCommit | None:
    """Return the copy at a server, if its lineage and step are newer; ``moved`` is called with the received bytes."""
    stream = connect(place)
    try:
        stream.send(GetCopy())
        found = _confirmed(stream)
        if found.step < 0 or (found.lineage, found.step) <= newer_than:
            return None
        with io.BufferedReader(_Received(stream, moved), PIECE_BYTES) as file:
            return checkpoint_file.read(file, f"the copy at {place.host}")
    finally:
        stream.close()


def connect(place: CopyPlace) -> CopyStream:
    """Connect to a copy server, and prove the task's key."""
    stream = CopyStream(socket.create_connection((place.host, place.port), timeout=_CONNECT_S))
    try:
        stream.send_plain(json.dumps({"task": place.task}).encode())
        stream.greet(bytes.fromhex(place.key), "agent")
    except BaseException:
        stream.close()
        raise
    return stream


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
        self._number, self._bytes = 0, 0
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
        if not isinstance(message, CopyPiece) or message.number != self._number:
            raise BadMessage("a piece of the copy is missing")
        piece = self._stream.piece(message.size)
        if piece and digest_of(piece) != message.digest:
            raise BadCommit("is damaged", where=f"piece {message.number} of the copy")
        self._number, self._bytes = self._number + 1, self._bytes + len(piece)
        self._moved(self._bytes)
        return piece
