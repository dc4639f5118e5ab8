"""Raising the worst-off first with many tasks on several kinds of nodes, beside other searches."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, SpeedCurve, Termination, ValueTable
from tests.helpers.named_parts import EXACT, HIGHS, table_for

LIMITS = Limits(deadline_s=60.0)


def many(seed: int, tasks: int, each: int, *, of_models: int | None = None) -> AllocationProblem:
    """Return new tasks on ``each`` nodes of three kinds, all different or of a few models."""
    rng = np.random.default_rng(seed)
    sizes = (1, 2, 4, 8, 16)
    fast = {"v100": 3.0, "p100": 2.0, "k80": 1.0}
    models = []
    for _ in range(of_models or tasks):
        rate = rng.uniform(10.0, 1000.0) * np.array(sizes) ** rng.uniform(0.6, 1.0)
        models.append(
            {
                kind: SpeedCurve(nodes=sizes, rate=tuple((rate * speed * rng.uniform(0.7, 1.3, 5)).tolist()))
                for kind, speed in fast.items()
            }
        )
    competing = (
        CompetingTask(name=f"t{place}", max_nodes=16, curve=curves["v100"], curves=curves, user=f"u{place % 4}")
        for place, curves in enumerate(models[place % len(models)] for place in range(tasks))
    )
    pools = dict.fromkeys(fast, each)
    return AllocationProblem(pool=3 * each, pools=pools, horizon_s=120.0, tasks=tuple(competing))


@pytest.mark.parametrize("policy", ["water-filling", "hierarchical"])
@pytest.mark.parametrize(("tasks", "each", "models"), [(120, 100, None), (120, 20, 5)], ids=["all run", "some wait"])
def test_many_tasks_over_three_kinds_are_solved_to_the_end(
    policy: str, tasks: int, each: int, models: int | None
) -> None:
    table = table_for(policy, many(1, tasks, each, of_models=models))
    solution = EXACT.solve(table, LIMITS)
    assert (solution.termination, solution.quality) == (Termination.OPTIMAL, Quality.PROVEN)
    assert table.allowed(solution.sizes, solution.kinds)
    assert "out of time" not in solution.solver_words
    assert "chosen" not in solution.solver_words


def test_over_three_kinds_no_task_can_be_raised_without_lowering_another_to_its_old_level() -> None:
    """Asked of another search: is there a plan in which one is higher, and no one else who was as low or lower is?"""
    table = table_for("water-filling", many(2, 30, 25))
    solution = EXACT.solve(table, LIMITS)
    chosen = table.chosen(solution.sizes, solution.kinds)
    assert chosen is not None
    now = table.values[np.arange(len(chosen)), chosen]
    for place in range(0, len(chosen), 3):
        floors = np.where(now <= now[place], now, np.nextafter(now[place], np.inf))
        floors[place] = np.nextafter(now[place] + 1e-9, np.inf)
        lower = -(table.values < floors[:, None] - 1e-12).astype(float)
        asked = ValueTable(problem=table.problem, values=np.where(np.isfinite(table.values), lower, -np.inf))
        answer = HIGHS.solve(asked, LIMITS)
        assert answer.quality is Quality.PROVEN
        assert answer.value is not None
        assert answer.value <= -0.5


@pytest.mark.parametrize("policy", ["max-min", "water-filling"])
def test_over_three_kinds_the_programme_gives_the_same_levels(policy: str) -> None:
    for seed in range(3):
        table = table_for(policy, many(seed, 5, 3))
        searched, stated = EXACT.solve(table, LIMITS), HIGHS.solve(table, LIMITS)
        levels = []
        for solution in (searched, stated):
            chosen = table.chosen(solution.sizes, solution.kinds)
            assert chosen is not None
            levels.append(sorted(table.values[place, column] for place, column in enumerate(chosen)))
        first = table.coupling.first  # type: ignore[union-attr]  # a LevelCoupling
        assert levels[0][:first] == pytest.approx(levels[1][:first], rel=1e-6)


@pytest.mark.parametrize(
    "policy", ["throughput", "max-min", "water-filling", "hierarchical", "finish-time", "makespan"]
)
def test_where_there_are_no_tasks_all_kinds_stay_idle(policy: str) -> None:
    problem = AllocationProblem(pool=3, pools={"a": 1, "b": 2}, horizon_s=60.0, tasks=())
    solution = EXACT.solve(table_for(policy, problem), LIMITS)
    assert (solution.sizes, solution.termination, solution.quality) == ({}, Termination.OPTIMAL, Quality.PROVEN)


@pytest.mark.parametrize("deadline_s", [1e-4, 1e-3, 5e-3, 2e-2])
def test_wherever_the_deadline_strikes_the_plan_is_allowed_and_the_bound_holds(deadline_s: float) -> None:
    table = table_for("max-min", many(2, 60, 20))
    best = EXACT.solve(table, LIMITS).value
    found = EXACT.solve(table, Limits(deadline_s=deadline_s))
    assert table.allowed(found.sizes, found.kinds)
    assert best is not None
    assert found.value is not None
    assert found.value <= best + 1e-9
    assert found.bound is None or found.bound >= best - 1e-9
