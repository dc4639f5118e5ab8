"""Built-in objectives, and the wrapper that makes one of any function ``(task, sizes) -> values``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain.values.problem import CompetingTask


@dataclass(frozen=True, slots=True)
class FunctionObjective:
    """An objective made of a plain function of a task and an array of sizes."""

    name: str
    function: Callable[[CompetingTask, NDArray[np.int64]], NDArray[np.float64]]

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Call the function."""
        return self.function(task, sizes)


def speed(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Samples per second."""
    return task.curve.speeds(int(sizes[-1]))


def speed_over_single(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Speed as a multiple of the speed on one node, so that slow models count as much as fast ones."""
    speeds = task.curve.speeds(max(int(sizes[-1]), 1))
    running = np.flatnonzero(speeds)
    if running.size == 0:
        return np.zeros(sizes.size)
    smallest = int(running[0])
    per_node = speeds[smallest] / smallest  # the smallest size that runs stands in where one node does not
    relative: NDArray[np.float64] = speeds[: sizes.size] / per_node
    return relative


def weighted_speed(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Samples per second times the task's weight."""
    worth: NDArray[np.float64] = task.weight * task.curve.speeds(int(sizes[-1]))
    return worth


throughput = FunctionObjective("throughput", speed)
speedup = FunctionObjective("speedup", speed_over_single)
weighted = FunctionObjective("weighted", weighted_speed)
