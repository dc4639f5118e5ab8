"""The copy of the state outside the task: sent to a copy server in the background, and read back after all nodes left.

Rank 0 sends it from its latest in-memory copy, so training waits for that copy only. Pieces that did not change are not
sent again. Large pieces that change each time are sent without a comparison, except once in a while.
"""

from __future__ import annotations

import io
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from bftrain_elastic.errors import BadCommit, BadMessage
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.wire.copy_stream import (
    PIECE_BYTES,
    SMALL_BYTES,
    CopyPiece,
    CopyRefused,
    CopyState,
    CopyStream,
    EndCopy,
    GetCopy,
    PutCopy,
    content_digest,
    digest_of,
    digest_of_all,
)
from bftrain_elastic.wire.messages import encode
from bftrain_elastic.wire.worker_messages import NO_STEP, CopyPlace, SendCopies
from bftrain_elastic.worker import checkpoint_file
from bftrain_elastic.worker.checkpoint_file import BackgroundJob, SavedCommit
from bftrain_elastic.worker.process_groups import aside
from bftrain_elastic.worker.state_tree import StateTree

_INTERVAL_S: Final = 1.0  # minimum time between the starts of two copies
_PAUSE: Final = 0.25  # pause after a copy, as a multiple of its duration: a fifth of the link stays free
_COPIES_BETWEEN_COMPARISONS: Final = 16  # copies after which a large piece that changes each time is compared again
_LONGEST_RETRY_S: Final = 60.0
_CONNECT_S: Final = 3.0


class SentPiece(NamedTuple):
    """A piece at the server: its digest, and its SHA-256 for comparisons; "" for large ones that change each time."""

    digest: str = ""
    content: str = ""

    def followed_by(self, piece: Any, *, compare: bool) -> SentPiece:  # noqa: ANN401 - any bytes
        """Return the piece to send, or this one if it did not change.

        A large piece with no SHA-256 counts as changed; with ``compare`` it gets one, so the next copy can compare it.
        """
        small = len(piece) <= SMALL_BYTES
        content = content_digest(piece) if compare or small or self.content else ""
        if content and content == self.content:
            return self
        return SentPiece(digest_of(piece), content if small or not self.content else "")


class Sending(BackgroundJob):
    """One attempt to send a copy. Any thread may abandon it: nothing is sent after that."""

    _stream: CopyStream | None = None

    def use(self, stream: CopyStream) -> None:
        """Send over this connection."""
        self._stream = stream
        self.raise_if_stopped()

    def abandon(self) -> None:
        """Stop the attempt without waiting for its thread; the state may change after that."""
        self.stop(0)
        if self._stream is not None:
            self._stream.abort()


class OutsideCopy:
    """Sends the copies of one worker. ``aim`` is called by another thread, when the manager has chosen a server."""

    def __init__(self) -> None:
        self.place: CopyPlace | None = None
        self.step = NO_STEP  # latest step that the server confirmed
        self._due_at = 0.0
        self._retry = RetryDelay(_INTERVAL_S, _LONGEST_RETRY_S)
        self._stored: tuple[str, list[SentPiece]] = ("", [])  # name of the copy that the server has, and its pieces
        self._round = 0  # number of copies so far
        self._sending = Sending()

    def aim(self, order: SendCopies) -> None:
        """Send later copies to the server that the manager chose."""
        self.place, self.step, self._due_at = order.copy, NO_STEP, 0.0
        self._retry = RetryDelay(_INTERVAL_S, _LONGEST_RETRY_S)

    @property
    def due(self) -> bool:
        """Whether a copy should be sent."""
        now = time.monotonic()
        return self.place is not None and not self.busy and now >= self._due_at and not self._retry.waits(now)

    @property
    def busy(self) -> bool:
        """Whether a copy is being sent."""
        return self._sending.busy

    def holds(self, tree: object) -> bool:
        """Return whether a tree is being sent."""
        return self._sending.holds(tree)

    def start(self, tree: StateTree, step: int, lineage: int) -> None:
        """Send a copy in a thread; the tree must not change until it is sent or abandoned."""
        sending = Sending()
        try:
            sending.start(partial(self.send, tree, step, lineage, sending), tree)
        except RuntimeError:  # no thread can be started now
            self._retry.failed(time.monotonic())
        else:
            self._sending = sending

    def abandon(self) -> None:
        """Stop sending, without waiting; the tree may change after that."""
        self._sending.abandon()
        self._sending = Sending()

    def send(self, tree: StateTree, step: int, lineage: int, sending: Sending) -> None:
        """Send a copy, and wait until the server has confirmed it. A failure only delays the next copy."""
        place, retry, began = self.place, self._retry, time.monotonic()
        if place is None:
            return
        try:
            self._send(place, tree, step, lineage, sending)
        except Exception as error:  # noqa: BLE001 - torch raises RuntimeError if memory is short, for example
            if sending.stopped:
                return
            retry.failed(time.monotonic())
            if not isinstance(error, OSError | BadMessage):
                sys.stderr.write(f"bftrain: no copy of the state was sent: {type(error).__name__}: {error}\n")
        else:
            retry.succeeded()
            ended = time.monotonic()
            self._due_at = max(began + _INTERVAL_S, ended + _PAUSE * (ended - began))
            if place is self.place:
                self.step = step

    def _send(self, place: CopyPlace, tree: StateTree, step: int, lineage: int, sending: Sending) -> None:
        header, (base, before) = checkpoint_file.header_of(tree, step, lineage), self._stored
        self._round += 1
        sent: list[SentPiece] = []
        with connect(place, sending.use) as stream, aside(tree):
            stream.send(PutCopy(lineage, step, len(header) + tree.size, base))
            if _confirmed(stream).name != base:  # the server has another copy
                before = []
            for number, piece in enumerate(_pieces(chain(_cut(header), checkpoint_file.parts_of(tree, PIECE_BYTES)))):
                sending.raise_if_stopped()
                compare = (self._round + number) % _COPIES_BETWEEN_COMPARISONS == 0
                old = before[number] if number < len(before) else SentPiece()
                new = old.followed_by(piece, compare=compare)
                if new is not old:
                    stream.send(CopyPiece(number, len(piece), new.digest), piece)
                sent.append(new)
            stream.send(EndCopy(len(sent), digest_of_all(one.digest for one in sent)))
            self._stored = _confirmed(stream).name, sent


