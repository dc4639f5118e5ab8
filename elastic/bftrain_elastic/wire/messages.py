"""Messages: one JSON object each, of limited length, taken apart with checks."""

from __future__ import annotations

import json
from typing import Any, Final

from bftrain_elastic.errors import BadMessage

Message = dict[str, Any]

PACKET_LIMIT: Final = 64 * 1024  # bytes: between a worker and its agent
LINE_LIMIT: Final = 1024 * 1024  # bytes: between an agent and the manager
GREETING_LIMIT: Final = 4096  # bytes: as long as the other side has not proven who it is


def encode(message: Message, *, limit: int = LINE_LIMIT) -> bytes:
    """Give the JSON of a message, on one line without its end."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > limit:
        raise BadMessage(f"{len(text):,} bytes, and {limit:,} are allowed", where=f"message '{_kind(message)}'")
    return text


def decode(text: bytes) -> Message:
    """Read a message."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadMessage(f"an object is expected, not {type(message).__name__}")
    return message


def text_of(message: Message, field: str) -> str:
    """Give a field that is a string."""
    value = message.get(field)
    if not isinstance(value, str):
        raise BadMessage(f"'{field}' must be a string", where=f"message '{_kind(message)}'")
    return value


def whole_of(message: Message, field: str) -> int:
    """Give a field that is a whole number."""
    value = message.get(field)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadMessage(f"'{field}' must be a whole number", where=f"message '{_kind(message)}'")
    return value


def number_of(message: Message, field: str) -> float:
    """Give a field that is a number."""
    value = message.get(field)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise BadMessage(f"'{field}' must be a number", where=f"message '{_kind(message)}'")
    return float(value)


def inner_of(message: Message, field: str) -> Message:
    """Give a field that is itself a message."""
    value = message.get(field)
    if not isinstance(value, dict):
        raise BadMessage(f"'{field}' must be an object", where=f"message '{_kind(message)}'")
    return value


def inners_of(message: Message, field: str) -> list[Message]:
    """Give a field that is a list of messages; an empty one where there is none."""
    value = message.get(field, [])
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadMessage(f"'{field}' must be a list of objects", where=f"message '{_kind(message)}'")
    return value


def texts_of(message: Message, field: str) -> list[str]:
    """Give a field that is a list of strings."""
    value = message.get(field)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadMessage(f"'{field}' must be a list of strings", where=f"message '{_kind(message)}'")
    return value


def environment_of(message: Message, field: str) -> dict[str, str]:
    """Give a field that maps names of the environment to strings."""
    value = inner_of(message, field)
    if not all(isinstance(one, str) for one in value.values()):
        raise BadMessage(f"'{field}' must map names to strings", where=f"message '{_kind(message)}'")
    return value


class MessageLines:
    """Cuts what arrives into lines, none longer than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        self._rest += data

    def next(self) -> bytes | None:
        """Give the next whole line without its end, or nothing if it has not come yet."""
        end = self._rest.find(b"\n")
        if (len(self._rest) if end < 0 else end) > self.limit:
            raise BadMessage(f"a line of more than {self.limit:,} bytes")
        if end < 0:
            return None
        line, self._rest = self._rest[:end], self._rest[end + 1 :]
        return line


def _kind(message: Message) -> str:
    return str(message.get("type") or "?")
