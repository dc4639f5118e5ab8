"""Charts of a comparison: harvest and used nodes over time, uses of the node-time, completion and fairness of tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain_replay.comparing.compared_figures import ComparedReplays
from bftrain_replay.comparing.compared_run import ComparedRun
from bftrain_replay.drawing.figure import TOOLTIP, ChartFigure, category, quantity
from bftrain_replay.drawing.series import StepSeries, TimeAxis
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import CumulativeLine, colour_scale, over_durations, over_ratios
from bftrain_replay.reporting.losses import CAUSES, USEFUL, node_hours
from bftrain_replay.reporting.over_time import AREA
from bftrain_replay.run.headline import harvest_node_h
from bftrain_replay.run.summary_figures import FIGURE_OF
from bftrain_replay.run.tables import SECONDS_AN_HOUR

_ROW: Final = 40  # pixels of a replay in a picture with one row each
_POINTS: Final = 500  # maximum points per line
_SIZES: Final = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand"))
# Each reason for unused nodes has its own colour, unlike in the waterfall, where names stand next to the bars
_BAR_COLOURS: Final = {
    USEFUL: "@used",
    **{cause.name: cause.figure.colour for cause in CAUSES if cause.lost},
    **{cause.name: f"@reason{number}" for number, cause in enumerate(cause for cause in CAUSES if not cause.lost)},
}


def figures(comparison: ComparedReplays, time_axis: TimeAxis) -> tuple[list[tuple[str, str]], list[ChartFigure]]:
    """Return the legend of the bars of node-time, and all charts."""
    sides = comparison.sides
    key, bars = _node_time(comparison)
    charts = [
        bars,
        _harvests(sides, time_axis),
        None if comparison.forced else _leads(sides, time_axis),
        *_used_nodes(comparison, time_axis),
        _completions(sides),
        _fairness(sides),
    ]
    return key, [chart for chart in charts if chart is not None]


def _used_nodes(comparison: ComparedReplays, time_axis: TimeAxis) -> Iterator[ChartFigure]:
    """Yield one chart for each replay, all on one scale, because crossing lines would be hard to tell apart."""
    sides, words = comparison.sides, comparison.words
    titled = time_axis.encoding()  # only the lowest chart has the title
    untitled = {**titled, "axis": {**titled["axis"], "title": None}}
    highest = max(float(side.run.course.idle.max(initial=0.0)) for side in sides) or 1.0
    scale = {"domain": [0, highest], "nice": True}
    y_axis = {"type": "quantitative", "title": words("nodes"), "scale": scale, "axis": {"tickCount": 3}}
    for place, side in enumerate(sides):
        hours = side.summary["simulated_s"] / SECONDS_AN_HOUR or 1.0
        label = FIGURE_OF["coverage"].cluster_label if side.in_rounds else FIGURE_OF["coverage"].label
        used = f"{text_formats.percent(side.summary['coverage'])} of the {words(label)}"
        yield ChartFigure(
            name=f"used-{place + 1}",
            title=f"{side.label}: {used}",
            alt=(
                f"{side.label}: idle and used {words('nodes')} over time; on average "
                f"{text_formats.count(side.summary['used_node_h'] / hours)} "
                f"of {text_formats.count(side.summary['idle_node_h'] / hours)} idle {words('nodes')} worked."
            ),
            height=110,
            time_axis=time_axis,
            series=[_nodes(side)],
            spec={
                "encoding": {"x": titled if side is sides[-1] else untitled, "y": y_axis},
                "layer": [
                    {"mark": {**AREA, "color": "@idle"}, "encoding": {"y": {"field": "idle"}}},
                    {"mark": {**AREA, "color": HUES[place % len(HUES)]}, "encoding": {"y": {"field": "used"}}},
                ],
            },
        )


def _harvests(sides: Sequence[ComparedRun], time_axis: TimeAxis) -> ChartFigure:
    """Return the harvest so far, a line for each replay."""
    summary = "; ".join(f"{side.label} {text_formats.large(side.summary['harvested'])} samples" for side in sides)
    most = max(side.summary["harvested"] for side in sides)
    return _lines(
        sides,
        time_axis,
        [_harvest(side) for side in sides],
        most,
        name="harvest",
        title="Harvest so far",
        alt=f"Samples done up to each moment by each replay. In the end: {summary}.",
        height=300,
    )


def _leads(sides: Sequence[ComparedRun], time_axis: TimeAxis) -> ChartFigure:
    """Return the lead of each replay over the first, which the harvest lines are too close to show."""
    first_s, first = _times(sides[0]), _harvest(sides[0])
    ahead = [_harvest(side) - np.interp(_times(side), first_s, first) for side in sides]
    label = sides[0].label
    summary = "; ".join(
        f"{side.label} {text_formats.large(abs(float(each[-1])))} {'ahead' if each[-1] >= 0.0 else 'behind'}"
        for side, each in zip(sides[1:], ahead[1:], strict=True)
    )
    return _lines(
        sides,
        time_axis,
        ahead,
        max(float(np.abs(each).max(initial=0.0)) for each in ahead),
        name="ahead",
        title=f"Ahead of {label}",
        alt=f"How many samples more than {label} each replay had done up to each moment. In the end: {summary}.",
        caption=f"Above zero a replay has done more than {label} up to then, below zero less.",
        height=220,
    )


def _node_time(comparison: ComparedReplays) -> tuple[list[tuple[str, str]], ChartFigure | None]:
    """Return the legend, and one bar for each replay: work that counts, losses, unused nodes.

    There is no chart with rounds, where the reasons for unused nodes are unknown.
    """
    sides, words = comparison.sides, comparison.words
    if any(side.in_rounds for side in sides):
        return [], None
    order = [USEFUL, *(cause.name for cause in reversed(CAUSES))]  # losses are stacked next to useful work
    rows = [row for side in sides for row in _bar(side, order, words)]
    shown = sorted({row["place"] for row in rows})
    summary = "; ".join(f"{row['replay']}, {row['part']}: {row['words']}" for row in rows)
    look = {"labelLimit": 150, "labelColor": "@ink", "domain": False, "ticks": False}
    labels = {"domain": [side.label for side in sides]}
    bar = {"type": "bar", "height": {"band": 0.72}, "stroke": "@page", "strokeWidth": 1, "tooltip": TOOLTIP}
    hours = quantity("hours", title=words("node-hours"), scale={"nice": False}, axis={"tickCount": 5})
    figure = ChartFigure(
        name="node-time",
        title="",
        alt=f"{words('Where the idle node-time of each replay went')}. {summary}.",
        caption="Point at a part of a bar to see how much it is.",
        height=_ROW * len(sides),
        spec={
            "data": {"values": rows},
            "mark": bar,
            "encoding": {
                "y": category("replay", sort=None, scale=labels, title=None, axis=look),
                "x": hours,
                "order": quantity("place"),
                "color": category("colour", scale=None),
            },
        },
    )
    return [(words(order[place]), _BAR_COLOURS[order[place]][1:]) for place in shown], figure


def _bar(side: ComparedRun, order: Sequence[str], words: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    summary = side.run.summary
    parts = {USEFUL: max(harvest_node_h(summary), 0.0), **{cause.name: node_hours(summary, cause) for cause in CAUSES}}
    for part, hours in parts.items():
        if hours > 0.0 or part == USEFUL:
            share = text_formats.percent(hours / summary["idle_node_h"] if summary["idle_node_h"] else None)
            short = f"{text_formats.count(hours)} h, {share}"
            yield {
                "replay": side.label,
                "part": words(part),
                "hours": hours,
                "words": short,
                "tooltip": f"{side.label}, {words(part)}: {short} of the idle {words('node-time')}",
                "place": order.index(part),
                "colour": _BAR_COLOURS[part],
            }


def _completions(sides: Sequence[ComparedRun]) -> ChartFigure | None:
    """Return the share of tasks done within a time from submission; ``None`` where no replay finished any."""
    lines = [CumulativeLine(side.label, side.tasks.completion_s, len(side.tasks)) for side in sides]
    if not any(line.known.any() for line in lines):
        return None
    summary = "; ".join(
        f"{line.name}: {line.known.size:,} of {line.tasks:,}"
        + (f", half of these within {text_formats.duration(float(np.median(line.known)))}" if line.known.size else "")
        for line in lines
    )
    return ChartFigure(
        name="finished",
        title="Tasks finished within a time after submission",
        alt=f"Share of all tasks that finished within a time after submission. {summary}.",
        caption="The higher and the further to the left, the better. The gap between a line and "
        "100 % are unfinished tasks.",
        height=260,
        spec=over_durations(lines, "from submission to completion"),
    )


def _fairness(sides: Sequence[ComparedRun]) -> ChartFigure | None:
    """Return the share of tasks below each rho; ``None`` if no replay knows it."""
    lines = [CumulativeLine(side.label, side.tasks.rho, len(side.tasks)) for side in sides]
    if not any(line.known.size for line in lines):
        return None
    summary = "; ".join(
        (
            f"{side.label}: {text_formats.percent(side.summary['rho_over_1'])} of "
            f"{text_formats.counted(side.summary['rho']['count'], 'task')} above 1, "
            f"the largest {text_formats.ratio(side.summary['rho']['max'])}"
        )
        for side in sides
        if side.summary["rho"] is not None
    )
    return ChartFigure(
        name="rho",
        title="Finish-time fairness",
        alt=f"The share of all tasks below each rho. {summary}.",
        caption="rho is the completion time divided by the time on 1/n of the pool, with n tasks in the system. "
        "Tasks right of the dashed line paid for other tasks; the further a line reaches, the less fair.",
        height=240,
        spec=over_ratios(lines, "rho"),
    )


def _nodes(side: ComparedRun) -> StepSeries:
    course = side.run.course
    return StepSeries(
        times_s=course.from_s, end_s=float(course.to_s[-1]), columns={"idle": course.idle, "used": course.used}
    )


def _harvest(side: ComparedRun) -> np.ndarray:
    """Return the samples done until each of ``_times``."""
    return np.concatenate(([0.0], side.run.course.harvested))


def _times(side: ComparedRun) -> np.ndarray:
    return np.concatenate(([0.0], side.run.course.to_s))


def _lines(
    sides: Sequence[ComparedRun],
    time_axis: TimeAxis,
    amounts: Sequence[np.ndarray],
    most: float,
    **texts: Any,  # noqa: ANN401 - fields of ChartFigure
) -> ChartFigure:
    """Return samples over time, a line for each replay, in a unit that suits ``most``."""
    unit, name = next(((size, f"{name} samples") for size, name in _SIZES if most >= size), (1.0, "samples"))
    series = []
    for side, each in zip(sides, amounts, strict=True):
        times = _times(side)
        kept = np.unique(np.linspace(0, times.size - 1, min(times.size, _POINTS)).astype(np.int64))
        columns = {name: each[kept] / unit}
        series.append(StepSeries(times_s=times[kept], end_s=float(times[-1]), columns=columns, of=side.label))
    y = quantity(name, title=name, axis={"tickCount": 5})
    spec = {
        "mark": {"type": "line", "strokeWidth": 2, "clip": True},
        "encoding": {"x": time_axis.encoding(), "y": y, **colour_scale([side.label for side in sides])},
    }
    return ChartFigure(time_axis=time_axis, series=series, spec=spec, **texts)
