"""The page of an assessment, two screens for decision makers, and the files of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bftrain import summaries, text_formats
from bftrain.files import write_text
from bftrain.node_units import word_of, words_of
from bftrain.result_folder import ResultKind
from bftrain.version import CITATION
from bftrain_replay.assessing import figure_text
from bftrain_replay.assessing.assessment import LogAssessment, PartOfTime, replayed_start_s
from bftrain_replay.assessing.what_if import LEAD, TASKS
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import TOOLTIP, ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlPage, html
from bftrain_replay.drawing.series import TimeAxis
from bftrain_replay.run.harvest_by_block import HOURS_A_WEEK, EstimatedFigure, interval
from bftrain_replay.run.variations import COSTS, PROGRESS

_HEIGHT: Final = 124  # pixels of a chart
_WHAT_IFS: Final = {COSTS: "costs {}", LEAD: "leaving {} early", PROGRESS: "saved {}"}
_GROUP_TITLES: Final = {"rack": "By rack", "kind": "By node kind", "partition": "By partition", "name": "By node name"}
_MOST_ROWS: Final = 8  # rows of node groups; if there are more groups, the last row sums up the rest


def page(found: LogAssessment) -> HtmlPage:
    """Build the page."""
    log, words, node = found.log, words_of(found.log.unit), word_of(found.log.unit)
    on_calendar = TimeAxis(log.start_s, log.span_s).on_calendar
    zone = log.time_zone if on_calendar else "from the start of the log"
    hours = _bars("hours", words("Nodes at work by hour of the day") + f" ({zone})", found.hours, node)
    weekdays = _bars("weekdays", words("Nodes at work by day of the week"), found.days, node)
    curve = _saturation(found, node)
    ordered = sorted(found.groups, key=lambda each: -each.harvest.median)
    shown = len(ordered) if len(ordered) <= _MOST_ROWS else _MOST_ROWS - 1
    unanswered = (f"Not answered here: {text[:1].lower()}{text[1:]}" for text in figure_text.open_questions(found))
    return HtmlPage(
        template="assess.html",
        title=words("Possible work on the idle nodes"),
        main="hours",
        figures=[hours, weekdays, *([] if curve is None else [curve])],
        warnings=[words(f"{text}.") for text in found.doubtful["caveats"]],
        parts={
            "found": found,
            "log": log,
            "name": Path(log.name).name,
            "node": node,
            "hours": f"{node}-hours",
            "on_calendar": on_calendar,
            "headline": words(figure_text.headline(found)),
            "certainty": words(figure_text.certainty(found)),
            "waits": found.handback,
            "worth": found.worth,
            "currency": found.prices.currency,
            "hours_a_week": HOURS_A_WEEK,
            "weeks_a_year": figure_text.WEEKS_A_YEAR,
            "sure_below": figure_text.SURE_BELOW,
            "co2": list(figure_text.worth_rows(found))[-1][1:] if found.worth.co2_t else (),
            "causes": [(words(name.lower()), node_h, share) for name, node_h, share in figure_text.causes(found)],
            "start_s": replayed_start_s(found.start_cost_s, found.settings),
            "what_ifs": [
                (_WHAT_IFS.get(row.what, "{}").format(row.label), row)
                for row in found.what_ifs
                if row.what != TASKS and not row.assumed
            ],
            "groups": ordered[:shown],
            "other_groups": ordered[shown:],
            "grouped_by": words(_GROUP_TITLES.get(found.groups_by, "")),
            "mixes": [(figure_text.mix_name(row, found.mixes), row) for row in found.mixes],
            "assumptions": list(map(words, (*found.assumptions, *unanswered))),
            "cite": CITATION,
            "interval": interval,
            "forms": text_formats,
        },
        static_command="bftrain assess FILES --static",
    )


def _point(at: object, figure: EstimatedFigure, tooltip: str) -> dict[str, Any]:
    """Return the row of a figure with its interval, which is empty if unknown."""
    low, high = (figure.median if end is None else end for end in (figure.low, figure.high))
    return {"at": at, "value": figure.median, "low": low, "high": high, "tooltip": tooltip}


def _bars(name: str, title: str, parts: Sequence[PartOfTime], node: str) -> ChartFigure:
    """Return the chart of the mean number of nodes at work by part of the time."""
    rows = [
        _point(part.part[:3], part.nodes, f"{part.part}: {interval(part.nodes)} {node}s at work")
        for part in parts
        if part.nodes is not None
    ]
    says = ""
    if rows:
        most, least = (choose(rows, key=lambda row: float(row["value"])) for choose in (max, min))
        high, low = (text_formats.count(row["value"]) for row in (most, least))
        says = f"Most at {most['at']} ({high} {node}s), least at {least['at']} ({low})."
    if any(row["low"] < row["high"] for row in rows):
        title += ", with 90 % intervals"
    axis = {"labelAngle": 0, "grid": False, "ticks": False, "labelOverlap": "greedy"}
    bar = {"type": "bar", "cornerRadiusEnd": 2, "tooltip": TOOLTIP, "color": "@used"}
    rule = {"type": "rule", "color": "@ink", "strokeWidth": 1.5}
    y = quantity("value", title=f"{node}s at work", axis={"tickCount": 4})
    return ChartFigure(
        name=name,
        title=title,
        says=says,
        alt=f"{title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT,
        spec={
            "data": {"values": rows},
            "encoding": {"x": category("at", sort=None, title=None, axis=axis)},
            "layer": [
                {"mark": bar, "encoding": {"y": y}},
                {"mark": rule, "encoding": {"y": quantity("low"), "y2": {"field": "high"}}},
            ],
        },
    )


def _saturation(found: LogAssessment, node: str) -> ChartFigure | None:
    """Return the chart of the harvest by number of competing tasks; ``None`` if other numbers were not replayed."""
    by_tasks = [row for row in found.what_ifs if row.what == TASKS]
    if not by_tasks:
        return None
    rows = [
        _point(row.value, row.harvest, f"{row.label} tasks: {interval(row.harvest)} {node}-hours a week")
        for row in by_tasks
    ]
    counts = sorted(float(row["at"]) for row in rows)
    own = next(row for row in by_tasks if row.assumed)
    gain = rows[-1]["value"] / own.harvest.median - 1.0 if own.harvest.median else 0.0
    more = f"{rows[-1]['at']:,.0f} would harvest {text_formats.percent(gain) if gain > 0.0 else 'nothing'} more"
    title = "With more or fewer tasks, with 90 % intervals"
    harvest = quantity("value", title=f"{node}-hours a week", axis={"tickCount": 4}, scale={"zero": True})
    scale = {"type": "log", "nice": False, "domain": [counts[0], counts[-1]], "padding": 14}
    axis = {"values": counts, "format": "~g", "labelOverlap": "greedy", "grid": False}
    area = {"type": "area", "opacity": 0.18, "color": "@used"}
    line = {"type": "line", "strokeWidth": 2, "color": "@used"}
    dots = {"type": "point", "filled": True, "size": 50, "color": "@used", "tooltip": TOOLTIP}
    return ChartFigure(
        name="saturation",
        title=title,
        says=f"{own.label} tasks compete here; {more}. Each point is a replay.",
        alt=f"{node[:1].upper()}{node[1:]}-hours a week. {title}: {'; '.join(row['tooltip'] for row in rows)}.",
        height=_HEIGHT + 26,
        spec={
            "data": {"values": rows},
            "encoding": {"x": quantity("at", title="tasks that compete", scale=scale, axis=axis)},
            "layer": [
                {"mark": area, "encoding": {"y": {**harvest, "field": "low"}, "y2": {"field": "high"}}},
                {"mark": line, "encoding": {"y": harvest}},
                {"mark": dots, "encoding": {"y": harvest}},
            ],
        },
    )


FIGURES: Final = "assess.json"
PAGE: Final = "assess.html"
KIND: Final = ResultKind(title="assessment", form="bftrain assess", summary=FIGURES, names=frozenset({FIGURES, PAGE}))


def write(found: LogAssessment, folder: Path, *, static: bool = False) -> None:
    """Write the figures and, if charts can be drawn, the page; a ``static`` page needs no JavaScript."""
    if vega.available():
        write_text(folder / PAGE, html(page(found), static=static))
    write_text(folder / FIGURES, summaries.to_json(found.to_dict()))
