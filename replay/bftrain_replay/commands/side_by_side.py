"""Several replays side by side on a terminal: a column for each, or a row for each if it is narrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.cli.output import NarrowTable, fits, parts, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

BEST: Final = "*"


class FigureRow(msgspec.Struct, frozen=True):
    """A figure of all replays; ``best`` are the indices of the best ones, ``more`` is the text in the last column."""

    label: str
    texts: Sequence[str]
    best: Collection[int] = ()
    more: str = ""


class SideBySide(msgspec.Struct, frozen=True):
    """Groups of rows with their titles, and the replay ``names``; the best values are bold, with a star."""

    title: str
    names: Sequence[str]
    groups: Sequence[tuple[str, Sequence[FigureRow]]]
    more: str = ""  # heading of the last column, if any
    compact: bool = False  # omits blank space around the table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield a table with a column per replay or, if it is too wide, tables with a row per replay."""
        some = any(row.best for _, group in self.groups for row in group)
        marks = 1 + len(BEST) if some else 0  # width of the marks: 0 without best values
        rows: list[Sequence[object]] = []
        for _, group in self.groups:
            if rows and group:
                rows.append(("",))
            rows += [(row.label, *_marked(row, marks), *([row.more] if self.more else [])) for row in group]
        names = (f"{name}{marks * ' '}" for name in self.names)
        headings = ("", *names, *((self.more,) if self.more else ()))
        upright = table(self.title, headings, rows, compact=self.compact)
        if fits(upright, console, options):
            yield upright
            return
        if self.title:
            yield f"{self.title}\n"
        first = True
        for title, group in self.groups:
            columns = [(row.label, _marked(row, marks)) for row in group]
            for part in parts("", self.names, columns, options.max_width, title=title, compact=self.compact):
                if self.compact and not first:
                    yield ""
                yield part
                first = False


def spreads_table(rows: Sequence[Sequence[str]]) -> NarrowTable:
    """Return a table of distributions: name, mean, median, 95th percentile and maximum."""
    return NarrowTable("", ("", "mean", "median", "p95", "max"), rows)


def counts(summary: object, *names: str) -> str:
    """Return the named counts of a summary that are not 0 as text, such as ``, 3 waiting``."""
    return "".join(f", {getattr(summary, name):,} {name.replace('_', ' ')}" for name in names if getattr(summary, name))


def _marked(row: FigureRow, marks: int) -> list[Text]:
    """Return the texts of a row, with a mark behind the best values and ``marks`` blanks behind the rest."""
    from rich.text import Text

    return [
        Text(f"{text} {BEST}", style="bold") if place in row.best else Text(text + " " * marks)
        for place, text in enumerate(row.texts)
    ]
