"""Text plots of numbers over time, for terminals and pipes to terminals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

PIPE_WIDTH: Final = 80  # output of a pipe is often shown on a terminal in the end
HEIGHT: Final = 8  # even: the middle is also labelled
LOW: Final = 6  # height of plots next to a table
_AXIS_LINES: Final = 2  # below each picture
_LEAST_WIDTH: Final = 12  # columns of the plot itself; narrower plots are useless
_LARGEST_WIDTH: Final = 400
_WIDE: Final = 44  # minimum width for times of day on the axis
_DAY_S: Final = 86_400.0
_EPOCH_FROM_S: Final = 1e8  # logs with an earlier start have their own zero, not 1970
_LATEST_S: Final = 1e12  # later times are shown like times beyond the calendar
_UNITS: Final = ((_DAY_S, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_WHOLE_FROM: Final = 100  # numbers of this size or more have no decimals
_PART_STYLE: Final = "blue"
_REST_STYLE: Final = "bright_black"


class _Signs(msgspec.Struct, frozen=True):
    parts: str
    rest: str
    reach: str
    tick: str
    side: str
    corner: str
    floor: str


_BLOCKS: Final = _Signs(" ▁▂▃▄▅▆▇█", "▒", "░", "┤", "│", "└", "─")
_ASCII: Final = _Signs(" _=#", ":", ".", "+", "|", "+", "-")


class StepPlot(msgspec.Struct, frozen=True, eq=False):
    """A step function of time: ``values[i]`` from ``times[i]`` on (seconds UTC), until ``end_s``.

    Rich prints it in the available width. Each column shows the mean over its time interval, filled, and up to
    the largest value in it, shaded. Output without block characters uses ASCII ones.
    """

    title: str
    times: NDArray[np.float64]
    values: NDArray[np.int64] | NDArray[np.float64]
    end_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        width, plain = _space(console, options)
        for line in self.lines(width, plain=plain):
            yield Text(line, no_wrap=True, overflow="crop")

    def lines(self, width: int, *, plain: bool = False) -> list[str]:
        """Return the plot, title first, with lines up to ``width``; empty if there is no data."""
        signs = _ASCII if plain else _BLOCKS
        top = float(self.values.max()) if self.values.size else 0.0
        frame = _Frame.of(self.times, self.end_s, top, width, HEIGHT)
        if frame is None:
            return []
        means, largest = self.resampled(frame.columns)
        legend = f"{self.title} ({signs.parts[-1]} mean, {signs.reach} largest)"
        filled = _cell_counts(means / top, HEIGHT * (len(signs.parts) - 1))
        rows = _rows(filled, _cell_counts(largest / top, HEIGHT), HEIGHT, signs, signs.reach)
        return [legend[:width], *frame.with_axes(rows, signs)]

    def resampled(self, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the time-weighted mean and the largest value in each of ``columns`` equal intervals."""
        edges = np.linspace(self.times[0], self.end_s, columns + 1)
        first = np.searchsorted(self.times, edges[:-1], side="right") - 1
        last = np.searchsorted(self.times, edges[1:], side="left")
        largest = [float(self.values[low : max(high, low + 1)].max()) for low, high in zip(first, last, strict=True)]
        return _means(self.times, self.values, self.end_s, edges), np.array(largest)


class PartPlot(msgspec.Struct, frozen=True, eq=False):
    """A number over time and one part, such as idle and used nodes; ``names`` are the labels of part and rest.

    Each column shows means over its time interval: the part filled, and above it the rest, shaded.
    """

    title: str
    names: tuple[str, str]
    times: NDArray[np.float64]
    values: NDArray[np.int64] | NDArray[np.float64]
    part: NDArray[np.int64] | NDArray[np.float64]
    end_s: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the lines for rich, with different colours for part and rest."""
        from rich.text import Text

        width, plain = _space(console, options)
        signs = _ASCII if plain else _BLOCKS
        part = set(signs.parts.strip())
        lines = self.lines(width, plain=plain)
        first = len(lines) - LOW - _AXIS_LINES
        for number, line in enumerate(lines):
            text = Text(line, no_wrap=True, overflow="crop")
            if first <= number < first + LOW:  # not the legend or the axis, which are plain text
                for place in range(max(line.find(signs.side), line.find(signs.tick)) + 1, len(line)):
                    text.stylize(_PART_STYLE if line[place] in part else _REST_STYLE, place, place + 1)
            yield text

    def lines(self, width: int, *, plain: bool = False) -> list[str]:
        """Return the plot, with lines up to ``width``; empty if there is no data.

        The legend is below it in the middle, or above if space is short.
        """
        signs = _ASCII if plain else _BLOCKS
        top = float(self.values.max()) if self.values.size else 0.0
        frame = _Frame.of(self.times, self.end_s, top, width, LOW)
        if frame is None:
            return []
        edges = np.linspace(self.times[0], self.end_s, frame.columns + 1)
        whole, part = (_means(self.times, values, self.end_s, edges) for values in (self.values, self.part))
        top = float(whole.max())  # the largest mean, because short bursts would squeeze the usual values
        frame = replace(frame, labels=_labels(top, LOW))
        legend = f"{self.title}: {signs.parts[-1]} {self.names[0]}, {signs.rest} {self.names[1]}"
        upto = np.maximum(np.rint(np.clip(whole / top, 0.0, 1.0) * LOW), whole > 0.0).astype(
            np.int64
        )  # rounded to a whole cell
        rows = _rows(_cell_counts(part / top, LOW * (len(signs.parts) - 1)), upto, LOW, signs, signs.rest)
        drawn = frame.with_axes(rows, signs, legend)
        return drawn or [legend[:width], *frame.with_axes(rows, signs)]


class _Frame(msgspec.Struct, frozen=True):
    """The axes of a plot: values to the left, and times below."""

    begin_s: float
    end_s: float
    labels: Sequence[str]  # top, middle and bottom
    columns: int
    height: int

    @classmethod
    def of(cls, times: NDArray[np.float64], end_s: float, top: float, width: int, height: int) -> _Frame | None:
        """Return the axes of a plot with this ``top``; ``None`` without data or enough space."""
        span_s = end_s - float(times[0]) if times.size else 0.0
        if not 0 < span_s < np.inf or not 0 < top < np.inf:
            return None
        labels = _labels(top, height)
        columns = min(width, _LARGEST_WIDTH) - max(map(len, labels)) - 2
        return cls(float(times[0]), end_s, labels, columns, height) if columns >= _LEAST_WIDTH else None

    def with_axes(self, rows: Sequence[str], signs: _Signs, legend: str = "") -> list[str]:
        """Return the rows with axes, and ``legend`` below; empty if space is short."""
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
        """Return the time axis: start, end, and between them the ``legend`` or the middle, if there is space."""
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


def _space(console: Console, options: ConsoleOptions) -> tuple[int, bool]:
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


def _cell_counts(heights: NDArray[np.float64], cells: float) -> NDArray[np.int64]:
    """Return the number of cells, or of parts of cells, for heights 0 to 1; anything above 0 is visible."""
    return np.ceil(np.clip(heights, 0.0, 1.0) * cells - 1e-9).astype(np.int64)


def _rows(filled: NDArray[np.int64], upto: NDArray[np.int64], height: int, signs: _Signs, shade: str) -> list[str]:
    """Return the rows of columns that are filled up to a part of a cell, and shaded up to the next bound; top first."""
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
