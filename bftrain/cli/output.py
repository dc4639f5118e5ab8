"""How commands print: results to stdout (words or JSON), everything else to stderr, nothing garbled in a pipe."""

from __future__ import annotations

import functools
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import click

from bftrain.cli.command_help import COMMON, heading

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.progress import Progress
    from rich.text import Text

    Column = tuple[str, Sequence[Text | str]]


P = ParamSpec("P")
R = TypeVar("R")

_PIPE_WIDTH: Final = 100_000  # a table in a pipe is for a program or a file: no line of it is broken
_ROOM_FOR_BARS: Final = 110  # columns of a terminal
_BAR_WIDTHS: Final = ((_ROOM_FOR_BARS, 40), (60, 16), (0, 0))
# A stranger's name is a name: "[red]" in it is no markup, and ":bug:" no picture
LITERAL: Final[dict[str, Any]] = {"highlight": False, "markup": False, "emoji": False}


@dataclass(frozen=True, slots=True)
class Output:
    """What the caller asked to see: ``json`` instead of words, and how many words (-1 quiet, 0, 1 verbose)."""

    json: bool
    level: int

    def result(self, data: object, words: Callable[[], RenderableType]) -> None:
        """Print a result: ``data`` as JSON, or ``words()``, which is called only if words are wanted."""
        if self.json:
            from bftrain.values import wire

            click.echo(wire.encode(data))
        else:
            show(words())

    def say(self, text: str) -> None:
        """Tell what goes on; silent with ``-q``."""
        if self.level >= 0:
            click.echo(text, err=True)

    def detail(self, text: str) -> None:
        """Tell what only ``-v`` wants to know."""
        if self.level > 0:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Tell what may be wrong, even with ``-q``."""
        click.echo(f"warning: {text}", err=True)

    def progress(self) -> Progress:
        """Give a progress bar on stderr; it shows nothing when stderr is no terminal, or with ``-q``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        console = Console(stderr=True)
        narrow = console.width < _ROOM_FOR_BARS
        # On a narrow terminal the bar is short, or left out, and words are cut rather than figures
        cut = Column(ratio=1, no_wrap=True, overflow="ellipsis") if narrow else None
        bar_width = next(width for least, width in _BAR_WIDTHS if console.width >= least)
        return Progress(
            TextColumn("{task.description}", table_column=cut),
            *((BarColumn(bar_width),) if bar_width else ()),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            expand=narrow,
            transient=True,
            disable=self.level < 0 or not sys.stderr.isatty(),
        )


def show(what: RenderableType) -> None:
    """Print to stdout: as wide as the terminal; wide enough, without colour and trailing space, in a pipe."""
    if not isinstance(what, str):  # a terminal breaks a line by itself, and gives it back whole when it is copied
        from rich.console import Console

        if sys.stdout.isatty():
            Console(**LITERAL).print(what)
            return
        console = Console(width=_PIPE_WIDTH, no_color=True, **LITERAL)
        with console.capture() as capture:
            console.print(what)
        what = capture.get()
    click.echo("\n".join(line.rstrip() for line in what.splitlines()))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Iterable[int] = (0,),
    compact: bool = False,
) -> RenderableType:
    """Lay rows out as a table; the columns numbered in ``left`` hold words, the others figures.

    A ``compact`` one has no blank line above and below, and little between columns.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    words = set(left)
    padding = (0, 1, 0, 0) if compact else (0, 1)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns), show_edge=not compact, padding=padding)
    for number, name in enumerate(columns):
        # fold: on a narrow terminal a long word goes on in the next line; half a command would be useless
        grid.add_column(name, justify="left" if number in words else "right", overflow="fold")
    for row in rows:
        # Text: a stranger's name is no markup
        grid.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    # A table's own title would be broken to the width of the table
    return Group(Text(title), grid) if title else grid


def prints_results(function: Callable[P, R]) -> Callable[P, R]:
    """Give a command ``--json``, ``-q`` and ``-v``, and hand it an :class:`Output` as ``out``."""

    @heading(COMMON)
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result and warnings.")
    @click.option("-v", "--verbose", is_flag=True, help="Say more of what goes on.")
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> R:  # noqa: ANN401 - handed through
        if quiet and verbose:
            raise click.UsageError("-q and -v contradict each other")
        out = Output(json=as_json, level=verbose - quiet)
        return function(*args, out=out, **kwargs)  # type: ignore[arg-type]  # out is what the decorator adds

    return wrapped  # type: ignore[return-value]  # the three options are consumed by click


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
    # As few tables as fit; a column that fits nowhere stands alone
    chunks: list[list[Column]] = []
    taken = 0
    for name, cells in columns:
        column = (_folded(name, 0, room), cells)
        wide = max((len(line) for line in (*column[0].splitlines(), *cells)), default=1) + _BETWEEN
        if not chunks or taken + wide > room:
            chunks.append([])
            taken = 0
        chunks[-1].append(column)
        taken += wide
    for chunk in chunks:
        rows = zip(folded, *(cells for _, cells in chunk), strict=True)
        yield table(title, (first, *(name for name, _ in chunk)), list(rows), compact=compact)
        title = ""


def _folded(text: str, width: int, most: int) -> str:
    """Break a name into lines, wider ones where a word of it needs that; and no wider than ``most``."""
    longest = max(map(len, text.split()), default=0)
    width = max(width, _HEADING, min(longest, most))
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=longest > width)) or text
