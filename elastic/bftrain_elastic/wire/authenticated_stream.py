"""Sealing: both sides of a connection know a secret, and every line proves it.

Each side begins with a nonce. From the secret and both nonces a key for each direction is made, and each line bears
the MAC of its number and its text. So nothing can be forged, changed, left out, repeated, or sent back.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, Literal

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.messages import GREETING_LIMIT, LINE_LIMIT, Message, MessageLines, decode, encode, text_of

Side = Literal["agent", "manager"]

_NONCE_BYTES: Final = 16
_MAC_DIGITS: Final = 64


class AuthenticatedStream:
    """One side's view of a connection: bytes that arrive become messages, messages become bytes to send."""

    def __init__(self, secret: bytes, side: Side) -> None:
        self._secret = secret
        self._side: Side = side
        self._nonce = secrets.token_hex(_NONCE_BYTES)
        self._lines = MessageLines(GREETING_LIMIT)
        self._out: _Direction | None = None
        self._in: _Direction | None = None

    @property
    def greeting(self) -> bytes:
        """What must be sent first."""
        return encode({"nonce": self._nonce}) + b"\n"

    @property
    def greeted(self) -> bool:
        """Whether the other side's nonce has come, so that messages can be sealed."""
        return self._out is not None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take in what arrived, and give the messages that are whole and rightly sealed."""
        self._lines.feed(data)
        while (line := self._lines.next()) is not None:
            if self._in is None:
                self._greet(text_of(decode(line), "nonce"))
                continue
            message = decode(self._in.opened(line))
            self._lines.limit = LINE_LIMIT  # now it is known who talks
            yield message

    def seal(self, message: Message) -> bytes:
        """Give the line to send for a message."""
        if self._out is None:
            raise BadMessage("nothing can be sealed before the other side has greeted")
        return self._out.closed(encode(message, limit=LINE_LIMIT - _MAC_DIGITS - 2))

    def _greet(self, theirs: str) -> None:
        if len(theirs) != 2 * _NONCE_BYTES:
            raise BadMessage("the greeting is no nonce")
        agent, manager = (self._nonce, theirs) if self._side == "agent" else (theirs, self._nonce)
        keys = {
            side: hmac.digest(self._secret, f"bftrain {side} {agent} {manager}".encode(), sha256)
            for side in ("agent", "manager")
        }
        self._out = _Direction(keys[self._side])
        self._in = _Direction(keys["manager" if self._side == "agent" else "agent"])


class _Direction:
    """The lines that go one way, counted."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def closed(self, text: bytes) -> bytes:
        return self._mac(text) + b" " + text + b"\n"

    def opened(self, line: bytes) -> bytes:
        mac, _, text = line.partition(b" ")
        if not hmac.compare_digest(mac, self._mac(text)):
            raise BadMessage("a line is not sealed with this run's secret")
        return text

    def _mac(self, text: bytes) -> bytes:
        mac = hmac.digest(self._key, b"%d " % self._count + text, sha256).hex().encode()
        self._count += 1
        return mac
