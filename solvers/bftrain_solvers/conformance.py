"""Conformance tests for solvers, also third-party ones.

In a test of your own::

    import pytest
    from bftrain_solvers import conformance

    @pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
    def test_my_solver(case):
        case.check(MySolver())

or, without pytest, ``conformance.check(MySolver())``. A solver that proves nothing, such as a rule, is checked with
``optimal=False``: its sizes must be allowed and its value honest, but need not be the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, isclose
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.deciding.fairness import max_min_now
from bftrain.deciding.objectives import throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.values.capabilities import solver_capabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.conformance_problems import random_kinds, random_problem

if TYPE_CHECKING:
    from bftrain.ports import Solver

AGREEMENT: Final = 1e-9  # relative: how well the value of two optimal answers must agree
_TIGHT_DEADLINE_S: Final = 0.001
_PATIENCE_S: Final = 5.0  # a deadline of 1 ms may be overrun by starting up, not by solving to the end


class SolverNonconformance(AssertionError):
    """A solver does not do what its port demands."""


@dataclass(frozen=True, slots=True)
class SolverCheck:
    """One check; ``check(solver)`` raises :class:`SolverNonconformance` with what is wrong."""

    name: str
    run: Callable[[Solver, bool], None]

    def check(self, solver: Solver, *, optimal: bool = True) -> None:
        """Put ``solver`` through it."""
        self.run(solver, optimal)


def check(solver: Solver, *, optimal: bool = True) -> None:
    """Put ``solver`` through all cases."""
    for case in CASES:
        case.check(solver, optimal=optimal)


def best_by_trying_all(table: ValueTable) -> float:
    """Find the largest value of any allowed choice by trying every one: for small tables."""
    best = -inf
    pools, nodes, kind_of = list(table.problem.by_kind.values()), table.nodes.tolist(), table.kind_of.tolist()
    for chosen in product(*(np.flatnonzero(row > -inf).tolist() for row in table.values)):
        left = [*pools, 0]  # the last one for column 0, which takes nothing
        for column in chosen:
            left[kind_of[column]] -= nodes[column]
        if min(left) >= 0:
            best = max(best, table.value_at(chosen))
    return best


def _table(problem: AllocationProblem) -> ValueTable:
    return ValueTableBuilder(throughput).table(problem)


def _problem(pool: int, *tasks: CompetingTask, horizon_s: float = 100.0) -> AllocationProblem:
    return AllocationProblem(pool=pool, horizon_s=horizon_s, tasks=tasks)


def _task(
    name: str, rate: Mapping[int, float], *, size: int = 0, smallest: int = 1, cost_s: float = 0.0
) -> CompetingTask:
    return CompetingTask(
        name=name,
        size=size,
        min_nodes=smallest,
        max_nodes=max(rate),
        curve=SpeedCurve(nodes=tuple(rate), rate=tuple(map(float, rate.values()))),
        grow_cost_s=cost_s,
        shrink_cost_s=cost_s,
    )


def _demand(true: bool, problem: str, solution: Solution) -> None:
    if not true:
        raise SolverNonconformance(f"{solution.solver}: {problem}; it answered {solution}")


def _solve(solver: Solver, table: ValueTable, limits: Limits | None = None) -> Solution:
    """Solve, and check the rules for answers of any quality."""
    solution = solver.solve(table, limits or Limits())
    _demand(solution.solver == solver.name, "the solution bears another solver's name", solution)
    if solution.quality is Quality.NONE:
        return solution
    names = {task.name for task in table.problem.tasks}
    _demand(set(solution.sizes) == names, "there must be one size for every task", solution)
    fine = table.allowed(solution.sizes, solution.kinds)
    _demand(fine, "the sizes are not allowed or do not fit into the pool", solution)
    value = table.value_of(solution.sizes, solution.kinds)
    _demand(solution.value is not None and _close(solution.value, value), f"the value is {value}", solution)
    if solution.bound is not None and solution.value is not None:
        _demand(solution.bound >= solution.value - _slack(value), "the bound is below the value", solution)
    return solution


def _expect(solver: Solver, table: ValueTable, best: float, *, optimal: bool) -> Solution:
    """Solve, and require the best value, proven, of solvers that claim to find it."""
    solution = _solve(solver, table)
    _demand(solution.quality is not Quality.NONE, "there are sizes (0 is always allowed), but it found none", solution)
    value = -inf if solution.value is None else solution.value
    _demand(value <= best + _slack(best), f"the best value is {best}", solution)
    if optimal:
        _demand(solution.termination is Termination.OPTIMAL, "it must prove its answer here", solution)
    if solution.termination is Termination.OPTIMAL:
        _demand(_close(value, best), f"the best value is {best}", solution)
    return solution


def _slack(value: float) -> float:
    return AGREEMENT * abs(value)


def _close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=AGREEMENT, abs_tol=1e-300)


# -- the cases


def _hand_checked(solver: Solver, optimal: bool) -> None:
    # 10 nodes. A further node brings a 10, 9, 8.5, 7 a second, b always 8: a 3 and b 7 get 27.5 + 56 = 83.5
    a = _task("a", {1: 10, 2: 19, 3: 27.5, 4: 34.5})
    b = _task("b", {10: 80})
    solution = _expect(solver, _table(_problem(10, a, b)), 8350.0, optimal=optimal)
    if optimal:
        _demand(solution.sizes == {"a": 3, "b": 7}, "the only best sizes are a 3, b 7", solution)


def _rescaling_is_weighed(solver: Solver, optimal: bool) -> None:
    # Growing from 2 to 4 gains 100 s x 20/s, and costs 60 s x 20/s: worth it. With 110 s it is not.
    for cost_s, best, sizes in ((60.0, 2800.0, {"a": 4}), (110.0, 2000.0, {"a": 2})):
        table = _table(_problem(4, _task("a", {4: 40}, size=2, cost_s=cost_s)))
        solution = _expect(solver, table, best, optimal=optimal)
        if optimal:
            _demand(solution.sizes == sizes, f"the best sizes are {sizes}", solution)


def _zero_pool(solver: Solver, optimal: bool) -> None:
    solution = _expect(solver, _table(_problem(0, _task("a", {4: 40}), _task("b", {1: 3}))), 0.0, optimal=optimal)
    _demand(not any(solution.sizes.values()), "there is no node", solution)


def _no_task_competes(solver: Solver, optimal: bool) -> None:
    _expect(solver, _table(_problem(5)), 0.0, optimal=optimal)


def _one_task(solver: Solver, optimal: bool) -> None:
    for pool, best in ((1, 1000.0), (3, 3000.0), (100, 8000.0)):
        _expect(solver, _table(_problem(pool, _task("only", {8: 80}))), best, optimal=optimal)


def _minima_that_do_not_fit(solver: Solver, optimal: bool) -> None:
    big = {8: 80.0}
    all_too_big = _problem(7, _task("a", big, smallest=8), _task("b", big, smallest=8))
    _expect(solver, _table(all_too_big), 0.0, optimal=optimal)
    one_fits = _problem(9, _task("a", big, smallest=8), _task("b", {8: 88.0}, smallest=8))
    _expect(solver, _table(one_fits), 8800.0, optimal=optimal)


def _present_size_not_allowed(solver: Solver, optimal: bool) -> None:
    below = _task("below", {4: 40.0}, size=2, smallest=3)  # two nodes were taken from it
    _expect(solver, _table(_problem(2, below)), 0.0, optimal=optimal)
    above = _task("above", {4: 40.0}, size=6)
    _expect(solver, _table(_problem(6, above)), 4000.0, optimal=optimal)


def _identical_tasks(solver: Solver, optimal: bool) -> None:
    curve = {1: 10.0, 2: 18.0, 3: 24.0, 4: 28.0}
    tasks = [_task(f"task{place}", curve) for place in range(5)]
    # 7 nodes over five tasks: two of them with 2, three with 1
    _expect(solver, _table(_problem(7, *tasks)), 6600.0, optimal=optimal)


def _odd_curves(solver: Solver, optimal: bool) -> None:
    dip = _task("dip", {1: 64.7, 2: 132.2, 4: 111.0, 8: 497.3})  # not monotone
    steep = _task("steep", {1: 1.0, 5: 2.0, 6: 90.0})  # not concave
    nothing = _task("nothing", {1: 0.0, 2: 0.0, 3: 7.0})  # does not run on fewer than three
    for pool in range(18):
        table = _table(_problem(pool, dip, steep, nothing))
        _expect(solver, table, best_by_trying_all(table), optimal=optimal)


def _huge_and_tiny_rates(solver: Solver, optimal: bool) -> None:
    for scale in (1e-9, 1e-3, 1e9, 1e15):
        tasks = [_task("a", {1: 1.0 * scale, 4: 3.1 * scale}), _task("b", {2: 2.3 * scale, 5: 3.7 * scale}, size=2)]
        table = _table(_problem(6, *tasks))
        _expect(solver, table, best_by_trying_all(table), optimal=optimal)
    mixed = [_task("huge", {4: 1e9}), _task("tiny", {4: 1e-3}), _task("middle", {1: 1.0, 2: 3.0})]
    table = _table(_problem(6, *mixed))
    _expect(solver, table, best_by_trying_all(table), optimal=optimal)


def _costs_meant_as_never(solver: Solver, optimal: bool) -> None:
    # What one task must not do is so large that beside it the others' gains are less than rounding
    b, c = _task("b", {1: 1, 2: 3, 3: 3.5}), _task("c", {1: 1.5, 2: 2.5, 3: 3})
    stays = _task("stays", {2: 20}, size=2, cost_s=1e15)
    grows = _task("grows", {2: 20}, size=1, smallest=2, cost_s=1e15)  # has to pay: it may not stay
    waits = CompetingTask(name="waits", max_nodes=3, curve=SpeedCurve(nodes=(1,), rate=(1e15,)), start_cost_s=500.0)
    for pool in range(2, 8):
        for lopsided in ((stays,), (grows,), (waits,), (stays, waits)):
            table = _table(_problem(pool, *lopsided, b, c))
            _expect(solver, table, best_by_trying_all(table), optimal=optimal)


def _random_problems(solver: Solver, optimal: bool) -> None:
    for seed in range(40):
        table = _table(random_problem(seed))
        _expect(solver, table, best_by_trying_all(table), optimal=optimal)


def _several_kinds(solver: Solver, optimal: bool) -> None:
    """Solve them or, without ``node_kinds``, never be asked."""
    if not solver_capabilities(solver).node_kinds:
        return
    for seed in range(30):
        table = _table(random_kinds(seed))
        _expect(solver, table, best_by_trying_all(table), optimal=optimal)


def _moving_to_another_kind(solver: Solver, optimal: bool) -> None:
    if not solver_capabilities(solver).node_kinds:
        return
    # To stay is worth 100 s x 10/s, to move 100 s x 20/s less 10 s at 10/s and 35 s or 50 s at 20/s
    for start_s, best, kind in ((35.0, 1200.0, "fast"), (50.0, 1000.0, "slow")):
        task = CompetingTask(
            name="a",
            size=2,
            kind="slow",
            max_nodes=2,
            min_nodes=2,
            curve=SpeedCurve(nodes=(2,), rate=(1.0,)),
            curves={"slow": SpeedCurve(nodes=(2,), rate=(10.0,)), "fast": SpeedCurve(nodes=(2,), rate=(20.0,))},
            shrink_cost_s=10.0,
            start_cost_s=start_s,
        )
        pools = {"slow": 2, "fast": 2}
        solution = _expect(
            solver,
            _table(AllocationProblem(pool=4, pools=pools, horizon_s=100.0, tasks=(task,))),
            best,
            optimal=optimal,
        )
        if optimal:
            _demand(dict(solution.kinds) == {"a": kind}, f"the best kind is {kind}", solution)


def _larger_problem(solver: Solver, optimal: bool) -> None:
    # 12 tasks on 60 nodes; the best value is known because the curves are concave: nodes go where they bring most
    tasks = [
        CompetingTask(
            name=f"task{place}",
            max_nodes=16,
            curve=SpeedCurve(nodes=(1, 2, 4, 8, 16), rate=tuple((100 + place) * n**0.8 for n in (1, 2, 4, 8, 16))),
        )
        for place in range(12)
    ]
    problem = AllocationProblem(pool=60, horizon_s=120.0, tasks=tuple(tasks))
    table = _table(problem)
    gains = np.sort(np.diff(table.values, axis=1).ravel())[::-1]
    _expect(solver, table, float(gains[:60].sum()), optimal=optimal)


def _tight_deadline(solver: Solver, optimal: bool) -> None:  # noqa: ARG001 - no solver has to be done
    rng = np.random.default_rng(7)
    tasks = [
        CompetingTask(
            name=f"task{place}",
            size=int(rng.integers(0, 9)),
            max_nodes=64,
            curve=SpeedCurve(nodes=tuple(range(1, 65)), rate=tuple(np.cumsum(rng.uniform(0.0, 100.0, 64)).tolist())),
            grow_cost_s=18.0,
            shrink_cost_s=12.0,
        )
        for place in range(100)
    ]
    table = _table(AllocationProblem(pool=1200, horizon_s=120.0, tasks=tuple(tasks)))
    started = perf_counter()
    solution = _solve(solver, table, Limits(deadline_s=_TIGHT_DEADLINE_S))
    _demand(perf_counter() - started < _PATIENCE_S, f"a deadline of 1 ms, and it took over {_PATIENCE_S} s", solution)


def _repeats_itself(solver: Solver, optimal: bool) -> None:
    curve = {1: 10.0, 2: 20.0, 4: 40.0}  # every division of the nodes has the same value
    table = _table(_problem(9, *(_task(f"task{place}", curve, size=place) for place in range(4))))
    first = _expect(solver, table, 9000.0, optimal=optimal)
    second = _solve(solver, table)
    _demand(first.sizes == second.sizes, f"asked again it says {dict(second.sizes)}", first)


def _coupled_objective(solver: Solver, optimal: bool) -> None:
    """Solve it or refuse; who claims the best must not answer another question."""
    tasks = (_task("a", {8: 80}), _task("b", {1: 5, 8: 20}, size=3), _task("c", {2: 1}))
    problem = AllocationProblem(pool=8, horizon_s=100.0, objective="max-min-now", tasks=tasks)
    table = ValueTableBuilder(max_min_now).table(problem)
    solution = _solve(solver, table)
    if solution.quality is Quality.NONE:
        _demand(solution.termination is Termination.FAILED, "to refuse is to fail", solution)
        _demand(bool(solution.solver_words), "a refusal must say why", solution)
    else:
        best = best_by_trying_all(table)
        _demand(_close(solution.value or 0.0, best) or not optimal, "this is not the best", solution)


CASES: Final = tuple(
    SolverCheck(run.__name__.strip("_").replace("_", "-"), run)
    for run in (
        _hand_checked,
        _rescaling_is_weighed,
        _zero_pool,
        _no_task_competes,
        _one_task,
        _minima_that_do_not_fit,
        _present_size_not_allowed,
        _identical_tasks,
        _odd_curves,
        _huge_and_tiny_rates,
        _costs_meant_as_never,
        _random_problems,
        _several_kinds,
        _moving_to_another_kind,
        _larger_problem,
        _tight_deadline,
        _repeats_itself,
        _coupled_objective,
    )
)
