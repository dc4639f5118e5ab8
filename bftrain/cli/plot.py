"""Small pictures of numbers over time, out of characters: for terminals, and for pipes that go to one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

PIPE_WIDTH: Final = 80  # what goes into a pipe is often looked at in the end
HEIGHT: Final = 8  # even: the middle is named too
LOW: Final = 6  # for a picture that shares its screen with a table
_AXIS_LINES: Final = 2  # below each picture
_LEAST_WIDTH: Final = 12  # columns of the picture itself; less shows nothing
_LARGEST_WIDTH: Final = 400
_WIDE: Final = 44  # from here on the axis has room for times of day
_DAY_S: Final = 86_400.0
_EPOCH_FROM_S: Final = 1e8  # logs that begin earlier count from some zero of their own, not from 1970
_LATEST_S: Final = 1e12  # later ends of such logs are shown like any time beyond the calendar
_UNITS: Final = ((_DAY_S, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_WHOLE_FROM: Final = 100  # of a unit: from here on decimals tell nothing
_PART_STYLE: Final = "blue"
_REST_STYLE: Final = "bright_black"


@dataclass(frozen=True, slots=True)
class _Signs:
    parts: str
    rest: str
    reach: str
    tick: str
    side: str
    corner: str
    floor: str


_BLOCKS: Final = _Signs(" ▁▂▃▄▅▆▇█", "▒", "░", "┤", "│", "└", "─")
_ASCII: Final = _Signs(" _=#", ":", ".", "+", "|", "+", "-")


@dataclass(frozen=True, slots=True, eq=False)
class StepPlot:
    """A number that is ``values[i]`` from ``times[i]`` on (seconds UTC), until ``end_s``.

    Rich prints it as wide as there is room. Each column shows the mean over its stretch of time, filled, and up to
    the largest value in it, shaded. Where the output cannot hold block characters there are ASCII ones.
    """

    title: str
    times: NDArray[np.float64]
    values: NDArray[np.int64] | NDArray[np.float64]
    end_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        width, plain = _room(console, options)
        for line in self.lines(width, plain=plain):
            yield Text(line, no_wrap=True, overflow="crop")

    def lines(self, width: int, *, plain: bool = False) -> list[str]:
        """Draw the picture, title first, no line wider than ``width``; nothing where there is nothing to draw."""
        signs = _ASCII if plain else _BLOCKS
        top = float(self.values.max()) if self.values.size else 0.0
        frame = _Frame.of(self.times, self.end_s, top, width, HEIGHT)
        if frame is None:
            return []
        means, largest = self.resampled(frame.columns)
        legend = f"{self.title} ({signs.parts[-1]} mean, {signs.reach} largest)"
        filled = _filled(means / top, HEIGHT * (len(signs.parts) - 1))
        rows = _rows(filled, _filled(largest / top, HEIGHT), HEIGHT, signs, signs.reach)
        return [legend[:width], *frame.around(rows, signs)]

    def resampled(self, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean, weighted by time, and largest value in each of so many equal stretches of time."""
        edges = np.linspace(self.times[0], self.end_s, columns + 1)
        first = np.searchsorted(self.times, edges[:-1], side="right") - 1
        last = np.searchsorted(self.times, edges[1:], side="left")
        largest = [float(self.values[low : max(high, low + 1)].max()) for low, high in zip(first, last, strict=True)]
        return _means(self.times, self.values, self.end_s, edges), np.array(largest)


