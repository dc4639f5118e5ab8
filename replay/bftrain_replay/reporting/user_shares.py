"""Users: charts of their nodes over time and their shares of the node-time, and the table of their figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure, quantity
from bftrain_replay.drawing.html_page import HtmlTable, value_table
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import colour_scale
from bftrain_replay.reporting.over_time import NARROW
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF
from bftrain_replay.run.task_figures import TaskColumns

OTHERS: Final = "others"
_NO_USER: Final = "no user"
_RESERVED: Final = frozenset({OTHERS, _NO_USER})  # labels of groups that are not a user
_QUOTED: Final = "user '"  # start of the label of a user whose name is reserved
_SPREADS: Final = ("completion_s", "slowdown", "rho")
_INTERVALS: Final = 2000  # time intervals over which nodes are averaged


def named(user: str) -> str:
    """Return the label of a user, distinct from the labels of other users and groups."""
    if user in _RESERVED or user.startswith(_QUOTED):
        return f"{_QUOTED}{user}'"
    return user or _NO_USER


def by_user(tasks: TaskColumns, most: int) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return the labels of users and masks of their tasks, most node-time first.

    With more than ``most`` users, the last mask joins the rest.
    """
    users = sorted({*tasks.user})
    belongs = {user: np.array([each == user for each in tasks.user], dtype=bool) for user in users}
    users.sort(key=lambda user: -float(tasks.node_h[belongs[user]].sum()))
    if len(users) <= most:
        return [(named(user), belongs[user]) for user in users]
    kept = users[: most - 1]
    others: NDArray[np.bool_] = ~np.any([belongs[user] for user in kept], axis=0)
    return [*((named(user), belongs[user]) for user in kept), (OTHERS, others)]


def user_charts(run: Run) -> list[ChartFigure]:
    """Return stacked nodes by user over time, and with several users their shares so far; nothing without users."""
    edges, until = _node_s_until(run)
    if not until:
        return []

    def series(name: str, values: Iterable[NDArray[np.float64]]) -> list[StepSeries]:
        end_s = float(edges[-1])
        return [
            StepSeries(times_s=edges[:-1], end_s=end_s, columns={name: column}, of=user)
            for user, column in zip(until, values, strict=True)
        ]

    whole = np.sum(list(until.values()), axis=0)[1:]
    shares = [np.divide(each[1:], whole, out=np.zeros(whole.size), where=whole > 0.0) for each in until.values()]
    labels = [f"{user} {text_formats.percent(float(share[-1]))}" for user, share in zip(until, shares, strict=True)]
    means = (np.diff(each) / np.diff(edges) for each in until.values())
    charts = [stacked(series("nodes", means), labels, run)]
    return [*charts, _shares(series("share", shares), run)] if len(until) > 1 else charts


def _shares(series: Sequence[StepSeries], run: Run) -> ChartFigure:
    """Return each user's cumulative share of allocated node-time; ``series`` begin with the largest user."""
    shown = [part.of for part in series]
    least = "" if OTHERS in shown else f", {shown[-1]} the smallest"
    says = f"In the end {shown[0]} had the largest share of the tasks' {run.node}-time{least}."
    return ChartFigure(
        name="shares",
        title=f"Each user's share of the {run.node}-time so far",
        says=says,
        alt=f"The share of each user in the tasks' {run.node}-time up to each moment. {says}",
        caption="Shares at each moment cover the whole time before it. If the run shares by users, users with enough "
        "work converge to the shares of their weights.",
        height=200,
        time_axis=run.time_axis,
        series=series,
        spec={
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": run.time_axis.encoding(),
                "y": quantity("share", title=f"of the {run.node}-time", axis={"format": ".0%", "tickCount": 5}),
                **colour_scale(shown, labelLimit=120),
            },
        },
        narrow=NARROW,
    )


def _node_s_until(run: Run) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return times, and each user's node-seconds until each of them; no users if tasks have none."""
    tasks, held = run.task_columns, run.holdings
    edges = np.linspace(0.0, run.end_s, _INTERVALS + 1)
    if not any(tasks.user) or not len(held) or not run.end_s:
        return edges, {}
    until = {}
    for user, belongs in by_user(tasks, len(HUES)):
        names = {tasks.name[place] for place in np.flatnonzero(belongs)}
        of_user = np.array([name in names for name in held.tasks], dtype=bool)
        until[user] = np.zeros(edges.size)
        for block in held.blocks():
            own = of_user[block.task]
            until[user] += _seconds_since(block.from_s[own], edges) - _seconds_since(block.to_s[own], edges)
    return edges, until


def stacked(series: Sequence[StepSeries], labels: Sequence[str], run: Run) -> ChartFigure:
    """Return the chart of stacked nodes, one series per user; ``labels`` have each user's name and total share."""
    time_axis, node = run.time_axis, run.node
    shown = [part.of for part in series]
    says = f"Of the tasks' {node}-time: {', '.join(labels)}."
    return ChartFigure(
        name="users",
        title=f"{run.words('Nodes')} by user",
        says=says,
        alt=f"{run.words('Nodes')} of each user's tasks over time, stacked. {says}",
        caption=f"Colours are stacked: the top is all {node}s that tasks used. Users are ordered by their "
        f"{node}-time" + (f", and those beyond {len(HUES) - 1} are one." if OTHERS in shown else "."),
        height=240,
        time_axis=time_axis,
        series=series,
        spec={
            "transform": [{"calculate": f"indexof({json.dumps(shown)}, datum.of)", "as": "place"}],
            "mark": {"type": "area", "interpolate": "step-after", "clip": True},
            "encoding": {
                "x": time_axis.encoding(),
                "y": quantity("nodes", stack="zero", title=f"{node}s", axis={"tickCount": 5}),
                **colour_scale(shown, labelLimit=120, symbolType="square", symbolStrokeWidth=0),
                "order": quantity("place"),
            },
        },
        narrow=NARROW,
    )


def user_table(users: Mapping[str, Mapping[str, Any]], node: str) -> HtmlTable | None:
    """Return the table of ``users``, figures by name; ``None`` if tasks have no users."""
    if not users:
        return None
    counts = dict.fromkeys(("tasks", "finished", f"{node}-hours"), text_formats.count)
    means = {figure.label: figure.format for figure in (FIGURE_OF[f"{name}.mean"] for name in _SPREADS)}
    columns: dict[str, Callable[[Any], str]] = {"user": named, **counts, "share": text_formats.percent, **means}
    fields = ("tasks", "tasks_finished", "node_h", "share")
    rows = (
        (name, *map(user.get, fields), *(user[each] and user[each]["mean"] for each in _SPREADS))
        for name, user in users.items()
    )
    return value_table("Users", columns, rows)


def _seconds_since(times: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at each edge the sum of the seconds since each of the earlier ``times``."""
    ordered = np.sort(times)
    before = np.searchsorted(ordered, edges, side="left")
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    return before * edges - total[before]
