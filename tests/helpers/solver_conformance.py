"""The conformance suite for solvers. It imports nothing else from the tests but an objective.

``optimal=False`` checks a solver without optimality proofs, such as a rule: its sizes must be allowed and its value
correct, but need not be optimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, isclose
from time import perf_counter
from typing import Final

import numpy as np
from msgspec.structs import replace

from bftrain.deciding.objectives import throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.ports import Solver, solver_capabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.arrays import Floats, Integers
from tests.helpers.coupled_objective import WorstOff

AGREEMENT: Final = 1e-9  # relative: how well the value of two optimal answers must agree
_TIGHT_DEADLINE_S: Final = 0.001
_PATIENCE_S: Final = 5.0  # deadlines of 1 ms may be exceeded by startup, not by a full solve
_SHARE_WITH_COSTS: Final = 0.7
_SHARE_THAT_RUNS: Final = 0.7


class SolverNonconformance(AssertionError):
    """A solver violates its protocol."""


@dataclass(frozen=True, slots=True)
class SolverCheck:
    """One check; ``check(solver)`` raises :class:`SolverNonconformance` with the reason."""

    name: str
    run: Callable[[Solver, bool], None]

    def check(self, solver: Solver, *, optimal: bool = True) -> None:
        """Run the check on ``solver``."""
        self.run(solver, optimal)


def check(solver: Solver, *, optimal: bool = True) -> None:
    """Run all cases on ``solver``."""
    for case in CASES:
        case.check(solver, optimal=optimal)


def best_by_trying_all(table: ValueTable) -> float:
    """Return the largest value of any allowed choice by enumeration: for small tables."""
    best = -inf
    pools, nodes, kind_of = list(table.problem.by_kind.values()), table.nodes.tolist(), table.kind_of.tolist()
    for chosen in product(*(np.flatnonzero(row > -inf).tolist() for row in table.values)):
        left = [*pools, 0]  # the last entry is for column 0, which takes no nodes
        for column in chosen:
            left[kind_of[column]] -= nodes[column]
        if min(left) >= 0:
            best = max(best, table.value_at(chosen))
    return best


def random_problem(seed: int) -> AllocationProblem:
    """Return a small problem, the same for the same seed: odd curves, minima, costs, sizes outside the allowed ones."""
    rng = np.random.default_rng(seed)
    pool = int(rng.integers(0, 13))
    tasks = []
    held = 0
    for place in range(int(rng.integers(1, 5))):
        smallest = int(rng.integers(1, 5))
        largest = int(rng.integers(smallest, 9))
        points = np.sort(rng.choice(np.arange(1, largest + 1), size=int(rng.integers(1, largest + 1)), replace=False))
        rate = rng.uniform(0.0, 100.0, points.size) * points ** rng.uniform(0.0, 1.2)
        size = int(rng.integers(0, 1 + min(8, pool - held)))
        held += size
        curve = _curve(points, rate)
        task = CompetingTask(name=f"task{place}", size=size, min_nodes=smallest, max_nodes=largest, curve=curve)
        tasks.append(_with_costs(task, rng))
    return AllocationProblem(pool=pool, horizon_s=float(rng.uniform(10.0, 600.0)), tasks=tuple(tasks))


def random_kinds(seed: int) -> AllocationProblem:
    """Return a small problem with two or three kinds of nodes, the same for the same seed; some kinds run no task."""
    rng = np.random.default_rng(seed)
    kinds = ("fast", "slow", "odd")[: int(rng.integers(2, 4))]
    pools = {kind: int(rng.integers(0, 6)) for kind in kinds}
    one = SpeedCurve(nodes=(1,), rate=(1.0,))
    free, tasks = dict(pools), []
    for place in range(int(rng.integers(1, 4))):
        smallest = int(rng.integers(1, 4))
        largest = int(rng.integers(smallest, 6))
        points = np.arange(1, largest + 1)
        curves = {
            kind: _curve(points, rng.uniform(0.0, 50.0, points.size))
            for kind in kinds
            if rng.random() < _SHARE_THAT_RUNS
        }
        held = str(rng.choice(kinds))
        size = int(rng.integers(0, 1 + free[held])) if held in curves else 0
        free[held] -= size
        task = CompetingTask(
            name=f"task{place}",
            size=size,
            kind=held if size else "",
            min_nodes=smallest,
            max_nodes=largest,
            curve=one,
            curves=curves or {"none": one},
        )
        tasks.append(_with_costs(task, rng))
    return AllocationProblem(pool=sum(pools.values()), pools=pools, horizon_s=100.0, tasks=tuple(tasks))


def _curve(nodes: Integers, rate: Floats) -> SpeedCurve:
    return SpeedCurve(nodes=tuple(nodes.tolist()), rate=tuple(rate.tolist()))


def _with_costs(task: CompetingTask, rng: np.random.Generator) -> CompetingTask:
    grow, shrink, start = (rng.uniform(0.0, 60.0, 3) * (rng.random(3) < _SHARE_WITH_COSTS)).tolist()
    return replace(task, grow_cost_s=grow, shrink_cost_s=shrink, start_cost_s=start)


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


def _problem(pool: int, *tasks: CompetingTask, horizon_s: float = 100.0) -> AllocationProblem:
    return AllocationProblem(pool=pool, horizon_s=horizon_s, tasks=tasks)


def _table(problem: AllocationProblem) -> ValueTable:
    return ValueTableBuilder(throughput).table(problem)


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
        _demand(solution.bound >= solution.value - AGREEMENT * abs(value), "the bound is below the value", solution)
    return solution


@dataclass(frozen=True, slots=True)
class _Question:
    """A problem, its ``best`` value (which may be enumerated), and the expected ``sizes`` or ``kind`` of task a."""

    problem: AllocationProblem
    best: float | None = None
    sizes: Mapping[str, int] | None = None
    kind: str = ""

    def check_solver(self, solver: Solver, *, optimal: bool) -> Solution:
        """Solve, and require the optimum with a proof from solvers that claim to find it."""
        table = _table(self.problem)
        best = best_by_trying_all(table) if self.best is None else self.best
        solution = _solve(solver, table)
        _demand(
            solution.quality is not Quality.NONE, "there are sizes (0 is always allowed), but it found none", solution
        )
        value = -inf if solution.value is None else solution.value
        _demand(value <= best + AGREEMENT * abs(best), f"the best value is {best}", solution)
        if optimal:
            _demand(solution.termination is Termination.OPTIMAL, "it must prove its answer here", solution)
        if solution.termination is Termination.OPTIMAL:
            _demand(_close(value, best), f"the best value is {best}", solution)
        if optimal and self.sizes is not None:
            _demand(solution.sizes == self.sizes, f"the only best sizes are {self.sizes}", solution)
        if optimal and self.kind:
            _demand(dict(solution.kinds) == {"a": self.kind}, f"the best kind is {self.kind}", solution)
        return solution


def _close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=AGREEMENT, abs_tol=1e-300)


def _hand_checked() -> Iterator[_Question]:
    # 10 nodes. A further node brings a 10, 9, 8.5, 7 a second, b always 8: a 3 and b 7 get 27.5 + 56 = 83.5
    a = _task("a", {1: 10, 2: 19, 3: 27.5, 4: 34.5})
    yield _Question(_problem(10, a, _task("b", {10: 80})), 8350.0, {"a": 3, "b": 7})


def _rescaling_is_weighed() -> Iterator[_Question]:
    # Growing from 2 to 4 gains 100 s x 20/s, and costs 60 s x 20/s: worth it. With 110 s it is not.
    for cost_s, best, size in ((60.0, 2800.0, 4), (110.0, 2000.0, 2)):
        yield _Question(_problem(4, _task("a", {4: 40}, size=2, cost_s=cost_s)), best, {"a": size})


def _one_task() -> Iterator[_Question]:
    for pool, best in ((1, 1000.0), (3, 3000.0), (100, 8000.0)):
        yield _Question(_problem(pool, _task("only", {8: 80})), best)


def _minima_that_do_not_fit() -> Iterator[_Question]:
    a = _task("a", {8: 80.0}, smallest=8)
    yield _Question(_problem(7, a, _task("b", {8: 80.0}, smallest=8)), 0.0)
    yield _Question(_problem(9, a, _task("b", {8: 88.0}, smallest=8)), 8800.0)


def _present_size_not_allowed() -> Iterator[_Question]:
    yield _Question(_problem(2, _task("below", {4: 40.0}, size=2, smallest=3)), 0.0)  # two of its nodes have left
    yield _Question(_problem(6, _task("above", {4: 40.0}, size=6)), 4000.0)


def _identical_tasks() -> Iterator[_Question]:
    tasks = [_task(f"task{place}", {1: 10.0, 2: 18.0, 3: 24.0, 4: 28.0}) for place in range(5)]
    # 7 nodes over five tasks: two tasks with 2 nodes, three with 1
    yield _Question(_problem(7, *tasks), 6600.0)


def _odd_curves() -> Iterator[_Question]:
    dip = _task("dip", {1: 64.7, 2: 132.2, 4: 111.0, 8: 497.3})  # not monotone
    steep = _task("steep", {1: 1.0, 5: 2.0, 6: 90.0})  # not concave
    nothing = _task("nothing", {1: 0.0, 2: 0.0, 3: 7.0})  # does not run on fewer than three
    for pool in range(18):
        yield _Question(_problem(pool, dip, steep, nothing))


def _huge_and_tiny_rates() -> Iterator[_Question]:
    for scale in (1e-9, 1e-3, 1e9, 1e15):
        a = _task("a", {1: 1.0 * scale, 4: 3.1 * scale})
        yield _Question(_problem(6, a, _task("b", {2: 2.3 * scale, 5: 3.7 * scale}, size=2)))
    yield _Question(_problem(6, _task("huge", {4: 1e9}), _task("tiny", {4: 1e-3}), _task("middle", {1: 1.0, 2: 3.0})))


def _costs_meant_as_never() -> Iterator[_Question]:
    # The forbidden value of one task is so large that the gains of the rest are below its rounding error
    b, c = _task("b", {1: 1, 2: 3, 3: 3.5}), _task("c", {1: 1.5, 2: 2.5, 3: 3})
    stays = _task("stays", {2: 20}, size=2, cost_s=1e15)
    grows = _task("grows", {2: 20}, size=1, smallest=2, cost_s=1e15)  # must pay, since it may not stay
    waits = CompetingTask(name="waits", max_nodes=3, curve=SpeedCurve(nodes=(1,), rate=(1e15,)), start_cost_s=500.0)
    for pool in range(2, 8):
        for lopsided in ((stays,), (grows,), (waits,), (stays, waits)):
            yield _Question(_problem(pool, *lopsided, b, c))


def _moving_to_another_kind() -> Iterator[_Question]:
    # To stay is worth 100 s x 10/s, to move 100 s x 20/s less 10 s at 10/s and 35 s or 50 s at 20/s
    slow, fast = (SpeedCurve(nodes=(2,), rate=(rate,)) for rate in (10.0, 20.0))
    for start_s, best, kind in ((35.0, 1200.0, "fast"), (50.0, 1000.0, "slow")):
        task = CompetingTask(
            name="a",
            size=2,
            kind="slow",
            max_nodes=2,
            min_nodes=2,
            curve=slow,
            curves={"slow": slow, "fast": fast},
            shrink_cost_s=10.0,
            start_cost_s=start_s,
        )
        problem = AllocationProblem(pool=4, pools={"slow": 2, "fast": 2}, horizon_s=100.0, tasks=(task,))
        yield _Question(problem, best, kind=kind)


def _larger_problem() -> Iterator[_Question]:
    # 12 tasks on 60 nodes; the best value is known because the curves are concave: nodes go where they bring most
    tasks = [_task(f"task{place}", {n: (100 + place) * n**0.8 for n in (1, 2, 4, 8, 16)}) for place in range(12)]
    problem = _problem(60, *tasks, horizon_s=120.0)
    gains = np.sort(np.diff(_table(problem).values, axis=1).ravel())[::-1]
    yield _Question(problem, float(gains[:60].sum()))


def _tight_deadline(solver: Solver, optimal: bool) -> None:  # noqa: ARG001 - the deadline may stop any solver
    rng = np.random.default_rng(7)
    tasks = [
        CompetingTask(
            name=f"task{place}",
            size=int(rng.integers(0, 9)),
            max_nodes=64,
            curve=_curve(np.arange(1, 65), np.cumsum(rng.uniform(0.0, 100.0, 64))),
            grow_cost_s=18.0,
            shrink_cost_s=12.0,
        )
        for place in range(100)
    ]
    table = _table(_problem(1200, *tasks, horizon_s=120.0))
    started = perf_counter()
    solution = _solve(solver, table, Limits(deadline_s=_TIGHT_DEADLINE_S))
    _demand(perf_counter() - started < _PATIENCE_S, f"a deadline of 1 ms, and it took over {_PATIENCE_S} s", solution)


def _repeats_itself(solver: Solver, optimal: bool) -> None:
    curve = {1: 10.0, 2: 20.0, 4: 40.0}  # every division of the nodes has the same value
    problem = _problem(9, *(_task(f"task{place}", curve, size=place) for place in range(4)))
    first = _Question(problem, 9000.0).check_solver(solver, optimal=optimal)
    second = _solve(solver, _table(problem))
    _demand(first.sizes == second.sizes, f"a second call returns {dict(second.sizes)}", first)


def _coupled_objective(solver: Solver, optimal: bool) -> None:
    """Require that the solver solves or refuses a coupled objective, rather than another problem."""
    tasks = (_task("a", {8: 80}), _task("b", {1: 5, 8: 20}, size=3), _task("c", {2: 1}))
    problem = AllocationProblem(pool=8, horizon_s=100.0, objective=WorstOff.name, tasks=tasks)
    table = ValueTableBuilder(WorstOff()).table(problem)
    solution = _solve(solver, table)
    if solution.quality is Quality.NONE:
        _demand(solution.termination is Termination.FAILED, "to refuse is to fail", solution)
        _demand(bool(solution.solver_words), "a refusal must give a reason", solution)
    else:
        best = best_by_trying_all(table)
        _demand(_close(solution.value or 0.0, best) or not optimal, "this is not the best", solution)


def _case(name: str, questions: Callable[[], Iterable[_Question]], *, kinds: bool = False) -> SolverCheck:
    """Build a check from questions; those with several ``kinds`` are used only for solvers that support these."""

    def run(solver: Solver, optimal: bool) -> None:
        if not kinds or solver_capabilities(solver).node_kinds:
            for question in questions():
                question.check_solver(solver, optimal=optimal)

    return SolverCheck(name, run)


CASES: Final = (
    _case("hand-checked", _hand_checked),
    _case("rescaling-is-weighed", _rescaling_is_weighed),
    _case("zero-pool", lambda: [_Question(_problem(0, _task("a", {4: 40}), _task("b", {1: 3})), 0.0)]),
    _case("no-task-competes", lambda: [_Question(_problem(5), 0.0)]),
    _case("one-task", _one_task),
    _case("minima-that-do-not-fit", _minima_that_do_not_fit),
    _case("present-size-not-allowed", _present_size_not_allowed),
    _case("identical-tasks", _identical_tasks),
    _case("odd-curves", _odd_curves),
    _case("huge-and-tiny-rates", _huge_and_tiny_rates),
    _case("costs-meant-as-never", _costs_meant_as_never),
    _case("random-problems", lambda: map(_Question, map(random_problem, range(40)))),
    _case("several-kinds", lambda: map(_Question, map(random_kinds, range(30))), kinds=True),
    _case("moving-to-another-kind", _moving_to_another_kind, kinds=True),
    _case("larger-problem", _larger_problem),
    SolverCheck("tight-deadline", _tight_deadline),
    SolverCheck("repeats-itself", _repeats_itself),
    SolverCheck("coupled-objective", _coupled_objective),
)
