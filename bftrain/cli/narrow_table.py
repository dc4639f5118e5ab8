"""A table on a terminal too narrow for it: in parts, with some of its columns each, so that no word is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain.cli.output import table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    Column = tuple[str, Sequence[Text | str]]  # heading and cells

_HEADING: Final = 12  # letters of a heading that is broken into lines
_BETWEEN: Final = 3  # columns between two columns of a table
_EDGES: Final = 2  # and beside the outer ones
_ANY_WIDTH: Final = 10_000


@dataclass(frozen=True, slots=True)
class NarrowTable:
    """A table whose ``naming`` first columns name the rows; the others stand below each other where they do not fit.

    Those numbered in ``left`` hold words, the others figures.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    naming: int = 1
    left: Collection[int] = (0,)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Give the table, or its parts."""
        if fits(table("", self.columns, self.rows), console, options):
            yield table(self.title, self.columns, self.rows, left=self.left)
            return
        first, names = ",\n".join(self.columns[: self.naming]), [", ".join(row[: self.naming]) for row in self.rows]
        others = range(self.naming, len(self.columns))
        columns = [(self.columns[place], [row[place] for row in self.rows]) for place in others]
        yield from parts(first, names, columns, options.max_width, title=self.title)


def fits(what: RenderableType, console: Console, options: ConsoleOptions) -> bool:
    """Say whether no line of it has to be broken."""
    from rich.measure import Measurement

    return Measurement.get(console, options.update(width=_ANY_WIDTH), what).maximum <= options.max_width


def parts(
    first: str, names: Sequence[str], columns: Sequence[Column], width: int, *, title: str = "", compact: bool = False
) -> Iterator[RenderableType]:
    """Give tables with the names and as many columns as there is room for, then the next; the title is the first's."""
    folded = [_folded(name, width // 3, width // 2) for name in names]
    room = width - max((len(line) for name in (first, *folded) for line in name.splitlines()), default=0) - _EDGES
    for chunk in _chunks([(_folded(heading, 0, room), cells) for heading, cells in columns], room):
        rows = zip(folded, *(cells for _, cells in chunk), strict=True)
        yield table(title, (first, *(heading for heading, _ in chunk)), list(rows), compact=compact)
        title = ""


def _chunks(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """Part columns into as few tables as fit; one that fits nowhere stands alone."""
    chunk: list[Column] = []
    taken = 0
    for heading, cells in columns:
        wide = max((len(line) for line in (*heading.splitlines(), *cells)), default=1) + _BETWEEN
        if chunk and taken + wide > room:
            yield chunk
            chunk, taken = [], 0
        chunk.append((heading, cells))
        taken += wide
    if chunk:
        yield chunk


def _folded(text: str, width: int, most: int) -> str:
    """Break a name into lines, wider ones where a word of it needs that; and no wider than ``most``."""
    longest = max(map(len, text.split()), default=0)
    width = max(width, _HEADING, min(longest, most))
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=longest > width)) or text
