"""Static pictures of figures: what stands in a page on paper, without JavaScript, and until its script has drawn.

A picture is as wide as the page leaves it, with letters of one size: places along x are percentages. It is a few
kilobytes, takes milliseconds, and has the colours of the page. What this drawing does not know, Vega draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.series import STEPS
from bftrain_replay.drawing.static.axes import across, axis_of, beside, room_below, stacked
from bftrain_replay.drawing.static.colours import colour_of, key_html
from bftrain_replay.drawing.static.layers import MarkLayer, Row, laid_over, layers_of
from bftrain_replay.drawing.static.marks import PlotArea, band, marks
from bftrain_replay.drawing.static.unsupported import UnsupportedFigureError
from bftrain_replay.drawing.theme import LIGHT

_RASTER_WIDTH: Final = 720  # pixels of the picture of a raster
_LEAST, _MOST = "least", "most"


def static_picture(figure: ChartFigure) -> str:
    """Return the static picture of a figure as HTML, without the element around it."""
    try:
        return _drawn(figure)
    except UnsupportedFigureError:
        return vega.svg(figure)


def _drawn(figure: ChartFigure) -> str:
    """Return the picture; with a second one for narrow pages where the figure has a form of its own for these."""
    spec = figure.described()
    if "height" not in figure.narrow:
        return _one(figure, spec, "")
    return _one(figure, spec, "wide") + _one(figure, laid_over(spec, figure.narrow), "narrow")


def _one(figure: ChartFigure, spec: Mapping[str, Any], form: str) -> str:
    rows, extremes = _rows(figure), _extremes(figure)
    layers = layers_of(spec, rows)
    params = {each["name"]: float(each["value"]) for each in spec["params"] if "value" in each}
    bands = [_band_layer(layer, extremes) for layer in layers if extremes]
    x, y = (axis_of([*layers, *(each for each in bands if each)], channel, params) for channel in ("x", "y"))
    height = float(spec["height"])
    plot = PlotArea(x=x.scale, y=y.scale, height=height)
    content = [beside(y, height, lines=True), across(x, height), _raster(figure, height)]
    for layer in layers:
        below = _band_layer(layer, extremes) if extremes else None
        if below is not None:
            field, colour = layer.channels["y"]["field"], colour_of(layer, layer.rows[0])
            content.append(band(extremes, field + _LEAST, field + _MOST, colour, plot))
        content.append(marks(layer, plot))
    low, left = room_below(x), y.extent
    return (
        f"{key_html(layers, _pale(figure) if any(bands) else '')}"
        f'<div class="plot{f" {form}" if form else ""}" style="padding:8px 10px {low:.0f}px {left:.0f}px">'
        f'<svg width="100%" height="{height:g}" role="img" aria-label="{escape(figure.title)}">'
        f"{''.join(content)}</svg></div>"
    )


def _rows(figure: ChartFigure) -> list[Row]:
    if figure.moments is None:
        return []
    return [row for part in figure.series for row in part.rows(figure.moments)]


def _extremes(figure: ChartFigure) -> list[Row]:
    """Return the least and the most of each step that is drawn; nothing where each value is drawn by itself."""
    if figure.moments is None or not figure.stepped:
        return []
    coarse = [part for part in figure.series if part.times_s.size > STEPS]
    return [row for part in coarse for row in part.extremes(STEPS, _LEAST, _MOST).rows(figure.moments)]


def _pale(figure: ChartFigure) -> str:
    span_s = figure.moments.span_s if figure.moments else 0.0
    return f"pale: lowest to highest within {text_formats.duration(span_s / STEPS)}"


def _band_layer(layer: MarkLayer, extremes: Sequence[Row]) -> MarkLayer | None:
    """Return what a layer of areas hides by averaging, as a layer: it counts for the length of the axis."""
    if layer.kind != "area" or stacked(layer, "y") or "y2" in layer.channels:
        return None
    y = layer.channels["y"]
    return MarkLayer(
        rows=extremes, mark=layer.mark, channels={**layer.channels, "y": {**y, "field": f"{y['field']}{_MOST}"}}
    )


def _raster(figure: ChartFigure, height: float) -> str:
    if figure.raster is None:
        return ""
    image = figure.raster.image(LIGHT, _RASTER_WIDTH, int(height))
    return f'<image width="100%" height="{height:g}" preserveAspectRatio="none" href="{image}"/>'
