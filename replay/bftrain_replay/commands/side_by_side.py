"""Several replays side by side on a terminal: a column for each, or in a narrow one a row for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.cli.output import fits, parts, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

BEST: Final = "*"


class ReplayCell(msgspec.Struct, frozen=True):
    """The value of a replay in a row, and whether it is the best."""

    text: str
    best: bool = False


class FigureRow(msgspec.Struct, frozen=True):
    """A figure of all replays; ``more`` is shown behind them in a table with a column for each replay."""

    label: str
    cells: Sequence[ReplayCell]
    more: str = ""


class RowGroup(msgspec.Struct, frozen=True):
    """Rows that belong together."""

    title: str
    rows: Sequence[FigureRow]


class SideBySide(msgspec.Struct, frozen=True):
    """All groups of rows, with replay names; the best value is bold, and has a star in pipes."""

    title: str
    names: Sequence[str]
    groups: Sequence[RowGroup]
    more: str = ""  # heading of the last column
    compact: bool = False  # omits blank space around the table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield the table that fits: a column per replay, or a row with the figures that fit."""
        some = any(cell.best for group in self.groups for row in group.rows for cell in row.cells)
        marks = 1 + len(BEST) if some else 0  # width of the marks: 0 without best values
        rows: list[Sequence[object]] = []
        for group in self.groups:
            if rows and group.rows:
                rows.append(("",))
            more = bool(self.more)
            rows += [(row.label, *_marked(row.cells, marks), *([row.more] if more else [])) for row in group.rows]
        names = (f"{name}{marks * ' '}" for name in self.names)
        headings = ("", *names, *((self.more,) if self.more else ()))
        upright = table(self.title, headings, rows, compact=self.compact)
        if fits(upright, console, options):
            yield upright
            return
        if self.title:
            yield f"{self.title}\n"
        first = True
        for group in self.groups:
            columns = [(row.label, _marked(row.cells, marks)) for row in group.rows]
            width = options.max_width
            for part in parts("", self.names, columns, width, title=group.title, compact=self.compact):
                if self.compact and not first:
                    yield ""
                yield part
                first = False


def spreads_table(rows: Sequence[FigureRow]) -> SideBySide:
    """Return a table of distributions: mean, median, and percentiles."""
    return SideBySide("", ("mean", "median", "p95", "max"), (RowGroup("", rows),))


def counts(summary: object, *names: str) -> str:
    """Return the counts of a summary that are not 0, each after a comma."""
    return "".join(f", {getattr(summary, name):,} {name.replace('_', ' ')}" for name in names if getattr(summary, name))


def _marked(cells: Iterable[ReplayCell], marks: int) -> list[Text]:
    """Append the mark to the best value, and equally wide blanks to the rest."""
    from rich.text import Text

    return [Text(f"{cell.text} {BEST}", style="bold") if cell.best else Text(cell.text + " " * marks) for cell in cells]
