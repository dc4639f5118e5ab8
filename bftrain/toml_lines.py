"""Lines of a TOML file: where a key stands, so that what is wrong with it is found at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Final

_NO_LINE: Final = 0


def line_of(text: str, path: tuple[str, ...]) -> int:
    """Give the line that says ``path``, or else as much of its begin as any line says; 0 if there is none."""
    best, most = _NO_LINE, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        said = _paths(line)
        if line.lstrip().startswith("["):
            table = max(said, key=len, default=())
            said = [table]
        else:
            said = [(*table, *each) for each in said]
        for each in said:
            if most < len(each) <= len(path) and path[: len(each)] == each:
                best, most = number, len(each)
    return best


def _paths(line: str) -> list[tuple[str, ...]]:
    """Give all keys of a line; none if it is a part of a value that goes over several."""
    try:
        return list(_keys(tomllib.loads(line)))
    except tomllib.TOMLDecodeError:
        return []


def _keys(table: Mapping[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _keys(value, (*path, key))
