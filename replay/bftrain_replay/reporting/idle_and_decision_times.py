"""Distributions of idle periods and of decision times."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain_datasets.log.measures import fragments_in_parts
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.sums import counted, median_of
from bftrain_replay.reporting.report_data import ReportData
from bftrain_replay.tables import SECONDS_AN_HOUR

_BOUNDS_S: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 259200)
_PIECES, _TIME = "share of the times", "share of the idle node-time"


def idle_pieces(material: ReportData) -> ChartFigure | None:
    """Return the chart; ``None`` if nothing was ever idle."""
    length_s, count = counted(part.length_s for part in fragments_in_parts(material.log))
    total_s = length_s * count
    if not total_s.sum() > 0.0:
        return None
    place = np.searchsorted(_BOUNDS_S, length_s, side="left")
    bins = len(_BOUNDS_S) + 1
    pieces = np.bincount(place, weights=count, minlength=bins) / count.sum()
    time = np.bincount(place, weights=total_s, minlength=bins) / total_s.sum()
    some = np.flatnonzero(pieces)
    shown = range(int(some[0]), int(some[-1]) + 1)
    rows = [
        _row(number, kind, float(of[number])) for number in shown for kind, of in ((_PIECES, pieces), (_TIME, time))
    ]
    half_s = median_of(length_s, count)
    long = float(total_s[length_s > SECONDS_AN_HOUR].sum() / total_s.sum())
    says = (
        f"Nodes were idle {text_formats.counted(int(count.sum()), 'time')}, half of these for less than "
        f"{text_formats.duration(half_s)}. "
        f"Times longer than an hour hold {text_formats.percent(long)} of the idle node-time."
    )
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
                "x": category(
                    "length",
                    sort=None,
                    title="idle for up to",
                    axis={"labelAngle": 0, "labelOverlap": "greedy", "grid": False},
                ),
                "xOffset": category("kind", sort=[_PIECES, _TIME]),
                "y": quantity("share", title="share", axis={"format": ".0%", "tickCount": 5}),
                "color": category(
                    "kind", scale={"domain": [_PIECES, _TIME], "range": ["@unused", "@used"]}, legend={"title": None}
                ),
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


_HEADROOM: Final = 1.25  # of the highest bar: room for two lines of words above it


def decision_times(material: ReportData) -> ChartFigure | None:
    """Return the chart; ``None`` if nothing was decided."""
    summary = material.summary
    bins, spread = summary["decide_ms_bins"], summary["decide_ms"]
    if not bins:
        return None
    said = (
        f"Of {text_formats.counted(summary['decisions'], 'decision')} by the solver '{summary['solver']}' half took "
        f"less than {text_formats.milliseconds(spread['p50'])}, 99 in 100 less than "
        f"{text_formats.milliseconds(spread['p99'])}, the longest {text_formats.milliseconds(spread['max'])}."
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
    """Return the histogram: one bar for each bin."""
    highest = _HEADROOM * max(row["count"] for row in rows)
    return {
        "data": {"values": rows},
        "mark": {"type": "rect", "color": "@used", "tooltip": {"expr": "datum.tooltip"}},
        "encoding": {
            "x": quantity("from", scale=scale, title="milliseconds", axis={"format": "~g", "tickCount": 6}),
            "x2": {"field": "to"},
            "y": quantity(
                "count",
                title="decisions",
                scale={"domain": [0, highest], "nice": False},
                axis={"tickCount": 5, "tickMinStep": 1},
            ),
            "y2": {"datum": 0},
        },
    }


def _marks(marks: list[dict[str, Any]], scale: dict[str, Any]) -> list[dict[str, Any]]:
    """Return lines with names beside them, each in a line of its own, on the side where there is room."""
    at, name = quantity("at", scale=scale), category("name")
    layers = [
        {
            "data": {"values": marks},
            "mark": {"type": "rule", "strokeDash": [4, 4], "color": "@ink"},
            "encoding": {"x": at},
        }
    ]
    low, high = map(math.log, scale["domain"])
    for line, mark in enumerate(marks):
        to_the_left = math.log(mark["at"]) > (low + high) / 2 if mark["at"] > 0 else False
        side = {"align": "right", "dx": -4} if to_the_left else {"align": "left", "dx": 4}
        text = {"type": "text", **side, "baseline": "top", "y": 2 + 14 * line}
        layers.append({"data": {"values": [mark]}, "mark": text, "encoding": {"x": at, "text": name}})
    return layers


def _tooltip(one: dict[str, Any]) -> str:
    low, high = text_formats.milliseconds(one["from_ms"]), text_formats.milliseconds(one["to_ms"])
    return f"{low} to {high}: {text_formats.count(one['count'])} decisions"
