"""Axes: the scale of a channel, and its ticks, labels and lines as SVG.

Lengths along x are percentages of the plot's width, so that one drawing fits every width and its letters keep their
size. Labels that would touch each other in a narrow plot have the class ``wide``, which page.css hides there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

from bftrain.text_formats import plain
from bftrain_replay.drawing.static.layers import MarkLayer, UnsupportedFigureError
from bftrain_replay.drawing.static.scales import (
    FONT_SIZE,
    AxisScale,
    AxisTick,
    BandScale,
    LinearScale,
    LogScale,
    TickLook,
    TimeScale,
    padded,
    shortened,
    text_width,
)

TICKS_ACROSS: Final = 8
_TICKS_UP: Final = 5
_WIDE, _NARROW = 600.0, 250.0  # pixels of the narrowest plots that show all labels, and those of all plots
_PLOT: Final = 760.0  # pixels of the plot for which paddings in pixels are meant
_GAP: Final = 8.0  # pixels between labels
_EXTENT: Final = 38.0  # pixels that labels beside a plot take at least, so that plots below each other are in line
_EDGE: Final = 0.01  # a label so close to an end of the axis stays inside
_BEFORE: Final = {"middle": 0.5, "end": 1.0}  # the part of a label before its place
_TITLE: Final = 22.0  # pixels of a line of words


class PlotAxis(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a plot: its scale, its ticks if they are shown, and their style, in Vega-Lite's words."""

    scale: AxisScale
    ticks: Sequence[AxisTick]
    look: Mapping[str, Any]
    title: str

    @property
    def labels(self) -> list[str]:
        """The labels, cut to the length that the chart allows."""
        return [shortened(tick.label, float(self.look.get("labelLimit", 180))) for tick in self.ticks]

    @property
    def inside(self) -> bool:
        """Whether labels are inside the plot."""
        return self.look.get("labelAlign") == "left"

    @property
    def extent(self) -> float:
        """The pixels that the axis takes beside the plot."""
        widest = 0.0 if self.inside else max(map(text_width, self.labels), default=0.0) + 7
        return max(widest, float(self.look.get("minExtent", _EXTENT))) + (_TITLE if self.title else 0.0)


def axis_of(layers: Sequence[MarkLayer], channel: str, params: Mapping[str, float]) -> PlotAxis:
    """Return the axis of ``x`` or ``y`` that all layers share; ``params`` are named numbers of a chart."""
    using = [layer for layer in layers if {"field", "datum"} & layer.channels.get(channel, {}).keys()]
    if not using:
        return PlotAxis(scale=LinearScale(0.0, 1.0), ticks=(), look={}, title="")
    first = next((each for each in using if "title" in each.channels[channel]), using[0]).channels[channel]
    shown = first.get("axis", {})
    scale, look = scale_of(using, channel, params), shown or {}
    if shown is None:
        return PlotAxis(scale=scale, ticks=(), look={}, title="")
    title = look.get("title", first.get("title", ""))
    count = look.get("tickCount", TICKS_ACROSS if channel == "x" else _TICKS_UP)
    ticks = scale.ticks(
        TICKS_ACROSS if isinstance(count, Mapping) else int(count),
        TickLook(
            number=look["format"] if isinstance(look.get("format"), str) else "",
            least_step=float(look.get("tickMinStep", 0.0)),
            values=tuple(map(float, look.get("values", ()))),
        ),
    )
    return PlotAxis(scale=scale, ticks=ticks, look=look, title=title or "")


def scale_of(layers: Sequence[MarkLayer], channel: str, params: Mapping[str, float]) -> AxisScale:
    """Return the common scale of all values of a channel."""
    described = [layer.channels[channel] for layer in layers]
    kind = next((each["type"] for each in described if "type" in each), "quantitative")
    asked: Mapping[str, Any] = next((each["scale"] for each in described if each.get("scale")), {})
    if kind == "nominal":
        return _bands(layers, channel, described, asked)
    values = _values(layers, channel)
    domain = asked.get("domain") or (min(values, default=0.0), max(values, default=1.0))
    low, high = (
        (params[asked[end]["expr"]] if end in asked else float(value))
        for end, value in zip(("domainMin", "domainMax"), domain, strict=True)
    )
    if kind == "temporal":
        times = next(each for each in described if each.get("scale"))
        return TimeScale(low, high, on_calendar="labelExpr" not in (times.get("axis") or {}))
    free = "domain" not in asked and "domainMin" not in asked
    if asked.get("type") == "log":
        log = LogScale(low, high if high > low else low * 10.0)
        return padded(log, float(asked.get("padding", 0.0)) / _PLOT)
    if asked.get("type", "linear") != "linear":
        raise UnsupportedFigureError(f"scale '{asked['type']}'")
    if free and asked.get("zero", True):
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low - 1.0, high + 1.0) if low else (0.0, 1.0)
    linear = LinearScale(low, high, bool(asked.get("reverse")))
    if asked.get("nice", free):
        linear = linear.nice(int(_count(described)))
    return padded(linear, float(asked.get("padding", 0.0)) / _PLOT)


def across(axis: PlotAxis, height: float) -> str:
    """Return the axis below a plot."""
    places = [tick.place for tick in axis.ticks]
    in_narrow, in_wide = (_shown(places, axis, width) for width in (_NARROW, _WIDE))
    parts = []
    if axis.look.get("domain", True) and axis.ticks:
        parts.append(f'<line x1="0" x2="100%" y1="{height:g}" y2="{height:g}" class="axis"/>')
    for number, (place, label) in enumerate(zip(places, axis.labels, strict=True)):
        at = percent(place)
        if axis.look.get("ticks", True):
            parts.append(f'<line x1="{at}" x2="{at}" y1="{height:g}" y2="{height + 5:g}" class="axis"/>')
        if number in in_wide:
            css, side = "" if number in in_narrow else ' class="wide"', _anchor(place, axis.scale)
            parts.append(f'<text x="{at}" y="{height + 18:g}"{css} text-anchor="{side}">{escape(label)}</text>')
    if axis.title:
        parts.append(_title_below(axis.title, height + 38))
    return "".join(parts)


