"""Parts of the pages of replays and of rounds: completion of tasks, tables of tasks, and the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain.values import wire
from bftrain.version import CITATION
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable, value_table
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.cumulative import CumulativeLine, over_durations, over_ratios
from bftrain_replay.reporting.user_shares import by_user, user_table
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF, PARTS
from bftrain_replay.run.task_figures import TaskColumns
from bftrain_replay.simulation.task_progress import USUAL_LOSSES

_SPREADS: Final = ("completion_s", "response_s", "waited_s", "slowdown", "rho", "late_s")


def completion_charts(run: Run) -> list[ChartFigure | None]:
    """Draw the charts of completion.html; ``None`` for a chart without data."""
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
    headings = ("", *(PARTS[part] for part in parts), "tasks")
    spreads = HtmlTable(label="How long tasks took", headings=headings, rows=rows, css="compare")
    return {"spreads": spreads, "users": user_table(summary["users"], run.node)}


def _finished(tasks: TaskColumns) -> ChartFigure | None:
    arrived = int((tasks.arrived & tasks.ends).sum())
    started = CumulativeLine("started", np.where(tasks.ends, tasks.response_s, np.nan), arrived)
    finished = CumulativeLine("finished", tasks.completion_s, arrived)
    if not arrived or not finished.known.size or not finished.known[-1] > 0.0:
        return None
    says = (
        f"Of {text_formats.counted(arrived, 'task')} {started.known.size:,} started, half of these "
        f"within {text_formats.duration(float(np.median(started.known)))}; {finished.known.size:,} finished, half of "
        f"these within {text_formats.duration(float(np.median(finished.known)))}."
    )
    return ChartFigure(
        name="completion",
        title="Tasks started and finished within a time after submission",
        says=says,
        caption="The higher and the further to the left, the better. "
        "The gap between a line and 100 % did not get that far.",
        height=240,
        spec=over_durations([started, finished], "from submission", ["@idle", "@used"]),
    )


def _rho(tasks: TaskColumns) -> ChartFigure | None:
    line = CumulativeLine("all tasks", tasks.rho, int((tasks.arrived & tasks.ends).sum()))
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
        spec=over_ratios([line], "rho, completion time over that on an n-th part", ["@used"]),
    )


def _slowdown(tasks: TaskColumns) -> ChartFigure | None:
    """Return a chart with a line per large user."""
    if not (~np.isnan(tasks.slowdown)).any():
        return None
    ending = tasks.arrived & tasks.ends
    groups = [(user, which & ending) for user, which in by_user(tasks, len(HUES) - 1)]
    lines = [CumulativeLine(name, tasks.slowdown[which], int(which.sum())) for name, which in groups if which.any()]
    lines = [line for line in lines if line.known.size]
    says = (
        f"Half of the finished tasks took up to {text_formats.ratio(float(np.nanmedian(tasks.slowdown)))} times "
        f"their shortest possible time, the slowest {text_formats.ratio(float(np.nanmax(tasks.slowdown)))} times."
    )
    return ChartFigure(
        name="slowdown",
        title="Slowdown" if len(lines) == 1 else "Slowdown by user",
        says=says,
        alt=f"The share of tasks below each slowdown. {says}",
        caption="1 is as fast as the machine can be for one task alone; long tasks have small slowdowns easily."
        if len(lines) == 1
        else "Where lines differ, the left one waited less for the machine.",
        height=240,
        spec=over_ratios(
            lines, "slowdown, completion time over the shortest possible", ["@used"] if len(lines) == 1 else HUES
        ),
    )


_MOST_TASKS: Final = 2000  # rows of the table of tasks


def task_table(run: Run, columns: Sequence[str] = ()) -> tuple[HtmlTable, str]:
    """Return the sortable table of tasks, and a sentence on omitted tasks, which have the least node-time.

    ``columns`` are keys of ``_TASK_COLUMNS`` (default: the columns of a replay). Times count from the start.
    """
    tasks, omitted = run.task_rows, ""
    if len(tasks) > _MOST_TASKS:
        most = sorted(range(len(tasks)), key=lambda place: -float(tasks[place]["node_h"]))[:_MOST_TASKS]
        omitted = f"The {len(most):,} of {len(tasks):,} with the most {run.node}-time; all are in the table of tasks. "
        tasks = [tasks[place] for place in sorted(most)]
    chosen = {name: _TASK_COLUMNS[name] for name in columns or tuple(_TASK_COLUMNS)[:-1]}
    rows = ([read(task) if callable(read) else task[read] for read, _ in chosen.values()] for task in tasks)
    forms = {name.replace("node", run.node): form for name, (_, form) in chosen.items()}
    return value_table("Tasks", forms, rows, css="many", follows=not columns), omitted


def _done(task: Mapping[str, Any]) -> HtmlCell | float:
    if task["work_samples"]:
        return float(task["done_samples"] / task["work_samples"])
    return HtmlCell(text_formats.large(task["done_samples"]))


def lost_share(tasks: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the lost share of the work of these tasks, done or lost; ``None`` without any."""
    lost = sum(float(task[f"lost_{loss}_samples"]) for task in tasks for loss in USUAL_LOSSES)
    made = sum(float(task["done_samples"]) for task in tasks) + lost
    return lost / made if made else None


