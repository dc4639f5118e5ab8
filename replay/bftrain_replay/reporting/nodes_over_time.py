"""Idle and used nodes over time, and the strip on which a reader chooses the part of the time to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.time_axis import TimeAxis
from bftrain_replay.tables.replayed_task import SECONDS_AN_HOUR

_STEPS: Final = {"type": "area", "interpolate": "step-after", "clip": True}
_LINE: Final = {"type": "line", "interpolate": "step-after", "clip": True, "strokeWidth": 2.5}
_BRUSH: Final = {"type": "interval", "encodings": ["x"], "mark": {"fill": "@ink", "fillOpacity": 0.15}}
_DOUBTFUL: Final = "doubtful whether idle"
_COLOURS: Final = {"idle, unused": "@idle", _DOUBTFUL: "@preempted", "used by tasks": "@used"}
# Nothing of it is seen, but it takes the room that it takes in the other figures, so that all moments stand in line
_NO_AXIS: Final = {"title": " ", "labels": False, "grid": False}


class TimeSeriesFigures(Protocol):
    """The figures over time that replays and rounds share."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """What ``summary.json`` holds."""
        ...

    @property
    def end_s(self) -> float:
        """How far it came."""
        ...

    @property
    def moments(self) -> TimeAxis:
        """How its time stands on an axis."""
        ...

    @property
    def nodes_over_time(self) -> StepSeries:
        """Idle nodes, and how many of them tasks held."""
        ...


def strip(material: TimeSeriesFigures) -> ChartFigure:
    """Give the strip: all of the time, small, with a brush."""
    return ChartFigure(
        name="time",
        title="",
        alt="The idle nodes over all of the time. Drag over it, or use the buttons, to look at a part.",
        height=46,
        moments=material.moments,
        series=[material.nodes_over_time],
        chooses_time=True,
        spec={
            "encoding": {"x": _untitled(material.moments.axis()), "y": {"type": "quantitative", "axis": _NO_AXIS}},
            "layer": [
                {
                    "params": [{"name": "brush", "select": _BRUSH}],  # of one layer: all of them would have it twice
                    "mark": {**_STEPS, "color": "@idle"},
                    "encoding": {"y": {"field": "idle"}},
                },
                {"mark": {**_STEPS, "color": "@used"}, "encoding": {"y": {"field": "used"}}},
            ],
        },
    )


def nodes(material: TimeSeriesFigures) -> ChartFigure:
    """Give idle and used nodes over time."""
    summary = material.summary
    hours = material.end_s / SECONDS_AN_HOUR or 1.0
    largest = int(material.nodes_over_time.columns["idle"].max())
    idle, used = (text_formats.count(summary[name] / hours) for name in ("idle_node_h", "used_node_h"))
    says = (
        f"On average {idle} nodes were idle and {used} of them worked; at most {text_formats.count(largest)} were idle."
    )
    areas = {"idle": "idle, unused", "used": "used by tasks"}
    if "doubtful" in material.nodes_over_time.columns:
        areas["doubtful"] = _DOUBTFUL  # above the others: part of either
        says += f" Of the idle node-time {text_formats.percent(summary['doubtful']['share'])} is doubtful."
    return ChartFigure(
        name="nodes",
        title="Idle nodes, and how many of them worked",
        says=says,
        alt=f"{says} Drawn over {text_formats.duration(material.end_s)}.",
        caption="Where the picture is too narrow for every change, it shows averages; look closer to see each of them.",
        height=300,
        moments=material.moments,
        series=[material.nodes_over_time],
        spec={
            "encoding": {
                "x": material.moments.axis(),
                "y": {"type": "quantitative", "title": "nodes", "axis": {"tickCount": 5, "tickMinStep": 1}},
            },
            "layer": [_area(field, label, list(areas.values())) for field, label in areas.items()],
        },
    )


def _area(field: str, label: str, labels: Sequence[str]) -> dict[str, Any]:
    mark = _LINE if label == _DOUBTFUL else _STEPS
    colour = {
        "datum": label,
        "scale": {"domain": labels, "range": [_COLOURS[each] for each in labels]},
        "legend": {"title": None},
    }
    return {"mark": mark, "encoding": {"y": {"field": field, "type": "quantitative"}, "color": colour}}


def _untitled(axis: dict[str, Any]) -> dict[str, Any]:
    return {**axis, "axis": {**axis["axis"], "title": None}}
