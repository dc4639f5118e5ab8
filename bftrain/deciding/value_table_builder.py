"""ValueTableBuilder: values of each size over the horizon, minus the cost of rescaling; keeps rows of tables."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, BadObjective, raised
from bftrain.ports import Objective
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable, largest_by_kind

Layout = tuple[tuple[str, int], ...]  # the largest size on each kind of nodes

_LARGEST_VALUE: Final = 1e300  # sums of all numbers in a table must stay finite
# Fields on which every row depends: present nodes, limits, speeds and costs of changes
_ALWAYS_READ: Final = (
    *("size", "kind", "min_nodes", "max_nodes", "curve", "curves"),
    *("grow_cost_s", "shrink_cost_s", "start_cost_s"),
)
_FIELDS: Final = frozenset(CompetingTask.__struct_fields__)
_HARMLESS: Final = frozenset({"curve_on"})  # methods that read no other fields


class _Watched:
    """Stands in for a task, and notes the fields that are read."""

    __slots__ = ("_note", "_task")
    __class__ = CompetingTask  # type: ignore[assignment]  # for isinstance()

    def __init__(self, task: CompetingTask, note: Callable[[str], None]) -> None:
        self._task, self._note = task, note

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any field or method
        self._note(name)
        return getattr(self._task, name)


class RowValues:
    """Calls an objective, and learns which fields of tasks it reads: tasks that are equal in these have equal values.

    An objective reads the same fields of such tasks, because its result depends on its arguments alone.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.read: set[str] = set()
        self._key_of: Callable[[CompetingTask], tuple[Any, ...]] | None = None

    def key(self, task: CompetingTask) -> object:
        """Return all that the row of a task depends on, apart from layout and horizon, as far as known."""
        if self._key_of is None:
            self._key_of = attrgetter(*({*_ALWAYS_READ, *self.read} - {"curves"}))
        return self._key_of(task), tuple(task.curves.items()) if task.curves else None  # mappings are not hashable

    def _note(self, name: str) -> None:
        more = {name} if name in _FIELDS else set[str]() if name in _HARMLESS else _FIELDS
        if not more <= self.read:
            self.read |= more
            self._key_of = None

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the value per second of each size; it may be infinite or NaN."""
        sizes.setflags(write=False)
        try:
            try:
                given = self.objective.values(_Watched(task, self._note), sizes)  # type: ignore[arg-type]  # see its class
            except TypeError:  # perhaps it requires a real CompetingTask
                self._note("all fields")
                given = self.objective.values(task, sizes)
            given = np.asarray(given)
            worth = None if given.dtype.kind == "c" else np.asarray(given, dtype=np.float64)
        except (Exception, SystemExit) as error:
            raise BadObjective(raised(error), where=self._where(task)) from error
        if worth is None:
            raise BadObjective("returned complex numbers", where=self._where(task), fix="return finite numbers only")
        if worth.shape != sizes.shape:
            what = f"returned shape {worth.shape} for {sizes.size} sizes"
            raise BadObjective(what, where=self._where(task), fix="return one value per entry of sizes")
        return worth

    def row(self, task: CompetingTask, horizon_s: float, largest: int) -> NDArray[np.float64]:
        """Return the values of sizes 0 to ``largest``.

        ``horizon * objective(size)``, less ``grow_cost_s`` or ``shrink_cost_s`` seconds at the current size's
        objective (going to 0 is shrinking), or from 0 ``start_cost_s`` seconds at the new one. Staying is free.
        """
        worth = self.values(task, np.arange(max(largest, task.size) + 1))
        self._check_finite(task, worth)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below has the better message
            row = _less_costs(worth, task, horizon_s)[: largest + 1]
        fits = np.abs(row) <= _LARGEST_VALUE
        if not fits.all():
            what = f"exceeds {_LARGEST_VALUE:g} over the horizon at size {int(fits.argmin())}"
            fix = "count in a larger unit, or give a shorter horizon or smaller costs"
            raise BadObjective(what, where=self._where(task), fix=fix)
        row[1 : task.min_nodes] = -np.inf
        return row

    def row_of_kinds(self, task: CompetingTask, horizon_s: float, layout: Layout) -> NDArray[np.float64]:
        """Return the values of 0 nodes, and of 1, 2, ... nodes of each kind.

        On each kind the values equal those in a pool of this kind alone. A task with nodes of another kind must first
        stop there, at a cost of ``shrink_cost_s`` seconds at its objective there, and then starts.
        """
        own = task.on(task.kind) if task.size else None
        leaving = 0.0
        if own:
            worth = self.values(own, np.arange(own.size + 1))
            self._check_finite(own, worth)
            leaving = task.shrink_cost_s * float(worth[own.size])
        blocks: list[NDArray[np.float64]] = []
        idle = own
        for kind, largest in layout:
            block = np.full(largest, -np.inf)
            seen = task.on(kind)
            if seen is not None and largest:
                part = self.row(seen, horizon_s, min(task.max_nodes, largest))[1:]
                block[: part.size] = part if own is None or kind == task.kind else part - leaving
                idle = idle or seen
            blocks.append(block)
        return np.concatenate((self.row(idle or task, horizon_s, 0), *blocks))

    def _check_finite(self, task: CompetingTask, worth: NDArray[np.float64]) -> None:
        finite = np.isfinite(worth)
        if not finite.all():
            first = int(finite.argmin())
            what = f"returned {worth[first]} at size {first}"
            raise BadObjective(what, where=self._where(task), fix="return finite numbers only")

    def _where(self, task: CompetingTask) -> str:
        return f"objective '{self.objective.name}', task '{task.name}'"


def _less_costs(worth: NDArray[np.float64], task: CompetingTask, horizon_s: float) -> NDArray[np.float64]:
    row = horizon_s * worth
    if task.size == 0:
        if task.start_cost_s:
            row[1:] -= task.start_cost_s * worth[1:]
    else:
        row[: task.size] -= task.shrink_cost_s * worth[task.size]
        row[task.size + 1 :] -= task.grow_cost_s * worth[task.size]
    return row


_CACHED_NUMBERS: Final = 2**21  # limit of numbers in cached rows; raised to two tables if these are larger
_LEAST_WIDTH: Final = 64  # width of cached rows, however small the pool
_LARGEST_TABLE: Final = 2**26  # numbers: half a GiB, and solvers keep some copies


class ValueTableBuilder:
    """Builds value tables for one objective and caches rows, since few tasks change at an event."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._values = RowValues(objective)
        self._kept: dict[tuple[Layout, float], dict[object, NDArray[np.float64]]] = {}  # rows by all they depend on
        self._numbers = 0  # numbers in all cached rows

    def table(self, problem: AllocationProblem) -> ValueTable:
        """Return the table of ``problem``; its ``objective`` must be this builder's."""
        counts, tasks = problem.by_kind, problem.tasks
        if len(counts) > 1:
            largest = largest_by_kind(problem)
        else:
            largest = [(kind, max([task.max_nodes for task in tasks], default=0)) for kind in counts]
        widths = [min(counts[kind], most) for kind, most in largest]
        width = 1 + sum(widths)
        held = 0 if problem.pool <= _LARGEST_TABLE else max([task.size for task in tasks], default=0)
        if max(len(tasks) * width, held) > _LARGEST_TABLE:
            what = f"{len(tasks):,} tasks of up to {max(width - 1, held):,} nodes exceed the table size"
            fix = "lower max_nodes, or let fewer tasks compete"
            raise BadInput(f"{what}: no more than {_LARGEST_TABLE} numbers", where="AllocationProblem.tasks", fix=fix)
        # Sizes beyond the pool are also computed, so cached rows survive changes of the pool
        layout = tuple((kind, min(most, max(_LEAST_WIDTH, 1 << counts[kind].bit_length()))) for kind, most in largest)
        rows = self._all_rows(problem, layout)
        if len(layout) == 1:
            values = np.ascontiguousarray(rows[:, :width])
        else:
            starts = np.cumsum([1, *(most for _, most in layout)]).tolist()
            blocks = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=False)]
            values = rows[:, np.concatenate((np.zeros(1, dtype=np.int64), *blocks))]
        coupling = cast("Coupling", self.objective) if hasattr(self.objective, "couple") else None
        table = ValueTable(problem=problem, values=values, coupling=coupling)
        return _recast(self.objective, table) if hasattr(self.objective, "recast") else table

    def _all_rows(self, problem: AllocationProblem, layout: Layout) -> NDArray[np.float64]:
        """Return the rows of all tasks, for all sizes in ``layout``."""
        width, tasks, rows = 1 + sum(largest for _, largest in layout), problem.tasks, list[NDArray[np.float64]]()
        if self._numbers > max(_CACHED_NUMBERS, 2 * width * len(tasks)):
            self._kept.clear()
            self._numbers = 0
        kept = self._kept.setdefault((layout, problem.horizon_s), {})  # pools alternate between a few layouts
        for task in tasks:
            row = kept.get(self._values.key(task))
            if row is None:
                row = np.full(width, -np.inf)
                part = self._row(task, problem, layout)
                row[: part.size] = part
                kept[self._values.key(task)] = row  # the key may have grown
                self._numbers += width
            rows.append(row)
        return np.concatenate(rows).reshape(len(rows), width) if rows else np.empty((0, width))

    def _row(self, task: CompetingTask, problem: AllocationProblem, layout: Layout) -> NDArray[np.float64]:
        """Return the row of a task, which may end before the last columns."""
        if len(layout) > 1:
            return self._values.row_of_kinds(task, problem.horizon_s, layout)
        ((kind, largest),) = layout
        seen = task.on(kind) if problem.pools or task.curves else task
        # A task that cannot run here has only the first column
        largest = min(task.max_nodes, largest) if seen else 0
        return self._values.row(seen or task, problem.horizon_s, largest)


def _recast(objective: Objective, table: ValueTable) -> ValueTable:
    """Call ``recast``, by which an objective on all tasks derives another table from the single-task table."""
    where = f"objective '{objective.name}'"
    try:
        given: object = objective.recast(table)  # type: ignore[attr-defined]  # the caller has checked for it
    except Exception as error:
        raise BadObjective(f"recast() {raised(error)}", where=where) from error
    if not isinstance(given, ValueTable) or given.values.shape != table.values.shape:
        raise BadObjective("recast() did not return a table of the same tasks and sizes", where=where)
    if not (np.isfinite(given.values) == np.isfinite(table.values)).all() or not (given.values < np.inf).all():
        what = "recast() returned numbers that are not finite, or changed the allowed sizes"
        raise BadObjective(what, where=where, fix="keep -inf entries, and make all other entries finite")
    return given
