"""``exact``: the best sizes, the rule for ties, and what it says when time runs out."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from bftrain import Limits, Quality, Solution, Termination, ValueTable
from tests.helpers.named_parts import EXACT
from tests.helpers.tables import best_sizes_by_plain_programme, best_sizes_by_trying_all, table_of

pytestmark = pytest.mark.usefixtures("each_knapsack")


def solve(table: ValueTable, deadline_s: float = 10.0) -> Solution:
    return EXACT.solve(table, Limits(deadline_s=deadline_s))


def sizes(table: ValueTable) -> list[int]:
    solution = solve(table)
    assert (solution.termination, solution.quality) == (Termination.OPTIMAL, Quality.PROVEN)
    assert solution.bound == solution.value == table.value_of(solution.sizes)
    return list(solution.sizes.values())


def test_takes_the_best_sum() -> None:
    assert sizes(table_of([[0, 5, 6, 7], [0, 4, 9, 9]], pool=3)) == [1, 2]


def test_of_equal_plans_the_one_with_fewest_rescales() -> None:
    values = [[0, 3, 6], [0, 3, 6], [0, 3, 6]]
    assert sizes(table_of(values, pool=4, present=[0, 2, 1])) == [1, 2, 1]
    assert sizes(table_of(values, pool=3, present=[0, 1, 0])) == [2, 1, 0]


def test_of_those_the_one_with_fewest_nodes() -> None:
    assert sizes(table_of([[0, 3, 3, 3]], pool=3)) == [1]
    assert sizes(table_of([[0, 3, 3, 3]], pool=3, present=[2])) == [2]  # staying comes first


def test_of_those_the_one_that_gives_more_to_earlier_tasks() -> None:
    assert sizes(table_of([[0, 1, 2, 3]] * 3, pool=4)) == [3, 1, 0]
    assert sizes(table_of([[0, 0, 2]] * 4, pool=5)) == [2, 2, 0, 0]


def test_one_rescale_never_outweighs_value() -> None:
    # 40 rescales for the smallest gain there is room for in the numbers
    values = [[0.0, 1.0, 1.0 + 2.0**-40]] * 40
    assert sizes(table_of(values, pool=80, present=[1] * 40)) == [2] * 40
    assert sizes(table_of(values, pool=79, present=[1] * 40)) == [2] * 39 + [1]


def test_sizes_that_are_not_allowed_are_not_chosen() -> None:
    assert sizes(table_of([[0, -inf, 9], [0, 5, -inf]], pool=2)) == [2, 0]
    assert sizes(table_of([[0, -inf, 9], [0, 5, -inf]], pool=1)) == [0, 1]
    assert sizes(table_of([[0, -inf, -inf], [0, -inf, -inf]], pool=2)) == [0, 0]


def test_stopping_costs_are_not_forgotten() -> None:
    # Size 0 is worth negative to those that run
    assert sizes(table_of([[-5, 1], [-1, 1], [-3, 1]], pool=2, present=[1, 1, 0])) == [1, 0, 1]


def test_no_task_and_no_node() -> None:
    assert solve(table_of(np.empty((0, 4)), pool=3)).value == 0.0
    assert sizes(table_of([[0.0], [0.0]], pool=0)) == [0, 0]


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-12, 1.0, 1e12, 1e300])
def test_any_scale(scale: float) -> None:
    assert sizes(table_of(np.array([[0, 5, 6, 7], [0, 4, 9, 9]]) * scale, pool=3)) == [1, 2]


def test_wide_tables() -> None:
    wide = np.sqrt(np.arange(5000.0))
    found = sizes(table_of([wide, 2 * wide, 3 * wide], pool=4999))
    assert sum(found) == 4999
    # Where slopes are equal: w / (2 sqrt(n)) is the same, so sizes are as 1 : 4 : 9
    assert found == pytest.approx([4999 / 14, 4999 * 4 / 14, 4999 * 9 / 14], abs=1)


@pytest.mark.parametrize("seed", range(150))
def test_small_tables_with_many_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 5)), int(rng.integers(2, 7))
    table = tied(rng, rows, width, int(rng.integers(0, rows * width)))
    assert sizes(table) == best_sizes_by_trying_all(table)


@pytest.mark.parametrize("seed", range(60))
def test_larger_tables_with_many_ties(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    rows, width = int(rng.integers(5, 30)), int(rng.integers(4, 20))
    table = tied(rng, rows, width, int(rng.integers(1, rows * width // 2)))
    assert sizes(table) == best_sizes_by_plain_programme(table)


def tied(rng: np.random.Generator, rows: int, width: int, pool: int) -> ValueTable:
    """Return a table of small whole numbers: straight, bent, rough or few kinds of rows, with holes now and then."""
    kind = int(rng.integers(4))
    steps = rng.integers(0, 4, (rows, width))
    if kind == 1:
        steps = np.repeat(rng.integers(1, 3, (rows, 1)), width, axis=1)  # straight
    elif kind == 2:
        steps = -np.sort(-steps, axis=1)  # bent
    elif kind == 3:
        steps = steps[rng.integers(0, min(rows, 3), rows)]  # few kinds
    values = np.cumsum(steps, axis=1).astype(np.float64)
    present = []
    free = pool
    for row in range(rows):
        held = int(rng.integers(0, 1 + min(free, width))) if rng.random() < 0.5 else 0
        present.append(held)
        free -= held
        if held and rng.random() < 0.7:
            cost = int(rng.integers(0, 5))
            values[row] -= cost
            if held < width:
                values[row, held] += cost
    if rng.random() < 0.4:
        holes = rng.random((rows, width)) < 0.2
        holes[:, 0] = False
        values[holes] = -np.inf
    return table_of(values, pool=pool, present=present)


@pytest.mark.parametrize("seed", range(40))
def test_values_of_any_kind(seed: int) -> None:
    rng = np.random.default_rng(2000 + seed)
    rows, width = int(rng.integers(2, 5)), int(rng.integers(3, 8))
    values = np.cumsum(rng.exponential(1.0, (rows, width)) * 10.0 ** rng.uniform(-3, 3, (rows, 1)), axis=1)
    table = table_of(values, pool=int(rng.integers(1, rows * width)))
    names = [f"t{row}" for row in range(rows)]
    best = table.value_of(dict(zip(names, best_sizes_by_trying_all(table), strict=True)))
    assert solve(table).value == pytest.approx(best, rel=1e-14)


def hard_table() -> ValueTable:
    """Return 400 tasks alike, with curves that leave nearly everything open."""
    sizes = np.arange(65.0)
    row = np.where(sizes > 0, 100.0 * sizes**0.97 + 3.0 * (sizes % 7), 0.0)
    return table_of([row] * 400, pool=4733)


@pytest.mark.usefixtures("numpy_only")
def test_out_of_time_it_gives_what_it_has_and_a_bound() -> None:
    table = hard_table()
    best = solve(table)
    late = solve(table, deadline_s=1e-6)
    assert (late.termination, late.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert table.allowed(late.sizes)
    assert late.value is not None
    assert late.bound is not None
    assert best.value is not None
    assert 0.97 * best.value < late.value <= best.value <= late.bound * (1 + 1e-12)
    assert late.bound < 1.01 * best.value


def test_says_which_solvers_can_do_a_coupled_objective() -> None:
    class Coupled:
        def couple(self, model: object) -> None: ...

        def total(self, chosen: object, sizes: object, problem: object) -> float:  # noqa: ARG002 - the port's
            return 0.0

    plain = table_of([[0, 1]], pool=1)
    table = ValueTable(problem=plain.problem, values=plain.values, coupling=Coupled())
    solution = solve(table)
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert "highs, gurobi or cbc" in solution.solver_words


def test_an_answer_does_not_depend_on_what_was_asked_before() -> None:
    rng, used = np.random.default_rng(3), type(EXACT)()
    same_price_may_hold = 0
    for _ in range(60):  # problems that differ by one row or by the pool, and now and then in all
        if not same_price_may_hold:
            rows, same_price_may_hold = rng.integers(0, 40, (8, int(rng.integers(3, 30)))).astype(float), 10
            rows.sort(axis=1)
            rows[:, 0] = 0.0
        rows[int(rng.integers(8)), 1:] += float(rng.integers(0, 3))
        table = table_of(rows.tolist(), pool=int(rng.integers(1, 30)), present=[0] * 8)
        assert used.solve(table, Limits()).sizes == type(EXACT)().solve(table, Limits()).sizes
        same_price_may_hold -= 1