@dataclass(frozen=True, slots=True, eq=False)
class PartPlot:
    """How much of a number was a part of it, such as the used of the idle nodes; ``names`` are those of part and rest.

    Each column shows means over its stretch of time: the part filled, and above it the rest, shaded.
    """

    title: str
    names: tuple[str, str]
    times: NDArray[np.float64]
    values: NDArray[np.int64] | NDArray[np.float64]
    part: NDArray[np.int64] | NDArray[np.float64]
    end_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Give the lines to rich; part and rest have colours of their own where there are colours."""
        from rich.text import Text

        width, plain = _room(console, options)
        signs = _ASCII if plain else _BLOCKS
        part = set(signs.parts.strip())
        lines = self.lines(width, plain=plain)
        first = len(lines) - LOW - _AXIS_LINES
        for number, line in enumerate(lines):
            text = Text(line, no_wrap=True, overflow="crop")
            if first <= number < first + LOW:  # not the legend and not the axis: their letters are letters
                for place in range(max(line.find(signs.side), line.find(signs.tick)) + 1, len(line)):
                    text.stylize(_PART_STYLE if line[place] in part else _REST_STYLE, place, place + 1)
            yield text

    def lines(self, width: int, *, plain: bool = False) -> list[str]:
        """Draw the picture, no line wider than ``width``; nothing where there is nothing to draw.

        The legend stands below it in the middle, or above it where there is too little room.
        """
        signs = _ASCII if plain else _BLOCKS
        top = float(self.values.max()) if self.values.size else 0.0
        frame = _Frame.of(self.times, self.end_s, top, width, LOW)
        if frame is None:
            return []
        edges = np.linspace(self.times[0], self.end_s, frame.columns + 1)
        whole, part = (_means(self.times, values, self.end_s, edges) for values in (self.values, self.part))
        top = float(whole.max())  # short bursts would leave little room for what is usual
        frame = replace(frame, labels=_labels(top, LOW))
        legend = f"{self.title}: {signs.parts[-1]} {self.names[0]}, {signs.rest} {self.names[1]}"
        upto = np.maximum(np.rint(np.clip(whole / top, 0.0, 1.0) * LOW), whole > 0.0).astype(
            np.int64
        )  # to a whole cell
        rows = _rows(_filled(part / top, LOW * (len(signs.parts) - 1)), upto, LOW, signs, signs.rest)
        drawn = frame.around(rows, signs, legend)
        return drawn or [legend[:width], *frame.around(rows, signs)]


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around a picture: how much it shows to the left, and when below."""

    begin_s: float
    end_s: float
    labels: Sequence[str]  # of its top, its middle and its floor
    columns: int
    height: int

    @classmethod
    def of(cls, times: NDArray[np.float64], end_s: float, top: float, width: int, height: int) -> _Frame | None:
        """Give the frame of a picture with this ``top``; nothing where there is nothing to draw, or no room."""
        span_s = end_s - float(times[0]) if times.size else 0.0
        if not 0 < span_s < np.inf or not 0 < top < np.inf:
            return None
        labels = _labels(top, height)
        columns = min(width, _LARGEST_WIDTH) - max(map(len, labels)) - 2
        return cls(float(times[0]), end_s, labels, columns, height) if columns >= _LEAST_WIDTH else None

    def around(self, rows: Sequence[str], signs: _Signs, legend: str = "") -> list[str]:
        """Put the axes around the rows, with ``legend`` below; nothing if there is no room for it."""
        axis = self._axis(legend)
        if legend not in axis:
            return []
        margin = max(map(len, self.labels)) + 1
        named = {0: self.labels[0], self.height // 2: self.labels[1]}
        picture = [
            f"{named.get(number, ''):>{margin - 1}} {signs.tick if number in named else signs.side}{row}".rstrip()
            for number, row in enumerate(rows)
        ]
        floor = f"{self.labels[2]:>{margin - 1}} {signs.corner}{signs.floor * self.columns}"
        return [*picture, floor, f"{'':{margin}} {axis}"]

    def _axis(self, legend: str) -> str:
        """Write when the picture begins and ends, and the ``legend`` or when its middle is, if there is room."""
        left, middle, right = self._moments()
        middle = legend or middle
        room = self.columns - len(left) - len(right)
        if room < 1:
            return left[: self.columns]
        if room < len(middle) + 4:
            return f"{left}{'':{room}}{right}"
        before = self.columns // 2 - len(left) - len(middle) // 2
        return f"{left}{'':{before}}{middle}{'':{room - before - len(middle)}}{right}"

    def _moments(self) -> list[str]:
        moments = (self.begin_s, (self.begin_s + self.end_s) / 2, self.end_s)
        if 0.0 <= self.begin_s < _EPOCH_FROM_S and self.end_s < _LATEST_S:
            size, unit = next((size, unit) for size, unit in _UNITS if self.end_s >= 2 * size or size == 1.0)
            amounts = [at / size for at in moments]
            return [f"{at:,.0f} {unit}" if at >= _WHOLE_FROM else f"{at:.3g} {unit}" if at else "0" for at in amounts]
        form = "%Y-%m-%d %H:%M" if self.columns >= _WIDE or self.end_s - self.begin_s < 2 * _DAY_S else "%Y-%m-%d"
        if self.columns < 2 * len("2021-02-10 10:00"):
            form = "%H:%M" if self.end_s - self.begin_s < _DAY_S else "%m-%d"
        return [_moment(at, form) for at in moments]


def _room(console: Console, options: ConsoleOptions) -> tuple[int, bool]:
    width = options.max_width if console.is_terminal else min(PIPE_WIDTH, options.max_width)
    return width, options.ascii_only or console.is_dumb_terminal


def _labels(top: float, height: int) -> Sequence[str]:
    return [f"{amount:,.0f}" if top >= height else f"{amount:.3g}" for amount in (top, top / 2, 0.0)]


def _means(
    times: NDArray[np.float64],
    values: NDArray[np.int64] | NDArray[np.float64],
    end_s: float,
    edges: NDArray[np.float64],
) -> NDArray[np.float64]:
    bounds = np.append(times, end_s)
    area = np.concatenate(([0.0], np.cumsum(values * np.diff(bounds))))
    means: NDArray[np.float64] = np.diff(np.interp(edges, bounds, area)) / np.diff(edges)
    return means


def _filled(heights: NDArray[np.float64], cells: float) -> NDArray[np.int64]:
    """How many cells, or parts of them, columns of these heights (0 to 1) fill; anything above 0 is visible."""
    return np.ceil(np.clip(heights, 0.0, 1.0) * cells - 1e-9).astype(np.int64)


def _rows(filled: NDArray[np.int64], upto: NDArray[np.int64], height: int, signs: _Signs, shade: str) -> list[str]:
    """Draw columns filled up to a part of a cell, and shaded up to the next bound; top row first."""
    steps = len(signs.parts) - 1
    rows = []
    for row in range(height - 1, -1, -1):
        here = np.clip(filled - row * steps, 0, steps).tolist()
        cells = zip(here, upto.tolist(), strict=True)
        rows.append("".join(signs.parts[part] if part else (shade if row < high else " ") for part, high in cells))
    return rows


def _moment(time_s: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"{time_s:.4g} s"
