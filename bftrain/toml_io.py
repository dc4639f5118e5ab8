"""TOML files: read within bounds, with line numbers in errors, and written to read back unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from bftrain.errors import BadConfig
from bftrain.values import wire

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # keys without quotes
_LARGEST: Final = 1 << 63  # TOML integers have 64 bits


def parse(text: str, where: str, *, fix: str | None = None) -> dict[str, Any]:
    """Parse TOML; raise ``BadConfig`` for invalid TOML, numbers over 64 bits and excessive nesting."""
    import tomllib  # noqa: PLC0415 - 1.5 ms, and many commands only write TOML

    try:
        return _bounded(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        what, where = str(error), f"{where}:{line[1]}" if line else where
    except ValueError:  # int() rejects thousands of digits
        what = "a whole number has more than 64 bits"
    except RecursionError:
        what = "tables or lists have too many levels"
    raise BadConfig(f"is not valid TOML: {what}", where=where, fix=fix)


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    if not all(-_LARGEST <= each < _LARGEST for each in wire.leaves(document) if type(each) is int):
        raise ValueError
    return document


def _plain(number: object) -> str:
    return repr(number).lower()  # TOML writes true and false


def table(data: Mapping[str, object], path: tuple[str, ...] = ()) -> str:
    """Return a table as TOML, followed by its sub-tables, without ``None`` values and empty tables."""
    inner = {key: part for key, part in data.items() if isinstance(part, dict)}
    plain = [(name, part) for name, part in data.items() if part is not None and name not in inner]
    heading = f"\n[{'.'.join(map(key, path))}]\n" if path and (plain or not inner) else ""
    lines = "".join(f"{key(name)} = {value(part)}\n" for name, part in plain)
    return heading + lines + "".join(table(part, (*path, name)) for name, part in inner.items() if part or path)


def _quoted(text: str) -> str:
    import json  # noqa: PLC0415 - 2 ms that --help need not take

    return json.dumps(text, ensure_ascii=False)


def key(name: str) -> str:
    """Return a key, quoted if necessary."""
    return name if _BARE.fullmatch(name) else _quoted(name)


def value(given: object, number: Callable[[object], str] = _plain) -> str:
    """Return a value as TOML, tables in braces; ``number`` formats values other than text and containers."""
    if isinstance(given, str):
        return _quoted(given)  # printable text has the same form in JSON and TOML
    if isinstance(given, list | tuple):
        return f"[{', '.join(value(part) for part in given)}]"
    if isinstance(given, dict):
        return f"{{ {', '.join(f'{key(name)} = {value(part, number)}' for name, part in given.items())} }}"
    return number(given)
