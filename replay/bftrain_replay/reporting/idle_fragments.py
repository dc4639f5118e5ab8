"""How long nodes stay idle: of how many pieces of which length the idle node-time is made."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain_datasets.log.measures import fragments
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.reporting.report_data import ReportData
from bftrain_replay.tables.replayed_task import SECONDS_AN_HOUR

_BOUNDS_S: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 259200)
_PIECES, _TIME = "share of the times", "share of the idle node-time"


def idle_pieces(material: ReportData) -> ChartFigure | None:
    """Give the figure; none where nothing was ever idle."""
    length_s = fragments(material.log).length_s
    if not length_s.size or not length_s.sum() > 0.0:
        return None
    place = np.searchsorted(_BOUNDS_S, length_s, side="left")
    bins = len(_BOUNDS_S) + 1
    pieces = np.bincount(place, minlength=bins) / length_s.size
    time = np.bincount(place, weights=length_s, minlength=bins) / length_s.sum()
    some = np.flatnonzero(pieces)
    shown = range(int(some[0]), int(some[-1]) + 1)
    rows = [
        _row(number, kind, float(of[number])) for number in shown for kind, of in ((_PIECES, pieces), (_TIME, time))
    ]
    half_s = float(np.median(length_s))
    long = float(length_s[length_s > SECONDS_AN_HOUR].sum() / length_s.sum())
    says = (
        f"Nodes were idle {text_formats.count(length_s.size)} times, half of these for less than "
        f"{text_formats.duration(half_s)}. "
    )
    says += f"Times longer than an hour hold {text_formats.percent(long)} of the idle node-time."
    return ChartFigure(
        name="pieces",
        title="How long nodes stayed idle",
        says=says,
        alt=says,
        caption="Grey: how many of these times were so long. Blue: how much of the idle node-time they hold.",
        height=240,
        spec={
            "data": {"values": rows},
            "mark": {"type": "bar", "cornerRadiusEnd": 2, "tooltip": {"expr": "datum.tooltip"}},
            "encoding": {
                "x": {
                    "field": "length",
                    "type": "nominal",
                    "sort": None,
                    "title": "idle for up to",
                    "axis": {"labelAngle": 0, "labelOverlap": "greedy", "grid": False},
                },
                "xOffset": {"field": "kind", "type": "nominal", "sort": [_PIECES, _TIME]},
                "y": {
                    "field": "share",
                    "type": "quantitative",
                    "title": "share",
                    "axis": {"format": ".0%", "tickCount": 5},
                },
                "color": {
                    "field": "kind",
                    "type": "nominal",
                    "scale": {"domain": [_PIECES, _TIME], "range": ["@unused", "@used"]},
                    "legend": {"title": None},
                },
            },
        },
    )


def _row(number: int, kind: str, share: float) -> dict[str, Any]:
    length = f"> {_short(_BOUNDS_S[-1])}" if number == len(_BOUNDS_S) else _short(_BOUNDS_S[number])
    low = _short(_BOUNDS_S[number - 1]) if number else "0 s"
    between = f"longer than {low}" if number == len(_BOUNDS_S) else f"{low} to {length}"
    return {
        "length": length,
        "kind": kind,
        "share": share,
        "tooltip": f"{between}: {text_formats.percent(share)} {kind[6:]}",
    }


def _short(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
