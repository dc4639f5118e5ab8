"""Entries that no best plan has are taken out where they would drown the others; everything else stays."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from bftrain import Limits, Termination
from bftrain.values.table import columns_for
from bftrain_solvers.conformance import best_by_trying_all
from bftrain_solvers.exact import solver
from bftrain_solvers.value_grid import cleared, lopsided
from tests.helpers.tables import table_of

NEVER = -1e17


def present(*sizes: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(sizes, dtype=np.int64)


def test_what_costs_more_than_all_can_gain_is_taken_out_and_rows_are_lowered_to_nothing() -> None:
    values = np.array([[NEVER, NEVER, 200.0], [0.0, 10.0, 30.0]])
    clear = cleared(values, present(2, 0), [3])
    assert clear.values.tolist() == [[-inf, -inf, 0.0], [-inf, 0.0, -inf]]  # the first leaves the other 1 node
    assert clear.raised == 210.0


def test_what_has_to_be_paid_stays() -> None:
    clear = cleared(np.array([[NEVER, NEVER + 64.0], [0.0, 10.0]]), present(7, 0), [1])
    assert clear.values.tolist() == [[-inf, 0.0], [0.0, -inf]]
    assert clear.raised == NEVER + 64.0


def test_ordinary_tables_are_left_alone() -> None:
    waiting = np.array([[0.0, 10.0], [0.0, 1e9]])
    assert not lopsided(waiting, present(0, 0), 0.0, 1e9)
    running = np.array([[-120.0, 1000.0], [-100.0, 900.0]])
    assert not lopsided(running, present(1, 1), -120.0, 1000.0)
    assert not lopsided(running, present(7, 1), -120.0, 1000.0)  # 7: it may not stay
    assert lopsided(np.array([[NEVER, 200.0], [0.0, 10.0]]), present(1, 0), NEVER, 200.0)


def test_what_is_as_good_stays() -> None:
    clear = cleared(np.array([[NEVER, 0.1, 0.3], [0.0, 0.2, 0.0]]), present(1, 0), [2])
    assert np.isfinite(clear.values).tolist() == [[False, True, True], [True, True, False]]


@pytest.mark.parametrize("seed", range(60))
def test_the_best_plan_is_still_there(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(2, 5)), int(rng.integers(2, 6))
    values = rng.uniform(-1.0, 1.0, (rows, width)) * 10.0 ** rng.choice([0.0, 3.0, 17.0], (rows, width))
    values[rng.random((rows, width)) < 0.2] = -inf
    values[:, 0] = np.where(rng.random(rows) < 0.5, 0.0, NEVER)
    table = table_of(values, pool=int(rng.integers(1, rows * width)))
    best = best_by_trying_all(table)
    clear = cleared(values, present(*[0] * rows), [table.problem.pool])
    still = best_by_trying_all(table_of(clear.values, pool=table.problem.pool))
    assert still + clear.raised == pytest.approx(best, rel=1e-12, abs=1e-12 * clear.rounding)
    assert solver.solve(table, Limits()).value == pytest.approx(best, rel=1e-9)


def test_the_bound_of_a_lopsided_table_counts_what_was_taken_off() -> None:
    rng = np.random.default_rng(5)
    values = np.vstack([[[NEVER] * 20 + [5.0] * 45], np.cumsum(rng.uniform(0.0, 9.0, (300, 65)), axis=1)])
    table = table_of(values, pool=3000, present=[20] + [0] * 300)
    best, late = solver.solve(table, Limits()), solver.solve(table, Limits(deadline_s=1e-6))
    assert (best.termination, late.termination) == (Termination.OPTIMAL, Termination.TIME_LIMIT)
    assert best.value is not None
    assert late.value is not None
    assert late.bound is not None
    assert 0.9 * best.value < late.value <= best.value <= late.bound < 1.1 * best.value


def test_that_all_stay_is_no_plan_if_there_are_not_the_nodes_for_it() -> None:
    values = np.array([[-1e9, 1.0], [-1e9, 2.0], [-1e9, 3.0]])
    found = cleared(values, np.array([1, 1, 1]), [1])
    assert np.isfinite(found.values).any(axis=1).all()
    assert found.values[0, 0] > -np.inf
    assert found.values[2, 1] > -np.inf
    kinds = columns_for((("a", 1), ("b", 1)))
    wide = np.array([[-1e9, 1.0, 1.0], [-1e9, 2.0, 2.0], [-1e9, 3.0, 3.0]])
    assert cleared(wide, np.array([1, 1, 2]), [1, 1], kinds).values[0, 0] > -np.inf


def test_the_value_of_sizes_that_are_changed_afterwards() -> None:
    table = table_of([[0, 1, 2], [0, 3, 4]], pool=4)
    chosen = [1, 1]
    assert table.value_at(chosen) == 4.0
    chosen[0] = 2
    assert table.value_at(chosen) == 5.0
    assert table.value_if_allowed({"t0": 2, "t1": 2}) == table.value_if_allowed({"t1": 2, "t0": 2}) == 6.0
    assert table.value_if_allowed({"t0": 3, "t1": 0}) == table.value_if_allowed({"t0": -1, "t1": 0}) == -inf
    assert table_of([[0, 1, 2], [0, 3, 4]], pool=3).value_if_allowed({"t0": 2, "t1": 2}) == -inf
