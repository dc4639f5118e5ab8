"""ValueTable: what every size of every competing task is worth. All solvers work from this table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain.values.problem import AllocationProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTable:
    """Row ``j``, column ``n``: value over the horizon of giving ``problem.tasks[j]`` ``n`` nodes, costs taken off.

    Columns run from 0 to the largest size that any task may reach in this pool; sizes that are not allowed hold
    ``-inf``. Size 0 is always allowed. ``coupled`` says that the objective also ties tasks together, so that the
    best choice is not simply the largest sum of entries.
    """

    problem: AllocationProblem
    values: NDArray[np.float64]
    coupled: bool = False

    def value_of(self, sizes: Mapping[str, int]) -> float:
        """Total value of ``sizes``; ``-inf`` if one of them is not allowed."""
        width = self.values.shape[1]
        chosen = [sizes.get(task.name, 0) for task in self.problem.tasks]
        if any(size < 0 or size >= width for size in chosen):
            return float("-inf")
        return float(sum(self.values[row, size] for row, size in enumerate(chosen)))

    def allowed(self, sizes: Mapping[str, int]) -> bool:
        """Say whether ``sizes`` names only known tasks, keeps to the allowed sizes and fits into the pool."""
        known = {task.name for task in self.problem.tasks}
        return (
            known.issuperset(sizes)
            and sum(sizes.values()) <= self.problem.pool
            and self.value_of(sizes) > float("-inf")
        )
