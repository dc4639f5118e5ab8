"""Output of commands: results on stdout (text or JSON), all other messages on stderr, pipes without markup."""

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

_PIPE_WIDTH: Final = 100_000  # tables in a pipe are for programs and files: lines are not wrapped
_ROOM_FOR_BARS: Final = 110  # columns of a terminal
_BAR_WIDTHS: Final = ((_ROOM_FOR_BARS, 40), (60, 16), (0, 0))
# Names from outside are printed literally: "[red]" is no markup, and ":bug:" no emoji
LITERAL: Final[dict[str, Any]] = {"highlight": False, "markup": False, "emoji": False}


@dataclass(frozen=True, slots=True)
class Output:
    """Output options: ``json`` instead of text, and the verbosity (-1 quiet, 0, 1 verbose)."""

    json: bool
    level: int

    def result(self, data: object, words: Callable[[], RenderableType]) -> None:
        """Print a result: ``data`` as JSON, or ``words()``, which is called only for text output."""
        if self.json:
            from bftrain.values import wire

            click.echo(wire.encode(data))
        else:
            show(words())

    def say(self, text: str) -> None:
        """Print a progress message, unless ``-q``."""
        if self.level >= 0:
            click.echo(text, err=True)

    def detail(self, text: str) -> None:
        """Print a detail, only with ``-v``."""
        if self.level > 0:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Print a warning, even with ``-q``."""
        click.echo(f"warning: {text}", err=True)

    def progress(self) -> Progress:
        """Return a progress bar on stderr; hidden if stderr is no terminal, or with ``-q``."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        console = Console(stderr=True)
        narrow = console.width < _ROOM_FOR_BARS
        # On a narrow terminal the bar is short or absent, and text is cut rather than figures
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


def show(what: RenderableType, *, err: bool = False) -> None:
    """Print to stdout or stderr: as wide as the terminal; in a pipe unwrapped, without colour and trailing space."""
    if not isinstance(what, str):  # terminals wrap lines themselves, and copy them unbroken
        from rich.console import Console

        if (sys.stderr if err else sys.stdout).isatty():
            Console(stderr=err, **LITERAL).print(what)
            return
        console = Console(width=_PIPE_WIDTH, no_color=True, **LITERAL)
        with console.capture() as capture:
            console.print(what)
        what = capture.get()
    click.echo("\n".join(line.rstrip() for line in what.splitlines()), err=err)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Iterable[int] = (0,),
    compact: bool = False,
) -> RenderableType:
    """Return rows as a table; the columns numbered in ``left`` contain text, all other columns figures.

    A ``compact`` table has no blank line above and below, and little space between columns.
    """
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    words = set(left)
    padding = (0, 1, 0, 0) if compact else (0, 1)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(columns), show_edge=not compact, padding=padding)
    for number, name in enumerate(columns):
        # fold: long words wrap on a narrow terminal, because a truncated command would be useless
        grid.add_column(name, justify="left" if number in words else "right", overflow="fold")
    for row in rows:
        # Text: names from outside are not markup
        grid.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    # A table's own title would be wrapped to the width of the table
    return Group(Text(title), grid) if title else grid


def prints_results(function: Callable[P, R]) -> Callable[P, R]:
    """Add ``--json``, ``-q`` and ``-v`` to a command, and pass it an :class:`Output` as ``out``."""

    @heading(COMMON)
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option("-q", "--quiet", is_flag=True, help="Print only the result and warnings.")
    @click.option("-v", "--verbose", is_flag=True, help="Print details.")
    @functools.wraps(function)
    def wrapped(*args: Any, as_json: bool, quiet: bool, verbose: bool, **kwargs: Any) -> R:  # noqa: ANN401 - passed on
        if quiet and verbose:
            raise click.UsageError("-q and -v contradict each other")
        out = Output(json=as_json, level=verbose - quiet)
        return function(*args, out=out, **kwargs)  # type: ignore[arg-type]  # out is added by the decorator

    return wrapped  # type: ignore[return-value]  # the three options are consumed by click


_HEADING: Final = 12  # minimum width of a wrapped heading or row name
_BETWEEN: Final = 3  # columns between two columns of a table
_EDGES: Final = 2  # outside the outer columns
_ANY_WIDTH: Final = 10_000


@dataclass(frozen=True, slots=True)
class NarrowTable:
    """A table whose ``naming`` first columns name the rows; columns that do not fit follow in further tables.

    The columns numbered in ``left`` contain text, all other columns figures.
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
    """Return whether no line must be wrapped."""
    from rich.measure import Measurement

    return Measurement.get(console, options.update(width=_ANY_WIDTH), what).maximum <= options.max_width


def parts(
    first: str, names: Sequence[str], columns: Sequence[Column], width: int, *, title: str = "", compact: bool = False
) -> Iterator[RenderableType]:
    """Yield tables with the naming columns and all further columns that fit; only the first has the title."""
    folded = [_wrapped(name, width // 3, width // 2) for name in names]
    room = width - max((len(line) for name in (first, *folded) for line in name.splitlines()), default=0) - _EDGES
    # The smallest number of tables; a column that exceeds the width has its own table
    chunks: list[list[Column]] = []
    taken = 0
    for name, cells in columns:
        column = (_wrapped(name, 0, room), cells)
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


def _wrapped(text: str, width: int, most: int) -> str:
    """Return a name wrapped into lines, extended for long words up to the width ``most``."""
    longest = max(map(len, text.split()), default=0)
    width = max(width, _HEADING, min(longest, most))
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=longest > width)) or text
