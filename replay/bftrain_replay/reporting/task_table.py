"""The table of tasks, to be sorted by any column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.simulation.task_progress import SampleLoss

SHOWN: Final = 2000
_HEADINGS: Final = (
    "task",
    "state",
    "submitted",
    "started",
    "finished",
    "waited",
    "node-hours",
    "done",
    "lost",
    "starts",
    "rescales",
    "preempted",
)


def task_table(material_tasks: list[Mapping[str, Any]]) -> HtmlTable:
    """Give the table; times count from the log's start."""
    return HtmlTable(
        label="Tasks", headings=_HEADINGS, rows=map(_row, material_tasks[:SHOWN]), sortable=True, css="many"
    )


def _row(task: Mapping[str, Any]) -> tuple[HtmlCell, ...]:
    lost = sum(float(task[f"lost_{loss}_samples"]) for loss in SampleLoss)
    made = task["done_samples"] + lost
    done = task["done_samples"] / task["work_samples"] if task["work_samples"] else None
    arrived = task["state"] != "not_arrived"
    return (
        HtmlCell(task["name"], task["name"]),
        HtmlCell(task["state"].replace("_", " "), task["state"]),
        _duration(task["submit_s"]),
        _duration(task["first_start_s"]),
        _duration(task["finish_s"]),
        _duration(task["waited_s"] if arrived else None),
        HtmlCell(text_formats.count(task["node_h"]), task["node_h"]),
        HtmlCell(text_formats.percent(done) if done is not None else text_formats.large(task["done_samples"]), done),
        HtmlCell(text_formats.percent(lost / made if made else None), lost / made if made else None),
        *(HtmlCell(text_formats.count(task[name]), task[name]) for name in ("starts", "rescales", "preemptions")),
    )


def _duration(seconds: float | None) -> HtmlCell:
    return HtmlCell(text_formats.duration(seconds), seconds)
