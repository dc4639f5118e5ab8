"""What the backends say when something they need is not there: the package, the licence, or enough of it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from typing import Never

import numpy as np
import pytest

from bftrain import Limits, Quality, Termination, ValueTable, registry
from tests.helpers.tables import table_of

SMALL = table_of([[0, 5, 6, 7], [0, 4, 9, 9]], pool=3)


def rough(tasks: int) -> ValueTable:
    """Return a table in which every size is a piece of its own."""
    rng = np.random.default_rng(0)
    return table_of(np.cumsum(rng.random((tasks, 65)), axis=1), pool=20 * tasks)


def not_installed(_: str) -> Never:
    raise PackageNotFoundError


def test_python_mip_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrain_solvers.cbc.version", not_installed)
    solver = type(registry.load("solver", "cbc"))()
    state = solver.available()
    assert (state.ok, "[cbc]" in state.fix) == (False, True)
    solution = solver.solve(SMALL, Limits())
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert solution.solver_words == "the package mip is not installed"
    assert solver.worker.pid is None


def test_gurobipy_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gurobipy", None)
    state = registry.load("solver", "gurobi").available()
    assert (state.ok, "[gurobi]" in state.fix) == (False, True)
    assert (
        registry.load("solver", "gurobi").solve(SMALL, Limits()).solver_words == "the package gurobipy is not installed"
    )


def test_gurobi_has_no_licence() -> None:
    pytest.importorskip("gurobipy", reason="needs: pip install '.[gurobi]'")
    code = (
        "from bftrain import Limits, registry; solver = registry.load('solver', 'gurobi');"
        "from tests.helpers.tables import table_of;"
        "state = solver.available(); print(state.ok, state.reason, state.fix, sep='|');"
        "print(solver.solve(table_of([[0, 1]], pool=1), Limits()).solver_words)"
    )
    nowhere = os.environ | {"GRB_LICENSE_FILE": "/nowhere/gurobi.lic"}
    done = subprocess.run([sys.executable, "-c", code], env=nowhere, capture_output=True, text=True, check=True)
    state, words = done.stdout.splitlines()
    ok, reason, fix = state.split("|")
    assert ok == "False"
    assert reason.startswith("no licence: ")
    assert "GRB_LICENSE_FILE" in fix
    assert "/nowhere/gurobi.lic" in words


def test_a_problem_too_large_for_the_licence_is_a_failure_with_its_size() -> None:
    pytest.importorskip("gurobipy", reason="needs: pip install '.[gurobi]'")
    solution = registry.load("solver", "gurobi").solve(rough(60), Limits())
    if solution.termination is Termination.OPTIMAL:
        pytest.skip("the licence here has no limit")
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert "columns" in solution.solver_words
