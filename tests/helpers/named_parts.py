"""Built-in solvers and objectives by their registered names, tables of problems, and objectives made of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain import AllocationProblem, CompetingTask, Solver, ValueTable, assembly, registry
from bftrain.ports import Objective

EXACT: Final[Solver] = registry.load("solver", "exact")
HIGHS: Final[Solver] = registry.load("solver", "highs")
GREEDY: Final[Solver] = registry.load("solver", "greedy")
EQUAL_SHARE: Final[Solver] = registry.load("solver", "equal-share")
THROUGHPUT: Final[Objective] = registry.load("objective", "throughput")


def table_for(objective: str | Objective, problem: AllocationProblem) -> ValueTable:
    """Return the value table of ``problem`` for this objective, by its name or itself."""
    return assembly.table_of(problem, objective)


class OwnObjective:
    """An objective of somebody's own: a function of a task and sizes."""

    def __init__(self, name: str, function: Callable[[CompetingTask, NDArray[np.int64]], NDArray[np.float64]]) -> None:
        self.name = name
        self.values = function
