"""Deadlines: building tables, grids and programmes counts, and one that has passed gets a cheap answer that says so."""

from __future__ import annotations

from functools import cache
from time import process_time

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, SpeedCurve, Termination, ValueTable, registry
from tests.helpers.named_parts import table_for
from tests.helpers.tables import table_of as table_of_values

PASSED = Limits(deadline_s=1e-6)
TASKS = 2000
RULES = ("equal-share", "proportional-share", "isolated", "fifo", "las", "srtf", "marginal-gain")
GENEROUS_S = 1.0  # of processor time; whole solves of these tables take 2 to 30 s


@cache
def table(objective: str, *, kinds: bool = False) -> ValueTable:
    rng = np.random.default_rng(0)
    points = (1, 2, 4, 8, 16, 32)
    names, tasks = ("a", "b", "c") if kinds else ("",), []
    for place in range(TASKS):
        rates = rng.uniform(500.0, 8000.0, (len(names), 1)) * np.array(points) ** rng.uniform(0.7, 1.0, (len(names), 1))
        curves = [SpeedCurve(nodes=points, rate=tuple(row)) for row in rates.tolist()]
        curves_by_kind = dict(zip(names, curves, strict=True)) if kinds else {}
        task = CompetingTask(name=f"t{place}", max_nodes=32, curve=curves[0], curves=curves_by_kind, grow_cost_s=9.0)
        tasks.append(task if kinds else replace(task, size=place % 3))
    pools = dict.fromkeys(names, 3 * TASKS) if kinds else {}
    pool = sum(pools.values()) if kinds else 5 * TASKS
    problem = AllocationProblem(pool=pool, pools=pools, horizon_s=120.0, tasks=tuple(tasks))
    return table_for(objective, problem)


@pytest.mark.usefixtures("numpy_only")
@pytest.mark.parametrize("name", ["exact", "highs", "cbc", "gurobi"])
@pytest.mark.parametrize(
    ("objective", "kinds"),
    [("throughput", False), ("max-min", False), ("water-filling", False), ("throughput", True), ("max-min", True)],
)
def test_a_deadline_that_has_passed_gets_a_plan_at_once(name: str, objective: str, kinds: bool) -> None:  # noqa: FBT001
    solver, given = registry.load("solver", name), table(objective, kinds=kinds)
    if not solver.available().ok:
        pytest.skip(solver.available().reason)
    solver.solve(table_of_values([[0, 1]], pool=1), Limits())  # what is slow to import
    begun = process_time()
    found = solver.solve(given, PASSED)
    assert process_time() - begun < GENEROUS_S
    assert (found.termination, found.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert given.allowed(found.sizes, found.kinds)
    assert found.bound is None or found.bound >= found.value


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("name", [*RULES, "greedy"])
def test_rules_end_at_the_deadline_too(name: str, kinds: bool) -> None:  # noqa: FBT001
    solver, given = registry.load("solver", name), table("throughput", kinds=kinds)
    begun = process_time()
    found = solver.solve(given, PASSED)
    assert process_time() - begun < 0.1
    assert (found.termination, found.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert given.allowed(found.sizes, found.kinds)
    if name != "greedy":
        assert found.solver_words == "the deadline passed before there was a plan: no change"


def test_no_change_is_said_where_nothing_better_is_known() -> None:
    given = table("max-min")
    found = registry.load("solver", "exact").solve(given, PASSED)
    assert dict(found.sizes) == {task.name: task.size for task in given.problem.tasks}
    assert found.solver_words == "the deadline passed before there was a plan: no change"
