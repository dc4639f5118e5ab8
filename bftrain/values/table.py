"""ValueTable: what every size of every competing task is worth. All solvers work from this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadValue
from bftrain.values.columns import Columns, columns_of, of_one_kind
from bftrain.values.coupling import Coupling
from bftrain.values.mapped import NOTHING
from bftrain.values.problem import AllocationProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTable:
    """Row ``j``, column ``n``: value over the horizon of giving ``problem.tasks[j]`` ``n`` nodes, costs taken off.

    Columns run from 0 to the largest size that any task may reach in this pool; sizes that are not allowed hold
    ``-inf``. Size 0 is always allowed. With a ``coupling`` the objective also ties tasks together: the value of
    a choice is then what the coupling makes of the entries, not their sum.

    Where the problem tells several kinds of nodes apart, columns are grouped by kind: after column 0, no node, those
    for 1, 2, ... nodes of the first kind, then those of the second. ``nodes`` and ``kind_of`` (place in ``kinds``, -1
    for column 0) say what a column stands for.
    """

    problem: AllocationProblem
    values: NDArray[np.float64]
    coupling: Coupling | None = None
    columns: Columns = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look at ``values`` through a read-only view: a solver that changed them would change what is allowed."""
        view = self.values.view()
        if view.ndim != 2 or len(view) != len(self.problem.tasks):  # noqa: PLR2004 - a table has rows and columns
            raise BadValue(
                f"has shape {view.shape} for {len(self.problem.tasks)} tasks",
                where="ValueTable.values",
                fix="give one row per task and one column per size",
            )
        by_kind = self.problem.by_kind
        columns = of_one_kind(next(iter(by_kind)), view.shape[1]) if len(by_kind) == 1 else columns_of(self.problem)
        if len(columns) != view.shape[1]:
            raise BadValue(
                f"has {view.shape[1]} columns for {len(columns)} sizes of {len(by_kind)} kinds",
                where="ValueTable.values",
                fix="give column 0, and for each kind one for every size",
            )
        view.setflags(write=False)
        object.__setattr__(self, "values", view)
        object.__setattr__(self, "columns", columns)

    @property
    def coupled(self) -> bool:
        """Say whether the best choice is more than the largest sum of entries."""
        return self.coupling is not None

    @property
    def nodes(self) -> NDArray[np.int64]:
        """How many nodes each column stands for."""
        return self.columns.nodes

    @property
    def kind_of(self) -> NDArray[np.int64]:
        """Of which kind they are: its place in ``kinds``, -1 for column 0."""
        return self.columns.kind_of

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of nodes; one without a name if there are none."""
        return self.columns.kinds

    def speeds(self, place: int) -> NDArray[np.float64]:
        """Speed in samples/s of a task at every column; 0 on kinds on which it does not run."""
        task = self.problem.tasks[place]
        found = np.zeros(len(self.columns))
        for kind, block in self.columns.blocks():
            curve = task.curve_on(kind)
            if curve is not None:
                found[block] = curve.speeds(block.stop - block.start)[1:]
        return found

    def chosen(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> list[int] | None:
        """Give the column of every task, 0 for one that is not named; ``None`` if there is no such column."""
        tasks = self.problem.tasks
        if not self.columns.several:
            found = [sizes.get(task.name, 0) for task in tasks]
            return None if found and not 0 <= min(found) <= max(found) < self.values.shape[1] else found
        columns = [self.columns.at(sizes.get(task.name, 0), kinds.get(task.name, "")) for task in tasks]
        there = [column for column in columns if column is not None]
        return there if len(there) == len(columns) else None

    def value_of(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> float:
        """Value of ``sizes``, a task that is not named having 0 nodes; ``-inf`` if one of them is not allowed.

        ``kinds`` names the kinds of their nodes; where there is one kind it may be left out.
        """
        chosen = self.chosen(sizes, kinds)
        return float("-inf") if chosen is None else self.value_at(chosen)

    def value_at(self, chosen: Sequence[int]) -> float:
        """Value of one column for each task, in their order; ``-inf`` if one of them is not allowed."""
        entries = self.values[np.arange(len(chosen)), chosen]
        if self.coupling is None or not np.isfinite(entries).all():
            return fsum(entries.tolist())  # correctly rounded, so the same for any order of the tasks
        if not self.columns.several:
            return self.coupling.total(entries, chosen, self.problem)
        columns = list(chosen)  # numpy takes a tuple for one place in many dimensions
        return self.coupling.total(entries, self.nodes[columns].tolist(), self._as_chosen(columns))

    def _as_chosen(self, chosen: Sequence[int]) -> AllocationProblem:
        """Give the problem with every task as it is on the kind that was chosen for it."""
        kinds = (*self.kinds, "")
        tasks = self.problem.tasks
        places = self.kind_of[chosen].tolist()
        seen = (task if place < 0 else task.on(kinds[place]) or task for task, place in zip(tasks, places, strict=True))
        return msgspec.structs.replace(self.problem, tasks=tuple(seen))

    def fits(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> bool:
        """Say whether there are so many nodes, and so many of each kind."""
        if not self.columns.several:
            return sum(sizes.values()) <= self.problem.pool
        left = dict(self.problem.by_kind)
        for task, size in sizes.items():
            kind = kinds.get(task, "")
            left[kind] = left.get(kind, 0) - size
        return min(left.values()) >= 0

    def allowed(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> bool:
        """Say whether ``sizes`` names only known tasks, keeps to the allowed sizes and fits into the pool."""
        return self.value_if_allowed(sizes, kinds) > float("-inf")

    def value_if_allowed(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> float:
        """Value of ``sizes``; ``-inf`` if they are not allowed."""
        known = {task.name for task in self.problem.tasks}
        fine = known.issuperset(sizes) and self.fits(sizes, kinds)
        return self.value_of(sizes, kinds) if fine else float("-inf")
