"""Pareto chart: all combinations in the plane of two metrics, with the Pareto front as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.results.summary_figures import BetterDirection
from bftrain_replay.sweeping.pareto_front import ParetoAxis, ParetoPlane, ParetoPoint
from bftrain_replay.sweeping.sweep_charts import file_name, label, varied, with_names
from bftrain_replay.sweeping.sweep_options import SEED
from bftrain_replay.sweeping.sweep_table import PointRow

_MOST_LABELS: Final = 12  # that have room beside their points
_MOST_SAID: Final = 4
_FRONT, _OTHERS = "front", "others"


def pareto_figures(rows: Sequence[PointRow], asked: Sequence[str]) -> Iterator[ChartFigure]:
    """Yield the chart if it is requested and there are two combinations to compare."""
    options = varied(rows)
    plane = ParetoPlane.of(rows, asked, [name for name in options if name != SEED]) if asked else None
    if plane is None or len(plane.points) < 2:  # noqa: PLR2004 - one compares with nothing
        return
    x, y = plane.x.metric, plane.y.metric
    says, values = _says(plane), [_value(plane, point) for point in plane.points]
    # A layer without rows has no extent, of which Vega warns
    sides = sorted({value["side"] for value in values} - {""}) if len(plane.front) <= _MOST_LABELS else []
    yield ChartFigure(
        name=file_name(f"pareto-{x.column}-{y.column}"),
        title=f"{y.heading} against {x.title}",
        says=says,
        alt=f"Each combination of {', '.join(plane.names)} by {x.title} and {y.title}. {says}",
        caption=_caption(plane),
        height=340,
        spec={
            "data": {"values": values},
            "encoding": {"x": _scale("x", plane.x), "y": _scale("y", plane.y)},
            "layer": [
                {**_only(_FRONT), "mark": {"type": "line", "strokeWidth": 2, "color": "@used"}},
                *([_dots(_OTHERS, "@unused")] if len(plane.front) < len(plane.points) else []),
                _dots(_FRONT, "@used"),
                *(_labels(side, rising=plane.x.better is not plane.y.better) for side in sides),
            ],
        },
    )


def _value(plane: ParetoPlane, point: ParetoPoint) -> dict[str, Any]:
    x, y = plane.x.metric, plane.y.metric
    middle = (plane.points[0].x.mean + plane.points[-1].x.mean) / 2
    side = "left" if point.x.mean > middle else "right"  # where its name has room
    words = f"{x.title} {point.x.text(x)}, {y.title} {point.y.text(y)}"
    return {
        "x": point.x.mean / x.axis[0],
        "y": point.y.mean / y.axis[0],
        "of": _FRONT if point.best else _OTHERS,
        "name": label(point.cells),
        "side": side if point.best else "",
        "tooltip": f"{with_names(plane.names, point.cells)}: {words}",
    }


def _scale(field: str, axis: ParetoAxis) -> dict[str, Any]:
    metric = axis.metric
    look = {"format": metric.axis[2], "tickCount": 6, "labelOverlap": "greedy"}
    scale = {"zero": False, "nice": False, "padding": 26}
    return quantity(field, title=metric.axis_title, scale=scale, axis=look)


def _only(part: str) -> dict[str, Any]:
    return {"transform": [{"filter": f"datum.of == '{part}'"}]}


def _dots(part: str, colour: str) -> dict[str, Any]:
    look = {"type": "point", "filled": True, "size": 60, "opacity": 1, "color": colour}
    return {**_only(part), "mark": {**look, "tooltip": {"expr": "datum.tooltip"}}}


def _labels(side: str, *, rising: bool) -> dict[str, Any]:
    """Write names above or below their points, on the side away from the rising or falling line."""
    align, shift = ("right", -6) if side == "left" else ("left", 6)
    above = rising == (side == "left")
    return {
        "transform": [{"filter": f"datum.side == '{side}'"}],
        "mark": {"type": "text", "align": align, "dx": shift, "dy": -9 if above else 10, "fontSize": 11},
        "encoding": {"text": category("name"), "color": {"value": "@ink"}},
    }


def _says(plane: ParetoPlane) -> str:
    x, y, best = plane.x.metric, plane.y.metric, plane.front
    named = [
        f"{with_names(plane.names, point.cells)} ({x.format(point.x.mean)}; {y.format(point.y.mean)})"
        for point in best[:_MOST_SAID]
    ]
    more = f"; and {len(best) - _MOST_SAID:,} more" if len(best) > _MOST_SAID else ""
    of = text_formats.counted(len(plane.points), "combination")
    be = "is" if len(best) == 1 else "are"
    text = f"{len(best):,} of {of} {be} beaten by no other in both: {'; '.join(named)}{more}."
    if plane.left_out:
        text += f" {text_formats.counted(plane.left_out, 'combination')} left out: their tasks ran out."
    return text


def _caption(plane: ParetoPlane) -> str:
    up = "bottom" if plane.y.better is BetterDirection.LESS else "top"
    across = "left" if plane.x.better is BetterDirection.LESS else "right"
    said = [f"Better lies towards the {up} {across}; the line joins combinations that no other beats in both."]
    if len(plane.front) <= _MOST_LABELS:
        said.append(f"They are labelled by {', '.join(plane.names)}.")
    if any(point.x.count > 1 for point in plane.points):
        said.append("Means over seeds; a pointer on a point shows how far they are sure.")
    return " ".join(said)
