"""Charts of nodes over time: idle and used nodes, and the use of each node; and parts that other rasters share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import SIMULATED
from bftrain_datasets.log.measures import fragments_in_parts
from bftrain_datasets.log.node_groups import groups_of_nodes
from bftrain_replay.drawing.figure import ChartFigure, StateChanges, StateRaster, in_order, parts_of_rows, quantity
from bftrain_replay.drawing.series import TimeAxis, median
from bftrain_replay.run.run import Run
from bftrain_replay.run.tables import SECONDS_AN_HOUR

T = TypeVar("T")

AREA: Final = {"type": "area", "interpolate": "step-after", "clip": True}
_LINE: Final = {"type": "line", "interpolate": "step-after", "clip": True, "strokeWidth": 2.5}
_DOUBTFUL: Final = "doubtful whether idle"
_COLOURS: Final = {"idle, unused": "@idle", _DOUBTFUL: "@preempted", "used by tasks": "@used"}


def nodes(run: Run) -> ChartFigure:
    """Return the chart of idle and used nodes over time."""
    summary = run.summary
    hours, node = run.end_s / SECONDS_AN_HOUR or 1.0, run.node
    largest = int(run.nodes_over_time.columns["idle"].max())
    idle, used = (text_formats.count(summary[name] / hours) for name in ("idle_node_h", "used_node_h"))
    most = text_formats.count(largest)
    says = f"On average {idle} {node}s were idle, and {used} of them worked; the peak was {most} idle."
    areas = {"idle": "idle, unused", "used": "used by tasks"}
    if "doubtful" in run.nodes_over_time.columns:
        areas["doubtful"] = _DOUBTFUL  # a line on top of both areas
        says += f" Of the idle {node}-time {text_formats.percent(summary['doubtful']['share'])} is doubtful."
    return ChartFigure(
        name="nodes",
        title=f"Idle {node}s, and how many worked",
        says=says,
        alt=f"{says} Drawn over {text_formats.duration(run.end_s)}.",
        caption="Where changes are too dense, the chart shows averages; zoom in to see each change.",
        height=300,
        time_axis=run.time_axis,
        series=[run.nodes_over_time],
        spec={
            "encoding": {
                "x": run.time_axis.encoding(),
                "y": {"type": "quantitative", "title": f"{node}s", "axis": {"tickCount": 5, "tickMinStep": 1}},
            },
            "layer": [_area(field, label, list(areas.values())) for field, label in areas.items()],
        },
    )


def _area(field: str, label: str, labels: Sequence[str]) -> dict[str, Any]:
    mark = _LINE if label == _DOUBTFUL else AREA
    colour = {
        "datum": label,
        "scale": {"domain": labels, "range": [_COLOURS[each] for each in labels]},
        "legend": {"title": None},
    }
    return {"mark": mark, "encoding": {"y": quantity(field), "color": colour}}


NARROW: Final = {"encoding": {"color": {"legend": {"columns": 3}}}}


def rows(time_axis: TimeAxis, title: str, key: Mapping[str, str]) -> dict[str, Any]:
    """Return the Vega-Lite description of a raster over time: its axes, titled ``title``, and the legend ``key``."""
    span = time_axis.to_dict()
    scale = {"domainMin": {"expr": "from_row"}, "domainMax": {"expr": "to_row"}, "reverse": True, "nice": False}
    return {
        "data": {"values": [{"t": span["from"]}, {"t": span["to"]}]},
        "mark": {"type": "square", "opacity": 0, "size": 0, "clip": True},  # invisible: only for the legend
        "encoding": {
            "x": time_axis.encoding(),
            "y": {
                "datum": 0,
                "type": "quantitative",
                "scale": {**scale, "zero": False},
                "axis": {"title": title, "grid": False, "tickMinStep": 1, "tickCount": 5, "format": ",d"},
            },
            "color": {
                "datum": next(iter(key)),
                "type": "nominal",
                "scale": {"domain": list(key), "range": list(key.values())},
                "legend": {"title": None, "symbolOpacity": 1},
            },
        },
    }


_LETTERS: Final = 3_000_000  # characters of a raster of nodes in a page; larger ones round times to coarser steps
# Number of time steps over the whole run; 0: no rounding
_ROUNDINGS: Final = (0, 1 << 14, 1 << 13, 1 << 12, 1 << 11, 1 << 10, 1 << 9)
_MOST_INTERVALS: Final = 5_000_000  # more would not fit in any case, so their raster is not made
_BUSY, _IDLE, _FIRST_TASK = 0, 1, 2


def holders(run: Run) -> ChartFigure:
    """Return the chart of each node's use: by the batch queue, a task, or none."""
    letters = 2 * _LETTERS // 3 if run.others else _LETTERS  # long task lists take part of the page
    names, held = run.log.node_names, run.holdings
    grouped = groups_of_nodes(run.log, run.summary["settings"].get("racks"))
    ordered = _node_rows(names, grouped)
    drawn, step_s = finest(
        run.end_s,
        lambda step_s, last: _holders_raster(run, ordered, step_s, None if last else _MOST_INTERVALS),
        lambda drawn: drawn.size <= letters,
    )
    others = f" {other_tasks(run)} have one colour together." if run.others else ""
    says = f"No {run.node} was ever given to a task"
    if len(held):
        half_s = median(block.to_s - block.from_s for block in held.blocks())
        says = (
            f"A {run.node} was given to a task {text_formats.counted(len(held), 'time')}"
            f", half of these times for less than {text_formats.duration(half_s)}"
        )
    return ChartFigure(
        name="holders",
        title=f"Use of each {run.node} over time",
        says=f"{says}.",
        alt=(
            f"{says}. A picture with {text_formats.count(len(names))} {run.node}s from top to bottom and the time from "
            f"left to right, in the colours of their holders: {_owner(run)}, none, or a training task."
        ),
        caption=run.words(
            "The tasks with the most node-time have their own colours and a name in the legend. Where changes are "
            "dense, all tasks share one colour, which is darker where tasks used more node-time; small shares "
            "are drawn darker than they are. Point at the chart to see the task, the node and the time; "
            f"drag to zoom in on some nodes.{others}{rounding(step_s)}"
        ),
        height=int(np.clip(len(names), 160, 480)),
        time_axis=run.time_axis,
        raster=drawn,
        spec=rows(
            run.time_axis,
            f"{run.node}s, by {grouped[2]}" if grouped else f"{run.node}s, in the log's order",
            {_owner(run): "@busy", "idle, unused": "@idle", "tasks": "@used"},
        ),
        narrow=NARROW,
    )


