"""ModelDraft: collects what an objective with a coupling maximises, before it becomes columns and rows."""

from __future__ import annotations

from math import inf, isnan
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadObjective
from bftrain.exception_text import raised
from bftrain.values.linear import LinearExpression, linear_sum
from bftrain_solvers.matrix import Floats
from bftrain_solvers.prune_hopeless_sizes import cleared, lopsided

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from bftrain.values.table import ValueTable


class ModelDraft:
    """Collects variables, demands and goals; :mod:`bftrain_solvers.milp_model` makes columns and rows of them.

    It behaves as :class:`bftrain.values.coupling.CouplingModel` describes.
    """

    def __init__(self, table: ValueTable, values: Floats) -> None:
        self.problem = table.problem
        self.table = table
        self.width = values.shape[1]
        self.values = values
        self.functions: dict[int, tuple[int, Floats]] = {}  # handle -> task, one number per column
        self.own: dict[int, tuple[float, float, bool]] = {}  # handle -> lower, upper, integer
        self.rows: list[tuple[LinearExpression, float, float]] = []
        self.goals: list[LinearExpression] = []
        self._handles = 0

    def value(self, task: int) -> LinearExpression:
        """Table entry of the chosen size."""
        row = self.values[task]
        return self.over_sizes(task, np.where(row > -inf, row, 0.0))

    def size(self, task: int) -> LinearExpression:
        """Give the chosen size."""
        return self.over_sizes(task, self.table.nodes)

    def speed(self, task: int) -> LinearExpression:
        """Give the speed at the chosen size, on nodes of the chosen kind."""
        return self.over_sizes(task, self.table.speeds(task))

    def over_sizes(self, task: int, numbers: ArrayLike) -> LinearExpression:
        """Entry of ``numbers`` that belongs to the chosen size."""
        given = np.asarray(numbers, dtype=np.float64)
        if given.shape != (self.width,) or not np.isfinite(given).all():
            raise BadObjective(
                f"over_sizes() wants {self.width} finite numbers, one per size",
                where=f"objective '{self.problem.objective}', task '{self.problem.tasks[task].name}'",
            )
        handle = self._handle()
        self.functions[handle] = (task, given)
        return _single(handle)

    def variable(self, *, lower: float = 0.0, upper: float = inf, integer: bool = False) -> LinearExpression:
        """Add a variable."""
        handle = self._handle()
        self.own[handle] = (lower, upper, integer)
        return _single(handle)

    def at_least(self, expression: LinearExpression, bound: float) -> None:
        """Demand ``expression >= bound``."""
        self.rows.append((expression, self._number(bound), inf))

    def at_most(self, expression: LinearExpression, bound: float) -> None:
        """Demand ``expression <= bound``."""
        self.rows.append((expression, -inf, self._number(bound)))

    def maximise(self, expression: LinearExpression) -> None:
        """Say what is best; a further call breaks the ties that the calls before leave."""
        self.goals.append(expression)

    def _number(self, bound: float) -> float:
        if isnan(bound):
            raise BadObjective("demands nan", where=f"objective '{self.problem.objective}'")
        return bound

    def _handle(self) -> int:
        self._handles += 1
        return self._handles


def _single(handle: int) -> LinearExpression:
    return LinearExpression(MappingProxyType({handle: 1.0}))


def draft_of(table: ValueTable) -> ModelDraft:
    """State what ``table`` asks for: the largest sum of entries, or what its coupling says."""
    if table.coupling is None:
        return _sum_of_entries(table)
    draft = ModelDraft(table, table.values)
    where = f"objective '{table.problem.objective}'"
    try:
        table.coupling.couple(draft)
    except BadObjective:
        raise
    except Exception as error:
        raise BadObjective(f"couple() {raised(error)}", where=where) from error
    if not draft.goals:
        raise BadObjective("couple() did not call maximise()", where=where)
    return draft


def _sum_of_entries(table: ValueTable) -> ModelDraft:
    values, raised = table.values, 0.0
    present = table.columns.present(table.problem.tasks)
    if lopsided(values, present, float(values.min(where=values > -inf, initial=0.0)), float(values.max())):
        clear = cleared(values, present, list(table.problem.by_kind.values()), table.columns)
        values, raised = clear.values, clear.raised
    draft = ModelDraft(table, values)
    draft.maximise(linear_sum(draft.value(task) for task in range(len(values))) + raised)
    return draft
