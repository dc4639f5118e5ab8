"""ValueTable: what every size of every competing task is worth. All solvers work from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadValue
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTable:
    """Row ``j``, column ``n``: value over the horizon of giving ``problem.tasks[j]`` ``n`` nodes, costs taken off.

    Columns run from 0 to the largest size that any task may reach in this pool; sizes that are not allowed hold
    ``-inf``. Size 0 is always allowed. With a ``coupling`` the objective also ties tasks together: the value of
    a choice is then what the coupling makes of the entries, not their sum.
    """

    problem: AllocationProblem
    values: NDArray[np.float64]
    coupling: Coupling | None = None

    def __post_init__(self) -> None:
        """Look at ``values`` through a read-only view: a solver that changed them would change what is allowed."""
        view = self.values.view()
        if view.ndim != 2 or len(view) != len(self.problem.tasks):  # noqa: PLR2004 - a table has rows and columns
            raise BadValue(
                f"has shape {view.shape} for {len(self.problem.tasks)} tasks",
                where="ValueTable.values",
                fix="give one row per task and one column per size",
            )
        view.setflags(write=False)
        object.__setattr__(self, "values", view)

    @property
    def coupled(self) -> bool:
        """Say whether the best choice is more than the largest sum of entries."""
        return self.coupling is not None

    def value_of(self, sizes: Mapping[str, int]) -> float:
        """Value of ``sizes``, a task that is not named having 0 nodes; ``-inf`` if one of them is not allowed."""
        chosen = [sizes.get(task.name, 0) for task in self.problem.tasks]
        if chosen and not 0 <= min(chosen) <= max(chosen) < self.values.shape[1]:
            return float("-inf")
        entries = self.values[np.arange(len(chosen)), chosen]
        if self.coupling is None or not np.isfinite(entries).all():
            return fsum(entries.tolist())  # correctly rounded, so the same for any order of the tasks
        return self.coupling.total(entries, chosen, self.problem)

    def allowed(self, sizes: Mapping[str, int]) -> bool:
        """Say whether ``sizes`` names only known tasks, keeps to the allowed sizes and fits into the pool."""
        known = {task.name for task in self.problem.tasks}
        return (
            known.issuperset(sizes)
            and sum(sizes.values()) <= self.problem.pool
            and self.value_of(sizes) > float("-inf")
        )
