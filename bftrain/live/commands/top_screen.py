"""The screen of ``bftrain top``: pool, speed, tasks with their sizes over time, and the latest events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from bftrain.live.client.client import LiveView
from bftrain.live.commands.tasks import clock, duration, kinds_in_words
from bftrain.live.model.schemas import TaskRow
from bftrain.node_units import in_words_of

_ORDER: Final = ("running", "waiting", "paused")
_OVER_SHOWN_S: Final = 600.0  # for which a task that is over is still shown
_HEADINGS: Final = 2  # lines above the tasks
_ROOMY: Final = 12  # lines; with fewer there is room for tasks alone
_ALL: Final = 1_000_000  # lines
_FEED: Final = 8  # lines of what happened, where there is room
_LEAST_FEED: Final = 3
_MARKS: Final = {"joined": "+", "left": "-", "failed": "!"}
_COLOURS: Final = {"joined": "green", "left": "red", "failed": "red", "size": "cyan"}
_STATES: Final = {"running": "green", "waiting": "yellow", "paused": "yellow", "failed": "red"}
_TINY: Final = 0.005  # nodes
_BETWEEN: Final = 2  # columns of a table
_SPARK: Final = 15  # letters, if at all possible


@dataclass(frozen=True, slots=True)
class ScreenSigns:
    """The characters that bars are drawn with."""

    used: str
    idle: str
    steps: str  # from next to nothing to all


BLOCKS: Final = ScreenSigns(used="█", idle="░", steps="▁▂▃▄▅▆▇█")
PLAIN: Final = ScreenSigns(used="#", idle=".", steps="_.-~=+*#")


@dataclass(frozen=True)
class TopView:
    """The state of a live run as shown.

    ``lost`` is the time and reason of a lost connection; ``height`` limits the lines.
    """

    scene: LiveView
    lost: tuple[float, str] | None = None
    height: int | None = None
    ends_with: str = ""
    width: int | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Sequence[RenderableType]:
        """Return the lines of the screen."""
        signs = PLAIN if options.ascii_only or console.is_dumb_terminal else BLOCKS
        width = min(options.max_width, self.width or options.max_width)
        head = self._head(width, signs)
        end = [_line(Text(self.ends_with, "dim"), width)] if self.ends_with else []
        room = _ALL if self.height is None else self.height - len(head) - len(end)
        return [Group(*head, *self._body(room, width, signs), *end)]

    def _head(self, width: int, signs: ScreenSigns) -> list[RenderableType]:
        status = self.scene.status
        since = f"  {status.state} for {duration(status.now_s - status.since_s)}"
        title = Text.assemble((status.site, "bold"), since, overflow="ellipsis")
        right = clock(status.now_s)
        title.truncate(max(1, width - len(right) - 2), overflow="ellipsis", pad=True)
        title.append(f"  {right}")
        lines: list[RenderableType] = [title]
        if self.lost is not None:
            words = f"lost contact at {clock(self.lost[0])}, trying again: {self.lost[1]}"
            lines.append(_line(Text(words, "reverse red"), width))
        words = in_words_of(status.unit, f" {status.used} of {status.pool} nodes used")
        words += f" ({kinds_in_words(status)})" if status.kinds else ""
        words += f", {status.drained} drained" if status.drained else ""
        room = max(0, min(60, width - len("pool ") - len(words)))
        used = round(room * status.used / status.pool) if status.pool else 0
        bar = Text.assemble("pool ", (signs.used * used, "green"), (signs.idle * (room - used), "dim"), words)
        lines.append(_line(bar, width))
        speed = Text.assemble("speed ", (_short(status.speed), "bold"), " samples/s ")
        room = min(40, width - len(speed.plain) - 1)
        if room > 4:  # noqa: PLR2004 - fewer letters tell nothing
            speed.append(spark(self.scene.speeds(room), signs), "cyan")
        lines.append(_line(speed, width))
        harvest = "nothing yet"
        if status.harvested and (today := status.harvested[-1]).day == self.scene.day:
            hours = in_words_of(status.unit, f"{today.node_s / 3600:,.2f} node-hours")
            harvest = f"{hours}, {_short(today.samples)} samples"
        lines.append(_line(Text(f"harvested today: {harvest}"), width))
        return lines

    def _body(self, room: int, width: int, signs: ScreenSigns) -> list[RenderableType]:
        now = self.scene.status.now_s
        recent = [row for row in self.scene.tasks.values() if row.ended_s is None or now - row.ended_s < _OVER_SHOWN_S]
        tasks = sorted(recent, key=_rank)
        feed = list(self.scene.happened)[::-1]
        left_over = room - _HEADINGS - max(1, len(tasks)) - 1  # a blank line stands between
        message = max(0, min(len(feed), _FEED, max(left_over, _LEAST_FEED if room > _ROOMY else 0)))
        free = room - _HEADINGS - (message + 1 if message else 0)
        shown = len(tasks) if len(tasks) + bool(self.scene.more) <= free else max(0, free - 1)
        lines: list[RenderableType] = []
        if not tasks:
            lines.append(_line(Text("no task yet: bftrain submit train.py --nodes 1:8", "dim"), width))
        elif shown:
            lines.append(self._table(tasks[:shown], width, signs))
        left = len(tasks) - shown + self.scene.more
        if left:
            lines.append(_line(Text(f"and {left} more: bftrain queue", "dim"), width))
        if message:
            lines.append(Text(""))
        for one in feed[:message]:
            mark = _MARKS.get(one.kind, " ")
            lines.append(_line(Text(f"{clock(one.time_s)} {mark} {one.text}", _COLOURS.get(one.kind, "")), width))
        return lines

    def _table(self, tasks: Sequence[TaskRow], width: int, signs: ScreenSigns) -> Table:
        """Return a table of tasks with as many columns as fit the width."""
        names = max([4, *(len(row.name) for row in tasks)])
        columns = [column for column in _COLUMNS if width >= column.from_width]
        taken = sum(column.width + _BETWEEN for column in columns)
        name_width = max(8, min(names, 32, width - taken - _BETWEEN - _SPARK))
        sparks = max(4, min(40, width - taken - name_width - _BETWEEN))
        grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        grid.add_column("task", width=name_width, no_wrap=True, overflow="ellipsis")
        for column in columns:
            justify: JustifyMethod = "left" if column.left else "right"
            grid.add_column(column.title, width=column.width, no_wrap=True, overflow="ellipsis", justify=justify)
        grid.add_column("nodes over time", width=sparks, no_wrap=True, overflow="crop")
        sizes = {row.number: self.scene.sizes(row.number, sparks) for row in tasks}
        most = max([1.0, *(size for over_time in sizes.values() for size in over_time)])
        for row in tasks:
            over = "dim" if row.ended_s is not None else ""
            styles = [_STATES.get(row.state, "dim") if column.title == "state" else over for column in columns]
            now_s = self.scene.status.now_s
            cells = [Text(column.tell(row, now_s), style) for column, style in zip(columns, styles, strict=True)]
            over_time = Text(spark(sizes[row.number], signs, most), "cyan")
            grid.add_row(Text(row.name, "dim" if row.ended_s is not None else "bold"), *cells, over_time)
        return grid


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    from_width: int  # columns of the terminal, below which it is left out
    tell: Callable[[TaskRow, float], str]  # what a task's row has here, at a time
    left: bool = False


def _done(row: TaskRow, _now_s: float) -> str:
    return f"{row.done:.0%}" if row.done is not None else f"{row.step:,}" if row.step else ""


_COLUMNS: Final = (
    _Column("user", 8, 120, lambda row, _: row.user, left=True),
    _Column("state", 9, 46, lambda row, _: row.state, left=True),
    _Column("nodes", 5, 0, lambda row, _: f"{row.size}" if row.ended_s is None else ""),
    _Column("of", 7, 100, lambda row, _: f"{row.min_nodes}-{row.max_nodes}"),
    _Column("done", 6, 54, _done),
    _Column("speed", 8, 66, lambda row, _: _short(row.speed) if row.speed else ""),
    _Column("loss", 9, 90, lambda row, _: "" if row.loss is None else f"{row.loss:.4g}"),
    _Column("for", 12, 84, lambda row, now_s: duration((row.ended_s or now_s) - row.since_s)),
)


def _rank(row: TaskRow) -> tuple[float, ...]:
    over = row.state not in _ORDER
    return (len(_ORDER), -(row.ended_s or 0.0)) if over else (_ORDER.index(row.state), -row.size, row.number)


def spark(values: Sequence[float], signs: ScreenSigns, most: float | None = None) -> str:
    """Return a sparkline of the values; blank where there is none."""
    most = most or max([1e-9, *values])
    steps = len(signs.steps)
    return "".join(
        " " if value < _TINY else signs.steps[min(steps - 1, int(value / most * steps))] for value in values
    ).rjust(len(values))


def _short(number: float) -> str:
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def _line(text: Text, width: int) -> Text:
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    return text
