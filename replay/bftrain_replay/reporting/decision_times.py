"""How long decisions took."""

from __future__ import annotations

from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.reporting.report_data import ReportData

_HEADROOM: Final = 1.15  # of the highest bar: room for words above it


def decision_times(material: ReportData) -> ChartFigure | None:
    """Give the figure; none where nothing was decided."""
    summary = material.summary
    bins, spread = summary["decide_ms_bins"], summary["decide_ms"]
    if not bins:
        return None
    said = (
        f"Of {text_formats.count(summary['decisions'])} decisions by the solver '{summary['solver']}' "
        f"half took less than "
        f"{text_formats.milliseconds(spread['p50'])}, 99 in 100 less than "
        f"{text_formats.milliseconds(spread['p99'])}, the longest "
        f"{text_formats.milliseconds(spread['max'])}."
    )
    rows = [
        {"from": one["from_ms"], "to": one["to_ms"], "count": one["count"], "tooltip": _tooltip(one)} for one in bins
    ]
    scale = {"type": "log", "domain": [bins[0]["from_ms"], bins[-1]["to_ms"]], "nice": False}
    marks = [{"at": spread["p50"], "name": "median"}, {"at": spread["p99"], "name": "99 in 100"}]
    return ChartFigure(
        name="decisions",
        title="How long decisions took",
        says=said,
        alt=said,
        height=220,
        spec={"layer": [_bars(rows, scale), *_marks(marks, scale)]},
    )


def _bars(rows: list[dict[str, Any]], scale: dict[str, Any]) -> dict[str, Any]:
    """Return the histogram: one bar for each span of times."""
    highest = _HEADROOM * max(row["count"] for row in rows)
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "color": "@used", "tooltip": {"expr": "datum.tooltip"}},
        "encoding": {
            "x": {
                "field": "from",
                "type": "quantitative",
                "scale": scale,
                "title": "milliseconds",
                "axis": {"format": "~g", "tickCount": 6},
            },
            "x2": {"field": "to"},
            "y": {
                "field": "count",
                "type": "quantitative",
                "title": "decisions",
                "scale": {"domain": [0, highest], "nice": False},
                "axis": {"tickCount": 5, "tickMinStep": 1},
            },
            "y2": {"datum": 0},
        },
    }


def _marks(marks: list[dict[str, Any]], scale: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line at each mark, and its name beside it."""
    at = {"field": "at", "type": "quantitative", "scale": scale}
    data = {"values": marks}
    name = {"field": "name", "type": "nominal"}
    return [
        {"data": data, "mark": {"type": "rule", "strokeDash": [4, 4], "color": "@ink"}, "encoding": {"x": at}},
        {
            "data": data,
            "mark": {"type": "text", "align": "left", "dx": 4, "baseline": "top", "y": 2},
            "encoding": {"x": at, "text": name},
        },
    ]


def _tooltip(one: dict[str, Any]) -> str:
    low, high = text_formats.milliseconds(one["from_ms"]), text_formats.milliseconds(one["to_ms"])
    return f"{low} to {high}: {text_formats.count(one['count'])} decisions"
