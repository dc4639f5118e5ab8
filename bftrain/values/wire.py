"""How values travel: their exact JSON form and back, and mappings that are read-only and yet can be pickled."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from functools import cache, partial
from types import MappingProxyType, UnionType
from typing import Any, Final, TypeVar, cast, overload

import msgspec
from msgspec.structs import force_setattr

from bftrain.errors import BadInput

T = TypeVar("T")

# Where a mapping is not given; one object for all, so that a comparison shows that nothing has to be checked
NOTHING: Final[MappingProxyType[str, Any]] = MappingProxyType({})
MOST_DEPTH: Final = 64


class Mapped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value with mappings: read-only views cannot be pickled, so they travel as the plain dicts they view."""

    def __reduce__(self) -> tuple[object, ...]:
        fields = {
            name: dict(content) if isinstance(content, MappingProxyType) else content
            for name, content in msgspec.structs.asdict(self).items()
        }
        return (partial(type(self), **fields), ())


S = TypeVar("S", bound=msgspec.Struct)


def unchecked(template: S, **fields: object) -> S:
    """Return a copy of ``template`` with other ``fields``: values that the program computed, as checks leave them.

    To check a decision on a hundred tasks once more takes longer than to make it.
    """
    made = copy(template)  # of which msgspec checks nothing
    for name, value in fields.items():
        force_setattr(made, name, value)
    return made


def _encodable(value: object) -> object:
    if isinstance(value, MappingProxyType):
        return dict(value)
    raise NotImplementedError(f"no JSON form for {type(value).__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encodable)


def encode(value: object) -> bytes:
    """Give the JSON of a value, on one line."""
    return _encoder.encode(value)


def plain(value: object) -> Any:  # noqa: ANN401 - JSON is what it is
    """Give a value as dicts, lists or tuples, numbers and strings."""
    return msgspec.to_builtins(value, enc_hook=_encodable)


@cache
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


@overload
def decode(text: bytes | str, kind: type[T], *, where: str | None = None, fix: str | None = None) -> T: ...
@overload
def decode(text: bytes | str, kind: UnionType, *, where: str | None = None, fix: str | None = None) -> Any: ...  # noqa: ANN401 - a union has no single type
def decode(text: bytes | str, kind: type[T] | UnionType, *, where: str | None = None, fix: str | None = None) -> Any:
    """Read a value of ``kind`` from JSON; what breaks a rule is named with its path and the ``where`` it came from.

    ``fix`` says what the author of the text can do, such as where its form is described.
    """
    if not isinstance(text, bytes | str):  # out of a damaged file
        raise BadInput("no text", where=where, fix=fix)
    try:
        return _decoder(cast("Hashable", kind)).decode(text)
    except msgspec.ValidationError as error:
        raise BadInput(_sentence(error), where=where, fix=fix) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f"not valid JSON: {error}", where=where, fix=fix) from error
    except RecursionError:
        raise BadInput("not valid JSON: nested too deep", where=where, fix=fix) from None


def leaves(document: object) -> list[object]:
    """Return what is in ``document`` and contains nothing else; raise ``RecursionError`` if it is nested too deep.

    Parsers bear other depths than what handles their values later: hence one limit, far below theirs.
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
    """Read a value of ``kind`` from parsed TOML or JSON."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadInput(_sentence(error), where=where) from error


def _sentence(error: msgspec.ValidationError) -> str:
    return str(error).replace(" - at `$", " - at `").replace(" - at `.", " - at `")
