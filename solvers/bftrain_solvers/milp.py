"""What all MILP backends share: scaling, goals one after the other, and reading the answer back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import frexp, inf, isfinite, isnan, ldexp
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadObjective
from bftrain.exception_text import raised
from bftrain.values.capabilities import SolverCapabilities
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain_solvers.answers import kinds_of, named
from bftrain_solvers.milp_model import programme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain.ports import Availability
    from bftrain.values.table import ValueTable
    from bftrain_solvers.matrix import Floats, ModelMatrix
    from bftrain_solvers.milp_model import MilpModel, ModelGoal

# Solvers stop within absolute tolerances of 1e-6 to 1e-10: an objective with coefficients around 2**20 makes
# these far smaller than rounding in the values
_LARGEST_COEFFICIENT_BITS: Final = 20
_LARGEST_SCALE_BITS: Final = 1000  # beyond this a scale is no float any more
# How far a goal may fall behind its optimum while the next one breaks its ties, relative to the optimum
_KEPT = 1e-9
# A proof of optimality is one if bound and value agree this well, relative to the larger; or, as they may well be 0,
# but for rounding, relative to the largest coefficient
_PROVEN = 1e-9
_ROUNDING = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """What a solver library said: columns and bound may be missing."""

    termination: Termination
    columns: Floats | None = None
    bound: float | None = None
    words: str = ""


class MilpSolver(ABC):
    """A solver that hands the neutral matrix to a library."""

    name: str
    capabilities: Final = SolverCapabilities(any_coupling=True, node_kinds=True)

    @abstractmethod
    def available(self) -> Availability:
        """Say whether the library can be used."""

    @abstractmethod
    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise, and map the library's status without loss."""

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task."""
        started = perf_counter()
        if not table.problem.tasks:
            return _without_tasks(self.name)
        reason: str = getattr(table.coupling, "no_programme", "")
        if reason:
            return Solution.failed(self.name, f"objective '{table.problem.objective}': {reason}")
        programme = programme_of(table)
        raw = self._first_goal(programme, limits)
        if raw.columns is not None and len(programme.goals) > 1:
            raw = self._further_goals(programme, raw, limits, started)
        return _solution(table, programme, raw, self.name, perf_counter() - started)

    def _first_goal(self, programme: MilpModel, limits: Limits) -> RawAnswer:
        goal = programme.goals[0]
        scale = scale_of(goal.coefficients)
        raw = self.run(programme.matrix.with_objective(goal.coefficients * scale), limits)
        bound = None if raw.bound is None else raw.bound / scale + goal.constant
        return RawAnswer(termination=raw.termination, columns=raw.columns, bound=bound, words=raw.words)

    def _further_goals(self, programme: MilpModel, first: RawAnswer, limits: Limits, started: float) -> RawAnswer:
        """Keep what is reached and break its ties; what comes back is the first goal's answer with better columns."""
        matrix, columns = programme.matrix, first.columns
        for reached, goal in zip(programme.goals, programme.goals[1:], strict=False):
            left = limits.deadline_s - (perf_counter() - started)
            if first.termination is not Termination.OPTIMAL or left <= 0.0 or columns is None:
                break
            matrix = _keeping(matrix, reached, columns)
            scale = scale_of(goal.coefficients)
            raw = self.run(
                matrix.with_objective(goal.coefficients * scale),
                Limits(deadline_s=left, relative_gap=limits.relative_gap, threads=limits.threads),
            )
            if raw.columns is not None:
                columns = raw.columns
            if raw.termination is not Termination.OPTIMAL:
                return RawAnswer(
                    termination=raw.termination, columns=columns, bound=first.bound, words=f"breaking ties: {raw.words}"
                )
        return RawAnswer(termination=first.termination, columns=columns, bound=first.bound, words=first.words)


def scale_of(coefficients: Floats) -> float:
    """Power of two that brings the largest coefficient near to what the tolerances of solvers are made for."""
    largest = float(np.abs(coefficients).max(initial=0.0))
    return ldexp(1.0, min(_LARGEST_COEFFICIENT_BITS - frexp(largest)[1], _LARGEST_SCALE_BITS)) if largest > 0.0 else 1.0


def _keeping(matrix: ModelMatrix, goal: ModelGoal, columns: Floats) -> ModelMatrix:
    largest = float(np.abs(goal.coefficients).max(initial=0.0)) or 1.0
    row = goal.coefficients / largest
    reached = float(row @ columns)
    return matrix.with_row(row, reached - _KEPT * max(1.0, abs(reached)))


def _solution(table: ValueTable, programme: MilpModel, raw: RawAnswer, solver: str, wall_s: float) -> Solution:
    if raw.columns is None:
        return Solution.failed(solver, raw.words, termination=raw.termination, wall_s=wall_s)
    chosen = programme.chosen(raw.columns)
    sizes, kinds = named(table, chosen), kinds_of(table, chosen)
    value = _value(table, sizes, kinds)
    if not isfinite(value):
        return Solution.failed(solver, f"gave sizes that are not allowed ({raw.words})", wall_s=wall_s)
    bound = None if raw.bound is None else max(raw.bound, value)
    termination, quality = raw.termination, Quality.FEASIBLE
    if termination is Termination.OPTIMAL:
        rounding = _ROUNDING * float(np.abs(programme.goals[0].coefficients).max(initial=0.0))
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


def _value(table: ValueTable, sizes: Mapping[str, int], kinds: Mapping[str, str]) -> float:
    """Value of ``sizes``; ``-inf`` if they are not allowed. An objective's own ``total()`` may give or do anything."""
    where = f"objective '{table.problem.objective}'"
    try:
        value = table.value_of(sizes, kinds) if table.fits(sizes, kinds) else -inf
    except Exception as error:
        raise BadObjective(f"total() {raised(error)}", where=where) from error
    if isnan(value):
        raise BadObjective("total() gave nan", where=where)
    return value


def _without_tasks(solver: str) -> Solution:
    return Solution(
        sizes={}, value=0.0, bound=0.0, termination=Termination.OPTIMAL, quality=Quality.PROVEN, solver=solver
    )
