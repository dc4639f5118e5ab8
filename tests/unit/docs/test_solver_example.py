"""The solver in the documents is one: it runs as it stands there, and passes the suite for solvers."""

import re
from pathlib import Path
from typing import Any

import pytest

from bftrain import Solver
from bftrain_solvers import conformance

PAGE = (Path(__file__).parents[3] / "docs/adding/solver.md").read_text()


@pytest.fixture
def first_served() -> Solver:
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(from bftrain\.ports .*?)```", PAGE, re.DOTALL)
    exec(block, names)  # noqa: S102 - our own page
    solver: Solver = names["first_served"]
    return solver


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_it_passes_the_suite_for_solvers(first_served: Solver, case: conformance.SolverCheck) -> None:
    case.check(first_served, optimal=False)


def test_it_can_say_whether_it_runs(first_served: Solver) -> None:
    assert first_served.available().ok
