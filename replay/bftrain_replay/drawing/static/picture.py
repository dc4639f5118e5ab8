"""Static SVG of charts: shown on paper, without JavaScript, and until the page's script has drawn.

A drawing is as wide as the page leaves it, with letters of one size: curves are in an inner SVG that is stretched to
the plot's width; all else has its places along x as percentages of it, and its sizes in pixels. It is a few kilobytes,
takes milliseconds, and has the colours of the page. Charts that it cannot draw are drawn by Vega.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

from bftrain import text_formats
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.series import STEPS
from bftrain_replay.drawing.static.axes import across, axis_of, beside, percent, room_below, stacked
from bftrain_replay.drawing.static.layers import (
    MarkLayer,
    Row,
    UnsupportedFigureError,
    colour_of,
    css_colour,
    dashes_of,
    key_html,
    laid_over,
    layers_of,
)
from bftrain_replay.drawing.static.scales import FONT_SIZE, AxisScale, BandScale
from bftrain_replay.drawing.theme import LIGHT

_WIDTH: Final = 1000  # of the inner picture; it is stretched
_BAND_OPACITY: Final = 0.35
_POINT_RADIUS: Final = 4.0
_PLACEHOLDER: Final = "square"  # holds the place of a raster, which is drawn as an image

Point = tuple[float, float]


class PlotArea(msgspec.Struct, frozen=True, kw_only=True):
    """Converts values to places in a plot of ``height`` pixels."""

    x: AxisScale
    y: AxisScale
    height: float

    def across(self, value: object) -> float:
        """Return the place of a value of x, from 0 to 1."""
        return self.x.place(value)

    def down(self, value: object) -> float:
        """Return the place of a value of y, in pixels from the top."""
        return (1.0 - self.y.place(value)) * self.height


def marks(layer: MarkLayer, plot: PlotArea) -> str:
    """Return all marks of a layer."""
    if layer.kind == _PLACEHOLDER:
        return ""
    draw = _DRAWN.get(layer.kind)
    if draw is None:
        raise UnsupportedFigureError(f"mark '{layer.kind}'")
    return "".join(draw(layer, plot))


def band(rows: Sequence[Row], low: str, high: str, colour: str, plot: PlotArea) -> str:
    """Return a pale band between two columns of rows over time: from minimum to maximum."""
    places = [plot.across(row["t"]) for row in rows]
    tops, bottoms = ([plot.down(row[name]) for row in rows] for name in (high, low))
    shape = [_path(list(zip(places, tops, strict=True)), stepped=True)]
    shape += [f"V{_y(y)}H{_x(x)}" for x, y in zip(places[-2::-1], bottoms[-2::-1], strict=True)]
    look = f'fill="{css_colour(colour)}" opacity="{_BAND_OPACITY}"'
    return _curves(f'<path d="{"".join(shape)}Z" {look}/>', plot)


def _areas(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    if stacked(layer, "y"):
        curves = _stacked_areas(layer, plot)
    elif "y2" in layer.channels:
        curves = _between(layer, plot)
    else:
        curves = [_area(layer, plot, same, 0.0) for same in layer.groups("color", "detail")]
    yield _curves("".join(curves), plot)


def _stacked_areas(layer: MarkLayer, plot: PlotArea) -> list[str]:
    """Return areas with the highest first: each covers the part below it."""
    upon: dict[Any, float] = {}
    areas = []
    order = (lambda same: float(layer.value(same[0], "order"))) if "order" in layer.channels else (lambda _: 0.0)
    for same in sorted(layer.groups("color"), key=order):
        tops = []
        for row in same:
            x = layer.value(row, "x")
            upon[x] = upon.get(x, 0.0) + float(layer.value(row, "y"))
            tops.append((plot.across(x), plot.down(upon[x])))
        areas.append(_filled(layer, same[0], _path(tops, stepped=_stepped(layer)), tops, plot.down(0.0)))
    return areas[::-1]


def _area(layer: MarkLayer, plot: PlotArea, rows: Sequence[Row], base: float) -> str:
    tops = _points(layer, plot, rows)
    return _filled(layer, rows[0], _path(tops, stepped=_stepped(layer)), tops, plot.down(base))


def _filled(layer: MarkLayer, row: Row, top: str, points: Sequence[Point], base: float) -> str:
    shape = f"{top}V{_y(base)}H{_x(points[0][0])}Z"
    return f'<path d="{shape}" fill="{css_colour(colour_of(layer, row))}"{_opacity(layer, row)}/>'


def _between(layer: MarkLayer, plot: PlotArea) -> list[str]:
    shapes = []
    for same in layer.groups("color", "detail"):
        rows = sorted(same, key=lambda row: plot.across(layer.value(row, "x")))
        lower, upper = (
            [(plot.across(layer.value(row, "x")), plot.down(layer.value(row, y))) for row in rows] for y in ("y", "y2")
        )
        shape = _path(upper, stepped=False) + "".join(f"L{_x(x)},{_y(y)}" for x, y in reversed(lower)) + "Z"
        shapes.append(f'<path d="{shape}" fill="{css_colour(colour_of(layer, same[0]))}"{_opacity(layer, same[0])}/>')
    return shapes


def _lines(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    curves = []
    for same in layer.groups("color", "strokeDash", "detail"):
        shape = _path(_points(layer, plot, same), stepped=_stepped(layer))
        look = _stroke(colour_of(layer, same[0]), layer.mark.get("strokeWidth", 2), dashes_of(layer, same[0]))
        curves.append(f'<path d="{shape}" fill="none" {look}{_opacity(layer, same[0])}/>')
    yield _curves("".join(curves), plot)


def _bars(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    if isinstance(plot.y, BandScale):
        thick = _thickness(layer, plot)
        ends: dict[Any, float] = {}
        rows = sorted(layer.rows, key=lambda row: layer.value(row, "order") or 0.0)
        for row in rows if stacked(layer, "x") else layer.rows:
            name, begin, end = layer.value(row, "y"), 0.0, float(layer.value(row, "x"))
            if "x2" in layer.channels:
                begin, end = end, float(layer.value(row, "x2"))
            elif stacked(layer, "x"):
                begin = ends.get(name, 0.0)
                end = ends[name] = begin + end
            left, right = sorted((plot.across(begin), plot.across(end)))
            yield _box(layer, row, left, right - left, plot.down(name) - thick / 2, thick)
    elif isinstance(plot.x, BandScale):
        yield from _upright_bars(layer, plot)
    else:
        raise UnsupportedFigureError("bars without names")


def _thickness(layer: MarkLayer, plot: PlotArea) -> float:
    asked = layer.mark.get("height")
    slot = plot.height / (len(plot.y.names) or 1) if isinstance(plot.y, BandScale) else plot.height
    if asked is None:
        return slot * 0.8
    return slot * float(asked["band"]) if isinstance(asked, dict) else float(asked)


def _upright_bars(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    sides = list(layer.channels.get("xOffset", {}).get("sort", ())) or [None]
    wide = plot.x.width if isinstance(plot.x, BandScale) else 1.0
    for row in layer.rows:
        side = layer.value(row, "xOffset") if sides != [None] else None
        left = plot.across(layer.value(row, "x")) + wide * (sides.index(side) / len(sides) - 0.5)
        top, base = plot.down(layer.value(row, "y")), plot.down(0.0)
        yield _box(layer, row, left, wide / len(sides), top, base - top)


def _rectangles(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    for row in layer.rows:
        x, y = layer.value(row, "x"), layer.value(row, "y")
        if isinstance(plot.x, BandScale) and isinstance(plot.y, BandScale):
            thick = plot.height / len(plot.y.names)
            yield _box(layer, row, plot.across(x) - plot.x.width / 2, plot.x.width, plot.down(y) - thick / 2, thick)
            continue
        left, right = plot.across(x), plot.across(layer.value(row, "x2"))
        top, base = plot.down(y), plot.down(layer.value(row, "y2"))
        yield _box(layer, row, left, right - left, top, base - top)


def _box(layer: MarkLayer, row: Row, left: float, wide: float, top: float, high: float) -> str:
    fill, edge = css_colour(colour_of(layer, row)), colour_of(layer, row, "stroke")
    radius = layer.mark.get("cornerRadius", layer.mark.get("cornerRadiusEnd", 0))
    look = f' rx="{radius}"' if radius else ""
    if edge != "transparent":
        look += " " + _stroke(edge, layer.mark.get("strokeWidth", 1), dashes_of(layer, row))
    return (
        f'<rect x="{percent(left)}" width="{percent(max(wide, 0.0))}" y="{_y(top)}" height="{_y(max(high, 0.0))}" '
        f'fill="{fill}"{look}{_opacity(layer, row)}/>'
    )


def _rules(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    for row in layer.rows:
        at = percent(plot.across(layer.value(row, "x")))
        top, end = 0.0, plot.height
        if "y" in layer.channels and "y2" in layer.channels:
            top, end = plot.down(layer.value(row, "y2")), plot.down(layer.value(row, "y"))
        look = _stroke(colour_of(layer, row), layer.mark.get("strokeWidth", 1), dashes_of(layer, row))
        yield f'<line x1="{at}" x2="{at}" y1="{_y(top)}" y2="{_y(end)}" {look}{_opacity(layer, row)}/>'


def _points_of_rows(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    for row in layer.rows:
        x, y = plot.across(layer.value(row, "x")), plot.down(layer.value(row, "y"))
        fill = css_colour(colour_of(layer, row))
        yield f'<circle cx="{percent(x)}" cy="{_y(y)}" r="{_POINT_RADIUS:g}" fill="{fill}"{_opacity(layer, row)}/>'


def _texts(layer: MarkLayer, plot: PlotArea) -> Iterator[str]:
    anchor = {"left": "start", "right": "end"}.get(layer.mark.get("align", ""), "middle")
    for row in layer.rows:
        y = float(layer.mark["y"]) + FONT_SIZE if "y" in layer.mark else plot.down(layer.value(row, "y")) + 4
        y += float(layer.mark.get("dy", 0))
        fill = css_colour(colour_of(layer, row) if "color" in layer.channels else "@ink")
        shift = f' dx="{layer.mark["dx"]}"' if "dx" in layer.mark else ""
        size = f' font-size="{layer.mark["fontSize"]}"' if "fontSize" in layer.mark else ""
        yield (
            f'<text x="{percent(plot.across(layer.value(row, "x")))}" y="{_y(y)}"{shift}{size} '
            f'text-anchor="{anchor}" fill="{fill}">{escape(str(layer.value(row, "text")))}</text>'
        )


_DRAWN: Final[dict[str, Callable[[MarkLayer, PlotArea], Iterator[str]]]] = {
    "area": _areas,
    "bar": _bars,
    "line": _lines,
    "point": _points_of_rows,
    "rect": _rectangles,
    "rule": _rules,
    "text": _texts,
}


def _points(layer: MarkLayer, plot: PlotArea, rows: Sequence[Row]) -> list[Point]:
    pairs = [(plot.across(layer.value(row, "x")), plot.down(layer.value(row, "y"))) for row in rows]
    return sorted(((min(max(x, 0.0), 1.0), y) for x, y in pairs), key=lambda pair: pair[0])


def _stepped(layer: MarkLayer) -> bool:
    return layer.mark.get("interpolate") == "step-after"


def _path(points: Sequence[Point], *, stepped: bool) -> str:
    """Return the line through points; a stepped one keeps its height until the next point."""
    (x, y), *others = points
    parts = [f"M{_x(x)},{_y(y)}"]
    last = _y(y)
    for x, y in others:
        here = _y(y)
        if not stepped:
            parts.append(f"L{_x(x)},{here}")
        elif here != last:
            parts.append(f"H{_x(x)}V{here}")
            last = here
    if stepped and others:
        parts.append(f"H{_x(others[-1][0])}")
    return "".join(parts)


def _curves(content: str, plot: PlotArea) -> str:
    return (
        f'<svg width="100%" height="{plot.height:g}" viewBox="0 0 {_WIDTH} {plot.height:g}" '
        f'preserveAspectRatio="none" class="curves">{content}</svg>'
    )


def _stroke(colour: str, width: object, dashes: Sequence[float]) -> str:
    dashed = f' stroke-dasharray="{" ".join(f"{dash:g}" for dash in dashes)}"' if dashes else ""
    return f'stroke="{css_colour(colour)}" stroke-width="{width}"{dashed}'


def _opacity(layer: MarkLayer, row: Row) -> str:
    strength = layer.value(row, "fillOpacity") if "fillOpacity" in layer.channels else layer.mark.get("opacity", 1)
    return "" if strength in {1, None} else f' opacity="{float(strength):g}"'


def _x(place: float) -> str:
    return f"{place * _WIDTH:.1f}".removesuffix(".0")


def _y(place: float) -> str:
    return f"{place:.1f}".removesuffix(".0")


_RASTER_WIDTH: Final = 720  # pixels of the picture of a raster
_LEAST, _MOST = "least", "most"


def static_picture(figure: ChartFigure) -> str:
    """Return the static drawing of a chart as HTML, without the element around it."""
    try:
        # Return the picture; with a second one for narrow pages where the figure has a form of its own for these
        spec = figure.described()
        if "height" not in figure.narrow:
            return _one(figure, spec, "")
        return _one(figure, spec, "wide") + _one(figure, laid_over(spec, figure.narrow), "narrow")
    except UnsupportedFigureError:
        return vega.svg(figure)


def _one(figure: ChartFigure, spec: Mapping[str, Any], form: str) -> str:
    rows, extremes = (
        [] if figure.moments is None else [row for part in figure.series for row in part.rows(figure.moments)],
        _extremes(figure),
    )
    layers = layers_of(spec, rows)
    params = {each["name"]: float(each["value"]) for each in spec["params"] if "value" in each}
    bands = [_band_layer(layer, extremes) for layer in layers if extremes]
    x, y = (axis_of([*layers, *(each for each in bands if each)], channel, params) for channel in ("x", "y"))
    height = float(spec["height"])
    plot = PlotArea(x=x.scale, y=y.scale, height=height)
    raster = ""
    if figure.raster is not None:
        image = figure.raster.image(LIGHT, _RASTER_WIDTH, int(height))
        raster = f'<image width="100%" height="{height:g}" preserveAspectRatio="none" href="{image}"/>'
        edges = [row for _, row in figure.raster.groups] + [len(figure.raster.rows)]
        for (name, row), end in zip(figure.raster.groups, edges[1:], strict=False):
            at, room = (height * rows / len(figure.raster.rows) for rows in (row, end - row))
            if room > FONT_SIZE:
                raster += f'<line class="axis" x2="100%" y1="{at:.1f}" y2="{at:.1f}"/>'
                raster += f'<text class="group" x="4" y="{at + FONT_SIZE:.1f}">{escape(name)}</text>'
    step_s = figure.moments.span_s / STEPS if figure.moments else 0.0
    pale = f"pale: lowest to highest within {text_formats.duration(step_s)}"
    content = [beside(y, height, lines=True), across(x, height), raster]
    for layer in layers:
        below = _band_layer(layer, extremes) if extremes else None
        if below is not None:
            field, colour = layer.channels["y"]["field"], colour_of(layer, layer.rows[0])
            content.append(band(extremes, field + _LEAST, field + _MOST, colour, plot))
        content.append(marks(layer, plot))
    low, left = room_below(x), y.extent
    return (
        f"{key_html(layers, pale if any(bands) else '')}"
        f'<div class="plot{f" {form}" if form else ""}" style="padding:8px 10px {low:.0f}px {left:.0f}px">'
        f'<svg width="100%" height="{height:g}" role="img" aria-label="{escape(figure.title)}">'
        f"{''.join(content)}</svg></div>"
    )


def _extremes(figure: ChartFigure) -> list[Row]:
    """Return the minimum and maximum of each drawn step; empty where each value is drawn by itself."""
    if figure.moments is None or not figure.stepped:
        return []
    coarse = [part for part in figure.series if part.times_s.size > STEPS]
    return [row for part in coarse for row in part.extremes(STEPS, _LEAST, _MOST).rows(figure.moments)]


def _band_layer(layer: MarkLayer, extremes: Sequence[Row]) -> MarkLayer | None:
    """Return the range that averaging hides in a layer of areas, as a layer; the axis must include it."""
    if layer.kind != "area" or stacked(layer, "y") or "y2" in layer.channels:
        return None
    y = layer.channels["y"]
    return MarkLayer(
        rows=extremes, mark=layer.mark, channels={**layer.channels, "y": {**y, "field": f"{y['field']}{_MOST}"}}
    )