def rounding(step_s: float) -> str:
    """Return the sentence on time rounding; empty without rounding."""
    return f" Times are rounded to {text_formats.duration(step_s)}, to keep the page small." if step_s else ""


def other_tasks(run: Run) -> str:
    """Return the beginning of the sentence on tasks that a page does not name."""
    named, others = (text_formats.count(number) for number in (len(run.named), run.others))
    return f"The {named} tasks with the most {run.node}-time are named here; the other {others}, which the tables have,"


def _owner(run: Run) -> str:
    source = (run.summary.get("doubtful") or {}).get("source")
    return "the simulated scheduler" if source == SIMULATED else "the batch queue"


def finest(end_s: float, draw: Callable[[float, bool], T | None], fits: Callable[[T], bool]) -> tuple[T, float]:
    """Return the drawing with the shortest time steps that fits, and the length of a step; 0 for exact times.

    ``draw`` gets the length of a step, and whether this is the last attempt, which need not fit. It returns ``None`` to
    give up an attempt.
    """
    for steps in _ROUNDINGS:
        step_s, last = end_s / steps if steps else 0.0, steps == _ROUNDINGS[-1]
        drawn = draw(step_s, last)
        if drawn is not None and (last or fits(drawn)):
            return drawn, step_s
    raise AssertionError("the last attempt is always taken")


# Nodes in row order; groups such as racks or kinds, each with its first row
_OrderedNodes = tuple[NDArray[np.int64], list[tuple[str, int]]]


def _node_rows(nodes: Sequence[str], grouped: tuple[tuple[str, ...], NDArray[np.int32], str] | None) -> _OrderedNodes:
    """Return the nodes in row order, group by group."""
    if grouped is None:
        return np.arange(len(nodes)), []
    names, of_node, _ = grouped
    numbers = [
        [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in re.split(r"(\d+)", name)]
        for name in nodes
    ]
    groups = sorted(range(len(names)), key=lambda group: names[group])
    place = np.argsort(groups)[of_node]
    order = sorted(range(len(nodes)), key=lambda node: (place[node], numbers[node]))
    starts = np.searchsorted(place[order], np.arange(len(names)))
    return np.array(order), [(names[group], int(start)) for group, start in zip(groups, starts, strict=True)]