def fetch(place: CopyPlace, newer_than: tuple[int, int], moved: Callable[[int], object]) -> SavedCommit | None:
    """Return the copy at a server if its lineage and step are newer; ``moved`` is called with the bytes so far."""
    with connect(place) as stream:
        stream.send(GetCopy())
        state, digests = _confirmed(stream), list[str]()
        if state.step < 0 or (state.lineage, state.step) <= newer_than:
            return None
        where = f"the copy at {place.host}"
        with io.BufferedReader(_Content(_received(stream, digests, moved)), PIECE_BYTES) as file:
            commit = checkpoint_file.read(file, where)
            rest = file.read(1)
        version = commit.lineage, commit.step
        if rest or version != (state.lineage, state.step) or digest_of_all(digests) != state.digest:
            raise BadCommit("is damaged", where=where)
        return commit


@contextmanager
def connect(place: CopyPlace, use: Callable[[CopyStream], object] = lambda _: None) -> Iterator[CopyStream]:
    """Connect to a copy server, and prove the task's key; ``use`` receives the connection before anything is sent."""
    stream = CopyStream(socket.create_connection((place.host, place.port), timeout=_CONNECT_S))
    try:
        use(stream)
        stream.greet(bytes.fromhex(place.key), "agent", encode({"task": place.task}) + b"\n")
        yield stream
    finally:
        stream.close()


def _confirmed(stream: CopyStream) -> CopyState:
    answer = stream.receive()
    if isinstance(answer, CopyRefused):
        raise BadMessage(answer.reason)
    if not isinstance(answer, CopyState):
        raise BadMessage("the copy server sent an unexpected message")
    return answer


def _cut(header: bytes) -> list[bytes]:
    return [header[at : at + SMALL_BYTES] for at in range(0, len(header), SMALL_BYTES)]


def _pieces(parts: Iterable[Any]) -> Iterator[Any]:
    """Yield parts in pieces: a large part, or several small ones together."""
    together = bytearray()
    for part in parts:
        if together and len(together) + len(part) > SMALL_BYTES:
            yield together
            together = bytearray()
        if len(part) > SMALL_BYTES:
            yield part
        else:
            together += part
    if together:
        yield together


def _received(stream: CopyStream, digests: list[str], moved: Callable[[int], object]) -> Iterator[bytearray]:
    """Yield the pieces of a copy as they arrive; add their digests to ``digests``."""
    received = 0
    while True:
        message = stream.receive()
        if not isinstance(message, CopyPiece) or message.number != len(digests):
            raise BadMessage("a piece of the copy is missing")
        if not message.size:
            return
        piece = stream.piece(message.size)
        if digest_of(piece) != message.digest:
            raise BadCommit("is damaged", where=f"piece {message.number} of the copy")
        digests.append(message.digest)
        received += len(piece)
        moved(received)
        yield piece


class _Content(io.RawIOBase):
    """The content of pieces, as a file."""

    def __init__(self, pieces: Iterator[bytearray]) -> None:
        super().__init__()
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        """Return True: it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable bytes
        """Read some bytes; 0 at the end."""
        self._rest = self._rest or memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
