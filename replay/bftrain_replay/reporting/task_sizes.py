"""The chart of task sizes over time: one row per task; the more nodes, the stronger the colour."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure, StateChanges, StateRaster, in_order, parts_of_rows
from bftrain_replay.drawing.series import sum_by_key
from bftrain_replay.drawing.theme import SHADES
from bftrain_replay.reporting.over_time import NARROW, finest, other_tasks, rounding, rows
from bftrain_replay.run.run import Run
from bftrain_replay.simulation.run_records import AllocationBlock

_ROW_PIXELS: Final = 16
_MOST_CHANGES: Final = 300_000  # size changes per page (about 0.7 MB); with more, times are rounded
_MOST_IN_LEGEND: Final = 4  # sizes


def sizes(run: Run) -> ChartFigure | None:
    """Return the chart; ``None`` if no task ever got a node."""
    tasks = run.holdings.tasks
    if not tasks:
        return None
    raster, mean, step_s = _raster(run)
    largest = len(raster.labels) - 1
    count, all_tasks, drawn = (text_formats.count(len(each)) for each in (tasks, run.task_rows, raster.rows))
    subject = f"{count} of {all_tasks} tasks" if len(tasks) < len(run.task_rows) else "Every task"
    others = f" {other_tasks(run)} are not drawn." if run.others else ""
    says = (
        f"{subject} used {run.node}s: {text_formats.count(mean)} on average while "
        f"running, {text_formats.count(largest)} at the peak."
    )
    return ChartFigure(
        name="sizes",
        title="How large each task was, and when",
        says=says,
        alt=f"{says} A picture with {drawn} tasks from top to bottom, sorted by start, and the time from left to "
        f"right; the stronger the colour, the more {run.node}s a task used.",
        caption=f"Tasks are sorted by start time. Point at the chart to see the task, its number of {run.node}s and "
        f"the time; drag to zoom in on some tasks.{others}{rounding(step_s)}",
        height=int(np.clip(_ROW_PIXELS * len(raster.rows), 48, 420)),
        time_axis=run.time_axis,
        raster=raster,
        spec=rows(run.time_axis, "tasks", _legend(largest, run.node)),
        narrow=NARROW,
    )


def _raster(run: Run) -> tuple[StateRaster, float, float]:
    """Return the raster, the mean size of all tasks while they ran, and the time step; 0: times are exact."""
    held, end_s = run.holdings, run.end_s
    first_s, held_s = np.full(len(held.tasks), math.inf), 0.0
    for block in held.blocks():
        np.minimum.at(first_s, block.task, block.from_s)
        held_s += float((block.to_s - block.from_s).sum())
    by_start = np.argsort(first_s, kind="stable")
    rank = np.argsort(by_start)  # ranks of tasks, by their start
    is_drawn = np.zeros(len(by_start), dtype=bool)
    is_drawn[rank[run.named]] = True
    drawn_until = np.cumsum(is_drawn)  # number of drawn tasks up to each rank
    changes = [_changes(rank[block.task], block) for block in held.blocks()]
    largest, ran_s, parts = 1, 0.0, []
    for low, high in parts_of_rows(len(held.tasks), sum(ranks.size for ranks, _, _ in changes)):
        slices = [slice(*np.searchsorted(ranks, (low, high))) for ranks, _, _ in changes]
        ranks, times_s, change = _summed(
            (ranks[part] + 1j * times_s[part], change[part])
            for (ranks, times_s, change), part in zip(changes, slices, strict=True)
        )
        size = np.cumsum(change)  # the final size of each task is 0
        largest = max(largest, int(size.max(initial=1)))
        ran_s += float(np.diff(times_s, append=0.0)[size > 0].sum())
        drawn, first = is_drawn[ranks], drawn_until[low] - is_drawn[low]
        rows = int(drawn_until[high - 1] - first)
        parts.append(
            in_order(drawn_until[ranks[drawn]] - 1 - first, times_s[drawn], size[drawn], rows=rows, end_s=end_s)
        )
    rounded, step_s = finest(
        end_s,
        lambda step_s, _: [part.rounded(step_s) for part in parts] if step_s else parts,
        lambda parts: sum(map(len, parts)) <= _MOST_CHANGES,
    )
    raster = StateRaster(
        changes=StateChanges.joined(rounded),
        rows=[held.tasks[task] for task in by_start[is_drawn].tolist()],
        labels=[f"no {run.node}", *(text_formats.counted(size, run.node) for size in range(1, largest + 1))],
        colours=["@busy", *(_shade(size, largest) for size in range(1, largest + 1))],
        thing="task",
        follows=True,
        tasks_are="rows",
    )
    return raster, held_s / ran_s if ran_s else 0.0, step_s


_SizeChanges = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]  # ranks of tasks, times, changes


def _changes(rank: NDArray[np.int64], block: AllocationBlock) -> _SizeChanges:
    """Return the size changes of tasks, in order of their ranks and of time."""
    return _summed((rank + 1j * times, np.full(times.size, by)) for times, by in ((block.from_s, 1), (block.to_s, -1)))


def _summed(parts: Iterable[tuple[NDArray[np.complex128], NDArray[Any]]]) -> _SizeChanges:
    """Sum changes of a task at one time. Keys are complex, rank and time: numpy sorts them in this order."""
    keys, change = sum_by_key(parts)
    return keys.real.astype(np.int32), keys.imag.copy(), change.astype(np.int32)


def _shade(size: int, largest: int) -> str:
    """Return a colour whose strength grows by the same amount for each doubling of the nodes."""
    share = math.log(size) / math.log(largest) if largest > 1 else 1.0
    return f"@shade{round(share * (SHADES - 1))}"


def _legend(largest: int, node: str) -> dict[str, str]:
    """Return the colours of some sizes up to ``largest``, by label."""
    sizes = sorted({round(largest ** (step / (_MOST_IN_LEGEND - 1))) for step in range(_MOST_IN_LEGEND)})
    return {f"no {node}": "@busy", **{text_formats.counted(size, node): _shade(size, largest) for size in sizes}}
