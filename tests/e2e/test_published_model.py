"""Sizes alone are enough: the task x node programme has the same optimum, once its big number is right."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import AllocationProblem, CompetingTask, Limits, SpeedCurve, Termination, solve
from bftrain_solvers import highs
from tests.helpers.published_model import published_model

LINE = SpeedCurve(nodes=(1, 10), rate=(10.0, 100.0))


def best_of(problem: AllocationProblem, big: int) -> float:
    """Return the optimum of the task x node programme."""
    matrix = published_model(problem, big)
    raw = highs.solver.run(matrix, Limits(deadline_s=60.0))
    assert raw.termination is Termination.OPTIMAL, raw.words
    return float(matrix.objective @ raw.columns)


def drawn(seed: int) -> AllocationProblem:
    """Return three or four tasks on up to 14 nodes, all of which may be held."""
    rng = np.random.default_rng(seed)
    pool = int(rng.integers(6, 15))
    tasks = []
    free = pool
    for place in range(int(rng.integers(3, 5))):
        size = int(rng.integers(0, 1 + free)) if rng.random() < 0.6 else 0
        free -= size
        rate = float(rng.uniform(5.0, 50.0)) * np.array([1, 2, 4, 8, 16]) ** rng.uniform(0.5, 1.0)
        least = int(rng.integers(1, 4))
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                size=size,
                min_nodes=least,
                max_nodes=int(rng.integers(max(least, size), 17)) if max(least, size) < 17 else 17,
                curve=SpeedCurve(nodes=(1, 2, 4, 8, 16), rate=tuple(rate.tolist())),
                grow_cost_s=18.0,
                shrink_cost_s=12.0,
            )
        )
    return AllocationProblem(pool=pool, horizon_s=60.0, tasks=tuple(tasks))


@pytest.mark.parametrize("seed", range(24))
def test_sizes_alone_have_the_same_optimum(seed: int) -> None:
    problem = drawn(seed)
    assert best_of(problem, 2 * problem.pool + 1) == pytest.approx(solve(problem).value, rel=1e-9)


def test_the_published_big_number_holds_a_lone_task_at_half() -> None:
    lone = CompetingTask(name="lone", max_nodes=10, curve=LINE)
    problem = AllocationProblem(pool=10, horizon_s=1.0, tasks=(lone,))
    assert dict(solve(problem).sizes) == {"lone": 10}
    assert best_of(problem, 2 * 10 + 1) == pytest.approx(100.0)
    assert best_of(problem, 10 + 1) == pytest.approx(50.0)


def test_what_the_published_big_number_loses() -> None:
    lost = []
    for seed in range(24):
        problem = drawn(seed)
        best = solve(problem).value
        assert best is not None
        lost.append(1.0 - best_of(problem, problem.pool + 1) / best)
    assert min(lost) >= -1e-9
    assert sum(share > 1e-6 for share in lost) >= 3
