"""Solve a table: use the solver's sizes, or the fallback solver's, or the current sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from bftrain.errors import BadObjective, raised
from bftrain.ports import Solver, solver_capabilities
from bftrain.values.decision import STAYED, taken_from
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.wire import NOTHING, unchecked

_Candidate = tuple[float, str, Mapping[str, int], Mapping[str, str]]  # value, source, sizes, kinds
_MEASURED: Final = "only measurements changed, so no task starts, stops or moves"
_LEAST_S: Final = 1e-6  # limits require a time above 0
_RAN_TO_ITS_END = frozenset({Termination.OPTIMAL, Termination.GAP, Termination.HEURISTIC})


class ChosenSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes, their value, the underlying solution, and the reason for any fallback."""

    sizes: Mapping[str, int]
    value: float
    solution: Solution
    fallback: str = ""
    kinds: Mapping[str, str] = NOTHING  # node kinds, if any

    @property
    def quality(self) -> Quality:
        """The quality of the sizes; never proven for sizes that are not the solver's own."""
        return Quality.FEASIBLE if self.fallback else self.solution.quality


def choose(
    table: ValueTable, limits: Limits, solver: Solver, fallback: Solver | None, *, hurry: str = ""
) -> ChosenSizes:
    """Call ``solver``; if it does not complete, choose the best of its sizes, the fallback's and the current ones.

    ``hurry`` is a reason to skip ``solver``; empty: call it.
    """
    solution, value = (Solution.failed(solver.name, hurry), None) if hurry else _valid_solution(solver, table, limits)
    if value is not None and solution.termination in _RAN_TO_ITS_END:
        return _chosen_sizes(table, (value, "", solution.sizes, solution.kinds), solution, "")

    staying, kinds = _staying(table)
    candidates: list[_Candidate] = []
    reason = f"{solution.solver}: {solution.solver_words or solution.termination}"
    # A result without a change or a bound means that the solver had no time to start
    if value is not None and (solution.bound is not None or solution.sizes != staying):
        candidates.append((value, "", solution.sizes, solution.kinds))
    if fallback is not None:
        second, second_value = _valid_solution(fallback, table, limits)
        if second_value is not None:
            candidates.append((second_value, taken_from(second.solver), second.sizes, second.kinds))
        else:
            reason += f"; {second.solver}: {second.solver_words or second.termination}"
    candidates.append((table.value_of(staying, kinds), STAYED, staying, kinds))
    return _chosen_sizes(table, max(candidates, key=lambda candidate: candidate[0]), solution, reason)


def keep_running(table: ValueTable, choice: ChosenSizes) -> ChosenSizes:
    """Return the current sizes if ``choice`` starts, stops or moves a task, otherwise ``choice``."""
    sizes, kinds = _staying(table)

    def running(plan: Mapping[str, int], on: Mapping[str, str]) -> set[tuple[str, str]]:
        return {(name, on.get(name, "")) for name, size in plan.items() if size}

    if running(choice.sizes, choice.kinds) == running(sizes, kinds if table.problem.pools else NOTHING):
        return choice
    solution = choice.solution
    if solution.termination is Termination.OPTIMAL:
        solution = unchecked(solution, termination=Termination.HEURISTIC)
    solution = unchecked(solution, quality=Quality.FEASIBLE, solver_words=_MEASURED)
    return _chosen_sizes(table, (table.value_of(sizes, kinds), "", sizes, kinds), solution, "")


def _staying(table: ValueTable) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """Return the current sizes (0 if no longer allowed), and the kinds of the nodes."""
    tasks, width = table.problem.tasks, table.values.shape[1]
    sizes = {
        task.name: task.size if column < width and table.values[row, column] > float("-inf") else 0
        for row, (task, column) in enumerate(zip(tasks, table.columns.present(tasks).tolist(), strict=True))
    }
    return sizes, {task.name: task.kind for task in tasks if task.kind and sizes[task.name]}


def _chosen_sizes(table: ValueTable, candidate: _Candidate, solution: Solution, reason: str) -> ChosenSizes:
    value, taken, sizes, kinds = candidate
    if not table.problem.pools:
        kinds = NOTHING
    elif not table.columns.several:  # solvers may omit the kind if there is only one
        (kind,) = table.kinds
        kinds = {task: kind for task, size in sizes.items() if size and kind}
    return ChosenSizes(
        sizes=sizes, kinds=kinds, value=value, solution=solution, fallback=f"{reason}; {taken}" if taken else ""
    )


def limits_after(limits: Limits, spent_s: float) -> Limits:
    """Return the limits that remain for a solver: building the table counts as solving time."""
    left_s = max(limits.deadline_s - spent_s, _LEAST_S)
    return limits if left_s == limits.deadline_s else unchecked(limits, deadline_s=left_s)


def ask(solver: Solver, table: ValueTable, limits: Limits) -> Solution:
    """Solve; return a failed solution for an error of the solver; raise an error of the objective."""
    return _valid_solution(solver, table, limits)[0]


def _valid_solution(solver: Solver, table: ValueTable, limits: Limits) -> tuple[Solution, float | None]:
    solution = _call_solver(solver, table, limits)
    if solution.quality is Quality.NONE:
        return solution, None
    value = table.value_if_allowed(solution.sizes, solution.kinds)
    if not value > float("-inf"):  # also rejects NaN
        return Solution.failed(solver.name, "returned sizes that are not allowed or do not fit into the pool"), None
    return solution, value


def _call_solver(solver: Solver, table: ValueTable, limits: Limits) -> Solution:
    if table.columns.several and not solver_capabilities(solver).node_kinds:
        others = "exact, greedy, equal-share, highs, gurobi or cbc"
        return Solution.failed(solver.name, f"'{solver.name}' does not support node kinds; use {others}")
    try:
        solution: object = solver.solve(table, limits)
    except BadObjective:
        raise
    except Exception as error:  # noqa: BLE001 - a third-party solver must not stop the decisions
        return Solution.failed(solver.name, raised(error))
    if not isinstance(solution, Solution):
        return Solution.failed(solver.name, f"returned a {type(solution).__name__} instead of a Solution")
    return solution
