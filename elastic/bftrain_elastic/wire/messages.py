"""Messages: frozen dataclasses, each sent as one JSON object of limited length, checked on receipt."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from bftrain_elastic.errors import BadMessage

Message = dict[str, Any]
Texts = tuple[str, ...]
Environment = dict[str, str]
# Values from users' scripts: bounds of numbers, and the length to which texts are cut
Count = Annotated[int, 0, 2**63 - 1]
Size = Annotated[int, 1, 2**63 - 1]
Port = Annotated[int, 1, 65535]
NotNegative = Annotated[float, 0.0, math.inf]
ShortText = Annotated[str, 300]

PACKET_LIMIT: Final = 64 * 1024  # bytes: between a worker and its agent
LINE_LIMIT: Final = 1024 * 1024  # bytes: between an agent and the manager
GREETING_LIMIT: Final = 4096  # bytes, before the other side is authenticated


def encode(message: Message, *, limit: int = LINE_LIMIT) -> bytes:
    """Return the JSON of a message on one line, with no line break."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > limit:
        raise BadMessage(
            f"{len(text):,} bytes exceed the limit of {limit:,}", where=f"message '{message.get('type') or '?'}'"
        )
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
    """Return a field that must be a string."""
    value = message.get(field)
    if not isinstance(value, str):
        raise BadMessage(f"'{field}' must be a string", where=f"message '{message.get('type') or '?'}'")
    return value


class MessageLines:
    """Splits received bytes into lines of up to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes; yield the complete lines, stripped of line breaks."""
        self._rest += data
        while True:
            end = self._rest.find(b"\n")
            if (len(self._rest) if end < 0 else end) > self.limit:
                raise BadMessage(f"a line of more than {self.limit:,} bytes")
            if end < 0:
                return
            line, self._rest = self._rest[:end], self._rest[end + 1 :]
            yield line


@dataclass_transform(frozen_default=True)
class WireMessage:
    """Base of the messages between processes, which are frozen dataclasses.

    A direction is a subclass without a ``name``, and its messages are subclasses of it: only they may arrive there.
    Names are unique in each direction. Subclasses become dataclasses automatically.
    """

    type: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str = "", kw_only: bool = False) -> None:
        cls.type = name
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def to_dict(self) -> Message:
        """Return the JSON object."""
        return {"type": self.type, **asdict(self)}  # type: ignore[call-overload]  # each subclass is a dataclass

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Self:
        """Return the checked message of a JSON object; ignores fields that this version does not know."""
        values = {}
        for name, hint, default in _fields_of(cls):  # type: ignore[arg-type]  # classes are hashable
            value = message.get(name, None if default is MISSING else default)
            try:
                values[name] = _converted(value, hint)
            except TypeError as error:
                kind = _options(hint)[0].__name__
                raise BadMessage(f"'{name}' must be a valid {kind}", where=f"message '{cls.type}'") from error
            except BadMessage as error:
                raise BadMessage(f"'{name}': {error.what}", where=f"message '{cls.type}'") from error
        return cls(**values)


def read_message(kinds: Mapping[str, type[WireMessage]], message: Message) -> WireMessage | None:
    """Return a checked message of one of these kinds; ``None`` if this version does not know its type."""
    what = message.get("type")
    kind = kinds.get(what) if isinstance(what, str) else None
    return None if kind is None else kind.read(message)


def by_type(direction: type[WireMessage]) -> Mapping[str, type[WireMessage]]:
    """Return the messages of one direction, which are its direct subclasses, by their type."""
    return {kind.type: kind for kind in direction.__subclasses__()}


@cache
def _fields_of(kind: type[WireMessage]) -> list[tuple[str, Any, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(one.name, hints[one.name], one.default) for one in fields(kind)]  # type: ignore[arg-type]  # each subclass is a dataclass


def _converted(value: Any, hint: Any) -> Any:  # noqa: ANN401 - any value of JSON, and any type of a field
    """Return a JSON value as the type of a field, ``hint``; raise ``TypeError`` if it does not fit."""
    for option in _options(hint):
        parts = get_args(option)
        if get_origin(option) is Annotated:
            if _fits(value, parts[0]) and (parts[0] is str or parts[1] <= value <= parts[2]):
                return value[: parts[1]] if parts[0] is str else value
        elif isinstance(option, type) and issubclass(option, WireMessage):
            if isinstance(value, dict | WireMessage):
                return value if isinstance(value, WireMessage) else option.read(value)
        elif get_origin(option) is tuple and isinstance(value, list | tuple):
            kinds = parts[:1] * len(value) if parts[-1] is Ellipsis else parts
            if len(kinds) == len(value):
                return tuple(_converted(one, kind) for one, kind in zip(value, kinds, strict=True))
        elif _fits(value, option):
            return value
    raise TypeError


def _options(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any type of a field
    return get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)


def _fits(value: object, kind: Any) -> bool:  # noqa: ANN401 - any type of a field
    if get_origin(kind) is dict:
        each = get_args(kind)[1]
        return isinstance(value, dict) and (each is Any or all(isinstance(one, each) for one in value.values()))
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind is int:
        return isinstance(value, int) and abs(value) < 2**63
    if kind is float:
        return (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind)
