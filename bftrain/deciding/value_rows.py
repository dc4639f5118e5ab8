"""Rows of a value table: an objective's value at each size over the horizon, minus the cost of rescaling."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadObjective, raised
from bftrain.ports import Objective
from bftrain.values.problem import CompetingTask

Layout = tuple[tuple[str, int], ...]  # the largest size on each kind of nodes
Late = Callable[[], bool]  # whether the deadline for a table has passed: the core has no clock

_LARGEST_VALUE: Final = 1e300  # sums of all numbers in a table must stay finite
# What each row depends on: limits, and costs of changes
_ALWAYS_READ: Final = (
    *("size", "kind", "min_nodes", "max_nodes", "curve", "curves"),
    *("grow_cost_s", "shrink_cost_s", "start_cost_s"),
)
_FIELDS: Final = frozenset(CompetingTask.__struct_fields__)
_HARMLESS: Final = frozenset({"curve_on"})  # methods that read no other fields


class TableOverdue(Exception):
    """The time for building a table has run out."""


def no_limit() -> bool:
    """Return that the time is never over."""
    return False


def in_time(late: Late) -> None:
    """Raise :class:`TableOverdue` if the deadline has passed."""
    if late():
        raise TableOverdue


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
            except TypeError:  # perhaps it takes nothing else than a task
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

        ``horizon * objective(size)``, less ``grow_cost_s`` or ``shrink_cost_s`` seconds at the present size's
        objective (going to 0 is shrinking), or from 0 ``start_cost_s`` seconds at the new one. Staying is free.
        """
        worth = self.values(task, np.arange(max(largest, task.size) + 1))
        most = max(float(worth.max()), -float(worth.min()))
        # No entry exceeds this bound, so usually one comparison is enough; infinity or NaN also fail it
        costs_s = max(task.start_cost_s, task.shrink_cost_s, task.grow_cost_s)
        if most * (horizon_s + costs_s) <= _LARGEST_VALUE / 2.0:
            row = _less_costs(worth, task, horizon_s)[: largest + 1]
        else:
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
