"""Fixtures for tests of solvers."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["compiled", "numpy"])
def each_knapsack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with the compiled knapsack, which declines some problems, and with numpy alone."""
    if request.param == "numpy":
        use_numpy(monkeypatch)


@pytest.fixture
def numpy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with numpy alone, for deadlines that compiled code does not need."""
    use_numpy(monkeypatch)


def use_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solve with numpy as if there were no compiled library."""
    monkeypatch.setattr("bftrain_solvers.knapsack.best_sizes.compiled_knapsack", lambda: None)
