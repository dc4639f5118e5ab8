"""Results by model: node-hours and samples of all tasks of one model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.simulation.task_progress import USUAL_LOSSES

_NUMBER: Final = re.compile(r"[-_. ]?\d+$")
_MOST: Final = 40  # models that a table compares
_HEADINGS: Final = ("model", "tasks", "finished", "node-hours", "share", "samples", "a node-hour", "completion", "lost")


def model_of(name: str) -> str:
    """Return the model of a generated task: its name without the number at the end.

    >>> model_of("vgg16-007"), model_of("LM (batch size 10)-12"), model_of("mine")
    ('vgg16', 'LM (batch size 10)', 'mine')
    """
    return _NUMBER.sub("", name) or name


def model_table(tasks: Iterable[Mapping[str, Any]]) -> HtmlTable | None:
    """Return the table, most node-hours first; ``None`` if all tasks are of one model, or each of its own."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    count = 0
    for task in tasks:
        groups.setdefault(model_of(task["name"]), []).append(task)
        count += 1
    if not 1 < len(groups) <= min(_MOST, count - 1):
        return None
    held_h = sum(float(task["node_h"]) for each in groups.values() for task in each)
    rows = [_row(model, each, held_h) for model, each in groups.items()]
    rows.sort(key=lambda row: -float(row[3].key or 0.0))
    return HtmlTable(label="Results by model", headings=_HEADINGS, rows=rows, sortable=True, css="many")


def _row(model: str, tasks: list[Mapping[str, Any]], held_h: float) -> list[HtmlCell]:
    node_h = sum(float(task["node_h"]) for task in tasks)
    done = sum(float(task["done_samples"]) for task in tasks)
    lost = sum(float(task[f"lost_{loss}_samples"]) for task in tasks for loss in USUAL_LOSSES)
    took_s = [task["finish_s"] - max(task["submit_s"], 0.0) for task in tasks if task["finish_s"] is not None]
    mean_s = sum(took_s) / len(took_s) if took_s else None
    share = node_h / held_h if held_h else None
    lost_share = lost / (done + lost) if done + lost else None
    return [
        HtmlCell(model, model),
        HtmlCell(text_formats.count(len(tasks)), len(tasks)),
        HtmlCell(text_formats.count(len(took_s)), len(took_s)),
        HtmlCell(text_formats.count(node_h), node_h),
        HtmlCell(text_formats.percent(share), share),
        HtmlCell(text_formats.large(done), done),
        HtmlCell(
            text_formats.large(done / node_h) if node_h else text_formats.UNKNOWN, done / node_h if node_h else None
        ),
        HtmlCell(text_formats.duration(mean_s), mean_s),
        HtmlCell(text_formats.percent(lost_share), lost_share),
    ]
