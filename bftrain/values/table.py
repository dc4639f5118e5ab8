"""ValueTable and its columns: the value of every size of every competing task. All solvers work from this table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum
from typing import cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadValue
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.wire import NOTHING

NOWHERE = -1  # the kind of column 0
_KEPT = 64  # layouts in the cache: a pool changes by a few nodes, so the same widths recur


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Column 0 means no nodes, followed by a block per kind, for 1, 2, ... nodes of the kind."""

    kinds: tuple[str, ...]
    widths: tuple[int, ...]  # block widths: the largest size of any task on each kind
    nodes: NDArray[np.int64]
    kind_of: NDArray[np.int64]  # index in ``kinds``, by column

    def __len__(self) -> int:
        return self.nodes.size

    @property
    def several(self) -> bool:
        """Whether there is more than one kind."""
        return len(self.kinds) > 1

    def blocks(self) -> Iterable[tuple[str, slice]]:
        """Yield every kind with its columns."""
        start = 1
        for kind, width in zip(self.kinds, self.widths, strict=True):
            yield kind, slice(start, start + width)
            start += width

    def at(self, size: int, kind: str) -> int | None:
        """Return the column of ``size`` nodes of ``kind``; with a single kind the name is ignored."""
        if size == 0:
            return 0
        start = 0
        for name, width in zip(self.kinds, self.widths, strict=True):
            if name == kind or not self.several:
                return start + size if 0 < size <= width else None
            start += width
        return None

    def present(self, tasks: Sequence[CompetingTask]) -> NDArray[np.int64]:
        """Return the column of each task's current nodes; out of range if there is no such column."""
        if not self.several:
            return np.array([task.size for task in tasks], dtype=np.int64)
        found = (self.at(task.size, task.kind) for task in tasks)
        return np.array([len(self) if column is None else column for column in found], dtype=np.int64)


@lru_cache(maxsize=_KEPT)
def columns_for(widths: tuple[tuple[str, int], ...]) -> Columns:
    """Return the columns for sizes up to the width of each kind."""
    sizes = [np.arange(1, width + 1) for _, width in widths]
    places = [np.full(width, place, dtype=np.int64) for place, (_, width) in enumerate(widths)]
    nodes = np.concatenate((np.zeros(1, dtype=np.int64), *sizes))
    kind_of = np.concatenate((np.full(1, NOWHERE, dtype=np.int64), *places))
    for shared in (nodes, kind_of):
        shared.setflags(write=False)
    return Columns(tuple(kind for kind, _ in widths), tuple(width for _, width in widths), nodes, kind_of)


