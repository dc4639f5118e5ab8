"""The common part of all MILP backends: building the programme, scaling, goals in order, reading the answer.

MilpModel: each task picks one linear piece and a whole size in it. No special ordered sets and no big-M: for a piece
from size ``a`` to size ``b``, a 0/1 column states whether it is picked, and an integer column counts the nodes beyond
``a``: up to ``b - a``, and 0 if the piece is not picked. A ModelDraft collects the terms of an objective with a
coupling, before they become columns and rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import count
from math import inf, isfinite, isnan
from time import perf_counter
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from bftrain.errors import BadObjective, raised
from bftrain.ports import Availability, SolverCapabilities
from bftrain.values.coupling import LinearExpression, linear_sum
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import DeadlinePassed, kinds_of, named, unchanged
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.matrix import MatrixBuilder, ModelMatrix
from bftrain_solvers.scaling import NumbersTooFarApart, fitted, resolved, scale_bits
from bftrain_solvers.value_grid import cleared, lopsided

# Two steps of a row have one slope if they differ by rounding only: a few times 2**-52 of the row's entries
_SAME_SLOPE: Final = 1e-14
# Allowed loss of a goal while the next goal breaks its ties, relative to the optimum
_KEPT = 1e-9
# A plan is proven optimal if bound and value differ by less than _PROVEN, relative to the larger of them, or by less
# than _ROUNDING, relative to the largest coefficient: both may be 0 apart from rounding
_PROVEN = 1e-9
_ROUNDING = 1e-15
_LEAST_S: Final = 1e-6  # limits must be positive


class ModelDraft:
    """Collects variables, constraints and goals; :func:`programme_of` turns them into columns and rows.

    It implements :class:`bftrain.values.coupling.CouplingModel`.
    """

    def __init__(self, table: ValueTable, values: Floats, stop_at: float = inf) -> None:
        self._stop_at = stop_at
        self.problem = table.problem
        self.table = table
        self.width = values.shape[1]
        self.values = values
        self.functions: dict[int, tuple[int, Floats]] = {}  # handle -> task, one number per column
        self.own: dict[int, tuple[float, float, bool]] = {}  # handle -> lower, upper, integer
        self.rows: list[tuple[LinearExpression, float, float]] = []
        self.goals: list[LinearExpression] = []
        self._handles = count(1)

    def value(self, task: int) -> LinearExpression:
        """Return the table entry of the chosen size."""
        row = self.values[task]
        return self.over_sizes(task, np.where(row > -inf, row, 0.0))

    def size(self, task: int) -> LinearExpression:
        """Return the chosen size."""
        return self.over_sizes(task, self.table.nodes)

    def speed(self, task: int) -> LinearExpression:
        """Return the speed at the chosen size, on nodes of the chosen kind."""
        return self.over_sizes(task, self.table.speeds(task))

    def over_sizes(self, task: int, numbers: ArrayLike) -> LinearExpression:
        """Return the entry of ``numbers`` at the chosen size."""
        given = np.asarray(numbers, dtype=np.float64)
        if given.shape != (self.width,) or not np.isfinite(given).all():
            raise BadObjective(
                f"over_sizes() wants {self.width} finite numbers, one per size",
                where=f"objective '{self.problem.objective}', task '{self.problem.tasks[task].name}'",
            )
        handle = self._handle()
        self.functions[handle] = (task, given)
        return LinearExpression(MappingProxyType({handle: 1.0}))

    def variable(self, *, lower: float = 0.0, upper: float = inf, integer: bool = False) -> LinearExpression:
        """Add a variable."""
        handle = self._handle()
        self.own[handle] = (lower, upper, integer)
        return LinearExpression(MappingProxyType({handle: 1.0}))

    def at_least(self, expression: LinearExpression, bound: float) -> None:
        """Require ``expression >= bound``."""
        self.rows.append((expression, self._number(bound), inf))

    def at_most(self, expression: LinearExpression, bound: float) -> None:
        """Require ``expression <= bound``."""
        self.rows.append((expression, -inf, self._number(bound)))

    def maximise(self, expression: LinearExpression) -> None:
        """Add a goal; a further call breaks the ties that earlier goals leave."""
        self.goals.append(expression)

    def _handle(self) -> int:
        if perf_counter() > self._stop_at:
            raise DeadlinePassed
        return next(self._handles)

    def _number(self, bound: float) -> float:
        if isnan(bound):
            raise BadObjective("demands nan", where=f"objective '{self.problem.objective}'")
        return bound


def draft_of(table: ValueTable, stop_at: float = inf) -> ModelDraft:
    """Build the draft of ``table``: the largest sum of entries, or the model of its coupling."""
    if table.coupling is None:
        return _sum_of_entries(table, stop_at)
    draft = ModelDraft(table, table.values, stop_at)
    where = f"objective '{table.problem.objective}'"
    try:
        table.coupling.couple(draft)
    except (BadObjective, DeadlinePassed):
        raise
    except Exception as error:
        raise BadObjective(f"couple() {raised(error)}", where=where) from error
    if not draft.goals:
        raise BadObjective("couple() did not call maximise()", where=where)
    return draft


def _sum_of_entries(table: ValueTable, stop_at: float) -> ModelDraft:
    values, constant = table.values, 0.0
    present = table.columns.present(table.problem.tasks)
    if lopsided(values, present, float(values.min(where=values > -inf, initial=0.0)), float(values.max())):
        clear = cleared(values, present, list(table.problem.by_kind.values()), table.columns, stop_at)
        values, constant = clear.values, clear.raised
    draft = ModelDraft(table, values, stop_at)
    draft.maximise(linear_sum(draft.value(task) for task in range(len(values))) + constant)
    return draft


@dataclass(frozen=True, slots=True)
class LinearPiece:
    """Sizes ``first`` to ``last`` of a task on one node kind; all its functions are linear there.

    These are columns of the table: with one kind, the number of nodes. Column ``pick`` of the programme states whether
    the size is among them, column ``beyond`` how many nodes it has beyond ``first``.
    """

    first: int
    last: int
    pick: int
    beyond: int | None


@dataclass(frozen=True, slots=True)
class ModelGoal:
    """One thing to maximise: coefficients of the columns and a constant that belongs to it."""

    coefficients: Floats
    constant: float


@dataclass(frozen=True, slots=True)
class MilpModel:
    """The matrix, its goals by descending priority, and the conversion back to sizes."""

    matrix: ModelMatrix
    goals: tuple[ModelGoal, ...]
    pieces: tuple[tuple[LinearPiece, ...], ...]

    def chosen(self, columns: Floats) -> list[int]:
        """Return each task's column of the table in a solution."""
        picked = (max(pieces, key=lambda piece: float(columns[piece.pick])) for pieces in self.pieces)
        return [piece.first + (0 if piece.beyond is None else round(float(columns[piece.beyond]))) for piece in picked]


