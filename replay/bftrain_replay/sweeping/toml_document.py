"""A TOML file that knows on which line each of its keys stands, so that complaints can name it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BadConfig
from bftrain.files import whole_text

Key = str | int  # a name, or the place of one table among several of the same name

KIND: Final = "sweep file"
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$")
_ASSIGNMENT: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")


class TomlDocument:
    """What a file says, or a mapping that was made in Python; ``name`` leads every complaint about it."""

    def __init__(self, data: Mapping[str, Any], *, name: str, folder: Path, text: str = "") -> None:
        self.data = data
        self.name = name
        self.folder = folder  # what paths in it are relative to
        self._lines = _lines_of(text)

    @classmethod
    def read(cls, path: Path) -> TomlDocument:
        """Read a TOML file."""
        text = whole_text(path, KIND)
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            line = re.search(r"at line (\d+)", str(error))
            where = f"{path}:{line[1]}" if line else str(path)
            raise BadConfig(f"is not valid TOML: {error}", where=where) from error
        return cls(data, name=str(path), folder=path.parent, text=text)

    def where(self, *keys: Key) -> str:
        """Name the line on which the key stands, or the nearest thing around it, and the key."""
        shown = ".".join(str(key) if isinstance(key, str) else f"{key + 1}" for key in keys)
        for length in range(len(keys), 0, -1):
            line = self._lines.get(keys[:length])
            if line is not None:
                return f"{self.name}:{line}: {shown}"
        return f"{self.name}: {shown}" if shown else self.name

    def wrong(self, what: str, *keys: Key, fix: str | None = None) -> BadConfig:
        """Build the complaint about a key."""
        return BadConfig(what, where=self.where(*keys), fix=fix)


def _lines_of(text: str) -> dict[tuple[Key, ...], int]:
    """Give the line on which each key begins; what a multi-line value seems to assign does no harm."""
    found: dict[tuple[Key, ...], int] = {}
    counts: dict[tuple[Key, ...], int] = {}
    section: tuple[Key, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header, assignment = _HEADER.match(line), _ASSIGNMENT.match(line)
        if header:
            section = tuple(_names(header[2]))
            if header[1] == "[[":
                place = counts.get(section, 0)
                counts[section] = place + 1
                section = (*section, place)
            found.setdefault(section, number)
        elif assignment:
            found.setdefault((*section, *_names(assignment[1])), number)
    return found


def _names(dotted: str) -> Sequence[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", dotted)]
