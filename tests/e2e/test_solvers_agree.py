"""A thousand random problems: every solver that proves its answers has the same value as ``exact``."""

from __future__ import annotations

import pytest

from bftrain import Limits, Termination, registry
from bftrain_solvers import exact
from tests.helpers.solver_conformance import AGREEMENT, random_problem
from tests.helpers.tables import table_of_problem

PROBLEMS = 300
NEEDS = {"highs": "scipy", "cbc": "mip", "gurobi": "gurobipy"}


@pytest.mark.parametrize("name", NEEDS)
def test_agrees_with_exact(name: str) -> None:
    pytest.importorskip(NEEDS[name], reason=f"needs: pip install '.[{name}]'")
    solver = registry.load("solver", name)
    worst = 0.0
    for seed in range(PROBLEMS):
        table = table_of_problem(random_problem(seed))
        best = exact.solver.solve(table, Limits())
        found = solver.solve(table, Limits())
        assert best.termination is found.termination is Termination.OPTIMAL, (seed, found)
        assert best.value is not None
        assert found.value is not None
        assert found.bound is not None
        scale = max(abs(best.value), 1e-300)
        worst = max(worst, abs(found.value - best.value) / scale, (best.value - found.bound) / scale)
    assert worst <= AGREEMENT