# The columns of the table of tasks: the field of a task or a function of it, and its format. Only rounds show the last
_TASK_COLUMNS: Final[Mapping[str, tuple[str | Callable[[Mapping[str, Any]], Any], Callable[[Any], str]]]] = {
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


_NUMBER: Final = re.compile(r"[-_. ]?\d+$")
_MOST_MODELS: Final = 40  # models that a table compares
_MODEL_COLUMNS: Final[Mapping[str, Callable[[Any], str]]] = {
    "model": str,
    "tasks": text_formats.count,
    "finished": text_formats.count,
    "node-hours": text_formats.count,
    "share": text_formats.percent,
    "samples": text_formats.large,
    "a node-hour": text_formats.large,
    "completion": text_formats.duration,
    "lost": text_formats.percent,
}


def model_of(name: str) -> str:
    """Return the model of a generated task: its name without the number at the end.

    >>> model_of("vgg16-007"), model_of("LM (batch size 10)-12"), model_of("mine")
    ('vgg16', 'LM (batch size 10)', 'mine')
    """
    return _NUMBER.sub("", name) or name


def model_table(tasks: Sequence[Mapping[str, Any]], node: str) -> HtmlTable | None:
    """Return the table, most node-hours first; ``None`` if there is one model, too many, or one for each task."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for task in tasks:
        groups.setdefault(model_of(task["name"]), []).append(task)
    if not 1 < len(groups) <= min(_MOST_MODELS, len(tasks) - 1):
        return None
    all_h = sum(float(task["node_h"]) for each in groups.values() for task in each)
    rows = [_model_row(model, each, all_h) for model, each in groups.items()]
    rows.sort(key=lambda row: -float(row[3]))
    columns = {name.replace("node", node): form for name, form in _MODEL_COLUMNS.items()}
    return value_table("Results by model", columns, rows, css="many")


def _model_row(model: str, tasks: list[Mapping[str, Any]], all_h: float) -> tuple[Any, ...]:
    node_h = sum(float(task["node_h"]) for task in tasks)
    done = sum(float(task["done_samples"]) for task in tasks)
    took_s = [task["finish_s"] - max(task["submit_s"], 0.0) for task in tasks if task["finish_s"] is not None]
    mean_s = sum(took_s) / len(took_s) if took_s else None
    shares = (node_h / all_h if all_h else None, done, done / node_h if node_h else None)
    return model, len(tasks), len(took_s), node_h, *shares, mean_s, lost_share(tasks)


def configuration(run: Run, inputs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the tables and texts of configuration.html: inputs and changed settings, defaults, and versions."""
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
