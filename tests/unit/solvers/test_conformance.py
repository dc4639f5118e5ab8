"""Every solver through the conformance suite, and the suite itself on solvers that cheat."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import msgspec
import pytest

from bftrain import Limits, Solution, ValueTable, registry
from tests.helpers import solver_conformance as conformance
from tests.helpers.named_parts import EXACT

ExactSolver: Any = type(EXACT)

RULES = {
    *("greedy", "equal-share", "equal-share-published"),
    *("fifo", "las", "srtf", "isolated", "proportional-share", "marginal-gain"),
}
NEEDS = {"cbc": "mip", "gurobi": "gurobipy"}
SOLVERS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name in NEEDS and find_spec(NEEDS[name]) is None, reason=f"needs: pip install '.[{name}]'"
        ),
    )
    for name, part in registry.parts("solver").items()
    if part.origin == "bftrain"
]


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("name", SOLVERS)
def test_conforms(name: str, case: conformance.SolverCheck) -> None:
    case.check(registry.load("solver", name), optimal=name not in RULES)


class Cheat(ExactSolver):
    """Answers with a field of the right solution changed."""

    def __init__(self, **changes: object) -> None:
        super().__init__()
        self._changes = changes

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        solution = super().solve(table, limits)
        return msgspec.structs.replace(solution, **self._changes) if solution.sizes else solution


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"value": 1.0}, "the value is 8350"),
        ({"bound": 1.0}, "the bound is below the value"),
        ({"sizes": {"a": 3}}, "one size for every task"),
        ({"sizes": {"a": 9, "b": 2}}, "not allowed or do not fit"),
        ({"sizes": {"a": 1, "b": 9}, "value": 8200.0}, "the best value is 8350"),
        ({"solver": "another"}, "another solver's name"),
        ({"termination": "time_limit"}, "must prove its answer"),
    ],
)
def test_cheats_are_caught(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(conformance.SolverNonconformance, match=re.escape(complaint)):
        conformance.check(Cheat(**changes))


def test_a_solver_that_ignores_the_coupling_is_caught() -> None:
    class Blind(ExactSolver):
        def solve(self, table: ValueTable, limits: Limits) -> Solution:
            plain = type(table)(problem=table.problem, values=table.values)
            solution = super().solve(plain, limits)
            return msgspec.structs.replace(solution, value=table.value_of(solution.sizes), bound=None)

    (coupled,) = (case for case in conformance.CASES if case.name == "coupled-objective")
    with pytest.raises(conformance.SolverNonconformance, match="not the best"):
        coupled.check(Blind())
