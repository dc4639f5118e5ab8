"""Linear programmes: HiGHS without ``linprog`` has its results, and ``linprog`` remains where the module is missing."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain_solvers.sharing import linear
from bftrain_solvers.sharing.linear import LinearResult, LinearRows, maximise


def solved(seed: int, size: int) -> LinearResult:
    """Solve a random programme: ``size`` columns, each in all of three rows, and the last one limited."""
    draws = np.random.default_rng(seed)
    row, column = (part.ravel() for part in np.indices((3, size)))
    rows = LinearRows(data=(draws.random(3 * size),), row=(row,), column=(column,), limits=draws.random(3))
    return maximise(draws.random(size), rows, last=(0.0, 0.01))


@pytest.mark.parametrize("size", [1, 2, 30, 300])
def test_the_fast_way_has_the_results_of_linprog(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("scipy.optimize.linprog", lambda *_, **__: pytest.fail("not the fast way"))
        fast = [solved(seed, size) for seed in range(5)]
    monkeypatch.setattr(linear, "highs", missing)
    for seed, result in enumerate(fast):
        usual = solved(seed, size)
        assert usual.columns is not None
        assert result.columns is not None
        np.testing.assert_array_equal(result.columns, usual.columns)
        np.testing.assert_array_equal(result.prices, usual.prices)


def missing() -> None:
    raise ModuleNotFoundError


def test_the_reason_of_a_failure_is_that_of_linprog() -> None:
    one, place = np.ones(1), np.zeros(1, dtype=np.intp)
    impossible = maximise(one, LinearRows(data=(one,), row=(place,), column=(place,), limits=-one))
    assert impossible.columns is None
    assert "infeasible" in impossible.words


def test_repeated_entries_are_added_up() -> None:
    place = np.zeros(2, dtype=np.intp)
    twice = maximise(np.ones(1), LinearRows(data=(np.ones(2),), row=(place,), column=(place,), limits=np.ones(1)))
    assert twice.columns is not None
    np.testing.assert_array_equal(twice.columns, [0.5])
