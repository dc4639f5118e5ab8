"""Task sizes over time: a row for each task, the stronger the more nodes it held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.accounting.allocations import AllocationBlock
from bftrain_replay.drawing.figure import ChartFigure, StateChanges, StateRaster, in_order, parts_of_rows
from bftrain_replay.drawing.sums import sum_by_key
from bftrain_replay.drawing.theme import SHADES
from bftrain_replay.reporting.over_time import NARROW, ROUNDINGS, other_tasks, rounding, rows
from bftrain_replay.reporting.report_data import ReportData

_ROW_PIXELS: Final = 16
_SIZE_CHANGES: Final = 300_000  # of sizes in a page: some 0.7 MB; of more, time is in coarser steps
_KEYS: Final = 4  # sizes in the key, at most


def sizes(material: ReportData) -> ChartFigure | None:
    """Return the chart; ``None`` if no task ever held a node."""
    held = material.holdings
    if not held.tasks:
        return None
    drawn, mean, step_s = _sizes_raster(material)
    largest, count = len(drawn.labels) - 1, text_formats.count(len(held.tasks))
    some = (
        f"{count} of {text_formats.count(len(material.tasks))} tasks"
        if len(held.tasks) < len(material.tasks)
        else "Every task"
    )
    others = f" {other_tasks(material)} are not drawn." if material.others else ""
    shown = text_formats.count(len(drawn.rows))
    says = (
        f"{some} held nodes: {text_formats.count(mean)} on average while running, "
        f"{text_formats.count(largest)} at most."
    )
    return ChartFigure(
        name="sizes",
        title="How large each task was, and when",
        says=says,
        alt=f"{says} A picture with {shown} tasks from top to bottom, in the order in which they began, and the time "
        "from left to right; the stronger the colour, the more nodes a task held.",
        caption="Tasks stand in the order in which they began. Point at it to see which task, how many nodes, and "
        f"when; drag over it to see some tasks only.{others}{rounding(step_s)}",
        height=int(np.clip(_ROW_PIXELS * len(drawn.rows), 48, 420)),
        moments=material.moments,
        raster=drawn,
        spec=rows(material.moments, "tasks", key(largest)),
        narrow=NARROW,
    )


def _sizes_raster(material: ReportData) -> tuple[StateRaster, float, float]:
    """Return the raster, the mean size of all tasks while they ran, and the length of its time steps.

    0 if it has none.
    """
    held, end_s = material.holdings, material.end_s
    first_s, held_s = np.full(len(held.tasks), math.inf), 0.0
    for block in held.blocks():
        np.minimum.at(first_s, block.task, block.from_s)
        held_s += float((block.to_s - block.from_s).sum())
    order = np.argsort(first_s, kind="stable")
    drawn = np.zeros(len(order), dtype=bool)
    drawn[np.argsort(order)[material.named]] = True
    place = np.cumsum(drawn)  # of a task, as a row of the picture: one after the last of those before it
    moved = [_moved(np.argsort(order)[block.task], block) for block in held.blocks()]
    largest, ran_s, parts = 1, 0.0, []
    for low, high in parts_of_rows(len(held.tasks), sum(row.size for row, _, _ in moved)):
        mine = [slice(*np.searchsorted(row, (low, high))) for row, _, _ in moved]
        row, when, change = _summed(
            (row[some] + 1j * when[some], change[some]) for (row, when, change), some in zip(moved, mine, strict=True)
        )
        size = np.cumsum(change)  # each row ends at 0 nodes
        largest = max(largest, int(size.max(initial=1)))
        ran_s += float(np.diff(when, append=0.0)[size > 0].sum())
        some, first = drawn[row], place[low] - drawn[low]
        rows = int(place[high - 1] - first)
        parts.append(in_order(place[row[some]] - 1 - first, when[some], size[some], rows=rows, end_s=end_s))
    changes, step_s = _coarse(parts, end_s)
    raster = StateRaster(
        changes=changes,
        rows=[held.tasks[number] for number in order[drawn].tolist()],
        labels=["no node", *(text_formats.counted(number, "node") for number in range(1, largest + 1))],
        colours=["@busy", *(shade(number, largest) for number in range(1, largest + 1))],
        thing="task",
        follows=True,
        tasks_are="rows",
    )
    return raster, held_s / ran_s if ran_s else 0.0, step_s


def _coarse(parts: Sequence[StateChanges], end_s: float) -> tuple[StateChanges, float]:
    """Return all changes of the parts, in the finest steps of time in which they are few enough, and their length."""
    for steps in ROUNDINGS:
        step_s = end_s / steps if steps else 0.0
        rounded = [part.rounded(step_s) for part in parts] if step_s else parts
        if sum(map(len, rounded)) <= _SIZE_CHANGES or steps == ROUNDINGS[-1]:
            return StateChanges.joined(rounded), step_s
    raise AssertionError("the coarsest is always taken")


_Moved = tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int32]]


def _moved(row: NDArray[np.int64], block: AllocationBlock) -> _Moved:
    """Return how many nodes each task, by its row, gains and gives up at which time, in this order."""
    return _summed((row + 1j * when, np.full(when.size, by)) for when, by in ((block.from_s, 1), (block.to_s, -1)))


def _summed(parts: Iterable[tuple[NDArray[np.complex128], NDArray[Any]]]) -> _Moved:
    """Return rows, times and changes summed for each pair: complex numbers sort by row, and then by time."""
    keys, change = sum_by_key(parts)
    return keys.real.astype(np.int32), keys.imag.copy(), change.astype(np.int32)


def shade(size: int, largest: int) -> str:
    """Return a strength that grows by the same amount for each doubling of the nodes."""
    share = math.log(size) / math.log(largest) if largest > 1 else 1.0
    return f"@shade{round(share * (SHADES - 1))}"


def key(largest: int) -> dict[str, str]:
    """Return the colours of some numbers of nodes up to ``largest``, by their words."""
    shown = sorted({round(largest ** (step / (_KEYS - 1))) for step in range(_KEYS)})
    return {"no node": "@busy", **{text_formats.counted(size, "node"): shade(size, largest) for size in shown}}
