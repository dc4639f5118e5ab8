"""Users: their shares of the node-time, and their nodes over time."""

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
_RESERVED_LABELS: Final = frozenset({OTHERS, _NO_USER})  # labels reserved for non-user groups
_CALLED: Final = "user '"
_SPREADS: Final = ("completion_s", "slowdown", "rho")
_STRETCHES: Final = 2000  # number of time intervals to average over


def named(user: str) -> str:
    """Return a user's displayed name, distinct from other names and labels in a chart."""
    if user in _RESERVED_LABELS or user.startswith(_CALLED):
        return f"{_CALLED}{user}'"
    return user or _NO_USER


def by_user(tasks: TaskColumns, most: int) -> list[tuple[str, NDArray[np.bool_]]]:
    """Return users as shown and masks of their tasks, most node-time first; those beyond ``most`` are merged."""
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
    edges, until = _held(run)
    users = list(until)
    if not users:
        return []

    def series(name: str, values: Iterable[NDArray[np.float64]]) -> list[StepSeries]:
        every = zip(users, values, strict=True)
        end_s = float(edges[-1])
        return [StepSeries(times_s=edges[:-1], end_s=end_s, columns={name: each}, of=user) for user, each in every]

    whole = np.sum(list(until.values()), axis=0)[1:]
    shares = [np.divide(each[1:], whole, out=np.zeros(whole.size), where=whole > 0.0) for each in until.values()]
    labels = [f"{user} {text_formats.percent(float(share[-1]))}" for user, share in zip(users, shares, strict=True)]
    means = (np.diff(each) / np.diff(edges) for each in until.values())
    found = [stacked(series("nodes", means), labels, run)]
    return [*found, _shares(series("share", shares), run)] if len(users) > 1 else found


def _shares(series: Sequence[StepSeries], run: Run) -> ChartFigure:
    """Return each user's cumulative share of allocated node-time."""
    shown = [part.of for part in series]
    says = f"In the end {shown[0]} had most of the tasks' {run.node}-time, {shown[-1]} least."
    return ChartFigure(
        name="shares",
        title=f"Each user's share of the {run.node}-time so far",
        says=says,
        alt=f"The share of each user in the tasks' {run.node}-time up to each moment. {says}",
        caption="Shares at each moment cover the whole time before it. If the run shares by users, users with enough "
        "work converge to the shares of their weights.",
        height=200,
        moments=run.moments,
        series=series,
        spec={
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
            "encoding": {
                "x": run.moments.axis(),
                "y": quantity("share", title=f"of the {run.node}-time", axis={"format": ".0%", "tickCount": 5}),
                **colour_scale(shown, labelLimit=120),
            },
        },
        narrow=NARROW,
    )


def _held(run: Run) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return times and each user's cumulative node-seconds; empty if tasks have no users."""
    tasks, held = run.task_columns, run.holdings
    edges = np.linspace(0.0, run.end_s, _STRETCHES + 1)
    if not any(tasks.user) or not len(held) or not run.end_s:
        return edges, {}
    found = {}
    for user, which in by_user(tasks, len(HUES)):
        names = {name for name, theirs in zip(tasks.name, which.tolist(), strict=True) if theirs}
        of_user = np.array([name in names for name in held.tasks], dtype=bool)
        found[user] = np.zeros(edges.size)
        for block in held.blocks():
            theirs = of_user[block.task]
            found[user] += _since(block.from_s[theirs], edges) - _since(block.to_s[theirs], edges)
    return edges, found


def stacked(series: Sequence[StepSeries], labels: Sequence[str], run: Run) -> ChartFigure:
    """Return stacked nodes of users, one series per user; ``labels`` describes each user's total share."""
    moments, node = run.moments, run.node
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
        moments=moments,
        series=series,
        spec={
            "transform": [{"calculate": f"indexof({json.dumps(shown)}, datum.of)", "as": "place"}],
            "mark": {"type": "area", "interpolate": "step-after", "clip": True},
            "encoding": {
                "x": moments.axis(),
                "y": quantity("nodes", stack="zero", title=f"{node}s", axis={"tickCount": 5}),
                **colour_scale(shown, labelLimit=120, symbolType="square", symbolStrokeWidth=0),
                "order": quantity("place"),
            },
        },
        narrow=NARROW,
    )


def user_table(users: Mapping[str, Mapping[str, Any]], node: str) -> HtmlTable | None:
    """Return the figures of users; ``None`` where tasks have no users."""
    if not users:
        return None
    counts = dict.fromkeys(("tasks", "finished", f"{node}-hours"), text_formats.count)
    forms = (text_formats.duration, text_formats.ratio, text_formats.ratio)
    labels = (FIGURE_OF[f"{name}.mean"].label for name in _SPREADS)
    columns: dict[str, Callable[[Any], str]] = {"user": named, **counts, "share": text_formats.percent}
    columns |= dict(zip(labels, forms, strict=True))
    fields = ("tasks", "tasks_finished", "node_h", "share")
    rows = (
        (name, *map(user.get, fields), *(user[each] and user[each]["mean"] for each in _SPREADS))
        for name, user in users.items()
    )
    return value_table("Users", columns, rows)


def _since(moments: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the seconds since these moments, at each edge."""
    ordered = np.sort(moments)
    before = np.searchsorted(ordered, edges, side="left")
    total = np.concatenate(([0.0], np.cumsum(ordered)))
    return before * edges - total[before]
