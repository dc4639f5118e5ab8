"""Parts of the pages of replays and of rounds: completion of tasks, the table of tasks, and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain.values import wire
from bftrain.version import CITATION
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable, value_table
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import CumulativeLine, colour_scale, over_ratios, over_time
from bftrain_replay.reporting.user_shares import by_user, user_table
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF, PARTS
from bftrain_replay.run.task_figures import TaskColumns
from bftrain_replay.simulation.task_progress import USUAL_LOSSES

_SPREADS: Final = ("completion_s", "response_s", "waited_s", "slowdown", "rho", "late_s")


def completion_charts(run: Run) -> list[ChartFigure | None]:
    """Draw the charts of completion.html; ``None`` for what is not known."""
    tasks = run.task_columns
    return [_finished(tasks), _rho(tasks), _slowdown(tasks)]


def completion_parts(run: Run) -> dict[str, HtmlTable | None]:
    """Return the tables of completion.html: spreads of times, and users."""
    summary, parts, rows = run.summary, ("mean", "p50", "p95", "max"), []
    for name in _SPREADS:
        if summary[name] is not None:
            figure = FIGURE_OF[f"{name}.mean"]
            cells = (figure.format(summary[name][part]) for part in parts)
            label = run.words(figure.label.removesuffix(", mean"))
            rows.append((label, *cells, text_formats.count(summary[name]["count"])))
    headings = ("", *(PARTS[part] for part in parts), "of tasks")
    spreads = HtmlTable(label="How long tasks took", headings=headings, rows=rows, css="compare")
    return {"spreads": spreads, "users": user_table(summary["users"], run.node)}


def _finished(tasks: TaskColumns) -> ChartFigure | None:
    came = int((tasks.arrived & tasks.ends).sum())
    started = CumulativeLine("started", np.where(tasks.ends, tasks.response_s, np.nan), came)
    finished = CumulativeLine("finished", tasks.completion_s, came)
    if not came or not finished.known.size or not finished.known[-1] > 0.0:
        return None
    says = (
        f"Of {text_formats.counted(came, 'task')} {started.known.size:,} started, half of these "
        f"within {text_formats.duration(float(np.median(started.known)))}; {finished.known.size:,} finished, half of "
        f"these within {text_formats.duration(float(np.median(finished.known)))}."
    )
    return ChartFigure(
        name="completion",
        title="Tasks started and finished within a time after submission",
        says=says,
        caption="The higher and the further to the left, the better. The gap between a line and 100 "
        "% did not get that far.",
        height=240,
        spec=over_time(
            [started, finished], "from submission", colour_scale(["started", "finished"], ["@idle", "@used"])
        ),
    )


def _rho(tasks: TaskColumns) -> ChartFigure | None:
    ends = int((tasks.arrived & tasks.ends).sum())
    line = CumulativeLine("all tasks", tasks.rho, ends)
    known = line.known
    if not known.size:
        return None
    above = float((known > 1.0).mean())
    says = (
        f"Half of the finished tasks have a rho up to {text_formats.ratio(float(np.median(known)))}, the largest "
        f"is {text_formats.ratio(float(known[-1]))}; {text_formats.percent(above)} are above 1."
    )
    return ChartFigure(
        name="rho",
        title="Finish-time fairness",
        says=says,
        alt=f"The share of tasks below each rho. {says}",
        caption="Tasks left of the dashed line finished sooner than on 1/n of the pool, tasks right of it later.",
        height=220,
        spec=over_ratios(
            [line], "rho, completion time over that on an n-th part", colour_scale(["all tasks"], ["@used"])
        ),
    )


def _slowdown(tasks: TaskColumns) -> ChartFigure | None:
    """Return a chart with a line per large user."""
    if not (~np.isnan(tasks.slowdown)).any():
        return None
    ending = tasks.arrived & tasks.ends
    groups = [(user, which & ending) for user, which in by_user(tasks, len(HUES) - 1)]
    lines = [CumulativeLine(name, tasks.slowdown[which], int(which.sum())) for name, which in groups if which.any()]
    lines = [line for line in lines if line.known.size]
    whole = CumulativeLine("", tasks.slowdown, len(tasks)).known
    says = (
        f"Half of the finished tasks took up to {text_formats.ratio(float(np.median(whole)))} times "
        f"their shortest possible time, the slowest {text_formats.ratio(float(whole[-1]))} times."
    )
    hues = ["@used"] if len(lines) == 1 else HUES
    return ChartFigure(
        name="slowdown",
        title="Slowdown" if len(lines) == 1 else "Slowdown by user",
        says=says,
        alt=f"The share of tasks below each slowdown. {escape(says)}",
        caption="1 is as fast as the machine can be for one task alone; long tasks have small slowdowns easily."
        if len(lines) == 1
        else "Where lines differ, the left one waited less for the machine.",
        height=240,
        spec=over_ratios(
            lines,
            "slowdown, completion time over the shortest possible",
            colour_scale([line.name for line in lines], hues),
        ),
    )


SHOWN: Final = 2000


def tasks_shown(tasks: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the tasks of the table in order: all, or the tasks with the most node-time if too many."""
    if len(tasks) <= SHOWN:
        return tasks
    most = sorted(range(len(tasks)), key=lambda place: -float(tasks[place]["node_h"]))[:SHOWN]
    return [tasks[place] for place in sorted(most)]