def programme_of(table: ValueTable, stop_at: float = inf) -> MilpModel:
    """Convert a table, coupled or not, to columns and rows; raise :class:`DeadlinePassed` after ``stop_at``."""
    return _Assembly(draft_of(table, stop_at), stop_at).programme()


class _Assembly:
    """One pass over a draft."""

    def __init__(self, draft: ModelDraft, stop_at: float) -> None:
        self._draft = draft
        self._stop_at = stop_at
        self._builder = MatrixBuilder()
        self._columns: dict[int, dict[int, float]] = {}  # handle -> column -> coefficient
        self._kinds = np.maximum(draft.table.kind_of, 0)  # 0 nodes count as 0 nodes of the first kind
        self._nodes: list[dict[int, float]] = [{} for _ in draft.table.kinds]  # kind -> column -> nodes

    def programme(self) -> MilpModel:
        draft, builder = self._draft, self._builder
        for handle, (lower, upper, integer) in draft.own.items():
            self._columns[handle] = {builder.column(lower, upper, integer=integer): 1.0}
        per_task: list[list[tuple[int, Floats]]] = [[] for _ in draft.problem.tasks]
        for handle, (task, numbers) in draft.functions.items():
            per_task[task].append((handle, numbers))
        pieces = tuple(self._task(task, functions) for task, functions in enumerate(per_task))
        for nodes, most in zip(self._nodes, draft.problem.by_kind.values(), strict=True):
            builder.row(nodes, -inf, float(most))
        for expression, lower, upper in draft.rows:
            terms, constant = self._in_columns(expression)
            builder.row(terms, lower - constant, upper - constant)
        goals = [self._in_columns(goal) for goal in draft.goals]
        if perf_counter() > self._stop_at:  # transferring a large programme also takes time
            raise DeadlinePassed
        return MilpModel(
            matrix=builder.matrix(goals[0][0]),
            goals=tuple(ModelGoal(builder.dense(terms), constant) for terms, constant in goals),
            pieces=pieces,
        )

    def _task(self, task: int, functions: list[tuple[int, Floats]]) -> tuple[LinearPiece, ...]:
        if perf_counter() > self._stop_at:
            raise DeadlinePassed
        allowed = np.flatnonzero(self._draft.values[task] > -inf)
        stacked = np.array([numbers[allowed] for _, numbers in functions]).reshape(len(functions), allowed.size)
        for handle, _ in functions:
            self._columns[handle] = {}
        builder, pieces = self._builder, []
        for start, end in _linear_runs(allowed, self._kinds[allowed], stacked):
            first, last = int(allowed[start]), int(allowed[end])
            pick, beyond, length = builder.column(0.0, 1.0, integer=True), None, float(last - first)
            nodes = self._nodes[self._kinds[last]]
            nodes[pick] = float(self._draft.table.nodes[first])
            if length:
                beyond = builder.column(0.0, length, integer=True)
                builder.row({beyond: 1.0, pick: -length}, -inf, 0.0)
                nodes[beyond] = 1.0
            pieces.append(LinearPiece(first, last, pick, beyond))
            for (handle, _), numbers in zip(functions, stacked, strict=True):
                self._columns[handle][pick] = float(numbers[start])
                rise = float(numbers[end] - numbers[start])
                if beyond is not None and abs(rise) > _SAME_SLOPE * abs(float(numbers[end])):  # otherwise rounding
                    self._columns[handle][beyond] = rise / length
        builder.row({piece.pick: 1.0 for piece in pieces}, 1.0, 1.0)
        return tuple(pieces)

    def _in_columns(self, expression: LinearExpression) -> tuple[dict[int, float], float]:
        terms: dict[int, float] = {}
        for handle, factor in expression.terms.items():
            for column, coefficient in self._columns[handle].items():
                terms[column] = terms.get(column, 0.0) + factor * coefficient
        return terms, expression.constant


