"""The page of a run in rounds: task durations, fairness, and node holders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlPage
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.completion import (
    completion_charts,
    completion_parts,
    configuration,
    input_text,
    task_table,
)
from bftrain_replay.reporting.over_time import nodes
from bftrain_replay.reporting.user_shares import OTHERS, named, stacked
from bftrain_replay.run.run import Run

_USERS: Final = ("from_s", "to_s", "user", "nodes")
_ENDS: Final = {
    "all_done": "All tasks were done",
    "measured_done": "It stopped when the measured tasks were done",
    "until": "It stopped at the given time",
    "log_end": "It stopped at the end of the log",
    "overload": "It stopped because the queue grew without bound",
    "stalled": "It stopped because no task could run",
    "interrupted": "It was interrupted",
}
_COLUMNS: Final = (
    "task", "state", "submitted", "started", "finished", "waited", "node-hours", "done", "starts", "preempted", "moves",
)  # fmt: skip


def page(run: Run, title: str = "") -> HtmlPage:
    """Build the page."""
    summary, inputs = run.summary, run.summary["inputs"]
    charts = completion_charts(run)
    if run.course.from_s.size and run.end_s:
        charts += [nodes(run), _users(run)]
    figures = [chart for chart in charts if chart is not None]
    tasks, omitted = task_table(run, _COLUMNS)
    cluster = ", ".join(f"{count} {kind}".strip() for kind, count in inputs["cluster"].items())
    nodes_from = ("cluster", cluster) if cluster else ("log", input_text(inputs["log"]))
    parts = {
        "s": summary,
        "ended": _ENDS[summary["ended"]],
        **completion_parts(run),
        "left_out": omitted,
        "tasks": tasks,
        "configuration": configuration(run, (nodes_from, ("tasks", input_text(inputs["tasks"])))),
    }
    main = next((name for name in ("completion", "nodes") if name in {chart.name for chart in figures}), "")
    warnings = list(_notices(summary))
    title = title or "Time shared in rounds"
    return HtmlPage(template="rounds.html", title=title, main=main, figures=figures, parts=parts, warnings=warnings)


def _notices(summary: Mapping[str, Any]) -> Iterator[str]:
    if not summary["complete"]:
        yield f"{_ENDS[summary['ended']]}: the figures cover only a part of the run."
    if summary["measured"] < summary["tasks"]:
        measured, tasks = text_formats.count(summary["measured"]), text_formats.count(summary["tasks"])
        counted = f"{summary['settings']['measure']}, numbered from 0 in order of arrival"
        yield f"Means and pictures of tasks are of {measured} of {tasks} tasks: {counted}."


def _users(run: Run) -> ChartFigure | None:
    """Return stacked nodes by user over time; users beyond the number of colours are merged."""
    held = [(from_s, to_s, named(user), count) for from_s, to_s, user, count in run.rows("users", *_USERS)]
    if not held:
        return None
    starts = np.unique([0.0, *(from_s for from_s, *_ in held)])
    node_s: dict[str, float] = {}
    for from_s, to_s, user, count in held:
        node_s[user] = node_s.get(user, 0.0) + (to_s - from_s) * count
    order = sorted(node_s, key=lambda user: -node_s[user])
    kept = order if len(order) <= len(HUES) else order[: len(HUES) - 1]
    columns = {user: np.zeros(starts.size) for user in kept}
    if len(kept) < len(order):
        columns[OTHERS] = np.zeros(starts.size)
    for from_s, _, user, count in held:
        columns[user if user in columns else OTHERS][np.searchsorted(starts, from_s)] += count
    whole = sum(node_s.values()) or 1.0
    had = {**{user: node_s[user] for user in kept}, OTHERS: whole - sum(node_s[user] for user in kept)}
    series = [
        StepSeries(times_s=starts, end_s=run.end_s, columns={"nodes": column}, of=user)
        for user, column in columns.items()
    ]
    return stacked(series, [f"{user} {text_formats.percent(had[user] / whole)}" for user in columns], run)
