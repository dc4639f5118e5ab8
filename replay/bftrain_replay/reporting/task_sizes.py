"""Task sizes over time: one row per task, with colour strength by number of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_datasets.log.measures import fragments_in_parts
from bftrain_replay.drawing.figure import (
    TOOLTIP,
    ChartFigure,
    StateChanges,
    StateRaster,
    category,
    in_order,
    parts_of_rows,
    quantity,
)
from bftrain_replay.drawing.html_page import HtmlTable, value_table
from bftrain_replay.drawing.series import counted, median_of, sum_by_key
from bftrain_replay.drawing.theme import SHADES
from bftrain_replay.reporting.completion import lost_share
from bftrain_replay.reporting.over_time import NARROW, finest, other_tasks, rounding, rows
from bftrain_replay.run.run import Run
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.simulation.run_records import AllocationBlock

_ROW_PIXELS: Final = 16
_SIZE_CHANGES: Final = 300_000  # size changes per page (about 0.7 MB); above it time has coarser steps
_KEYS: Final = 4  # maximum number of sizes in the key


def sizes(run: Run) -> ChartFigure | None:
    """Return the chart; ``None`` if no task ever got a node."""
    held = run.holdings
    if not held.tasks:
        return None
    drawn, mean, step_s = _sizes_raster(run)
    largest, count = len(drawn.labels) - 1, text_formats.count(len(held.tasks))
    some = (
        f"{count} of {text_formats.count(len(run.task_rows))} tasks"
        if len(held.tasks) < len(run.task_rows)
        else "Every task"
    )
    others = f" {other_tasks(run)} are not drawn." if run.others else ""
    shown = text_formats.count(len(drawn.rows))
    says = (
        f"{some} used {run.node}s: {text_formats.count(mean)} on average while "
        f"running, {text_formats.count(largest)} at the peak."
    )
    return ChartFigure(
        name="sizes",
        title="How large each task was, and when",
        says=says,
        alt=f"{says} A picture with {shown} tasks from top to bottom, sorted by start, and the time from left to "
        f"right; the stronger the colour, the more {run.node}s a task used.",
        caption=f"Tasks are sorted by start time. Point at the chart to see the task, its number of {run.node}s and "
        f"the time; drag to zoom in on some tasks.{others}{rounding(step_s)}",
        height=int(np.clip(_ROW_PIXELS * len(drawn.rows), 48, 420)),
        moments=run.moments,
        raster=drawn,
        spec=rows(run.moments, "tasks", key(largest, run.node)),
        narrow=NARROW,
    )


def _sizes_raster(run: Run) -> tuple[StateRaster, float, float]:
    """Return the raster, the mean size of all tasks while they ran, and its time step; 0: times are exact."""
    held, end_s = run.holdings, run.end_s
    first_s, held_s = np.full(len(held.tasks), math.inf), 0.0
    for block in held.blocks():
        np.minimum.at(first_s, block.task, block.from_s)
        held_s += float((block.to_s - block.from_s).sum())
    order = np.argsort(first_s, kind="stable")
    drawn = np.zeros(len(order), dtype=bool)
    drawn[np.argsort(order)[run.named]] = True
    place = np.cumsum(drawn)  # row of each drawn task in the picture
    moved = [_moved(np.argsort(order)[block.task], block) for block in held.blocks()]
    largest, ran_s, parts = 1, 0.0, []
    for low, high in parts_of_rows(len(held.tasks), sum(row.size for row, _, _ in moved)):
        mine = [slice(*np.searchsorted(row, (low, high))) for row, _, _ in moved]
        row, when, change = _summed(
            (row[some] + 1j * when[some], change[some]) for (row, when, change), some in zip(moved, mine, strict=True)
        )
        size = np.cumsum(change)  # the final size of each row is 0
        largest = max(largest, int(size.max(initial=1)))
        ran_s += float(np.diff(when, append=0.0)[size > 0].sum())
        some, first = drawn[row], place[low] - drawn[low]
        rows = int(place[high - 1] - first)
        parts.append(in_order(place[row[some]] - 1 - first, when[some], size[some], rows=rows, end_s=end_s))
    rounded, step_s = finest(
        end_s,
        lambda step_s, _: [part.rounded(step_s) for part in parts] if step_s else parts,
        lambda parts: sum(map(len, parts)) <= _SIZE_CHANGES,
    )
    raster = StateRaster(
        changes=StateChanges.joined(rounded),
        rows=[held.tasks[number] for number in order[drawn].tolist()],
        labels=[f"no {run.node}", *(text_formats.counted(number, run.node) for number in range(1, largest + 1))],
        colours=["@busy", *(shade(number, largest) for number in range(1, largest + 1))],
        thing="task",
        follows=True,
        tasks_are="rows",
    )
    return raster, held_s / ran_s if ran_s else 0.0, step_s


_Moved = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]


def _moved(row: NDArray[np.int64], block: AllocationBlock) -> _Moved:
    """Return each task's gains and losses of nodes (by row) and their times, in order."""
    return _summed((row + 1j * when, np.full(when.size, by)) for when, by in ((block.from_s, 1), (block.to_s, -1)))


