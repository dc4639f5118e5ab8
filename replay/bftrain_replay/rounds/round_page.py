"""The page of a run in rounds: task durations, fairness, and node holders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain.values import wire
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import FigureCard, HtmlCell, HtmlPage, HtmlTable, HtmlText, PageSection
from bftrain_replay.drawing.series import StepSeries
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting import configuration
from bftrain_replay.reporting.completion import completion
from bftrain_replay.reporting.over_time import nodes, strip
from bftrain_replay.reporting.user_shares import OTHERS, named, stacked
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.run.run import Run

SHOWN: Final = 2000  # tasks in the table
_USERS: Final = ("from_s", "to_s", "user", "nodes")

_ENDS: Final = {
    "all_done": "All tasks were done",
    "measured_done": "It ended when the measured tasks were done",
    "until": "It ended at the time that was set",
    "log_end": "It ended with the log",
    "overload": "The queue grew without bound, and it was ended",
    "stalled": "No task could run any more, and it was ended",
    "interrupted": "It was interrupted",
}
_HEADINGS: Final = (
    "task", "state", "submitted", "started", "finished", "waited", "node-hours", "done", "starts", "preempted", "moves",
)  # fmt: skip


def page(run: Run, title: str = "") -> HtmlPage:
    """Build the page."""
    figures, settings = run.summary, run.summary["settings"]
    over_time = [strip(run), nodes(run), _users(run)] if run.course.from_s.size and run.end_s else []
    kinds = [f"{each['nodes']:,} {kind}" for kind, each in figures["kinds"].items() if kind]
    by_kind = f" ({', '.join(kinds)})" if kinds else ""
    most = text_formats.counted(sum(each["nodes"] for each in figures["kinds"].values()), "node")
    subtitle = (
        f"{most}{by_kind}; {text_formats.counted(figures['tasks'], 'task')}; "
        f"policy {figures['policy']}, rounds of {text_formats.duration(settings['round_s'])}."
    )
    count = len(run.task_rows)
    left_out = f"The first {SHOWN:,} of {count:,}; all are in the table of tasks. " if count > SHOWN else ""
    rows = map(_row, run.task_rows[:SHOWN])
    table = HtmlTable(label="Tasks", headings=_HEADINGS, rows=rows, sortable=True, css="many")
    return HtmlPage(
        title=title or "Time shared in rounds",
        subtitle=subtitle,
        lead=_lead(figures),
        warnings=list(_notices(figures)),
        cards=list(_cards(figures)),
        sections=(
            *(part for part in (completion(run),) if part is not None),
            PageSection(
                heading="Over time",
                intro="Drag over any of these pictures to look closer: all of them follow. A double click shows all.",
                parts=[figure for figure in over_time if figure is not None],
            ),
            PageSection(heading="Tasks", intro=f"{left_out}A heading sorts by its column.", parts=(table,)),
            PageSection(heading="Configuration", parts=tuple(_configuration(figures))),
        ),
    )


def _lead(figures: Mapping[str, Any]) -> HtmlText:
    duration = text_formats.duration
    said = (
        f"{_ENDS[figures['ended']]}, after <strong>{duration(figures['simulated_s'])}</strong> and "
        f"{text_formats.counted(figures['rounds'], 'round')}. Tasks held "
        f"<strong>{text_formats.percent(figures['coverage'])}</strong> of "
        f"{text_formats.count(figures['idle_node_h'])} node-hours."
    )
    if figures["completion_s"] is not None:
        mean = duration(figures["completion_s"]["mean"])
        said += f" A task took <strong>{mean}</strong> on average from its submission to its end."
    return HtmlText(said)


def _notices(figures: Mapping[str, Any]) -> Iterator[str]:
    if not figures["complete"]:
        yield f"{_ENDS[figures['ended']]}: the figures are of a part, and do not tell how the others would fare."
    if figures["measured"] < figures["tasks"]:
        yield (
            f"Means and pictures of tasks are of {text_formats.count(figures['measured'])} of "
            f"{text_formats.count(figures['tasks'])} "
            f"tasks: {figures['settings']['measure']}, counted from 0 as they come."
        )


def _cards(figures: Mapping[str, Any]) -> Iterator[FigureCard]:
    count, duration = text_formats.count, text_formats.duration
    for title, name, said, note in (
        ("Completion time", "completion_s", duration, "mean, from submission"),
        ("Responsiveness", "responsiveness_s", duration, "mean, to the end of its first round"),
        ("Rho", "rho", text_formats.ratio, "mean, over what it takes on an n-th part of everything"),
    ):
        known = figures[name]
        yield FigureCard(name=title, figure=text_formats.UNKNOWN if known is None else said(known["mean"]), note=note)
    held = f"{count(figures['used_node_h'])} of {count(figures['idle_node_h'])} node-hours"
    yield FigureCard(name="Node-time used", figure=text_formats.percent(figures["coverage"]), note=held)
    left = f"of {count(figures['tasks'])}; {count(figures['waiting'])} wait in the end"
    yield FigureCard(name="Tasks done", figure=count(figures["tasks_finished"]), note=left)
    moves = text_formats.counted(figures["moves"], "move")
    taken = f"{count(figures['taken'])} of them by nodes that left; {moves} between kinds"
    yield FigureCard(name="Preemptions", figure=count(figures["preemptions"]), note=taken)


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


def _row(task: Mapping[str, Any]) -> tuple[HtmlCell, ...]:
    done = task["done_samples"] / task["work_samples"] if task["work_samples"] else None
    arrived = task["state"] != "not_arrived"
    times = (task["submit_s"], task["first_start_s"], task["finish_s"], task["waited_s"] if arrived else None)
    return (
        HtmlCell(task["name"], task["name"]),
        HtmlCell(task["state"].replace("_", " "), task["state"]),
        *(HtmlCell(text_formats.duration(seconds), seconds) for seconds in times),
        HtmlCell(text_formats.count(task["node_h"]), task["node_h"]),
        HtmlCell(text_formats.percent(done) if done is not None else text_formats.large(task["done_samples"]), done),
        *(HtmlCell(text_formats.count(task[name]), task[name]) for name in ("starts", "preemptions", "moves")),
    )


def _configuration(figures: Mapping[str, Any]) -> Iterator[HtmlTable | HtmlText]:
    inputs = figures["inputs"]
    cluster = ", ".join(f"{count} {kind}".strip() for kind, count in inputs["cluster"].items())
    nodes_from = ("cluster", cluster) if cluster else ("log", _file(inputs["log"]))
    rows = (nodes_from, ("tasks", _file(inputs["tasks"])))
    return configuration.tables(rows, figures["settings"], wire.plain(RoundSettings()), figures["versions"])


def _file(figures: Mapping[str, str]) -> str:
    return f"{figures['name'] or 'made in memory'} (SHA-256 {figures['sha256']})"
