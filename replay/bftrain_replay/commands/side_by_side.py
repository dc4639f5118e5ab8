"""Several replays side by side on a terminal: a column each, or where that is too wide a row each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain.cli.narrow_table import fits, parts
from bftrain.cli.output import table

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
        """Give the table that fits."""
        upright = self._upright()
        if fits(upright, console, options):
            yield upright
            return
        if self.title:
            yield f"{self.title}\n"
        for number, part in enumerate(part for group in self.groups for part in self._turned(group, options.max_width)):
            if number and self.compact:
                yield ""
            yield part

    def _upright(self) -> RenderableType:
        """A column a replay, a blank line between groups."""
        rows: list[Sequence[object]] = []
        for group in self.groups:
            if rows and group.rows:
                rows.append(("",))
            for row in group.rows:
                more = (row.more,) if self.more else ()
                rows.append((row.label, *_marked(row.cells, self._marks), *more))
        names = (f"{name}{self._marks * ' '}" for name in self.names)
        return table(self.title, ("", *names, *((self.more,) if self.more else ())), rows, compact=self.compact)

    @property
    def _marks(self) -> int:
        """How wide marks are: nothing where none is best."""
        some = any(cell.best for group in self.groups for row in group.rows for cell in row.cells)
        return 1 + len(BEST) if some else 0

    def _turned(self, group: RowGroup, width: int) -> Iterator[RenderableType]:
        """A row a replay; as many figures as there is room for, then the next."""
        columns = [(row.label, _marked(row.cells, self._marks)) for row in group.rows]
        return parts("", self.names, columns, width, title=group.title, compact=self.compact)


def spreads_table(rows: Sequence[FigureRow]) -> SideBySide:
    """Lay figures out that are not one number but many: mean, median, and how far they reach."""
    return SideBySide("", ("mean", "median", "95 %", "most"), (RowGroup("", rows),))


def _marked(cells: Iterable[ReplayCell], marks: int) -> list[Text]:
    """Put the mark behind the best, and nothing as wide behind the others, so that figures stand under each other."""
    from rich.text import Text

    return [Text(f"{cell.text} {BEST}", style="bold") if cell.best else Text(cell.text + " " * marks) for cell in cells]
