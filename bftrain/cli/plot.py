"""A small picture of a number over time, out of characters: for terminals, and for pipes that go to one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

PIPE_WIDTH: Final = 80  # what goes into a pipe is often looked at in the end
HEIGHT: Final = 8
_LEAST_WIDTH: Final = 12  # columns of the picture itself; less shows nothing
_LARGEST_WIDTH: Final = 400
_WIDE: Final = 44  # from here on the axis has room for times of day
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class _Signs:
    """What the picture is drawn with: parts of a full cell, the reach up to the largest, and the axes."""

    parts: str
    reach: str
    tick: str
    side: str
    corner: str
    floor: str


_BLOCKS: Final = _Signs(" ▁▂▃▄▅▆▇█", "░", "┤", "│", "└", "─")
_ASCII: Final = _Signs(" _=#", ".", "+", "|", "+", "-")


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
        """Give the lines to rich."""
        from rich.text import Text

        width = options.max_width if console.is_terminal else min(PIPE_WIDTH, options.max_width)
        plain = options.ascii_only or console.is_dumb_terminal
        for line in self.lines(width, plain=plain):
            yield Text(line, no_wrap=True, overflow="crop")

    def lines(self, width: int, *, plain: bool = False, height: int = HEIGHT) -> list[str]:
        """Draw the picture, title first, no line wider than ``width``; nothing where there is nothing to draw."""
        signs = _ASCII if plain else _BLOCKS
        top = float(self.values.max()) if self.values.size else 0.0
        labels = [f"{amount:,.0f}" if top >= height else f"{amount:.3g}" for amount in (top, top / 2, 0.0)]
        margin = max(map(len, labels)) + 1
        columns = min(width, _LARGEST_WIDTH) - margin - 1
        span_s = self.end_s - float(self.times[0])
        if columns < _LEAST_WIDTH or not 0 < span_s < np.inf or not 0 < top < np.inf:
            return []
        means, largest = self.resampled(columns)
        rows = _rows(means / top, largest / top, height, signs)
        named = {0: labels[0], height // 2: labels[1]}
        picture = [
            f"{named.get(number, ''):>{margin - 1}} {signs.tick if number in named else signs.side}{row}".rstrip()
            for number, row in enumerate(rows)
        ]
        legend = f"{self.title} ({signs.parts[-1]} mean, {signs.reach} largest)"
        floor = f"{labels[2]:>{margin - 1}} {signs.corner}{signs.floor * columns}"
        return [legend[:width], *picture, floor, f"{'':{margin}} {self._axis(columns)}"]

    def resampled(self, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean, weighted by time, and largest value in each of so many equal stretches of time."""
        bounds = np.append(self.times, self.end_s)
        edges = np.linspace(bounds[0], bounds[-1], columns + 1)
        area = np.concatenate(([0.0], np.cumsum(self.values * np.diff(bounds))))
        means = np.diff(np.interp(edges, bounds, area)) / np.diff(edges)
        first = np.searchsorted(self.times, edges[:-1], side="right") - 1
        last = np.searchsorted(self.times, edges[1:], side="left")
        largest = [float(self.values[low : max(high, low + 1)].max()) for low, high in zip(first, last, strict=True)]
        return means, np.array(largest)

    def _axis(self, columns: int) -> str:
        """Write when the picture begins and ends, and when its middle is, if there is room."""
        begin_s = float(self.times[0])
        form = "%Y-%m-%d %H:%M" if columns >= _WIDE or self.end_s - begin_s < 2 * _DAY_S else "%Y-%m-%d"
        if columns < 2 * len("2021-02-10 10:00"):
            form = "%H:%M" if self.end_s - begin_s < _DAY_S else "%m-%d"
        left, middle, right = (_moment(at, form) for at in (begin_s, (begin_s + self.end_s) / 2, self.end_s))
        room = columns - len(left) - len(right)
        if room < 1:
            return left[:columns]
        if room < len(middle) + 4:
            return f"{left}{'':{room}}{right}"
        before = columns // 2 - len(left) - len(middle) // 2
        return f"{left}{'':{before}}{middle}{'':{room - before - len(middle)}}{right}"


def _rows(means: NDArray[np.float64], largest: NDArray[np.float64], height: int, signs: _Signs) -> list[str]:
    """Draw columns of these heights (0 to 1), top row first. Whatever is above 0 can be seen."""
    steps = len(signs.parts) - 1
    filled = np.ceil(np.clip(means, 0.0, 1.0) * height * steps - 1e-9).astype(int)
    reach = np.ceil(np.clip(largest, 0.0, 1.0) * height - 1e-9).astype(int)
    rows = []
    for row in range(height - 1, -1, -1):
        here = np.clip(filled - row * steps, 0, steps).tolist()
        rows.append(
            "".join(
                signs.parts[part] if part else (signs.reach if row < upto else " ")
                for part, upto in zip(here, reach.tolist(), strict=True)
            )
        )
    return rows


def _moment(time_s: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(time_s, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return f"{time_s:.4g} s"
