"""The solvers that follow a rule: ``greedy`` and the two of equal share."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from bftrain import Limits, Quality, Termination, ValueTable
from bftrain_solvers import exact
from bftrain_solvers.allocators import equal_share, equal_share_published, greedy
from tests.helpers.tables import table_of

LIMITS = Limits()


def shares(table: ValueTable, solver: object = equal_share) -> list[int]:
    solution = solver.solve(table, LIMITS)  # type: ignore[attr-defined]  # any solver
    assert (solution.termination, solution.quality) == (Termination.HEURISTIC, Quality.FEASIBLE)
    assert solution.bound is None
    assert table.allowed(solution.sizes)
    assert solution.value == table.value_of(solution.sizes)
    return list(solution.sizes.values())


def limited(pool: int, *between: tuple[int, int]) -> ValueTable:
    """Return a table of tasks with these minima and maxima."""
    width = 1 + max(most for _, most in between)
    values = np.full((len(between), width), -inf)
    values[:, 0] = 0.0
    for row, (least, most) in enumerate(between):
        values[row, least : most + 1] = 1.0
    return table_of(values, pool=pool)


def test_equal_share_is_equal() -> None:
    assert shares(limited(9, (1, 8), (1, 8), (1, 8))) == [3, 3, 3]


def test_equal_share_gives_the_rest_to_the_first() -> None:
    assert shares(limited(11, (1, 8), (1, 8), (1, 8))) == [4, 4, 3]


def test_equal_share_hands_on_what_maxima_leave() -> None:
    assert shares(limited(12, (1, 2), (1, 8), (1, 8))) == [2, 5, 5]


def test_equal_share_leaves_out_whose_minimum_does_not_fit() -> None:
    assert shares(limited(6, (1, 8), (7, 8), (1, 8))) == [3, 0, 3]
    assert shares(limited(6, (4, 8), (4, 8))) == [6, 0]


def test_published_rule() -> None:
    # q = 20 // 3 = 6: the second's minimum is not below it, the third's is; what is left goes in order
    assert shares(limited(20, (1, 8), (6, 8), (5, 8)), equal_share_published) == [8, 6, 6]
    assert shares(limited(20, (1, 8), (7, 9), (5, 8)), equal_share_published) == [8, 0, 8]
    assert shares(limited(20, (1, 4), (1, 4), (1, 4)), equal_share_published) == [4, 4, 4]
    assert shares(limited(2, (1, 4), (1, 4), (1, 4)), equal_share_published) == [2, 0, 0]


@pytest.mark.parametrize("solver", [equal_share, equal_share_published, greedy])
def test_no_task_and_no_node(solver: object) -> None:
    assert shares(table_of(np.empty((0, 3)), pool=4), solver) == []
    assert shares(table_of([[0.0], [0.0]], pool=0), solver) == [0, 0]


def test_greedy_takes_the_largest_gain_per_node_first() -> None:
    # 5 for one node, then 4 a node for two at once, then 2
    assert shares(table_of([[0, 5, 6], [0, 1, 8], [0, 2, 2]], pool=3), greedy) == [1, 2, 0]
    assert shares(table_of([[0, 5, 6], [0, 1, 8], [0, 2, 2]], pool=4), greedy) == [1, 2, 1]


def test_greedy_looks_for_a_shorter_step_when_the_best_does_not_fit() -> None:
    assert shares(table_of([[0, 4, 4, 15], [0, 10, 20, 20]], pool=3), greedy) == [1, 2]


def test_greedy_takes_no_step_that_loses() -> None:
    assert shares(table_of([[0, -1, -2], [-3, -1, -5]], pool=4), greedy) == [0, 1]


def test_greedy_is_exact_when_gains_fall() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        values = np.cumsum(-np.sort(-rng.integers(0, 50, (6, 9)), axis=1), axis=1).astype(float)
        values -= values[:, :1]
        table = table_of(values, pool=int(rng.integers(1, 40)))
        assert greedy.solve(table, LIMITS).value == exact.solver.solve(table, LIMITS).value


def test_greedy_can_be_far_off_when_they_do_not() -> None:
    table = table_of([[0, 0, 0, 30], [0, 11, 11, 11]], pool=3)
    assert shares(table, greedy) == [0, 1]
    assert exact.solver.solve(table, LIMITS).value == 30.0
