"""Built-in objectives, and the wrapper that makes one of any function ``(task, sizes) -> values``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain.values.capabilities import SPEED_ALONE, WORK_LEFT, ObjectiveCapabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import CompetingTask


@dataclass(frozen=True, slots=True)
class FunctionObjective:
    """An objective made of a plain function of a task and an array of sizes."""

    name: str
    function: Callable[[CompetingTask, NDArray[np.int64]], NDArray[np.float64]]
    capabilities: ObjectiveCapabilities = WORK_LEFT

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Call the function."""
        return self.function(task, sizes)


def speed(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Samples per second."""
    return task.curve.speeds(int(sizes[-1]))


def speed_over_single(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Speed as a multiple of the speed on one node, so that slow models count as much as fast ones."""
    relative: NDArray[np.float64] = task.curve.speeds(int(sizes[-1])) / _speed_of_one(task)
    return relative


def _speed_of_one(task: CompetingTask) -> float:
    """Speed on one node in samples/s, of the kind that is fastest; the smallest size that runs may stand in for one."""
    curves = task.curves.values() if task.curves else (task.curve,)
    return max(_of_one_node(curve) for curve in curves) or 1.0


def _of_one_node(curve: SpeedCurve) -> float:
    below = 0
    for nodes, rate in zip(curve.nodes, curve.rate, strict=True):
        if rate > 0.0:  # so the first size that runs is the one above the last that does not
            return curve.speed(below + 1) / (below + 1)
        below = nodes
    return 0.0


def weighted_speed(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Samples per second times the task's weight."""
    worth: NDArray[np.float64] = task.weight * task.curve.speeds(int(sizes[-1]))
    return worth


@dataclass(frozen=True, slots=True)
class SoftDeadline:
    """Speedup, of which the part that a task needs to be done by its deadline counts ``urgency`` times.

    Beyond the speed it needs a task counts like any other, and so does one without a deadline, without a known
    amount of work, or with a deadline that even its largest size cannot keep: no task is dropped for being late. All
    is multiplied by the task's weight.
    """

    name: str
    urgency: float = 10.0
    capabilities: ObjectiveCapabilities = WORK_LEFT

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value per second at every size."""
        speeds = task.curve.speeds(int(sizes[-1]))
        urgent = (self.urgency - 1.0) * np.minimum(speeds, _needed_speed(task))
        worth: NDArray[np.float64] = task.weight * (speeds + urgent) / _speed_of_one(task)
        return worth


def _needed_speed(task: CompetingTask) -> float:
    """Samples/s that get the work done by the deadline; 0 if there is none, or if it cannot be kept."""
    if task.deadline_in_s is None or task.work_left_samples is None or task.deadline_in_s <= 0.0:
        return 0.0
    needed = task.work_left_samples / task.deadline_in_s
    return needed if needed <= _largest_speed(task) else 0.0


def _largest_speed(task: CompetingTask) -> float:
    """Samples/s at the best size up to ``max_nodes``: a measured one, or ``max_nodes`` itself."""
    measured = zip(task.curve.nodes, task.curve.rate, strict=True)
    return max([task.curve.speed(task.max_nodes), *(rate for nodes, rate in measured if nodes <= task.max_nodes)])


throughput = FunctionObjective("throughput", speed, SPEED_ALONE)
speedup = FunctionObjective("speedup", speed_over_single, SPEED_ALONE)
weighted = FunctionObjective("weighted", weighted_speed, SPEED_ALONE)
deadline = SoftDeadline("deadline")
