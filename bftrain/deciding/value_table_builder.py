"""ValueTableBuilder: builds the value table of a problem: the gain at each size minus the cost of rescaling."""

from __future__ import annotations

from operator import attrgetter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.row_store import RowStore
from bftrain.deciding.table_deadline import Late, TableOverdue, in_time, no_limit
from bftrain.deciding.table_rows import Layout, RowBuilder, table_rows
from bftrain.errors import BadInput, BadObjective, raised
from bftrain.ports import Objective, objective_capabilities
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable, largest_by_kind

_CACHED_ROWS = 20_000  # limit per store
_ROWS_OF_ONE = 200  # cached rows per competing task: bounds the memory of runs over months
_CACHED_NUMBERS = 2**24  # limit over all stores
_STORES = 8  # minimum number of stores: a changing pool has many sizes
_TABLES = 2  # tables per store, of any size, so small changes do not fill it
_ALWAYS = 64  # smallest row width, however small the pool
_LARGEST_TABLE = 2**26  # numbers: half a GiB, and solvers keep some copies
_LARGEST_VALUE = 1e300  # sums of all numbers in a table must stay finite
_MANY = 100  # minimum number of new rows for vectorisation


class ValueTableBuilder:
    """Builds value tables for one objective and caches rows, since few tasks change at an event."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        # Fields without effect on a row are left out, which lets more tasks share it
        left_out = {"curves"}  # mappings are not hashable
        if getattr(objective, "of_speeds", None) is not None:
            left_out.add("name")
            if not objective_capabilities(objective).uses_work_left:
                left_out.add("work_left_samples")
        self._key_of = attrgetter(*(name for name in CompetingTask.__struct_fields__ if name not in left_out))
        self._stores: dict[tuple[Layout, float], RowStore] = {}  # (layout, horizon) -> rows; several alternate

    def table(self, problem: AllocationProblem, late: Late = no_limit) -> ValueTable:
        """Return the table of ``problem``; its ``objective`` must be this builder's.

        Raise :class:`TableOverdue` once ``late`` returns true. Rows computed by then are cached.
        """
        counts, tasks = problem.by_kind, problem.tasks
        if len(counts) > 1:
            largest = largest_by_kind(problem)
        else:
            largest = [(kind, max([task.max_nodes for task in tasks], default=0)) for kind in counts]
        widths = [min(counts[kind], most) for kind, most in largest]
        width = 1 + sum(widths)
        held = 0 if problem.pool <= _LARGEST_TABLE else max([task.size for task in tasks], default=0)
        if max(len(tasks) * width, held) > _LARGEST_TABLE:
            what = f"{len(tasks):,} tasks of up to {max(width - 1, held):,} nodes make too large a table"
            fix = "lower max_nodes, or let fewer tasks compete"
            raise BadInput(f"{what}: no more than {_LARGEST_TABLE} numbers", where="AllocationProblem.tasks", fix=fix)
        # Sizes beyond the pool are also computed, so cached rows survive changes of the pool
        layout = tuple((kind, min(most, max(_ALWAYS, 1 << counts[kind].bit_length()))) for kind, most in largest)
        store, numbers = self._all_rows(problem, layout, late)
        if len(layout) == 1:
            values = store.rows(numbers, width)
        else:
            starts = np.cumsum([1, *(most for _, most in layout)]).tolist()
            blocks = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=False)]
            values = store.rows(numbers, np.concatenate((np.zeros(1, dtype=np.int64), *blocks)))
        in_time(late)  # checked before the work on the full table
        coupling = cast("Coupling", self.objective) if hasattr(self.objective, "couple") else None
        known = tuple(numbers) if store.numbered else None
        table = ValueTable(problem=problem, values=values, coupling=coupling, row_numbers=known)
        return _recast(self.objective, table, late) if hasattr(self.objective, "recast") else table

    def _all_rows(self, problem: AllocationProblem, layout: Layout, late: Late) -> tuple[RowStore, list[int]]:
        """Return a store with the rows of all tasks, for all sizes in ``layout``, and their numbers."""
        tasks = problem.tasks
        store = self._store_for(problem, layout)
        numbers = store.numbers(tasks)
        if numbers.count(None) > store.room:
            del self._stores[layout, problem.horizon_s]
            store = self._store_for(problem, layout)
            numbers = store.numbers(tasks)
        unknown: dict[object, CompetingTask] = {}
        keys = {place: self._key(tasks[place]) for place, number in enumerate(numbers) if number is None}
        for place, key in keys.items():
            if store.number_of(key) is None:
                unknown.setdefault(key, tasks[place])
        together = self._rows_at_once(list(unknown.values()), problem, layout, late)
        for index, (key, task) in enumerate(unknown.items()):
            if together is None:
                in_time(late)
            store.add(key, self._row(task, problem, layout) if together is None else together[index])
        for place, key in keys.items():
            numbers[place] = number = cast("int", store.number_of(key))
            store.remember(tasks[place], number)
        return store, cast("list[int]", numbers)

    def _key(self, task: CompetingTask) -> object:
        """Return all that the row of a task depends on, apart from layout and horizon."""
        return self._key_of(task), tuple(task.curves.items()) if task.curves else None

    def _store_for(self, problem: AllocationProblem, layout: Layout) -> RowStore:
        """Return the store of this layout with room for all tasks."""
        tasks, width = len(problem.tasks), 1 + sum(largest for _, largest in layout)
        key, stores = (layout, problem.horizon_s), self._stores
        store = stores.get(key)
        if store is None or store.most < _TABLES * tasks:
            most = min(_CACHED_ROWS, _ROWS_OF_ONE * (5 + tasks), _CACHED_NUMBERS // _STORES // width)
            store = RowStore(width, max(most, _TABLES * tasks))
            stores.pop(key, None)
            while stores and sum(kept.most * kept.width for kept in (*stores.values(), store)) > _CACHED_NUMBERS:
                del stores[next(iter(stores))]
            stores[key] = store
        return store

    def _rows_at_once(
        self, tasks: list[CompetingTask], problem: AllocationProblem, layout: Layout, late: Late
    ) -> NDArray[np.float64] | None:
        """Compute many rows in one call, if the objective is a function of speeds; ``None`` if they are few.

        Also return ``None`` on overflow: computing row by row then finds the responsible task.
        """
        of_speeds = getattr(self.objective, "of_speeds", None)
        if of_speeds is None or len(tasks) < _MANY:
            return None
        builder = RowBuilder(problem.horizon_s, of_speeds, _LARGEST_VALUE)
        return table_rows(tasks, builder, layout, late, named=bool(problem.pools))

    def _row(self, task: CompetingTask, problem: AllocationProblem, layout: Layout) -> NDArray[np.float64]:
        """Return the row of a task, which may end before the last columns."""
        if len(layout) > 1:
            return row_of_kinds(task, problem.horizon_s, self.objective, layout)
        ((kind, largest),) = layout
        seen = task.on(kind) if problem.pools or task.curves else task
        # A task that cannot run here has only the first column
        largest = min(task.max_nodes, largest) if seen else 0
        return value_row(seen or task, problem.horizon_s, self.objective, largest)


def _recast(objective: Objective, table: ValueTable, late: Late) -> ValueTable:
    """Call ``recast``, by which an objective on all tasks derives another table from the single-task table."""
    where = f"objective '{objective.name}'"
    more = (late,) if objective_capabilities(objective).interruptible else ()
    try:
        given: object = objective.recast(table, *more)  # type: ignore[attr-defined]  # the caller has checked for it
    except TableOverdue:
        raise
    except Exception as error:
        raise BadObjective(f"recast() {raised(error)}", where=where) from error
    if not isinstance(given, ValueTable) or given.values.shape != table.values.shape:
        raise BadObjective("recast() did not return a table of the same tasks and sizes", where=where)
    if not (np.isfinite(given.values) == np.isfinite(table.values)).all() or not (given.values < np.inf).all():
        what = "recast() returned numbers that are not finite, or changed the allowed sizes"
        raise BadObjective(what, where=where, fix="keep -inf entries, and make all other entries finite")
    return given


def value_row(
    task: CompetingTask, horizon_s: float, objective: Objective, largest: int | None = None
) -> NDArray[np.float64]:
    """Return the values of sizes 0 to ``largest`` (default: ``max_nodes``).

    ``horizon * objective(size)``, less ``grow_cost_s`` or ``shrink_cost_s`` seconds at the present size's
    objective (going to 0 is shrinking), or from 0 ``start_cost_s`` seconds at the new one. Staying is free.
    """
    if largest is None:
        largest = task.max_nodes
    worth = objective_values(objective, task, np.arange(max(largest, task.size) + 1))
    most = max(float(worth.max()), -float(worth.min()))
    # No entry exceeds this bound, so usually one comparison is enough; infinity or NaN also fail it
    costs_s = max(task.start_cost_s, task.shrink_cost_s, task.grow_cost_s)
    if most * (horizon_s + costs_s) <= _LARGEST_VALUE / 2.0:
        row = _less_costs(worth, task, horizon_s)[: largest + 1]
    else:
        _check_finite(objective, task, worth)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below has the better message
            row = _less_costs(worth, task, horizon_s)[: largest + 1]
        fits = np.abs(row) <= _LARGEST_VALUE
        if not fits.all():
            what = f"exceeds {_LARGEST_VALUE:g} over the horizon at size {int(fits.argmin())}"
            fix = "count in a larger unit, or give a shorter horizon or smaller costs"
            raise BadObjective(what, where=_where(objective, task), fix=fix)
    row[1 : task.min_nodes] = -np.inf
    return row


def _less_costs(worth: NDArray[np.float64], task: CompetingTask, horizon_s: float) -> NDArray[np.float64]:
    row = horizon_s * worth
    if task.size == 0:
        if task.start_cost_s:
            row[1:] -= task.start_cost_s * worth[1:]
    else:
        row[: task.size] -= task.shrink_cost_s * worth[task.size]
        row[task.size + 1 :] -= task.grow_cost_s * worth[task.size]
    return row


def row_of_kinds(task: CompetingTask, horizon_s: float, objective: Objective, layout: Layout) -> NDArray[np.float64]:
    """Return the values of 0 nodes, and of 1, 2, ... nodes of each kind.

    On each kind the values equal those in a pool of this kind alone. A task with nodes of another kind must first stop
    there, at a cost of ``shrink_cost_s`` seconds at its objective there, and then starts.
    """
    own = task.on(task.kind) if task.size else None
    leaving = (
        task.shrink_cost_s * float(_valid_objective_values(objective, own, np.arange(own.size + 1))[own.size])
        if own
        else 0.0
    )
    blocks: list[NDArray[np.float64]] = []
    idle = own
    for kind, largest in layout:
        block = np.full(largest, -np.inf)
        seen = task.on(kind)
        if seen is not None and largest:
            part = value_row(seen, horizon_s, objective, min(task.max_nodes, largest))[1:]
            block[: part.size] = part if own is None or kind == task.kind else part - leaving
            idle = idle or seen
        blocks.append(block)
    return np.concatenate((value_row(idle or task, horizon_s, objective, 0), *blocks))


def _valid_objective_values(objective: Objective, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    worth = objective_values(objective, task, sizes)
    _check_finite(objective, task, worth)
    return worth


def objective_values(objective: Objective, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the value per second of each size; it may be infinite or NaN."""
    sizes.setflags(write=False)
    try:
        given = np.asarray(objective.values(task, sizes))
        worth = None if given.dtype.kind == "c" else np.asarray(given, dtype=np.float64)
    except (Exception, SystemExit) as error:
        raise BadObjective(raised(error), where=_where(objective, task)) from error
    if worth is None:
        raise BadObjective("returned complex numbers", where=_where(objective, task), fix="return finite numbers only")
    if worth.shape != sizes.shape:
        what = f"returned shape {worth.shape} for {sizes.size} sizes"
        raise BadObjective(what, where=_where(objective, task), fix="return one value per entry of sizes")
    return worth


def _check_finite(objective: Objective, task: CompetingTask, worth: NDArray[np.float64]) -> None:
    finite = np.isfinite(worth)
    if not finite.all():
        first = int(finite.argmin())
        what = f"returned {worth[first]} at size {first}"
        raise BadObjective(what, where=_where(objective, task), fix="return finite numbers only")


def _where(objective: Objective, task: CompetingTask) -> str:
    return f"objective '{objective.name}', task '{task.name}'"