def _title_below(title: str, y: float) -> str:
    """Return the title in the middle; one that is wider than a narrow plot is right-aligned there."""
    middle = f'<text x="50%" y="{y:g}" text-anchor="middle"'
    if text_width(title) <= _NARROW:
        return f"{middle}>{escape(title)}</text>"
    at_end = f'<text x="100%" y="{y:g}" text-anchor="end" class="narrow">{escape(title)}</text>'
    return f'{middle} class="wide">{escape(title)}</text>{at_end}'


def beside(axis: PlotAxis, height: float, *, lines: bool) -> str:
    """Return the axis left of a plot; ``lines`` across the plot are drawn at its ticks."""
    parts = []
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        y = (1.0 - tick.place) * height
        if lines and axis.look.get("grid", not isinstance(axis.scale, BandScale)):
            parts.append(f'<line x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}" class="axis"/>')
        if not axis.look.get("labels", True):
            continue
        colour = ' fill="var(--ink)"' if axis.look.get("labelColor") == "@ink" else ""
        x, end = (0, "start") if axis.inside else (-7, "end")
        y += float(axis.look.get("labelOffset", 0.0)) + FONT_SIZE * 0.35
        parts.append(f'<text x="{x}" y="{y:.1f}" text-anchor="{end}"{colour}>{escape(label)}</text>')
    if axis.title.strip():
        turned = f"translate({14 - axis.extent:.0f},{height / 2:g}) rotate(-90)"
        parts.append(f'<text transform="{turned}" text-anchor="middle">{escape(axis.title)}</text>')
    return "".join(parts)


def room_below(axis: PlotAxis) -> float:
    """Return how many pixels the axis takes below a plot."""
    return (_TITLE if axis.ticks else 2.0) + (_TITLE - 2 if axis.title else 0.0)


def percent(share: float) -> str:
    """Return a share of the width as SVG has it."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _count(described: Iterable[Mapping[str, Any]]) -> float:
    found = (each["axis"]["tickCount"] for each in described if "tickCount" in (each.get("axis") or {}))
    count = next(found, _TICKS_UP)
    return float(TICKS_ACROSS) if isinstance(count, Mapping) else float(count)


def _values(layers: Sequence[MarkLayer], channel: str) -> list[float]:
    found: list[float] = []
    for layer in layers:
        for name in (channel, f"{channel}2"):
            values = [layer.value(row, name) for row in layer.rows] if name in layer.channels else []
            found += [float(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
        if stacked(layer, channel):
            found += [sum(float(layer.value(row, channel)) for row in same) for same in layer.groups(_other(channel))]
    return found


def stacked(layer: MarkLayer, channel: str) -> bool:
    """Return whether a layer stacks its values: areas, and bars with names, of several colours do."""
    described, other = layer.channels.get(channel, {}), layer.channels.get(_other(channel), {})
    upon = (layer.kind == "area" and channel == "y") or (layer.kind == "bar" and other.get("type") == "nominal")
    numbers = "field" in described and described.get("type") == "quantitative"
    free = f"{channel}2" not in layer.channels and "xOffset" not in layer.channels
    coloured = "field" in layer.channels.get("color", {})
    return upon and numbers and free and coloured and described.get("stack", True) is not None


def _other(channel: str) -> str:
    return "y" if channel == "x" else "x"


def _bands(
    layers: Sequence[MarkLayer], channel: str, described: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]
) -> BandScale:
    order = asked.get("domain") or next((each["sort"] for each in described if each.get("sort")), None)
    names = order or dict.fromkeys(plain(layer.value(row, channel)) for layer in layers for row in layer.rows)
    bars = any(layer.kind == "bar" for layer in layers)
    return BandScale(tuple(map(plain, names)), padding=0.1 if bars else 0.0, reverse=channel == "y")


def _shown(places: Sequence[float], axis: PlotAxis, width: float) -> set[int]:
    """Return which labels fit beside each other in a plot of this width: every one, every second, every third, ..."""
    ends = []
    for place, label in zip(places, axis.labels, strict=True):
        wide = text_width(label)
        begin = place * width - wide * _BEFORE[_anchor(place, axis.scale)]
        ends.append((begin, begin + wide))
    ordered = sorted(range(len(places)), key=lambda one: places[one])
    if isinstance(axis.scale, LogScale):
        return _fitting(ordered, ends)
    for stride in range(1, len(ordered)):
        chosen = ordered[::stride]
        found = _fitting(chosen, ends)
        if set(chosen[:-1]) <= found:  # the last may lack room: it stands before the end of the axis
            return found
    return set(ordered[:1])


def _fitting(numbers: Sequence[int], ends: Sequence[tuple[float, float]]) -> set[int]:
    """Return the labels that do not touch the one before them."""
    found, last = set[int](), -math.inf
    for number in numbers:
        if ends[number][0] >= last + _GAP:
            found.add(number)
            last = ends[number][1]
    return found


def _anchor(place: float, scale: AxisScale) -> str:
    """Return the text anchor that keeps a label at the end of an axis inside the page."""
    return "end" if place > 1.0 - _EDGE and not isinstance(scale, BandScale) else "middle"