def _linear_runs(sizes: Integers, kinds: Integers, functions: Floats) -> list[tuple[int, int]]:
    """Return the first and last index of runs of ``sizes``: of one kind, without gaps, and with linear functions."""
    if sizes.size == 1:
        return [(0, 0)]
    steps = np.diff(functions, axis=1)
    tolerance = _SAME_SLOPE * np.abs(functions).max(axis=1, initial=0.0)
    gaps = (np.diff(sizes) > 1) | (np.diff(kinds) > 0)
    bends = (np.abs(np.diff(steps, axis=1)) > tolerance[:, None]).any(axis=0)
    runs = []
    start = 0
    while start < sizes.size:
        end = start
        while end + 1 < sizes.size and not gaps[end] and (end == start or not bends[end - 1]):
            end += 1
        runs.append((start, end))
        start = end + 1
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """The answer of a solver library; columns and bound may be missing."""

    termination: Termination
    columns: Floats | None = None
    bound: float | None = None
    words: str = ""


LATE: Final = RawAnswer(
    termination=Termination.TIME_LIMIT, words="the deadline passed while the programme was handed over"
)


class MilpSolver(ABC):
    """A solver that passes the neutral matrix to a library."""

    name: str
    capabilities: Final = SolverCapabilities(any_coupling=True, node_kinds=True)

    @abstractmethod
    def available(self) -> Availability:
        """Return whether the library can be used."""

    @abstractmethod
    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise, and map the library's status without loss."""

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task."""
        started = perf_counter()
        if not table.problem.tasks:
            optimal, proven = Termination.OPTIMAL, Quality.PROVEN
            return Solution(sizes={}, value=0.0, bound=0.0, termination=optimal, quality=proven, solver=self.name)
        reason: str = getattr(table.coupling, "no_programme", "")
        if reason:
            return Solution.failed(self.name, f"objective '{table.problem.objective}': {reason}")
        try:
            programme = programme_of(table, started + limits.deadline_s)
        except DeadlinePassed:
            return unchanged(table, self.name, started)
        raw = self._maximised(programme, limits, started)
        return _solution(table, programme, raw, self.name, perf_counter() - started)

    def _maximised(self, programme: MilpModel, limits: Limits, started: float) -> RawAnswer:
        """Maximise the first goal, then keep its value and break ties by the next goal.

        The result is the answer for the first goal with better columns.
        """
        try:
            matrix, units = fitted(programme.matrix)
        except NumbersTooFarApart as apart:
            words = (
                f"the numbers differ by too many orders of magnitude for '{self.name}': {apart}; use exact if it "
                "supports the objective"
            )
            return RawAnswer(termination=Termination.FAILED, words=words)
        goal, *further = (replace(goal, coefficients=np.ldexp(goal.coefficients, units)) for goal in programme.goals)
        bits = scale_bits(goal.coefficients)
        left_s = max(limits.deadline_s - (perf_counter() - started), _LEAST_S)
        tried = msgspec.structs.replace(limits, deadline_s=left_s)
        raw = self.run(replace(matrix, objective=np.ldexp(goal.coefficients, bits)), tried)
        bound = inf if raw.bound is None else float(np.ldexp(raw.bound, -bits)) + goal.constant
        found = replace(raw, bound=bound if isfinite(bound) else None)
        for following in further:
            left_s = limits.deadline_s - (perf_counter() - started)
            if found.termination is not Termination.OPTIMAL or left_s <= 0.0 or found.columns is None:
                break
            row = goal.coefficients / (float(np.abs(goal.coefficients).max(initial=0.0)) or 1.0)
            reached = float(row @ found.columns)
            matrix = matrix.with_row(row, reached - _KEPT * max(1.0, abs(reached)))
            goal, worth = following, following.coefficients
            tried = msgspec.structs.replace(limits, deadline_s=left_s)
            raw = self.run(replace(matrix, objective=np.ldexp(worth, scale_bits(worth))), tried)
            if raw.columns is not None:
                found = replace(found, columns=raw.columns)
            if raw.termination is not Termination.OPTIMAL:
                # The earlier columns fit, so "infeasible" is a failure of the solver and not a property of the problem
                ended = Termination.FAILED if raw.termination is Termination.INFEASIBLE else raw.termination
                return replace(found, termination=ended, words=f"breaking ties: {raw.words}")
        return found


def _solution(table: ValueTable, programme: MilpModel, raw: RawAnswer, solver: str, wall_s: float) -> Solution:
    if raw.columns is None:
        return Solution.failed(solver, raw.words, termination=raw.termination, wall_s=wall_s)
    chosen = programme.chosen(raw.columns)
    sizes, kinds = named(table, chosen), kinds_of(table, chosen)
    where = f"objective '{table.problem.objective}'"
    try:  # an objective's own total() may give or do anything
        value = table.value_of(sizes, kinds) if table.fits(sizes, kinds) else -inf
    except Exception as error:
        raise BadObjective(f"total() {raised(error)}", where=where) from error
    if isnan(value):
        raise BadObjective("total() returned nan", where=where)
    if not isfinite(value):
        return Solution.failed(solver, f"returned sizes that are not allowed ({raw.words})", wall_s=wall_s)
    goal = programme.goals[0]
    sure = resolved(programme.matrix, goal.coefficients, goal.constant, value)
    bound = max(raw.bound, value) if raw.bound is not None and sure else None
    termination, quality = raw.termination, Quality.FEASIBLE
    if termination is Termination.OPTIMAL:
        rounding = _ROUNDING * float(np.abs(goal.coefficients).max(initial=0.0))
        proven = bound is not None and bound - value <= max(_PROVEN * max(abs(bound), abs(value)), rounding)
        termination, quality = (termination, Quality.PROVEN) if proven else (Termination.GAP, quality)
    return Solution(
        sizes=sizes,
        value=value,
        bound=bound,
        termination=termination,
        quality=quality,
        solver=solver,
        solver_words=raw.words,
        wall_s=wall_s,
        kinds=kinds,
    )
