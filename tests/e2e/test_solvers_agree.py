"""A thousand random problems: every solver that proves its answers has the same value as ``exact``."""

from __future__ import annotations

import pytest

from bftrain import Limits, Termination, registry
from bftrain.deciding.objectives import throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain_solvers import exact
from bftrain_solvers.conformance import AGREEMENT, random_problem

PROBLEMS = 1000
NEEDS = {"highs": "scipy", "cbc": "mip", "gurobi": "gurobipy"}


@pytest.mark.parametrize("name", NEEDS)
def test_agrees_with_exact(name: str) -> None:
    pytest.importorskip(NEEDS[name], reason=f"needs: pip install '.[{name}]'")
    solver = registry.load("solver", name)
    worst = 0.0
    for seed in range(PROBLEMS):
        table = ValueTableBuilder(throughput).table(random_problem(seed))
        best = exact.solver.solve(table, Limits())
        found = solver.solve(table, Limits())
        assert best.termination is found.termination is Termination.OPTIMAL, (seed, found)
        assert best.value is not None
        assert found.value is not None
        assert found.bound is not None
        scale = max(abs(best.value), 1e-300)
        worst = max(worst, abs(found.value - best.value) / scale, (best.value - found.bound) / scale)
    assert worst <= AGREEMENT


def test_there_is_a_problem_of_every_kind_among_them() -> None:
    problems = [random_problem(seed) for seed in range(PROBLEMS)]
    tasks = [task for problem in problems for task in problem.tasks]
    assert sum(problem.pool == 0 for problem in problems) > 10
    assert sum(task.min_nodes > problem.pool for problem in problems for task in problem.tasks) > 50
    assert sum(0 < task.size < task.min_nodes or task.size > task.max_nodes for task in tasks) > 50
    assert sum(task.curve.last_measured < task.max_nodes for task in tasks) > 50
    assert sum(any(b < a for a, b in zip(task.curve.rate, task.curve.rate[1:], strict=False)) for task in tasks) > 50