def _holders_raster(run: Run, ordered: _OrderedNodes, step_s: float, most: int | None) -> StateRaster | None:
    """Return the raster with times rounded to ``step_s``; ``None`` if there were more than ``most`` intervals."""
    log, held = run.log, run.holdings
    bounds = np.append(log.times, log.end_s) - log.start_s
    taken = _rounded(((block.node, block.from_s, block.to_s, block.task) for block in held.blocks()), step_s, most)
    if taken is None:
        return None
    node, from_s, to_s, task = taken
    idle = _rounded(
        ((part.node, bounds[part.join], bounds[part.leave], part.node) for part in fragments_in_parts(log)),
        step_s,
        None if most is None else most - node.size,
    )
    if idle is None:
        return None
    idle_node, idle_from_s, idle_to_s, _ = idle
    # Unnamed tasks share one state, before the states of named tasks
    unnamed = [f"one of {text_formats.counted(run.others, 'other task')}"] if run.others else []
    state_of = np.full(len(held.tasks), _FIRST_TASK, dtype=np.int32)
    state_of[run.named] = _FIRST_TASK + len(unnamed) + np.arange(len(run.named))
    order, groups = ordered
    row_of = np.argsort(order).astype(np.int32)
    held_row, idle_row = row_of[node], row_of[idle_node]

    def part(low: int, high: int) -> StateChanges:
        """Return the changes of the rows from ``low`` to ``high``."""
        held_here, idle_here = ((row >= low) & (row < high) for row in (held_row, idle_row))
        held_in, idle_in = held_row[held_here] - low, idle_row[idle_here] - low
        # Of changes at one moment the last counts: a task stops, the node leaves, it joins, a task takes it
        ended, left, joined = (
            np.full(row.size, state, dtype=np.int32)
            for row, state in ((held_in, _IDLE), (idle_in, _BUSY), (idle_in, _IDLE))
        )
        times = np.concatenate((to_s[held_here], idle_to_s[idle_here], idle_from_s[idle_here], from_s[held_here]))
        return in_order(
            np.concatenate((held_in, idle_in, idle_in, held_in)),
            times * step_s if step_s else times,
            np.concatenate((ended, left, joined, state_of[task[held_here]])),
            rows=high - low,
            end_s=run.end_s,
        )

    parts = parts_of_rows(len(log.node_names), 2 * (node.size + idle_node.size))
    changes = StateChanges.joined([part(low, high) for low, high in parts])
    return StateRaster(
        changes=changes,
        rows=[log.node_names[node] for node in order.tolist()],
        labels=(f"{_owner(run)}'s", "idle, unused", *unnamed, *(held.tasks[task] for task in run.named)),
        colours=("@busy", "@idle", *("@used" for _ in unnamed), "@used"),
        thing=run.node,
        tasks_are="labels",
        groups=groups,
    )


# Node, start, stop, task; times in rounding steps, otherwise in seconds
_Intervals = tuple[NDArray[np.int32], NDArray[Any], NDArray[Any], NDArray[np.int32]]


def _rounded(parts: Iterable[_Intervals], step_s: float, most: int | None) -> _Intervals | None:
    """Round interval times and drop empty intervals; return ``None`` if more than ``most`` remain.

    An interval shorter than a step remains with a probability of its length in steps, so the total time stays about the
    same.
    """
    none, never = np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32 if step_s else np.float64)
    columns: tuple[list[NDArray[Any]], ...] = [none], [never], [never], [none]
    count = 0
    for node, begin_s, end_s, task in parts:
        begin, end = ((np.round(each / step_s).astype(np.int32) if step_s else each) for each in (begin_s, end_s))
        remains = end > begin
        for column, values in zip(columns, (node, begin, end, task), strict=True):
            column.append(values[remains])
        count += columns[0][-1].size
        if most is not None and count > most:
            return None
    nodes, begins, ends, tasks = map(_joined, columns)
    return nodes, begins, ends, tasks


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Join arrays and clear the list, to free their memory before the next column is joined."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole
