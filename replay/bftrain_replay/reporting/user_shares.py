"""Users: who got how much of the node-time, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.drawing.time_axis import TimeAxis
from bftrain_replay.metrics.task_columns import TaskColumns
from bftrain_replay.reporting.raster_rows import NARROW
from bftrain_replay.reporting.report_data import ReportData

OTHERS: Final = "others"
BOUND: Final = "the bound, of all"
_NO_USER: Final = "no user"
_OURS: Final = frozenset({OTHERS, BOUND, _NO_USER})  # names of what is no user
_CALLED: Final = "user '"
_FEW: Final = 2  # users that a sentence can compare
_STRETCHES: Final = 2000  # of the time, over which nodes are averaged


def named(user: str) -> str:
    """Give the name of a user as it is shown; no two, nor what else is in such a picture, are called the same."""
    if user in _OURS or user.startswith(_CALLED):
        return f"{_CALLED}{user}'"
    return user or _NO_USER


def by_user(tasks: TaskColumns, most: int) -> list[tuple[str, NDArray[np.bool_]]]:
    """Give users as shown and which tasks are theirs, those with most node-time first; beyond ``most`` all together."""
    users = sorted({*tasks.user})
    belongs = {user: np.array([each == user for each in tasks.user], dtype=bool) for user in users}
    users.sort(key=lambda user: -float(tasks.node_h[belongs[user]].sum()))
    if len(users) <= most:
        return [(named(user), belongs[user]) for user in users]
    kept = users[: most - 1]
    others: NDArray[np.bool_] = ~np.any([belongs[user] for user in kept], axis=0)
    return [*((named(user), belongs[user]) for user in kept), (OTHERS, others)]


def users_over_time(material: ReportData) -> ChartFigure | None:
    """Give the nodes that each user's tasks held over time, upon each other; none where tasks have no users."""
    edges, until = _held(material)
    series = [_series(user, edges, {"nodes": np.diff(node_s) / np.diff(edges)}) for user, node_s in until.items()]
    whole = float(sum(node_s[-1] for node_s in until.values())) or 1.0
    said = [f"{user} {text_formats.percent(float(node_s[-1]) / whole)}" for user, node_s in until.items()]
    return stacked(series, said, material.moments) if series else None


def shares_so_far(material: ReportData) -> ChartFigure | None:
    """Give each user's share of all node-time held up to each moment; none where there are no two of them."""
    edges, until = _held(material)
    if len(until) < _FEW:
        return None
    whole = np.sum(list(until.values()), axis=0)[1:]
    shown = list(until)
    series = [
        _series(user, edges, {"share": np.divide(node_s[1:], whole, out=np.zeros(whole.size), where=whole > 0.0)})
        for user, node_s in until.items()
    ]
    says = f"In the end {shown[0]} had most of the node-time that tasks held, {shown[-1]} least."
    return ChartFigure(
        name="shares",
        title="Each user's share of the node-time so far",
        says=says,
        alt=f"The share of each user in the node-time that tasks held up to each moment. {says}",
        caption="At each moment of all that tasks had held until then. Users who always want more than there is come "
        "to the shares that their weights give them, if the run shares by users.",
        height=200,
        moments=material.moments,
        series=series,
        spec={
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": material.moments.axis(),
                "y": {
                    "field": "share",
                    "type": "quantitative",
                    "title": "of the node-time",
                    "axis": {"format": ".0%", "tickCount": 5},
                },
                "color": _colours(shown, symbolType="stroke", symbolStrokeWidth=3),
            },
        },
        narrow=NARROW,
    )