def task_table(tasks: Sequence[Mapping[str, Any]], node: str, columns: Sequence[str] = ()) -> HtmlTable:
    """Return the sortable table of these ``columns`` (default: those of a replay); times count from the start."""
    chosen = {name: _COLUMNS[name] for name in columns or tuple(_COLUMNS)[:-1]}
    rows = ([read(task) if callable(read) else task[read] for read, _ in chosen.values()] for task in tasks)
    forms = {name.replace("node", node): form for name, (_, form) in chosen.items()}
    return value_table("Tasks", forms, rows, css="many", follows=not columns)


def _done(task: Mapping[str, Any]) -> HtmlCell | float:
    if task["work_samples"]:
        return float(task["done_samples"] / task["work_samples"])
    return HtmlCell(text_formats.large(task["done_samples"]))


def lost_share(tasks: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the lost share of the work of these tasks."""
    lost = sum(float(task[f"lost_{loss}_samples"]) for task in tasks for loss in USUAL_LOSSES)
    made = sum(float(task["done_samples"]) for task in tasks) + lost
    return lost / made if made else None


# The columns of the table of tasks: the field or the function of each, and its format
_COLUMNS: Final[Mapping[str, tuple[str | Callable[[Mapping[str, Any]], Any], Callable[[Any], str]]]] = {
    "task": ("name", str),
    "state": ("state", lambda state: state.replace("_", " ")),
    "submitted": ("submit_s", text_formats.duration),
    "started": ("first_start_s", text_formats.duration),
    "finished": ("finish_s", text_formats.duration),
    "waited": (lambda task: None if task["state"] == "not_arrived" else task["waited_s"], text_formats.duration),
    "node-hours": ("node_h", text_formats.count),
    "done": (_done, text_formats.percent),
    "lost": (lambda task: lost_share([task]), text_formats.percent),
    "starts": ("starts", text_formats.count),
    "rescales": ("rescales", text_formats.count),
    "preempted": ("preemptions", text_formats.count),
    "moves": ("moves", text_formats.count),
}


def configuration(run: Run, inputs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the parts of configuration.html: inputs and chosen settings, default settings, and versions."""
    settings: Mapping[str, Any] = run.summary["settings"]
    defaults = wire.plain(run.kind.settings())
    chosen = {name: value for name, value in settings.items() if name not in defaults or value != defaults[name]}
    usual = [(name, text_formats.setting(value)) for name, value in settings.items() if name not in chosen]
    versions = [(name, str(value)) for name, value in run.summary["versions"].items()]
    rows = [*inputs, *((name, text_formats.setting(value)) for name, value in chosen.items())]
    return {
        "chosen": _table("Configuration", ("what", "value"), rows),
        "default": "" if chosen else "All settings are as by default.",
        "usual": _table("Settings as by default", ("setting", "value"), usual, f"{len(usual)} default settings"),
        "versions": _table("Versions", ("what", "version"), versions, "Versions"),
        "cite": CITATION,
    }


def input_text(file: Mapping[str, str]) -> str:
    """Return an input with its checksum."""
    return f"{file['name'] or 'made in memory'} (SHA-256 {file['sha256']})"


def _table(label: str, headings: Sequence[str], rows: Sequence[tuple[str, str]], folded: str = "") -> HtmlTable:
    return HtmlTable(label=label, headings=headings, rows=rows, css="plain", folded=folded)
