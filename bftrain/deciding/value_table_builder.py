"""ValueTableBuilder: builds the value table of a problem: the gain at each size less the cost of rescaling to it."""

from __future__ import annotations

from itertools import count
from operator import attrgetter, is_
from typing import cast

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.table_deadline import Late, TableOverdue, in_time, no_limit
from bftrain.deciding.table_rows import Layout, RowBuilder, table_rows
from bftrain.errors import BadInput, BadObjective, raised
from bftrain.ports import Objective, objective_capabilities
from bftrain.values.coupling import Coupling
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable, largest_by_kind

_CACHED_ROWS = 20_000
_ROWS_OF_ONE = 200  # cached rows per competing task: bounds the memory of runs over months
_CACHED_NUMBERS = 2**24
_NUMBERED = 256  # columns: the contents of wider rows take too much memory to keep for comparison
_ALWAYS = 64  # smallest row width, however small the pool
_LARGEST_TABLE = 2**26  # numbers: half a GiB, and solvers keep some copies
_LARGEST_VALUE = 1e300  # sums of all numbers in a table must stay finite
_MANY = 100  # from this number of rows on, they are computed together, without the cache


class ValueTableBuilder:
    """Builds value tables for one objective and caches rows, since few tasks change at an event."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        # Fields without effect on a row are left out, so that tasks alike in all others share it
        left_out = {"curves"}  # no part of a key as they are: mappings
        if getattr(objective, "of_speeds", None) is not None:
            left_out.add("name")
            if not objective_capabilities(objective).uses_work_left:
                left_out.add("work_left_samples")
        self._key_of = attrgetter(*(name for name in CompetingTask.__struct_fields__ if name not in left_out))
        self._rows: dict[object, tuple[NDArray[np.float64], int]] = {}  # and their numbers
        self._cached = 0  # numbers in these rows
        self._counter = count()
        self._row_numbers: dict[bytes, int] = {}  # by content: equal rows have equal numbers
        # Rows of full width, before the cut to a pool
        self._before: tuple[AllocationProblem, Layout, NDArray[np.float64], list[int]] | None = None

    def table(self, problem: AllocationProblem, late: Late = no_limit) -> ValueTable:
        """Return the table of ``problem``, whose ``objective`` must be this builder's.

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
        # Sizes beyond the pool are computed too, so that cached rows survive changes of the pool
        layout = tuple((kind, min(most, max(_ALWAYS, 1 << counts[kind].bit_length()))) for kind, most in largest)
        values, numbers = self._all_rows(problem, layout, late)
        known = tuple(numbers) if values.shape[1] <= _NUMBERED else None
        if len(layout) == 1:
            values = values[:, :width]
        else:
            starts = np.cumsum([1, *(most for _, most in layout)]).tolist()
            blocks = [np.arange(start, start + width) for start, width in zip(starts, widths, strict=False)]
            values = values[:, np.concatenate((np.zeros(1, dtype=np.int64), *blocks))]
        in_time(late)  # before the work on the whole table
        coupling = cast("Coupling", self.objective) if hasattr(self.objective, "couple") else None
        table = ValueTable(problem=problem, values=np.ascontiguousarray(values), coupling=coupling, row_numbers=known)
        return _recast(self.objective, table, late) if hasattr(self.objective, "recast") else table

    def _all_rows(
        self, problem: AllocationProblem, layout: Layout, late: Late
    ) -> tuple[NDArray[np.float64], list[int]]:
        """Return the values of all sizes in ``layout``, and the numbers of the rows; unchanged rows are reused."""
        tasks, width = problem.tasks, 1 + sum(largest for _, largest in layout)
        values, numbers, stale = None, [0] * len(tasks), list(range(len(tasks)))
        if self._before is not None:
            before, as_before, filled, numbered = self._before
            if as_before == layout and before.horizon_s == problem.horizon_s and before.tasks:
                origins = _origins(before.tasks, tasks)
                if origins is None:
                    stale = [place for place, task in enumerate(tasks) if task is not before.tasks[place]]
                    values, numbers = (filled.copy(), numbered.copy()) if stale else (filled, numbered)
                else:
                    values, stale = filled[origins], [index for index, origin in enumerate(origins) if origin < 0]
                    numbers = [numbered[origin] for origin in origins]
        together = None
        if len(stale) >= _MANY:
            together = self._rows_at_once([tasks[index] for index in stale], problem, layout, late)
        if values is None:
            values = np.empty((len(tasks), width))
        if together is None:
            for index in stale:
                in_time(late)
                row, numbers[index] = self._row(tasks[index], problem, layout)
                if row.size < width:
                    values[index, row.size :] = -np.inf
                values[index, : row.size] = row
        else:
            values[stale] = together
            for index, row in zip(stale, together, strict=True):
                numbers[index] = self._number_of(row if len(layout) > 1 else row[: 1 + tasks[index].max_nodes])
        self._before = (problem, layout, values, numbers)
        return values, numbers

    def _number_of(self, row: NDArray[np.float64]) -> int:
        if row.size > _NUMBERED:
            return 0
        if len(self._row_numbers) >= _CACHED_ROWS:
            self._clear()
        return self._row_numbers.setdefault(row.tobytes(), next(self._counter))

    def _clear(self) -> None:
        self._rows.clear()
        self._row_numbers.clear()
        self._cached = 0

    def _rows_at_once(
        self, tasks: list[CompetingTask], problem: AllocationProblem, layout: Layout, late: Late
    ) -> NDArray[np.float64] | None:
        """Compute many rows at once, if the objective is a function of speeds.

        ``None`` if a number is too large: computing row by row then finds the task at fault.
        """
        of_speeds = getattr(self.objective, "of_speeds", None)
        if of_speeds is None:
            return None
        builder = RowBuilder(problem.horizon_s, of_speeds, _LARGEST_VALUE)
        return table_rows(tasks, builder, layout, late, named=bool(problem.pools))

    def _row(self, task: CompetingTask, problem: AllocationProblem, layout: Layout) -> tuple[NDArray[np.float64], int]:
        """Return the row of a task, which may end before the last columns, and its number."""
        horizon_s, objective = problem.horizon_s, self.objective
        if len(layout) == 1:
            ((kind, largest),) = layout
            layout = ((kind, min(task.max_nodes, largest)),)
        key = (self._key_of(task), tuple(task.curves.items()) if task.curves else None, horizon_s, layout)
        found = self._rows.get(key)
        if found is None:
            most = min(_CACHED_ROWS, _ROWS_OF_ONE * (5 + len(problem.tasks)))
            if len(self._rows) >= most or self._cached >= _CACHED_NUMBERS:
                self._clear()
            if len(layout) > 1:
                row = row_of_kinds(task, horizon_s, objective, layout)
            else:
                ((kind, largest),) = layout
                seen = task.on(kind) if problem.pools or task.curves else task
                # A task that cannot run here has only the first column
                row = value_row(seen or task, horizon_s, objective, largest if seen else 0)
            found = row, self._number_of(row)
            self._rows[key] = found
            self._cached += row.size
        return found


