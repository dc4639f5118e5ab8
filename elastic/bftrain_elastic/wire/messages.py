"""Messages: one JSON object each, of limited length, validated on receipt.

A :class:`TypedMessage` is a frozen value with checked fields; :func:`checked` validates messages of users' scripts.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import (
    Any,
    ClassVar,
    Final,
    NoReturn,
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
Messages = tuple[Message, ...]
Environment = dict[str, str]

PACKET_LIMIT: Final = 64 * 1024  # bytes: between a worker and its agent
LINE_LIMIT: Final = 1024 * 1024  # bytes: between an agent and the manager
GREETING_LIMIT: Final = 4096  # bytes, before the other side is authenticated


def encode(message: Message, *, limit: int = LINE_LIMIT) -> bytes:
    """Return the JSON of a message as one line, without the line end."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(text) > limit:
        raise BadMessage(
            f"{len(text):,} bytes, and {limit:,} are allowed", where=f"message '{message.get('type') or '?'}'"
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
    return str(_field(message, field, str))


def whole_of(message: Message, field: str) -> int:
    """Return a field that must be an integer."""
    return int(_field(message, field, int))


def inner_of(message: Message, field: str) -> Message:
    """Return a field that must be a message itself."""
    found: Message = _field(message, field, Message)
    return found


def _field(message: Message, field: str, kind: object) -> Any:  # noqa: ANN401 - of that kind
    right, what = _CHECKS[kind]
    if not right(message.get(field)):
        raise BadMessage(f"'{field}' must be {what}", where=f"message '{message.get('type') or '?'}'")
    return message[field]


class MessageLines:
    """Splits received bytes into lines of at most ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes; yield the complete lines, without line ends."""
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
class TypedMessage:
    """Base of the messages between processes: frozen values, each with a ``type`` that is unique in its table.

    They are used like frozen dataclasses, but are none: creating those for all messages takes 10 ms, at each start of
    an agent.
    """

    type: ClassVar[str]
    _fields: ClassVar[tuple[str, ...]]
    _defaults: ClassVar[Mapping[str, Any]]

    def __init_subclass__(cls, *, name: str, kw_only: bool = False) -> None:
        """Read the fields of a message from its annotations; ``name`` is its type, ``kw_only`` is for type checkers."""
        cls.type, cls._fields = name, tuple(vars(cls).get("__annotations__", ()))
        cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}

    def __init__(self, *values: Any, **named: Any) -> None:  # noqa: ANN401 - the fields of any message
        given = {**self._defaults, **dict(zip(self._fields, values, strict=False)), **named}
        if len(values) > len(self._fields) or given.keys() != set(self._fields):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self._fields) or '(none)'}")
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a {type(self).__name__} cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # some fields are dicts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields of any message
        """Return a copy with some fields changed."""
        return type(self)(**vars(self) | changes)

    def to_dict(self) -> Message:
        """Return the JSON object."""
        return {"type": self.type, **{name: getattr(self, name) for name in self._fields}}

    @classmethod
    def read(cls, message: Message) -> Self:
        """Return the message of a JSON object; fields that this version does not know are ignored."""
        checks = cls._checks()
        found = {}
        for name in cls._fields:
            if name not in message and name in cls._defaults:
                continue
            right, what = checks[name]
            value = message.get(name)
            if not right(value):
                raise BadMessage(f"'{name}' must be {what}", where=f"message '{cls.type}'")
            found[name] = tuple(value) if isinstance(value, list) else value
        return cls(**found)

    @classmethod
    @cache
    def _checks(cls) -> Mapping[str, tuple[Check, str]]:
        return {name: _check_of(hint) for name, hint in get_type_hints(cls).items() if name in cls._fields}


class MessageTable:
    """The messages that may arrive at one end of a connection, by their type."""

    def __init__(self, *kinds: type[TypedMessage]) -> None:
        self.kinds = {kind.type: kind for kind in kinds}

    def read(self, message: Message) -> TypedMessage | None:
        """Return a checked message; ``None`` if this version does not know its type."""
        what = message.get("type")
        kind = self.kinds.get(what) if isinstance(what, str) else None
        return None if kind is None else kind.read(message)


