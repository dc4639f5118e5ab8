"""The node x time picture: the holder of each node: the batch queue, a task, or none."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import SIMULATED
from bftrain_datasets.log.measures import fragments
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.raster import StateRaster, in_order
from bftrain_replay.drawing.theme import HUES
from bftrain_replay.reporting.raster_rows import NARROW, rows
from bftrain_replay.reporting.report_data import ReportData

LETTERS: Final = 3_000_000  # that it may take in a page; beyond that time is in coarser steps
_STEPS: Final = (0, 1 << 14, 1 << 13, 1 << 12, 1 << 11, 1 << 10, 1 << 9)  # of the whole time; 0: as it was
_CHANGES: Final = 5_000_000  # more than that would not fit anyway
_BUSY, _IDLE, _FIRST_TASK = 0, 1, 2


def holders(material: ReportData, letters: int = LETTERS) -> ChartFigure:
    """Give the figure."""
    names, held = material.log.node_names, material.holdings
    drawn, step_s = _fitting(material, letters)
    rounded = f" Times are rounded to {text_formats.duration(step_s)}, to keep the page small." if step_s else ""
    says = "No node was ever given to a task"
    if held.task.size:
        says = f"A node was given to a task {text_formats.counted(held.task.size, 'time')}"
        says += (
            f", half of these times for less than {text_formats.duration(float(np.median(held.to_s - held.from_s)))}"
        )
    return ChartFigure(
        name="holders",
        title="Who had each node, and when",
        says=f"{says}.",
        alt=(
            f"{says}. A picture with {text_formats.count(len(names))} nodes from top to bottom and the time "
            "from left to "
            f"right, in the colours of their holders: {_owner(material)}, none, or a training task."
        ),
        caption="Each task has a colour; after eight tasks colours come again. Where many nodes or moments share "
        "a point of the screen, their colours mix, and what is rare is drawn stronger than it is. Point at it to see "
        f"which task, which node, and when; drag over it to see some nodes only.{rounded}",
        height=int(np.clip(len(names), 160, 480)),
        moments=material.moments,
        raster=drawn,
        spec=rows(
            material.moments,
            "nodes, in the log's order",
            {_owner(material): "@busy", "idle, unused": "@idle", "a task": HUES[0], "the next task": HUES[1]},
        ),
        narrow=NARROW,
    )


def _owner(material: ReportData) -> str:
    """Return what gave the nodes to other jobs."""
    source = (material.summary.get("doubtful") or {}).get("source")
    return "the simulated scheduler" if source == SIMULATED else "the batch queue"


def _fitting(material: ReportData, letters: int) -> tuple[StateRaster, float]:
    """Give the finest raster that fits into so many letters, and how long its steps of time are; 0 if it has none."""
    for steps in _STEPS:
        step_s = material.end_s / steps if steps else 0.0
        drawn = _raster(material, step_s, _CHANGES if steps != _STEPS[-1] else None)
        if drawn is not None and (drawn.size <= letters or steps == _STEPS[-1]):
            return drawn, step_s
    raise AssertionError("the coarsest is always taken")


def _raster(material: ReportData, step_s: float, most: int | None) -> StateRaster | None:
    """Draw it with times rounded to ``step_s``; nothing if there were more than ``most`` changes."""
    log, held = material.log, material.holdings
    stays = fragments(log)
    bounds = np.append(log.times, log.end_s) - log.start_s
    idle = _rounded(stays.node, bounds[stays.join], bounds[stays.leave], step_s)
    node, from_s, to_s, task = _rounded(held.node, held.from_s, held.to_s, step_s, held.task)
    if most is not None and idle[0].size + node.size > most:
        return None
    # Of what happens to a node at one moment the last counts: a task leaves it idle, it leaves, joins, a task takes it
    left, joined = np.full(idle[0].size, _BUSY), np.full(idle[0].size, _IDLE)
    ended, taken = np.full(node.size, _IDLE), task.astype(np.int64) + _FIRST_TASK
    changes = in_order(
        np.concatenate((node, idle[0], idle[0], node)),
        np.concatenate((to_s, idle[2], idle[1], from_s)),
        np.concatenate((ended, left, joined, taken)),
        rows=len(log.node_names),
        end_s=material.end_s,
    )
    return StateRaster(
        changes=changes,
        rows=log.node_names,
        labels=(f"{_owner(material)}'s", "idle, unused", *(f"task {name}" for name in held.tasks)),
        colours=("@busy", "@idle", *HUES),
        repeat_from=_FIRST_TASK,
        thing="node",
    )


def _rounded(
    node: NDArray[np.int32],
    from_s: NDArray[np.float64],
    to_s: NDArray[np.float64],
    step_s: float,
    task: NDArray[np.int32] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64], NDArray[np.int32]]:
    """Round the times of intervals; those that become nothing are left out.

    Whether a short one remains is a matter of where it lies: it does as often as its length is of a step. So the time
    that all take together stays about the same.
    """
    if step_s:
        from_s, to_s = np.round(from_s / step_s) * step_s, np.round(to_s / step_s) * step_s
    some = to_s > from_s
    task = np.zeros(node.size, dtype=np.int32) if task is None else task
    return node[some], from_s[some], to_s[some], task[some]
