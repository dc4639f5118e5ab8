"""The exact JSON form of every value, and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, TypeVar, cast, overload

import msgspec

from bftrain.errors import BadInput

T = TypeVar("T")


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
    try:
        return _decoder(cast("Hashable", kind)).decode(text)
    except msgspec.ValidationError as error:
        raise BadInput(_sentence(error), where=where, fix=fix) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f"not valid JSON: {error}", where=where, fix=fix) from error


def convert(data: Mapping[str, object], kind: type[T], *, where: str | None = None) -> T:
    """Read a value of ``kind`` from parsed TOML or JSON."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise BadInput(_sentence(error), where=where) from error


def _sentence(error: msgspec.ValidationError) -> str:
    return str(error).replace(" - at `$", " - at `").replace(" - at `.", " - at `")
