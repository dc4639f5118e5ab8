"""Messages of workers, checked before use: a user's script may send anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.messages import Message

_REASON_LETTERS: Final = 300
_PORTS: Final = 65536
_TEXTS: Final = frozenset({"reason", "place", "line"})


def _whole(value: Any) -> bool:  # noqa: ANN401 - a worker may send any value
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _number(value: Any) -> bool:  # noqa: ANN401 - a worker may send any value
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:  # noqa: ANN401 - a worker may send any value
    return _whole(value) and value >= 0


def _store(value: Any) -> bool:  # noqa: ANN401 - a worker may send any value
    match value:
        case [str(), int() as port]:
            return 0 < port < _PORTS
    return False


Check = Callable[[Any], bool]
# what is said -> its fields, and whether each is what it should be
_WORDS: Final[Mapping[str, Mapping[str, Check]]] = {
    "ready": {"step": _whole, "generation": _whole, "store": _store, "reason": lambda it: isinstance(it, str)},
    "joined": {"generation": _whole},
    "confirmed": {"generation": _whole, "step": _whole},
    "report": {
        "t": _number,
        "step": _whole,
        "size": lambda it: _whole(it) and it > 0,
        "samples": lambda it: _whole(it) and it >= 0,
        "loss": lambda it: it is None or _number(it),
    },
    "in_memory": {"step": _whole},
    "on_disk": {"step": _whole},
    "not_on_disk": {"step": _whole, "reason": lambda it: isinstance(it, str)},
    "done": {"step": _whole},
    "stopped": {"step": _whole},
    "finished": {},
    "position": {"place": lambda it: isinstance(it, str), "line": lambda it: isinstance(it, str), "commits": _count},
    "drift": {"step": _whole, "relative": _number},
}
# message -> fields that it may leave out, and what they are then
_OPTIONAL: Final[Mapping[str, Mapping[str, tuple[Check, Any]]]] = {
    "on_disk": {"took_s": (_number, 0.0)},
    "report": {
        "total": (lambda it: it is None or _count(it), None),
        "since": (_whole, 0),
        "nan": (lambda it: isinstance(it, bool), False),
        "restarted": (lambda it: isinstance(it, bool), False),
    },
}


def checked(message: Message) -> Message | None:
    """Give what a worker said, without what does not belong there; nothing if this version does not know it."""
    what = message.get("type")
    if not isinstance(what, str) or what not in _WORDS:
        return None
    fields = _WORDS[what]
    for field, right in fields.items():
        if not right(message.get(field)):
            shown = repr(message.get(field))[:40]
            raise BadMessage(f"a worker said '{what}' with {field} = {shown}, which cannot be", where=what)
    found = {"type": what, **{field: message[field] for field in fields}}
    for field, (right, default) in _OPTIONAL.get(what, {}).items():
        value = message.get(field, default)
        found[field] = value if right(value) else default
    for field in _TEXTS & set(found):
        found[field] = found[field][:_REASON_LETTERS]
    return found