def largest_by_kind(problem: AllocationProblem) -> list[tuple[str, int]]:
    """Return the largest size of any task on each kind, regardless of the pool."""
    found = []
    for kind in problem.by_kind:
        largest = 0
        for task in problem.tasks:  # a task runs on most kinds, so the size is compared first
            if task.max_nodes > largest and task.curve_on(kind) is not None:
                largest = task.max_nodes
        found.append((kind, largest))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTable:
    """Row ``j``, column ``n``: value over the horizon of ``n`` nodes for ``problem.tasks[j]``, minus rescaling costs.

    Columns run from 0 to the largest size that any task may reach in this pool; entries of sizes that are not allowed
    are ``-inf``. Size 0 is always allowed. With a ``coupling`` the objective also ties tasks together: the value of
    a choice is then the coupling's total of the entries, not their sum.

    If the problem has several node kinds, columns are grouped by kind: after column 0, no node, follow the columns
    for 1, 2, ... nodes of the first kind, then the second kind's. ``nodes`` and ``kind_of`` (index in ``kinds``, -1
    for column 0) describe each column.
    """

    problem: AllocationProblem
    values: NDArray[np.float64]
    coupling: Coupling | None = None
    columns: Columns = field(init=False, repr=False, compare=False)
    names: tuple[str, ...] = field(init=False, repr=False, compare=False)  # task names
    _valued: list[object] = field(init=False, repr=False, compare=False, default_factory=list)  # columns, their value

    def __post_init__(self) -> None:
        """Make ``values`` read-only: a solver that changed them would change the allowed sizes."""
        view, problem, where = self.values.view(), self.problem, "ValueTable.values"
        if view.ndim != 2 or len(view) != len(problem.tasks):  # noqa: PLR2004 - a table has rows and columns
            what = f"has shape {view.shape} for {len(problem.tasks)} tasks"
            raise BadValue(what, where=where, fix="give one row per task and one column per size")
        counts = problem.by_kind
        if len(counts) == 1:
            widths = [(kind, view.shape[1] - 1) for kind in counts]
        else:
            widths = [(kind, min(counts[kind], largest)) for kind, largest in largest_by_kind(problem)]
        columns = columns_for(tuple(widths))
        if len(columns) != view.shape[1]:
            what = f"has {view.shape[1]} columns for {len(columns)} sizes of {len(counts)} kinds"
            raise BadValue(what, where=where, fix="give column 0, and for each kind one for every size")
        view.setflags(write=False)
        object.__setattr__(self, "values", view)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "names", tuple([task.name for task in problem.tasks]))

    @property
    def coupled(self) -> bool:
        """Whether the value of a choice is not simply the sum of its entries."""
        return self.coupling is not None

    @property
    def nodes(self) -> NDArray[np.int64]:
        """Number of nodes of each column."""
        return self.columns.nodes

    @property
    def kind_of(self) -> NDArray[np.int64]:
        """Index in ``kinds`` of the node kind of each column, -1 for column 0."""
        return self.columns.kind_of

    @property
    def kinds(self) -> tuple[str, ...]:
        """The node kinds; a single empty name if nodes have none."""
        return self.columns.kinds

    def speeds(self, place: int) -> NDArray[np.float64]:
        """Return the speed in samples/s of the task ``place`` at every column; 0 on unusable kinds."""
        task = self.problem.tasks[place]
        found = np.zeros(len(self.columns))
        for kind, block in self.columns.blocks():
            curve = task.curve_on(kind)
            if curve is not None:
                found[block] = curve.speeds(block.stop - block.start)[1:]
        return found

    def all_speeds(self) -> NDArray[np.float64]:
        """Return the speeds of all tasks, one row each."""
        return np.array([self.speeds(place) for place in range(len(self.names))]).reshape(self.values.shape)

    def chosen(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> list[int] | None:
        """Return the column of every task, 0 for tasks not in ``sizes``; ``None`` if a size has no column."""
        tasks = self.problem.tasks
        if not self.columns.several:
            found = [sizes.get(task.name, 0) for task in tasks]
            return None if found and not 0 <= min(found) <= max(found) < self.values.shape[1] else found
        columns = [self.columns.at(sizes.get(task.name, 0), kinds.get(task.name, "")) for task in tasks]
        there = [column for column in columns if column is not None]
        return there if len(there) == len(columns) else None

    def value_of(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> float:
        """Return the value of ``sizes`` (tasks not listed have 0 nodes); ``-inf`` if one is not allowed.

        ``kinds`` are the kinds of their nodes, optional with a single kind.
        """
        chosen = self.chosen(sizes, kinds)
        return float("-inf") if chosen is None else self.value_at(chosen)

    def value_at(self, chosen: Sequence[int]) -> float:
        """Return the value of the columns ``chosen``, one per task in sequence; ``-inf`` if one is not allowed."""
        if self.coupling is None:
            columns = list(chosen)
            if not self._valued or self._valued[0] != columns:  # solver and core ask for the same columns in turn
                # One by one: faster here than numpy's indexing with two lists. The sum is rounded once, so it does not
                # depend on the order
                self._valued[:] = columns, fsum(map(self.values.item, range(len(columns)), columns))
            return cast("float", self._valued[1])
        entries = self.values[np.arange(len(chosen)), chosen]
        if not np.isfinite(entries).all():
            return fsum(entries.tolist())
        if not self.columns.several:
            return self.coupling.total(entries, chosen, self.problem)
        columns = list(chosen)  # numpy reads a tuple as one index in many dimensions
        if getattr(self.coupling, "of_entries", False):  # needs no task
            return self.coupling.total(entries, self.nodes[columns].tolist(), self.problem)
        kinds, tasks, places = (*self.kinds, ""), self.problem.tasks, self.kind_of[columns].tolist()
        seen = (task if place < 0 else task.on(kinds[place]) or task for task, place in zip(tasks, places, strict=True))
        problem = msgspec.structs.replace(self.problem, tasks=tuple(seen))  # described for the chosen kind
        return self.coupling.total(entries, self.nodes[columns].tolist(), problem)

    def fits(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> bool:
        """Return whether the pool is large enough for ``sizes``, in total and for each kind."""
        if not self.columns.several:
            return sum(sizes.values()) <= self.problem.pool
        left = dict(self.problem.by_kind)
        for task, size in sizes.items():
            kind = kinds.get(task, "")
            left[kind] = left.get(kind, 0) - size
        return min(left.values()) >= 0

    def allowed(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> bool:
        """Return whether all tasks of ``sizes`` are known, and all sizes are allowed and fit into the pool."""
        return self.value_if_allowed(sizes, kinds) > float("-inf")

    def value_if_allowed(self, sizes: Mapping[str, int], kinds: Mapping[str, str] = NOTHING) -> float:
        """Return the value of ``sizes``; ``-inf`` if not allowed."""
        if not self.columns.several and tuple(sizes) == self.names:
            chosen = list(sizes.values())
            fine = not chosen or (0 <= min(chosen) <= max(chosen) < self.values.shape[1])
            return self.value_at(chosen) if fine and sum(chosen) <= self.problem.pool else float("-inf")
        fine = set(self.names).issuperset(sizes) and self.fits(sizes, kinds)
        return self.value_of(sizes, kinds) if fine else float("-inf")
