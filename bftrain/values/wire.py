"""Encode values in their exact JSON form and decode them; pickle values with read-only mappings."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import cache, partial
from operator import methodcaller
from types import MappingProxyType, UnionType
from typing import Any, Final, TypeVar, cast, overload

import msgspec
from msgspec.structs import force_setattr

from bftrain.errors import BadInput

T = TypeVar("T")

# The default mapping; a shared object, which lets an identity test skip the checks
NOTHING: Final[MappingProxyType[str, Any]] = MappingProxyType({})
MOST_DEPTH: Final = 64


class Mapped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value with mappings: read-only views cannot be pickled, so plain dicts are pickled in their place."""

    def __reduce__(self) -> tuple[object, ...]:
        fields = {
            name: dict(content) if isinstance(content, MappingProxyType) else content
            for name, content in msgspec.structs.asdict(self).items()
        }
        return (partial(type(self), **fields), ())


S = TypeVar("S", bound=msgspec.Struct)
_copy = methodcaller("__copy__")  # the search for it in copy.copy() takes longer than the copy


def unchecked(template: S, **fields: object) -> S:
    """Return a copy of ``template`` with other ``fields``, without checks; for values that the program computed.

    Checking a decision on a hundred tasks takes longer than making it.
    """
    made: S = _copy(template)  # unchecked by msgspec
    for name, value in fields.items():
        force_setattr(made, name, value)
    return made


def _encodable(value: object) -> object:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encodable)


def encode(value: object) -> bytes:
    """Return the JSON of a value, on one line."""
    return _encoder.encode(value)


def plain(value: object) -> Any:  # noqa: ANN401 - any JSON
    """Return a value as dicts, lists or tuples, numbers and strings."""
    return msgspec.to_builtins(value, enc_hook=_encodable)


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@overload
def decode(text: bytes | str, kind: type[T], *, where: str | None = None, fix: str | None = None) -> T: ...
@overload
def decode(text: bytes | str, kind: UnionType, *, where: str | None = None, fix: str | None = None) -> Any: ...  # noqa: ANN401 - a union has no single type
def decode(text: bytes | str, kind: type[T] | UnionType, *, where: str | None = None, fix: str | None = None) -> Any:
    """Decode a value of ``kind`` from JSON; an error names the path of the field and the source ``where``.

    ``fix`` is advice for the author of the text, such as the place where the format is documented.
    """
    if not isinstance(text, bytes | str):  # damaged file
        raise BadInput("no text", where=where, fix=fix)
    try:
        return _decoder(cast("Hashable", kind)).decode(text)
    except msgspec.ValidationError as error:
        raise _bad_input(error, where, fix) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f"not valid JSON: {error}", where=where, fix=fix) from error
    except RecursionError:
        raise BadInput("not valid JSON: too many levels", where=where, fix=fix) from None


def leaves(document: object) -> list[object]:
    """Return the scalars in ``document``; raise ``RecursionError`` if it is nested too deeply.

    Parsers allow deeper nesting than the code that handles the result: hence one limit, far below theirs.
    """
    found: list[object] = []
    level = [document]
    for _ in range(MOST_DEPTH):
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict | list | tuple):
                inner.extend(each.values() if isinstance(each, dict) else each)
            else:
                found.append(each)
        level = inner
    if level:
        raise RecursionError(f"nested more than {MOST_DEPTH} deep")
    return found


def convert(data: Mapping[str, object], kind: type[T], *, where: str | None = None) -> T:
    """Convert parsed TOML or JSON to a value of ``kind``."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise _bad_input(error, where) from error


_WORDS_OF_PATTERNS: Final[dict[str, str]] = {}
_WORDS_OF_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_TYPE: Final = "|".join(_WORDS_OF_TYPES)
_TYPES: Final = re.compile(rf"`((?:{_TYPE})(?: \| (?:{_TYPE}))*)`")


def pattern_of(words: str, pattern: str) -> str:
    """Return the pattern of a text, for :class:`msgspec.Meta`; errors print ``words`` instead."""
    _WORDS_OF_PATTERNS[pattern] = words
    return pattern


def _bad_input(error: msgspec.ValidationError, where: str | None, fix: str | None = None) -> BadInput:
    what, _, path = str(error).partition(" - at `")
    if " matching regex " in what:
        for pattern, words in _WORDS_OF_PATTERNS.items():
            what = what.replace(f"`str` matching regex {pattern!r}", words)
    for wording, plainer in (
        ("Expected ", "must be "),
        (", got ", ", not "),
        ("Invalid ", "invalid "),
        ("Number out", "number out"),
    ):
        what = what.replace(wording, plainer, 1)
    what = _TYPES.sub(lambda found: " or ".join(_WORDS_OF_TYPES[one] for one in found[1].split(" | ")), what)
    field = path.replace("`", "").replace("$.", "").replace("$", "")
    return BadInput(f"{field}: {what}" if field else what, where=where, fix=fix)