def _summed(parts: Iterable[tuple[NDArray[np.complex128], NDArray[Any]]]) -> _Moved:
    """Return rows, times and changes summed for each pair: complex numbers sort by row, and then by time."""
    keys, change = sum_by_key(parts)
    return keys.real.astype(np.int32), keys.imag.copy(), change.astype(np.int32)


def shade(size: int, largest: int) -> str:
    """Return a strength that grows by the same amount for each doubling of the nodes."""
    share = math.log(size) / math.log(largest) if largest > 1 else 1.0
    return f"@shade{round(share * (SHADES - 1))}"


def key(largest: int, node: str) -> dict[str, str]:
    """Return the colours of some numbers of nodes up to ``largest``, by their words."""
    shown = sorted({round(largest ** (step / (_KEYS - 1))) for step in range(_KEYS)})
    return {f"no {node}": "@busy", **{text_formats.counted(size, node): shade(size, largest) for size in shown}}


_NUMBER: Final = re.compile(r"[-_. ]?\d+$")
_MOST: Final = 40  # models that a table compares
_COLUMNS: Final[Mapping[str, Callable[[Any], str]]] = {
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


def model_table(tasks: Iterable[Mapping[str, Any]], node: str) -> HtmlTable | None:
    """Return the table, most node-hours first; ``None`` if all tasks share one model, or each has a separate one."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    count = 0
    for task in tasks:
        groups.setdefault(model_of(task["name"]), []).append(task)
        count += 1
    if not 1 < len(groups) <= min(_MOST, count - 1):
        return None
    held_h = sum(float(task["node_h"]) for each in groups.values() for task in each)
    rows = [_row(model, each, held_h) for model, each in groups.items()]
    rows.sort(key=lambda row: -float(row[3] or 0.0))
    columns = {name.replace("node", node): form for name, form in _COLUMNS.items()}
    return value_table("Results by model", columns, rows, css="many")


def _row(model: str, tasks: list[Mapping[str, Any]], held_h: float) -> tuple[Any, ...]:
    node_h = sum(float(task["node_h"]) for task in tasks)
    done = sum(float(task["done_samples"]) for task in tasks)
    took_s = [task["finish_s"] - max(task["submit_s"], 0.0) for task in tasks if task["finish_s"] is not None]
    mean_s = sum(took_s) / len(took_s) if took_s else None
    shares = (node_h / held_h if held_h else None, done, done / node_h if node_h else None)
    return model, len(tasks), len(took_s), node_h, *shares, mean_s, lost_share(tasks)


_BOUNDS_S: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 259200)
_PIECES = "share of the times"


def idle_pieces(run: Run) -> ChartFigure | None:
    """Return the chart; ``None`` without idle node-time."""
    length_s, count = counted(part.length_s for part in fragments_in_parts(run.log))
    total_s = length_s * count
    if not total_s.sum() > 0.0:
        return None
    place = np.searchsorted(_BOUNDS_S, length_s, side="left")
    bins = len(_BOUNDS_S) + 1
    pieces = np.bincount(place, weights=count, minlength=bins) / count.sum()
    time = np.bincount(place, weights=total_s, minlength=bins) / total_s.sum()
    some, of_time = np.flatnonzero(pieces), f"share of the idle {run.node}-time"
    shown = range(int(some[0]), int(some[-1]) + 1)
    rows = [
        _row_idle(number, kind, float(of[number]))
        for number in shown
        for kind, of in ((_PIECES, pieces), (of_time, time))
    ]
    half_s = median_of(length_s, count)
    long = float(total_s[length_s > SECONDS_AN_HOUR].sum() / total_s.sum())
    says = (
        f"{run.words('Nodes')} were idle {text_formats.counted(int(count.sum()), 'time')}, half of these for less than "
        f"{text_formats.duration(half_s)}. "
        f"Times longer than an hour hold {text_formats.percent(long)} of the idle {run.node}-time."
    )
    return ChartFigure(
        name="pieces",
        title=f"How long {run.node}s stayed idle",
        says=says,
        caption=f"Grey: share of the idle fragments with this length. Blue: their share of the idle {run.node}-time.",
        height=240,
        spec={
            "data": {"values": rows},
            "mark": {"type": "bar", "cornerRadiusEnd": 2, "tooltip": TOOLTIP},
            "encoding": {
                "x": category(
                    "length",
                    sort=None,
                    title="idle for up to",
                    axis={"labelAngle": 0, "labelOverlap": "greedy", "grid": False},
                ),
                "xOffset": category("kind", sort=[_PIECES, of_time]),
                "y": quantity("share", title="share", axis={"format": ".0%", "tickCount": 5}),
                "color": category(
                    "kind", scale={"domain": [_PIECES, of_time], "range": ["@unused", "@used"]}, legend={"title": None}
                ),
            },
        },
    )


def _row_idle(number: int, kind: str, share: float) -> dict[str, Any]:
    length = f"> {_short(_BOUNDS_S[-1])}" if number == len(_BOUNDS_S) else _short(_BOUNDS_S[number])
    low = _short(_BOUNDS_S[number - 1]) if number else "0 s"
    between = f"longer than {low}" if number == len(_BOUNDS_S) else f"{low} to {length}"
    return {
        "length": length,
        "kind": kind,
        "share": share,
        "tooltip": f"{between}: {text_formats.percent(share)} {kind[6:]}",
    }


def _short(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