def _origins(before: tuple[CompetingTask, ...], tasks: tuple[CompetingTask, ...]) -> list[int] | None:
    """Return where each task stood before, -1 for one that is new; ``None`` if nearly all are in their places."""
    if len(tasks) == len(before) and 2 * sum(map(is_, tasks, before)) > len(tasks):
        return None
    places = {id(task): place for place, task in enumerate(before)}
    return [places.get(id(task), -1) for task in tasks]


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
        raise BadObjective(what, where=where, fix="leave -inf where it is, and put finite numbers everywhere else")
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
    worth = _objective_values(objective, task, np.arange(max(largest, task.size) + 1))
    most = max(float(worth.max()), -float(worth.min()))
    # No entry exceeds this bound, so usually one comparison clears all; an infinity or NaN fails it too
    costs_s = max(task.start_cost_s, task.shrink_cost_s, task.grow_cost_s)
    if most * (horizon_s + costs_s) <= _LARGEST_VALUE / 2.0:
        row = _less_costs(worth, task, horizon_s)[: largest + 1]
    else:
        _check_finite(objective, task, worth)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below has the better message
            row = _less_costs(worth, task, horizon_s)[: largest + 1]
        fits = np.abs(row) <= _LARGEST_VALUE
        if not fits.all():
            what = f"comes to more than {_LARGEST_VALUE:g} over the horizon at size {int(fits.argmin())}"
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
    """Return the values of no node, and of 1, 2, ... nodes of each kind.

    On each kind the values are those of a pool with only this kind; a task that holds nodes of another kind has to stop
    there first, for ``shrink_cost_s`` seconds at its objective there, and starts again.
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
    worth = _objective_values(objective, task, sizes)
    _check_finite(objective, task, worth)
    return worth


def _objective_values(objective: Objective, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
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
