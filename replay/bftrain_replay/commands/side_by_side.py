"""Several replays side by side on a terminal: a column each, or where that is too wide a row each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain.cli.output import fits, parts, table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

BEST: Final = "*"


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """What a replay has in a row, and whether that is the best."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A figure of all replays; ``more`` is what stands after them in a table with a column a replay."""

    label: str
    cells: Sequence[ReplayCell]
    more: str = ""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that belong together."""

    title: str
    rows: Sequence[FigureRow]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """All groups of rows, under the names of the replays; the best is marked in bold, and with a star for pipes."""

    title: str
    names: Sequence[str]
    groups: Sequence[RowGroup]
    more: str = ""  # heading of the last column
    compact: bool = False  # no room to waste: nothing above, below and beside the table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Give the table that fits: a column a replay, or a row a replay with as many figures as there is room for."""
        some = any(cell.best for group in self.groups for row in group.rows for cell in row.cells)
        marks = 1 + len(BEST) if some else 0  # how wide they are: nothing where none is best
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
    """Lay figures out that are not one number but many: mean, median, and how far they reach."""
    return SideBySide("", ("mean", "median", "p95", "max"), (RowGroup("", rows),))


def counts(summary: object, *names: str) -> str:
    """List the counts of a summary that are not 0, with a comma before each."""
    return "".join(f", {getattr(summary, name):,} {name.replace('_', ' ')}" for name in names if getattr(summary, name))


def _marked(cells: Iterable[ReplayCell], marks: int) -> list[Text]:
    """Put the mark behind the best, and nothing as wide behind the others, so that figures stand under each other."""
    from rich.text import Text

    return [Text(f"{cell.text} {BEST}", style="bold") if cell.best else Text(cell.text + " " * marks) for cell in cells]
