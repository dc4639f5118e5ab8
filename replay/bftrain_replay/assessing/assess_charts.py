"""Charts of an assessment: the harvest by hour and weekday, and by the number of tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.assessing.assessment import LogAssessment, PartOfTime
from bftrain_replay.assessing.figure_text import on_calendar
from bftrain_replay.assessing.what_if import TASKS, WhatIfRow
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.results.harvest_by_block import interval

_HEIGHT: Final = 124


def by_hour(found: LogAssessment) -> ChartFigure:
    """Return the mean number of nodes at work by hour of the day."""
    zone = found.log.time_zone if on_calendar(found) else "from the begin of the log"
    return _bars("hours", f"By hour of the day ({zone})", found.hours)


def by_weekday(found: LogAssessment) -> ChartFigure:
    """Return the mean number of nodes at work by day of the week."""
    return _bars("weekdays", "By day of the week", found.days)


def _bars(name: str, title: str, parts: Sequence[PartOfTime]) -> ChartFigure:
    known = [part for part in parts if part.nodes is not None]
    rows: list[dict[str, Any]] = [
        {
            "part": part.part[:3],
            "nodes": part.nodes.median,
            "low": part.nodes.median if part.nodes.low is None else part.nodes.low,
            "high": part.nodes.median if part.nodes.high is None else part.nodes.high,
            "tooltip": f"{part.part}: {interval(part.nodes)} nodes at work",
        }
        for part in known
        if part.nodes is not None
    ]
    most, least = (choose(rows, key=lambda row: float(row["nodes"]), default=None) for choose in (max, min))
    says = ""
    if most and least:
        says = (
            f"Most at {most['part']} ({text_formats.count(most['nodes'])} nodes), "
            f"least at {least['part']} ({text_formats.count(least['nodes'])})."
        )
    if any(part.nodes and part.nodes.low is not None for part in known):
        title += ", with 90 % intervals"
    order = [part.part[:3] for part in parts]
    axis = {"labelAngle": 0, "grid": False, "ticks": False, "labelOverlap": "greedy"}
    return ChartFigure(
        name=name,
        title=title,
        says=says,
        alt=f"{title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT,
        spec={
            "data": {"values": rows},
            "encoding": {"x": category("part", sort=None, scale={"domain": order}, title=None, axis=axis)},
            "layer": [
                {
                    "mark": {
                        "type": "bar",
                        "cornerRadiusEnd": 2,
                        "tooltip": {"expr": "datum.tooltip"},
                        "color": "@used",
                    },
                    "encoding": {"y": quantity("nodes", title="nodes at work", axis={"tickCount": 4})},
                },
                {
                    "mark": {"type": "rule", "color": "@ink", "strokeWidth": 1.5},
                    "encoding": {"y": quantity("low"), "y2": {"field": "high"}},
                },
            ],
        },
    )


def saturation(found: LogAssessment) -> ChartFigure | None:
    """Return the harvest against the number of competing tasks; ``None`` if that was not replayed."""
    rows = _points(found, TASKS, "{} tasks")
    if not rows:
        return None
    counts = sorted(float(row["at"]) for row in rows)
    own = next(row for row in found.what_ifs if row.what == TASKS and row.assumed)
    gain = rows[-1]["harvest"] / own.harvest.median - 1.0 if own.harvest.median else 0.0
    return _curve(
        rows,
        name="saturation",
        title="With more or fewer tasks, with 90 % intervals",
        says=(
            f"{own.label} tasks compete here; {rows[-1]['at']:,.0f} would harvest "
            f"{text_formats.percent(gain) if gain > 0.0 else 'nothing'} more. Each point is a replay."
        ),
        x=quantity(
            "at",
            title="tasks that compete",
            scale={"type": "log", "nice": False, "domain": [counts[0], counts[-1]], "padding": 14},
            axis={"values": counts, "format": "~g", "labelOverlap": "greedy", "grid": False},
        ),
    )


def _points(found: LogAssessment, what: str, words: str) -> list[dict[str, Any]]:
    return [
        {
            "at": row.value,
            **_ends(row),
            "tooltip": f"{words.format(row.label)}: {interval(row.harvest)} node-hours a week",
        }
        for row in found.what_ifs
        if row.what == what
    ]


def _ends(row: WhatIfRow) -> dict[str, float]:
    middle = row.harvest.median
    low, high = (middle if end is None else end for end in (row.harvest.low, row.harvest.high))
    return {"harvest": middle, "low": low, "high": high}


def _curve(rows: list[dict[str, Any]], *, name: str, title: str, says: str, x: dict[str, Any]) -> ChartFigure:
    """Return a line through separate replays, with its 90 % interval."""
    harvest = quantity("harvest", title="node-hours a week", axis={"tickCount": 4}, scale={"zero": True})
    return ChartFigure(
        name=name,
        title=title,
        says=says,
        alt=f"Node-hours a week. {title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT + 26,
        spec={
            "data": {"values": rows},
            "encoding": {"x": x},
            "layer": [
                {
                    "mark": {"type": "area", "opacity": 0.18, "color": "@used"},
                    "encoding": {"y": {**harvest, "field": "low"}, "y2": {"field": "high"}},
                },
                {"mark": {"type": "line", "strokeWidth": 2, "color": "@used"}, "encoding": {"y": harvest}},
                {
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "size": 50,
                        "color": "@used",
                        "tooltip": {"expr": "datum.tooltip"},
                    },
                    "encoding": {"y": harvest},
                },
            ],
        },
    )
