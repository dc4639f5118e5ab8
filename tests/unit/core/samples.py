"""One good example of every value, as keyword arguments, so that a test can break one field at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bftrain import (
    AllocationProblem,
    BatchScaling,
    CompetingTask,
    Decision,
    Grow,
    Limits,
    NodesJoined,
    NodesLeft,
    Plan,
    Release,
    ResourceSpeeds,
    Settings,
    Shrink,
    Solution,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
    Start,
    Stop,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    ValueTable,
)

CURVE = SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 18.0, 30.0))
SPEC = TaskSpec(name="a", curve=CURVE, max_nodes=4)

GOOD: dict[type, dict[str, Any]] = {
    SpeedCurve: {"nodes": (1, 2, 4), "rate": (10.0, 18.0, 30.0)},
    BatchScaling: {"initial": 8, "noise_scale": 50.0, "largest": 64},
    ResourceSpeeds: {"cpus": (1.0, 3.0), "speed": ((0.5,), (1.0,))},
    SpreadSpeed: {"share": 0.5},
    SpreadSpeeds: {"speeds": (SpreadSpeed(share=0.5),)},
    TaskSpec: {"name": "a", "curve": CURVE, "max_nodes": 4},
    CompetingTask: {"name": "a", "curve": CURVE, "max_nodes": 4},
    AllocationProblem: {"pool": 4, "horizon_s": 60.0, "tasks": ()},
    Limits: {},
    Solution: {
        "sizes": {"a": 2},
        "value": 5.0,
        "bound": 6.0,
        "termination": "time_limit",
        "quality": "feasible",
        "solver": "exact",
    },
    Plan: {"holdings": {"a": ("n1", "n2")}},
    Decision: {
        "time_s": 1.0,
        "number": 1,
        "pool": 4,
        "used": 2,
        "sizes": {"a": 2},
        "value": 5.0,
        "bound": None,
        "solver": "exact",
        "termination": "optimal",
        "quality": "proven",
    },
    NodesJoined: {"time_s": 0.0, "nodes": ("n1",)},
    NodesLeft: {"time_s": 0.0, "nodes": ("n1",)},
    TaskSubmitted: {"time_s": 0.0, "spec": SPEC},
    TaskFinished: {"time_s": 0.0, "task": "a"},
    TaskCancelled: {"time_s": 0.0, "task": "a"},
    TaskPaused: {"time_s": 0.0, "task": "a"},
    TaskResumed: {"time_s": 0.0, "task": "a"},
    TaskFailed: {"time_s": 0.0, "task": "a"},
    TaskMeasured: {"time_s": 0.0, "task": "a"},
    Release: {"nodes": ("n1",)},
    Start: {"nodes": ("n1",), "task": "a"},
    Grow: {"nodes": ("n1",), "task": "a"},
    Shrink: {"nodes": ("n1",), "task": "a"},
    Stop: {"nodes": ("n1",), "task": "a"},
    Settings: {},
}


def make(kind: type, /, **changes: object) -> Any:  # noqa: ANN401 - a value of any kind
    """Build the good example of ``kind`` with some fields changed."""
    return kind(**{**GOOD[kind], **changes})


def curve(*rates: float) -> SpeedCurve:
    """Return a curve with these speeds on 1, 2, 3, ... nodes."""
    return SpeedCurve(nodes=tuple(range(1, len(rates) + 1)), rate=rates)


def spec(name: str, smallest: int = 1, largest: int = 4, **more: Any) -> TaskSpec:  # noqa: ANN401 - any field
    """Return a task whose speed grows by 10 samples/s a node."""
    steady = SpeedCurve(nodes=(1, largest), rate=(10.0, 10.0 * largest)) if largest > 1 else curve(10.0)
    return TaskSpec(name=name, min_nodes=smallest, max_nodes=largest, **{"curve": steady, **more})


def joined(time_s: float, *nodes: str) -> NodesJoined:
    return NodesJoined(time_s=time_s, nodes=nodes)


def left(time_s: float, *nodes: str) -> NodesLeft:
    return NodesLeft(time_s=time_s, nodes=nodes)


def submitted(time_s: float, given: TaskSpec) -> TaskSubmitted:
    return TaskSubmitted(time_s=time_s, spec=given)


def nodes(first: int, last: int) -> tuple[str, ...]:
    """Name the nodes n<first> to n<last>, both ends included."""
    return tuple(f"n{number}" for number in range(first, last + 1))


def table(pool: int, *rows: Sequence[float], present: Iterable[int] = ()) -> ValueTable:
    """Return a table with one row per task (t0, t1, ...): its value at sizes 0, 1, ..."""
    sizes = [*present, *[0] * len(rows)][: len(rows)]
    width = max(map(len, rows), default=1)
    tasks = tuple(
        CompetingTask(name=f"t{number}", size=size, max_nodes=max(width - 1, 1), curve=CURVE)
        for number, size in enumerate(sizes)
    )
    values = np.full((len(rows), width), -np.inf)
    for number, row in enumerate(rows):
        values[number, : len(row)] = row
    return ValueTable(problem=AllocationProblem(pool=pool, horizon_s=1.0, tasks=tasks), values=values)
