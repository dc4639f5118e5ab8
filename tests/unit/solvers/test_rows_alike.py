"""``exact`` where many tasks are alike: kinds of rows, and small cores, compiled and with numpy."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from bftrain import Limits, Solver, Termination, ValueTable
from tests.helpers.named_parts import EXACT
from tests.helpers.tables import best_sizes_by_plain_programme, table_of

pytestmark = pytest.mark.usefixtures("each_knapsack")


def sizes(solver: Solver, table: ValueTable) -> list[int]:
    solution = solver.solve(table, Limits())
    assert solution.termination is Termination.OPTIMAL
    assert solution.bound == solution.value == table.value_of(solution.sizes)
    return list(solution.sizes.values())


def rows_of_few_kinds(rng: np.random.Generator) -> np.ndarray:
    kinds, width = int(rng.integers(1, 4)), int(rng.integers(3, 9))
    steps = rng.integers(0, 5, (kinds, width))
    if rng.random() < 0.5:
        steps = -np.sort(-steps, axis=1)
    curves = np.cumsum(steps, axis=1).astype(np.float64)
    curves -= curves[:, :1]
    if rng.random() < 0.3:
        curves[:, 1] = -inf
    return curves[rng.integers(0, kinds, int(rng.integers(17, 30)))]


def held(rng: np.random.Generator, rows: int, width: int, pool: int) -> list[int]:
    found, left = [0] * rows, pool
    for row in rng.permutation(rows).tolist():
        found[row] = min(left, int(rng.integers(0, width))) if rng.random() < 0.6 else 0
        left -= found[row]
    return found


@pytest.mark.parametrize("seed", range(15))
def test_without_costs_as_the_pool_changes(seed: int) -> None:
    rng, remembering = np.random.default_rng(seed), type(EXACT)()
    values = rows_of_few_kinds(rng)
    pool = int(rng.integers(1, values.size // 2))
    for _ in range(6):  # the same tasks hold other sizes, and the pool is the same or another one
        table = table_of(values, pool, held(rng, *values.shape, pool))
        assert sizes(remembering, table) == best_sizes_by_plain_programme(table)
        pool = max(1, pool + int(rng.integers(-1, 2)))


@pytest.mark.parametrize("seed", range(15))
def test_one_change_after_the_other_from_a_best_plan(seed: int) -> None:
    rng, remembering = np.random.default_rng(100 + seed), type(EXACT)()
    values = rows_of_few_kinds(rng)
    pool = values.size // 3
    present = sizes(remembering, table_of(values, pool))
    for _ in range(6):  # so that one or two changes are mostly enough
        pool = max(pool + int(rng.integers(-2, 3)), sum(present), 1)
        table = table_of(values, pool, present)
        present = sizes(remembering, table)
        assert present == best_sizes_by_plain_programme(table)
        present = [size if rng.random() < 0.9 else 0 for size in present]


@pytest.mark.parametrize("seed", range(20))
def test_many_changes_at_once(seed: int) -> None:
    rng, remembering = np.random.default_rng(300 + seed), type(EXACT)()
    values = rows_of_few_kinds(rng)
    pool = values.size // 3
    best = sizes(remembering, table_of(values, pool))
    for _ in range(6):  # several tasks lost nodes or hold others than the best plan, so that three to ten change
        present = best.copy()
        for row in rng.choice(len(present), int(rng.integers(3, 9)), replace=False).tolist():
            present[row] = int(rng.integers(0, present[row] + 1))
        table = table_of(values, pool, present)
        assert sizes(remembering, table) == best_sizes_by_plain_programme(table)


@pytest.mark.parametrize(("idle", "last"), [(1, 0), (5, 0), (31, 16)])
def test_many_rows_that_all_hold_a_bad_size(idle: int, last: int) -> None:
    """Their losses together are more than a number of 64 bits can hold."""
    row = np.zeros(33)
    row[16], row[32] = 0.3, 1.0
    table = table_of(np.tile(row, (1000, 1)), 16_000 + idle, [16] * 1000)
    found = sizes(type(EXACT)(), table)
    assert (found.count(32), found.count(16)) == (500, last // 16)
    assert sum(found) == 16_000 + last
