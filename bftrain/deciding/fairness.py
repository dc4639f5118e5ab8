"""Objectives that tie tasks together. ``max-min-now`` is also the worked example of how to write one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.objectives import speed_over_single
from bftrain.values.capabilities import ObjectiveCapabilities
from bftrain.values.coupling import CouplingModel
from bftrain.values.linear import linear_sum
from bftrain.values.problem import AllocationProblem, CompetingTask

_COUPLED = ObjectiveCapabilities(any_coupling=True, uses_work_left=False)


@dataclass(frozen=True, slots=True)
class MaxMinObjective:
    """Make the worst-off task as well off as possible; of the ways to do that, take the one with most samples/s.

    How well off a task is: its speedup over the horizon, costs of rescaling taken off, divided by its weight. A
    task of weight 2 is to be twice as fast as one of weight 1; one of weight 0 counts only for the samples/s.
    """

    name: str
    capabilities: ObjectiveCapabilities = _COUPLED

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value per second of a task alone: what the table is made of."""
        return speed_over_single(task, sizes)

    def couple(self, model: CouplingModel) -> None:
        """Say what ties the tasks together."""
        tasks = model.problem.tasks
        weights = [task.weight for task in tasks if task.weight > 0.0]
        if weights:
            # Solvers work to an absolute tolerance: keep the numbers near those of the table for any weights
            middle = sqrt(min(weights)) * sqrt(max(weights))
            worst = model.variable(lower=-inf)
            for place, task in enumerate(tasks):
                if task.weight > 0.0:
                    model.at_least(model.value(place) * (middle / task.weight) - worst, 0.0)
            model.maximise(worst / middle)
        model.maximise(linear_sum(model.speed(place) for place in range(len(tasks))))

    def total(self, chosen: NDArray[np.float64], sizes: Sequence[int], problem: AllocationProblem) -> float:
        """What the first goal comes to: how well off the worst-off task is."""
        well_off = [
            float(value) / task.weight for value, task in zip(chosen, problem.tasks, strict=True) if task.weight > 0.0
        ]
        if well_off:
            return min(well_off)
        return sum(task.curve.speed(size) for size, task in zip(sizes, problem.tasks, strict=True))


max_min_now = MaxMinObjective("max-min-now")