def _held(material: ReportData) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Give moments, and the node-seconds that each user's tasks had held by then; nothing where tasks have no users."""
    tasks, held = material.task_columns, material.holdings
    edges = np.linspace(0.0, material.end_s, _STRETCHES + 1)
    if not any(tasks.user) or not held.task.size or not material.end_s:
        return edges, {}
    found = {}
    for user, which in by_user(tasks, len(HUES)):
        names = {name for name, theirs in zip(tasks.name, which.tolist(), strict=True) if theirs}
        theirs = np.array([name in names for name in held.tasks], dtype=bool)[held.task]
        found[user] = _node_s(held.from_s[theirs], held.to_s[theirs], edges)
    return edges, found


def _series(user: str, edges: NDArray[np.float64], columns: Mapping[str, NDArray[np.float64]]) -> StepSeries:
    return StepSeries(times_s=edges[:-1], end_s=float(edges[-1]), columns=columns, of=user)


def _colours(users: Sequence[str], **legend: object) -> dict[str, Any]:
    return {
        "field": "of",
        "type": "nominal",
        "scale": {"domain": list(users), "range": list(HUES[: len(users)])},
        "legend": {"title": None, "columns": len(HUES), "labelLimit": 120, **legend},
    }


def stacked(series: Sequence[StepSeries], said: Sequence[str], moments: TimeAxis) -> ChartFigure:
    """Give the nodes of users upon each other, a series each; ``said`` tells of each how much of all it had."""
    shown = [part.of for part in series]
    says = f"Of the node-time that tasks held: {', '.join(said)}."
    return ChartFigure(
        name="users",
        title="Who held the nodes",
        says=says,
        alt=f"Nodes held by each user's tasks over time, upon each other. {says}",
        caption="Colours lie upon each other: the top is all nodes that tasks held. Users are ordered by their "
        "node-time" + (f", and those beyond {len(HUES) - 1} are one." if OTHERS in shown else "."),
        height=240,
        moments=moments,
        series=series,
        spec={
            "transform": [{"calculate": f"indexof({json.dumps(shown)}, datum.of)", "as": "place"}],
            "mark": {"type": "area", "interpolate": "step-after", "clip": True},
            "encoding": {
                "x": moments.axis(),
                "y": {
                    "field": "nodes",
                    "type": "quantitative",
                    "stack": "zero",
                    "title": "nodes",
                    "axis": {"tickCount": 5},
                },
                "color": _colours(shown),
                "order": {"field": "place", "type": "quantitative"},
            },
        },
        narrow=NARROW,
    )


def user_table(users: Mapping[str, Mapping[str, Any]]) -> HtmlTable | None:
    """Give what each user got; nothing where tasks have no users."""
    if not users:
        return None
    return HtmlTable(
        label="Users",
        headings=("user", "tasks", "finished", "node-hours", "share", "completion, mean", "slowdown", "rho, mean"),
        rows=[_row(name, figures) for name, figures in users.items()],
        sortable=True,
    )


def _row(name: str, figures: Mapping[str, Any]) -> tuple[HtmlCell, ...]:
    def mean(figure: str) -> float | None:
        spread = figures[figure]
        return None if spread is None else float(spread["mean"])

    def ratio(value: float | None) -> HtmlCell:
        return HtmlCell(text_formats.UNKNOWN if value is None else text_formats.ratio(value), value)

    return (
        HtmlCell(named(name), name),
        HtmlCell(text_formats.count(figures["tasks"]), figures["tasks"]),
        HtmlCell(text_formats.count(figures["tasks_finished"]), figures["tasks_finished"]),
        HtmlCell(text_formats.count(figures["node_h"]), figures["node_h"]),
        HtmlCell(text_formats.percent(figures["share"]), figures["share"]),
        HtmlCell(text_formats.duration(mean("completion_s")), mean("completion_s")),
        ratio(mean("slowdown")),
        ratio(mean("rho")),
    )


def _node_s(from_s: NDArray[np.float64], to_s: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Give the node-seconds up to each edge: those since each begin, less those since each end."""
    return _since(from_s, edges) - _since(to_s, edges)


def _since(moments: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, edges, side="left")
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    return before * edges - total[before]
