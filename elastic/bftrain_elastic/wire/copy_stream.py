"""CopyStream: the connection of a worker to a copy server, which keeps a state in memory on a node outside the task.

A copy is the content of a state file, cut into pieces. The sealed messages carry the digest of each piece, and the
piece itself follows its message unsealed. Each task has its own key, made from the run's secret: agents pass it to
their workers, and it never travels between nodes.

Small pieces, which contain the structure of the state, have SHA-256 digests. Large pieces contain only numbers of
tensors, which workers exchange without MACs, too: a CRC finds damage in a third of the time.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final
from zlib import crc32

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream, Side
from bftrain_elastic.wire.messages import GREETING_LIMIT, LINE_LIMIT, Count, WireMessage, by_type, read_message

PIECE_BYTES: Final = 4 * 1024 * 1024  # limit of a piece
SMALL_BYTES: Final = 1024 * 1024  # limit of pieces with the structure of a state, and of parts that travel together
ROOM: Final = 2  # memory for a state, as a multiple of its size: the old copy is kept until the new one is complete


class ToServer(WireMessage):
    """A message to a copy server."""


class FromServer(WireMessage):
    """A message from a copy server."""


class PutCopy(ToServer, name="put"):
    """Replace the copy by a state of ``size`` bytes; only the pieces that differ from the copy ``base`` follow."""

    lineage: Count
    step: Count
    size: Count
    base: str = ""


class CopyPiece(ToServer, FromServer, name="piece"):
    """A piece of a copy; its bytes follow. A piece of 0 bytes completes a requested copy."""

    number: Count
    size: Count
    digest: str = ""


class EndCopy(ToServer, name="end"):
    """The state consists of ``pieces`` pieces; unchanged pieces were not sent. ``digest`` is that of all pieces."""

    pieces: Count
    digest: str


class GetCopy(ToServer, name="get"):
    """Request the copy."""


class CopyState(FromServer, name="copy"):
    """The copy server has this copy; ``step`` -1: none. ``name`` is random: the server gives each copy a new one."""

    lineage: int = 0
    step: int = -1
    name: str = ""
    digest: str = ""


class CopyRefused(FromServer, name="refused"):
    """The copy server does not keep this state."""

    reason: str


TO_SERVER: Final = by_type(ToServer)
FROM_SERVER: Final = by_type(FromServer)


def copy_key(secret: bytes, task: str) -> bytes:
    """Return the key of a task's copies."""
    return hmac.digest(secret, f"bftrain copy of {task}".encode(), sha256)


def digest_of(piece: Any) -> str:  # noqa: ANN401 - any bytes
    """Return the digest of a piece: SHA-256 for a small one, CRC-32 for a large one."""
    return content_digest(piece) if len(piece) <= SMALL_BYTES else f"{crc32(piece):08x}"


def content_digest(piece: Any) -> str:  # noqa: ANN401 - any bytes
    """Return the SHA-256 of a piece, by which two pieces are known to be equal."""
    return sha256(piece).hexdigest()


def digest_of_all(digests: Iterable[str]) -> str:
    """Return the digest of a copy, from the digests of its pieces."""
    return content_digest("".join(digests).encode())


class CopyStream:
    """One side of the connection."""

    _sealed: AuthenticatedStream  # set by the greeting

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(TIMEOUTS.copy_silence_s)
        self.connection = connection
        self._file = connection.makefile("rb")

    def greet(self, key: bytes, side: Side, hello: bytes = b"") -> None:
        """Send a line ``hello`` and prove the key to the other side, which proves it with its first message."""
        self._sealed = AuthenticatedStream(key, side)
        self.connection.sendall(hello + self._sealed.greeting)
        list(self._sealed.feed(self.line(GREETING_LIMIT) + b"\n"))  # the first line is no message

    def send(self, message: WireMessage, piece: Any = b"") -> None:  # noqa: ANN401 - any bytes
        """Send a message, and the bytes that follow it."""
        self.connection.sendall(self._sealed.seal(message.to_dict()))
        self.connection.sendall(piece)

    def receive(self) -> WireMessage:
        """Return the next message."""
        kinds = TO_SERVER if self._sealed.side == "manager" else FROM_SERVER
        while True:
            for plain in self._sealed.feed(self.line(LINE_LIMIT) + b"\n"):
                if (message := read_message(kinds, plain)) is not None:
                    return message

    def line(self, limit: int) -> bytes:
        """Return the next line."""
        line = self._file.readline(limit)
        if not line.endswith(b"\n"):
            raise (
                ConnectionError("the other side closed the connection")
                if len(line) < limit
                else BadMessage(f"a line of more than {limit:,} bytes")
            )
        return line[:-1]

    def piece(self, size: int, room: bytearray | None = None) -> bytearray:
        """Return the bytes that follow a message, in ``room`` if it has their size: new memory takes longer."""
        if size > PIECE_BYTES:
            raise BadMessage(f"a piece of {size:,} bytes exceeds the limit of {PIECE_BYTES:,}")
        piece = room if room is not None and len(room) == size else bytearray(size)
        if self._file.readinto(piece) != size:
            raise ConnectionError("the other side closed the connection")
        return piece

    def abort(self) -> None:
        """Cut the connection; the thread that uses it gets an error. Callable from any thread."""
        with suppress(OSError):  # it is closed already
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.connection.close()
