"""Task sizes over time: one row a task, the stronger its colour the more nodes it held."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from bftrain import text_formats
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.raster import StateRaster, in_order
from bftrain_replay.drawing.theme import SHADES
from bftrain_replay.reporting.raster_rows import NARROW, rows
from bftrain_replay.reporting.report_data import ReportData

_ROW_PIXELS: Final = 16
_KEYS: Final = 5  # sizes in the key, at most


def sizes(material: ReportData) -> ChartFigure | None:
    """Give the figure; none where no task ever held a node."""
    held = material.holdings
    if not held.tasks:
        return None
    drawn, mean = _raster(material)
    largest, count = len(drawn.labels) - 1, text_formats.count(len(drawn.rows))
    some = (
        f"{count} of {text_formats.count(len(material.tasks))} tasks"
        if len(drawn.rows) < len(material.tasks)
        else "Every task"
    )
    says = (
        f"{some} held nodes: {text_formats.count(mean)} on average while running, "
        f"{text_formats.count(largest)} at most."
    )
    return ChartFigure(
        name="sizes",
        title="How large each task was, and when",
        says=says,
        alt=f"{says} A picture with {count} tasks from top to bottom, in the order in which they began, and the time "
        "from left to right; the stronger the colour, the more nodes a task held.",
        caption="Tasks stand in the order in which they began. Point at it to see which task, how many nodes, and "
        "when; drag over it to see some tasks only.",
        height=int(np.clip(_ROW_PIXELS * len(drawn.rows), 48, 420)),
        moments=material.moments,
        raster=drawn,
        spec=rows(material.moments, "tasks", _key(largest)),
        narrow=NARROW,
    )


def _raster(material: ReportData) -> tuple[StateRaster, float]:
    """Give the rows, and how many nodes a running task held on average."""
    held = material.holdings
    first = np.full(len(held.tasks), np.inf)
    np.minimum.at(first, held.task, held.from_s)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    row = np.concatenate((place[held.task], place[held.task]))
    when = np.concatenate((held.from_s, held.to_s))
    change = np.repeat(np.array((1, -1)), held.task.size)
    sorted_ = np.lexsort((when, row))
    row, when, size = row[sorted_], when[sorted_], np.cumsum(change[sorted_])  # each row ends at 0 nodes
    last = np.append((np.diff(row) != 0) | (np.diff(when) != 0.0), True)
    row, when, size = row[last], when[last], size[last]
    largest = int(size.max(initial=1))
    ran_s = np.diff(when, append=0.0)[size > 0].sum()
    drawn = StateRaster(
        changes=in_order(row, when, size, rows=len(held.tasks), end_s=material.end_s),
        rows=[held.tasks[number] for number in order.tolist()],
        labels=["no node", *(text_formats.counted(number, "node") for number in range(1, largest + 1))],
        colours=["@busy", *(shade(number, largest) for number in range(1, largest + 1))],
        thing="task",
        follows=True,
    )
    return drawn, float((held.to_s - held.from_s).sum() / ran_s) if ran_s else 0.0


def shade(size: int, largest: int) -> str:
    """Twice as many nodes are so much stronger, whether few or many."""
    share = math.log(size) / math.log(largest) if largest > 1 else 1.0
    return f"@shade{round(share * (SHADES - 1))}"


def _key(largest: int) -> dict[str, str]:
    shown = sorted({round(largest ** (step / (_KEYS - 1))) for step in range(_KEYS)})
    return {"no node": "@busy", **{text_formats.counted(size, "node"): shade(size, largest) for size in shown}}
