"""AuthenticatedStream: lines with a MAC, keyed by the secret of a run, a file that only its owner can read."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Final, Literal

from bftrain_elastic.errors import BadMessage, BadSecret
from bftrain_elastic.wire.agent_messages import Alive
from bftrain_elastic.wire.messages import GREETING_LIMIT, LINE_LIMIT, Message, MessageLines, decode, encode, text_of

BYTES: Final = 32
_NEW: Final = "remove this file; bftrain live makes a new one when it starts"  # fix for an unusable secret
_NONCE_BYTES: Final = 16
_MAC_DIGITS: Final = 64
ALIVE: Final[Message] = Alive().to_dict()  # the message that :meth:`AuthenticatedStream.feed` yields for this text
ALIVE_TEXT: Final = encode(ALIVE)


def make_secret(path: Path) -> bytes:
    """Write a new secret to ``path``, which must not exist yet, and return it."""
    secret = secrets.token_bytes(BYTES)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, secret.hex().encode() + b"\n")
    finally:
        os.close(file)
    return secret


def read_private(path: Path) -> str:
    """Read the text in ``path``; raise if other users can read or write the file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            about = os.fstat(file)
            text = os.read(file, 4096)
        finally:
            os.close(file)
    except OSError as error:
        fix = f"pass the file that bftrain live made (a regular file of yours, no link), or {_NEW}"
        raise BadSecret(f"cannot be read: {error.strerror}", where=str(path), fix=fix) from error
    if about.st_uid != os.getuid():
        raise BadSecret("belongs to another user", where=str(path), fix=_NEW)
    if stat.S_IMODE(about.st_mode) & 0o077:
        raise BadSecret("other users than its owner can read or write it", where=str(path), fix=f"chmod 600 {path}")
    return text.decode(errors="replace").strip()


def read_secret(path: Path) -> bytes:
    """Read the secret in ``path``; raise if other users can read or write the file."""
    try:
        secret = bytes.fromhex(read_private(path))
    except ValueError as error:
        raise BadSecret("is not hexadecimal", where=str(path), fix=_NEW) from error
    if len(secret) != BYTES:
        raise BadSecret(f"has {len(secret)} bytes instead of {BYTES}", where=str(path), fix=_NEW)
    return secret


# Sealing: both sides of a connection know a secret, and every line proves it.
#
# Each side starts with a nonce. The secret and both nonces determine a key for each direction, and each line carries
# the MAC of its number and its text. So messages cannot be forged, changed, left out, repeated, or sent back.

Side = Literal["agent", "manager"]


class AuthenticatedStream:
    """One side of a connection: converts received bytes to messages, and messages to bytes to send."""

    def __init__(self, secret: bytes, side: Side) -> None:
        self._secret = secret
        self.side: Side = side
        self._nonce = secrets.token_hex(_NONCE_BYTES)
        self._lines = MessageLines(GREETING_LIMIT)
        self._out: Callable[[bytes], bytes] | None = None
        self._in: Callable[[bytes], bytes] | None = None

    @property
    def greeting(self) -> bytes:
        """The bytes that must be sent first."""
        return encode({"nonce": self._nonce}) + b"\n"

    @property
    def greeted(self) -> bool:
        """Whether the other side's nonce has arrived, so that messages can be sent."""
        return self._out is not None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add received bytes, and yield the complete messages with a valid MAC."""
        for line in self._lines.feed(data):
            if self._in is None:
                self._greet(text_of(decode(line), "nonce"))
                continue
            mac, _, text = line.partition(b" ")
            if not hmac.compare_digest(mac, self._in(text)):
                raise BadMessage("a line is not sealed with this run's secret")
            message = ALIVE if text == ALIVE_TEXT else decode(text)
            self._lines.limit = LINE_LIMIT  # the peer is authenticated now
            yield message

    def seal(self, message: Message) -> bytes:
        """Return the line to send for a message."""
        return self.seal_text(encode(message, limit=LINE_LIMIT - _MAC_DIGITS - 2))

    def seal_text(self, text: bytes) -> bytes:
        """Return the line to send for an encoded message."""
        if self._out is None:
            raise BadMessage("a message was sent before the other side's greeting")
        return b"%b %b\n" % (self._out(text), text)

    def _greet(self, theirs: str) -> None:
        if len(theirs) != 2 * _NONCE_BYTES:
            raise BadMessage("the greeting is no nonce")
        agent, manager = (self._nonce, theirs) if self.side == "agent" else (theirs, self._nonce)
        keys = {
            side: hmac.digest(self._secret, f"bftrain {side} {agent} {manager}".encode(), sha256)
            for side in ("agent", "manager")
        }
        self._out = _line_macs(keys[self.side])
        self._in = _line_macs(keys["manager" if self.side == "agent" else "agent"])


def _line_macs(key: bytes) -> Callable[[bytes], bytes]:
    """Return a function that computes the MAC of each line in one direction, including its number."""
    counted, keyed = count(), hmac.new(key, digestmod=sha256)

    def mac_of(text: bytes) -> bytes:
        line = keyed.copy()  # half the time of starting with the key each time
        line.update(b"%d %b" % (next(counted), text))
        return line.hexdigest().encode()

    return mac_of
