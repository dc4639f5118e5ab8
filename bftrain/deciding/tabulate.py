"""From a problem and an objective to the value table: what is gained at each size, less the cost of getting there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, BadObjective
from bftrain.ports import Objective
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable

_CACHED_ROWS = 20_000
_CACHED_NUMBERS = 2**24
_LARGEST_TABLE = 2**26  # numbers: half a GiB, and solvers keep some copies
_LARGEST_VALUE = 1e300  # sums of all numbers in a table must stay finite


class Tabulator:
    """Builds value tables for one objective and keeps the rows it has seen, since few tasks change at an event."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._rows: dict[tuple[CompetingTask, float, int], NDArray[np.float64]] = {}
        self._numbers = 0
        self._before: tuple[AllocationProblem, NDArray[np.float64]] | None = None  # as filled, not as cut to a pool

    def table(self, problem: AllocationProblem) -> ValueTable:
        """Tabulate ``problem``; its ``objective`` is taken to be the name of this tabulator's."""
        largest = max((task.max_nodes for task in problem.tasks), default=0)
        width = 1 + min(problem.pool, largest)
        held = max((task.size for task in problem.tasks), default=0)
        if max(len(problem.tasks) * width, held) > _LARGEST_TABLE:
            raise BadInput(
                f"{len(problem.tasks)} tasks of up to {max(width - 1, held)} nodes make too large a table: "
                f"no more than {_LARGEST_TABLE} numbers",
                where="AllocationProblem.tasks",
                fix="lower max_nodes, or let fewer tasks compete",
            )
        values = self._filled(problem, min(largest, _reach(problem.pool)))[:, :width]
        return ValueTable(problem=problem, values=np.ascontiguousarray(values), coupling=_coupling(self.objective))

    def _filled(self, problem: AllocationProblem, largest: int) -> NDArray[np.float64]:
        """Give the values of sizes 0 to ``largest``; what has not changed is taken from the table before."""
        values, stale = self._begun(problem, 1 + largest)
        for index in stale:
            row = self._row(problem.tasks[index], problem.horizon_s, largest)
            values[index, : row.size] = row
            values[index, row.size :] = -np.inf
        self._before = (problem, values)
        return values

    def _begun(self, problem: AllocationProblem, width: int) -> tuple[NDArray[np.float64], Sequence[int]]:
        """Give a table to fill, and which of its rows are not those of the same tasks in the table before."""
        tasks = problem.tasks
        if self._before is not None:
            before, values = self._before
            if values.shape[1] == width and before.horizon_s == problem.horizon_s and before.tasks:
                places = {id(task): place for place, task in enumerate(before.tasks)}
                origins = [places.get(id(task), -1) for task in tasks]
                return values[origins], [index for index, origin in enumerate(origins) if origin < 0]
        return np.empty((len(tasks), width)), range(len(tasks))

    def _row(self, task: CompetingTask, horizon_s: float, largest: int) -> NDArray[np.float64]:
        largest = min(task.max_nodes, largest)
        key = (task, horizon_s, largest)
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= _CACHED_ROWS or self._numbers >= _CACHED_NUMBERS:
                self._rows.clear()
                self._numbers = 0
            row = self._rows[key] = value_row(task, horizon_s, self.objective, largest)
            self._numbers += row.size
        return row


def _reach(pool: int) -> int:
    """Give the largest size to look at: beyond the pool, so that one that changes a little finds its rows again."""
    return 1 << pool.bit_length()


def _coupling(objective: Objective) -> Coupling | None:
    return cast("Coupling", objective) if hasattr(objective, "couple") else None


def value_row(
    task: CompetingTask, horizon_s: float, objective: Objective, largest: int | None = None
) -> NDArray[np.float64]:
    """Value of sizes 0 to ``largest``, which is ``max_nodes`` if not given.

    ``horizon * objective(size)``, less ``grow_cost_s`` or ``shrink_cost_s`` seconds at the present size's
    objective (going to 0 is shrinking), or from 0 ``start_cost_s`` seconds at the new one. Staying is free.
    """
    if largest is None:
        largest = task.max_nodes
    worth = _checked(objective, task, np.arange(max(largest, task.size) + 1))
    with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better than a warning
        row = horizon_s * worth
        if task.size == 0:
            row[1:] -= task.start_cost_s * worth[1:]
        else:
            row[: task.size] -= task.shrink_cost_s * worth[task.size]
            row[task.size + 1 :] -= task.grow_cost_s * worth[task.size]
    row = row[: largest + 1]
    fits = np.abs(row) <= _LARGEST_VALUE
    if not fits.all():
        raise BadObjective(
            f"comes to more than {_LARGEST_VALUE:g} over the horizon at size {int(fits.argmin())}",
            where=_where(objective, task),
            fix="count in a larger unit, or give a shorter horizon or smaller costs",
        )
    row[1 : task.min_nodes] = -np.inf
    return row


def _checked(objective: Objective, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    where = _where(objective, task)
    count = sizes.size
    sizes.setflags(write=False)
    try:
        given = np.asarray(objective.values(task, sizes))
        worth = None if given.dtype.kind == "c" else np.asarray(given, dtype=np.float64)
    except (Exception, SystemExit) as error:
        raise BadObjective(f"raised {type(error).__name__}: {error}", where=where) from error
    if worth is None:
        raise BadObjective("gave complex numbers", where=where, fix="return finite numbers only")
    if worth.shape != (count,):
        raise BadObjective(
            f"gave shape {worth.shape} for {count} sizes",
            where=where,
            fix="return one value per entry of sizes",
        )
    finite = np.isfinite(worth)
    if not finite.all():
        first = int(finite.argmin())
        raise BadObjective(f"gave {worth[first]} at size {first}", where=where, fix="return finite numbers only")
    return worth


def _where(objective: Objective, task: CompetingTask) -> str:
    return f"objective '{objective.name}', task '{task.name}'"
