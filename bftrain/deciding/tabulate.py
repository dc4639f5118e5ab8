"""From a problem and an objective to the value table: what is gained at each size, less the cost of getting there."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.ports import Objective
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable

_CACHED_ROWS = 20_000


class Tabulator:
    """Builds value tables for one objective and keeps the rows it has seen, since few tasks change at an event."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._rows: dict[tuple[CompetingTask, float], NDArray[np.float64]] = {}

    def table(self, problem: AllocationProblem) -> ValueTable:
        """Tabulate ``problem``; its ``objective`` is taken to be the name of this tabulator's."""
        pool = problem.pool
        width = 1 + min(pool, max((task.max_nodes for task in problem.tasks), default=0))
        values = np.full((len(problem.tasks), width), -np.inf)
        for index, task in enumerate(problem.tasks):
            row = self._row(task, problem.horizon_s)
            reach = min(width, row.size)
            values[index, :reach] = row[:reach]
        return ValueTable(problem=problem, values=values, coupling=_coupling(self.objective))

    def _row(self, task: CompetingTask, horizon_s: float) -> NDArray[np.float64]:
        key = (task, horizon_s)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _CACHED_ROWS:
                self._rows.clear()
            row = self._rows[key] = value_row(task, horizon_s, self.objective)
        return row


def _coupling(objective: Objective) -> Coupling | None:
    return cast("Coupling", objective) if hasattr(objective, "couple") else None


def value_row(task: CompetingTask, horizon_s: float, objective: Objective) -> NDArray[np.float64]:
    """Value of sizes 0 to ``max_nodes``.

    ``horizon * objective(size)``, less ``grow_cost_s`` or ``shrink_cost_s`` seconds at the present size's
    objective (going to 0 is shrinking), or from 0 ``start_cost_s`` seconds at the new one. Staying is free.
    """
    largest = max(task.max_nodes, task.size)
    worth = _checked(objective, task, np.arange(largest + 1))
    row = horizon_s * worth
    if task.size == 0:
        row[1:] -= task.start_cost_s * worth[1:]
    else:
        row[: task.size] -= task.shrink_cost_s * worth[task.size]
        row[task.size + 1 :] -= task.grow_cost_s * worth[task.size]
    row = row[: task.max_nodes + 1]
    row[1 : task.min_nodes] = -np.inf
    return row


def _checked(objective: Objective, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    where = f"objective '{objective.name}', task '{task.name}'"
    try:
        worth = np.asarray(objective.values(task, sizes), dtype=np.float64)
    except Exception as error:
        raise BadInput(f"raised {type(error).__name__}: {error}", where=where) from error
    if worth.shape != sizes.shape:
        raise BadInput(
            f"gave shape {worth.shape} for {sizes.size} sizes",
            where=where,
            fix="return one value per entry of sizes",
        )
    if not np.isfinite(worth).all():
        first = int(sizes[~np.isfinite(worth)][0])
        raise BadInput(f"gave {worth[first]} at size {first}", where=where, fix="return finite numbers only")
    return worth
