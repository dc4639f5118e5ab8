"""Charts as SVG text: drawn here, styled by the page they stand in, needing nothing else.

Every chart is drawn for a given width in pixels, so that its letters stay readable on a narrow screen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

_STEPS_S: Final = tuple(
    amount * unit
    for unit, amounts in ((1, (1, 2, 5, 10, 30)), (60, (1, 2, 5, 10, 30)), (3600, (1, 2, 3, 6, 12)))
    for amount in amounts
)
_DAY_S: Final = 86400.0
_UNITS: Final = ((_DAY_S, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_LETTER: Final = 8.0  # as wide as a letter gets on the average, pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A step curve with its name and its CSS class; ``values[i]`` holds from ``times_s[i]`` to the next time."""

    name: str
    css: str
    times_s: NDArray[np.float64]
    values: NDArray[np.float64] | NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar: a name (and a detail where there is room), a length, the words behind it and its CSS class."""

    name: str
    detail: str
    value: float
    words: str
    css: str


def step_areas(curves: Sequence[Curve], end_s: float, *, width: int, height: int, alt: str, unit: str) -> str:
    """Draw curves as areas in front of each other, averaged over stretches no finer than the screen."""
    left, right, top, bottom = 52, 10, 26, 38
    plot_width, plot_height = width - left - right, height - top - bottom
    averaged = [average(curve, end_s, max(plot_width // 2, 1)) for curve in curves]
    marks = nice_marks(max((float(values.max()) for _, values in averaged), default=0.0))
    span_s, highest = end_s or 1.0, marks[-1]

    def x(time_s: float) -> float:
        return left + plot_width * time_s / span_s

    def y(value: float) -> float:
        return top + plot_height * (1.0 - value / highest)

    parts = [_open(width, height, alt)]
    for mark in marks:
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        parts.append(_text(left - 6, y(mark) + 4, f"{mark:,.0f}", "end"))
    for curve, (edges, values) in zip(curves, averaged, strict=True):
        path = _step_path([x(edge) for edge in edges.tolist()], [y(value) for value in values.tolist()])
        parts.append(f'<path class="area {escape(curve.css)}" d="{path}V{y(0):.1f}H{left}Z"/>')
    parts.extend(_time_axis(span_s, left, height - bottom, plot_width))
    parts.append(_text(left - 6, 12, unit, "end"))
    return "".join([*parts, "</svg>"])


def bars(items: Sequence[Bar], *, width: int, alt: str) -> str:
    """Draw horizontal bars, each under its name and words, all to one scale."""
    row, thick = 40, 14
    longest = max((item.value for item in items), default=0.0) or 1.0
    parts = [_open(width, row * len(items) + 4, alt)]
    for place, item in enumerate(items):
        top = place * row
        length = max(width * item.value / longest, 1.0) if item.value > 0 else 0.0
        room = (width - _LETTER * len(item.words)) / _LETTER
        full = f"{item.name}: {item.detail}"
        parts.append(_text(0, top + 14, full if len(full) < room else item.name, "start", css="name"))
        parts.append(_text(width, top + 14, item.words, "end"))
        parts.append(_box("track", top + 20, width, thick))
        parts.append(_box(item.css, top + 20, length, thick))
    return "".join([*parts, "</svg>"])


def average(curve: Curve, end_s: float, most: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give a step curve (edges, values) of at most ``most`` steps with the same integral as ``curve``."""
    times, values = curve.times_s, np.asarray(curve.values, dtype=np.float64)
    if times.size == 0 or end_s <= 0.0:
        return np.array([0.0, max(end_s, 0.0)]), np.zeros(1)
    if times.size <= most:
        return np.append(times, end_s), values
    integral = np.concatenate(([0.0], np.cumsum(values * np.diff(times, append=end_s))))
    edges = np.linspace(times[0], end_s, most + 1)
    return edges, np.diff(np.interp(edges, np.append(times, end_s), integral)) / np.diff(edges)


def nice_marks(highest: float, about: int = 4) -> list[float]:
    """Give round numbers from 0 to at least ``highest``, for the marks of an axis of counts."""
    rough = max(highest, 1.0) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = max(next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough), 1.0)
    return [step * number for number in range(math.ceil(max(highest, 1.0) / step) + 1)]


def time_marks(span_s: float, most: int) -> tuple[list[float], float, str]:
    """Give times to mark on an axis of ``span_s`` seconds, with the unit to count them in and its name."""
    days = (1.0, 2.0, 5.0, 7.0, 14.0, 30.0, 61.0, 91.0, 183.0, 365.0)
    steps = (*_STEPS_S, *(day * _DAY_S for day in days))
    step = next((step for step in steps if span_s / step <= most), span_s)
    unit_s, name = next(((size, name) for size, name in _UNITS if step >= size), _UNITS[-1])
    return [step * number for number in range(int(span_s / step + 1e-9) + 1)], unit_s, name


def _time_axis(span_s: float, left: float, base: float, plot_width: int) -> Iterator[str]:
    marks, unit_s, name = time_marks(span_s, max(plot_width // 70, 2))
    for mark in marks:
        x = left + plot_width * mark / span_s
        yield f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{base}" y2="{base + 5}"/>'
        yield _text(x, base + 19, f"{mark / unit_s:g}", "middle")
    yield _text(left + plot_width, base + 34, f"{name} since the log's start", "end")


def _step_path(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Path along a step curve; ``xs`` has one more entry, the end."""
    steps = "".join(f"V{y:.1f}H{x:.1f}" for x, y in zip(xs[1:], ys, strict=True))
    return f"M{xs[0]:.1f},{ys[0]:.1f}{steps}"


def _open(width: int, height: int, alt: str) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(alt)}" xmlns="http://www.w3.org/2000/svg"><title>{escape(alt)}</title>'
    )


def _box(css: str, top: float, width: float, height: float) -> str:
    return f'<rect class="{escape(css)}" x="0" y="{top}" width="{width:.1f}" height="{height}" rx="2"/>'


def _text(x: float, y: float, words: str, anchor: str, css: str = "label") -> str:
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