Check = Callable[[Any], bool]


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(kind: type) -> Check:
    return lambda value: isinstance(value, list | tuple) and all(isinstance(one, kind) for one in value)


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _check_of(hint: object) -> tuple[Check, str]:
    if get_origin(hint) in {Union, types.UnionType}:
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        right, what = _CHECKS[inner]
        return lambda value: value is None or right(value), what
    return _CHECKS[hint]


_CHECKS: Final[Mapping[object, tuple[Check, str]]] = {
    str: (_is_text, "a string"),
    bool: (_is_flag, "true or false"),
    int: (_is_whole, "a whole number"),
    float: (lambda value: _is_whole(value) or isinstance(value, float), "a number"),
    Message: (lambda value: isinstance(value, dict), "an object"),
    Texts: (_is_list_of(str), "a list of strings"),
    Messages: (_is_list_of(dict), "a list of objects"),
    Environment: (_is_environment, "an object that maps names to strings"),
}


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and _is_whole(value) and abs(value) < 2**63


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_int64(value) and value >= 0


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_store(value: object) -> bool:
    match value:
        case [str(), int() as port]:
            return 0 < port < _PORTS
    return False


_REASON_LETTERS: Final = 300
_PORTS: Final = 65536
_NAMES: Final = 8  # in a list, at most
# type of message -> its fields, and a check of each
_WORDS: Final[Mapping[str, Mapping[str, Check]]] = {
    "ready": {"step": _is_int64, "generation": _is_int64, "store": _is_store, "reason": _is_text},
    "joined": {"generation": _is_int64},
    "moving": {"generation": _is_int64, "moved": _is_count},
    "confirmed": {"generation": _is_int64, "step": _is_int64},
    "report": {
        "t": _is_finite,
        "step": _is_int64,
        "size": lambda it: _is_count(it) and it > 0,
        "samples": _is_count,
        "loss": lambda it: it is None or _is_finite(it),
    },
    "in_memory": {"step": _is_int64},
    "on_disk": {"step": _is_int64},
    "not_on_disk": {"step": _is_int64, "reason": _is_text},
    "done": {"step": _is_int64},
    "stopped": {"step": _is_int64},
    "finished": {},
    "position": {"place": _is_text, "line": _is_text, "commits": _is_count},
    "drift": {"step": _is_int64, "relative": _is_finite},
}
# type of message -> its optional fields, and their defaults
_OPTIONAL: Final[Mapping[str, Mapping[str, tuple[Check, Any]]]] = {
    "confirmed": {"state_bytes": (_is_count, 0)},
    "on_disk": {"took_s": (_is_finite, 0.0)},
    "report": {
        "total": (lambda it: it is None or _is_count(it), None),
        "since": (_is_int64, 0),
        "nan": (_is_flag, False),
        "restarted": (_is_flag, False),
        "noise": (lambda it: it is None or (_is_finite(it) and it >= 0.0), None),
    },
}


def checked(message: Message) -> Message | None:
    """Return a worker's message without unknown fields; ``None`` if this version does not know it."""
    what = message.get("type")
    if not isinstance(what, str) or what not in _WORDS:
        return None
    found: Message = {"type": what}
    for field, right in _WORDS[what].items():
        if not right(message.get(field)):
            shown = repr(message.get(field))[:40]
            raise BadMessage(f"a worker said '{what}' with {field} = {shown}, which cannot be", where=what)
        found[field] = message[field]
    for field, (right, default) in _OPTIONAL.get(what, {}).items():
        value = message.get(field, default)
        found[field] = value if right(value) else default
    if "noise" in found and found["noise"] is None:
        del found["noise"]  # few scripts give one
    for field in {"reason", "place", "line"} & set(found):
        found[field] = found[field][:_REASON_LETTERS]
    return found
