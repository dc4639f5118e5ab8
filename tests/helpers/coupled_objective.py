"""An objective that ties tasks together, which ``exact`` does not support, and its name as settings take it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from bftrain.ports import ObjectiveCapabilities
from bftrain.values.coupling import CouplingModel, linear_sum
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain_solvers.arrays import Floats, Integers


class WorstOff:
    """The largest value of the worst-off task, then most samples/s of all."""

    name = "worst-off"
    capabilities = ObjectiveCapabilities(any_coupling=True, uses_work_left=False)

    def values(self, task: CompetingTask, sizes: Integers) -> Floats:
        """Return the samples per second."""
        return task.curve.speeds(int(sizes[-1]))

    def couple(self, model: CouplingModel) -> None:
        """Add the level that all tasks reach, and set both goals."""
        places, level = range(len(model.problem.tasks)), model.variable(lower=-inf)
        for place in places:
            model.at_least(model.value(place) - level, 0.0)
        if places:
            model.maximise(level)
        model.maximise(linear_sum(model.speed(place) for place in places))

    def total(self, chosen: Floats, sizes: Sequence[int], problem: AllocationProblem) -> float:
        """Return the value of the worst-off task."""
        del sizes, problem
        return float(chosen.min(initial=inf)) if chosen.size else 0.0


COUPLED: Final = f"{__file__}:{WorstOff.__name__}"
