"""Value tables over several kinds of nodes, and what solvers make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bftrain import AllocationProblem, BadValue, CompetingTask, Limits, Termination, ValueTable
from bftrain.deciding.objectives import FunctionObjective, speedup, throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain_solvers import exact, highs
from bftrain_solvers.allocators import equal_share, greedy
from bftrain_solvers.conformance import best_by_trying_all
from bftrain_solvers.worst_off_objective import WorstOff
from tests.unit.core.samples import curve, make

FAST, SLOW = curve(10.0, 19.0, 27.0, 34.0), curve(4.0, 8.0, 12.0, 16.0)


def problem(**more: Any) -> AllocationProblem:  # noqa: ANN401 - any field
    tasks = (
        CompetingTask(name="a", max_nodes=3, curve=SLOW, curves={"v100": FAST, "k80": SLOW}),
        CompetingTask(
            name="b",
            size=2,
            kind="k80",
            min_nodes=2,
            max_nodes=4,
            curve=SLOW,
            curves={"k80": SLOW, "v100": FAST},
            grow_cost_s=1.0,
            shrink_cost_s=10.0,
            start_cost_s=20.0,
        ),
        CompetingTask(name="c", max_nodes=1, curve=SLOW, curves={"p100": FAST}),
    )
    return AllocationProblem(**{"pool": 7, "horizon_s": 100.0, "tasks": tasks, "pools": {"v100": 2, "k80": 5}, **more})


def test_a_table_has_a_block_of_columns_for_every_kind() -> None:
    table = ValueTableBuilder(throughput).table(problem())
    assert (table.kinds, table.nodes.tolist(), table.kind_of.tolist()) == (
        ("v100", "k80"),
        [0, 1, 2, 1, 2, 3, 4],
        [-1, 0, 0, 1, 1, 1, 1],
    )
    never = -np.inf
    assert table.values.tolist() == [
        [0, 1000, 1900, 400, 800, 1200, never],
        [-80, never, 80 * 19 - 80, never, 800, 1200 - 8, 1600 - 8],
        [0, never, never, never, never, never, never],
    ]
    assert table.speeds(0).tolist() == [0, 10, 19, 4, 8, 12, 16]
    assert table.speeds(2).tolist() == [0] * 7


def test_kinds_that_change_in_number_and_come_and_go_give_the_tables_that_a_new_one_gives() -> None:
    kept = ValueTableBuilder(speedup)
    for pools in ({"v100": 2, "k80": 5}, {"v100": 1, "k80": 6}, {"k80": 7}, {"": 2, "k80": 5}, {"v100": 0, "k80": 7}):
        again = problem(pools=pools)
        assert np.array_equal(kept.table(again).values, ValueTableBuilder(speedup).table(again).values)
        assert kept.table(again).values.shape[1] == len(kept.table(again).columns)


def test_a_speedup_is_over_one_node_of_the_fastest_kind() -> None:
    table = ValueTableBuilder(speedup).table(problem())
    assert table.values[0].tolist() == [0, 100, 190, 40, 80, 120, -np.inf]


def test_a_choice_of_kinds_has_a_value_and_must_fit() -> None:
    table = ValueTableBuilder(throughput).table(problem())
    assert table.value_of({"a": 2, "b": 4}, {"a": "v100", "b": "k80"}) == 1900 + 1592
    assert table.allowed({"a": 2, "b": 4}, {"a": "v100", "b": "k80"})
    assert table.value_if_allowed({"a": 2, "b": 4}, {"a": "v100", "b": "k80"}) == 1900 + 1592
    assert not table.allowed({"a": 2, "b": 2}, {"a": "v100", "b": "v100"})  # there are two of them
    assert table.value_if_allowed({"a": 2, "b": 2}, {"a": "v100", "b": "v100"}) == -np.inf
    assert table.value_of({"a": 2, "b": 4}, {"a": "v100"}) == -np.inf  # there are none of no kind
    assert not table.allowed({"a": 2, "b": 4}, {"a": "v100"})
    assert not table.allowed({"a": 3}, {"a": "v100"})
    assert not table.allowed({"c": 1}, {"c": "p100"})
    assert not table.allowed({"z": 1}, {"z": "k80"})


def test_a_table_with_the_wrong_number_of_columns_is_refused() -> None:
    with pytest.raises(BadValue, match=r"has 3 columns for 7 sizes of 2 kinds"):
        ValueTable(problem=problem(), values=np.zeros((3, 3)))


def test_an_objective_is_shown_the_task_as_it_is_on_each_kind() -> None:
    shown: list[tuple[str, str, int, float]] = []

    def looking(task: CompetingTask, sizes: np.ndarray[Any, np.dtype[np.int64]]) -> Any:  # noqa: ANN401
        shown.append((task.name, task.kind, task.size, task.curve.speed(1)))
        return np.zeros(sizes.size)

    ValueTableBuilder(FunctionObjective("looking", looking)).table(problem())
    assert {each for each in shown if each[0] != "c"} == {
        ("a", "v100", 0, 10.0),
        ("a", "k80", 0, 4.0),
        ("b", "v100", 0, 10.0),
        ("b", "k80", 2, 4.0),
    }


def random_problem(seed: int) -> AllocationProblem:
    rng = np.random.default_rng(seed)
    pools = {kind: int(rng.integers(0, 5)) for kind in ("v100", "k80", "p100", "")[: int(rng.integers(2, 5))]}
    free = dict(pools)
    tasks = []
    for place in range(int(rng.integers(1, 4))):
        kinds = [kind for kind in pools if rng.random() < 0.8]
        smallest = int(rng.integers(1, 4))
        largest = int(rng.integers(smallest, 6))
        curves = {kind: curve(*np.cumsum(rng.uniform(0.0, 9.0, 5)).tolist()) for kind in kinds}
        kind = str(rng.choice(kinds)) if kinds else ""
        size = int(rng.integers(0, 1 + free.get(kind, 0))) if kinds else 0
        free[kind] = free.get(kind, 0) - size
        costs = dict(zip(("grow_cost_s", "shrink_cost_s", "start_cost_s"), rng.uniform(0, 60, 3).tolist(), strict=True))
        task = {"curve": SLOW, "curves": curves, "min_nodes": smallest, "max_nodes": largest, **costs}
        tasks.append(make(CompetingTask, name=f"t{place}", size=size, kind=kind if size else "", **task))
    return AllocationProblem(pool=sum(pools.values()), pools=pools, horizon_s=60.0, tasks=tuple(tasks))


@pytest.mark.parametrize("seed", range(60))
def test_solvers_find_the_best_of_all_choices_and_rules_find_an_allowed_one(seed: int) -> None:
    table = ValueTableBuilder(throughput).table(random_problem(seed))
    best = best_by_trying_all(table)
    for solver in (exact.solver, highs.solver):
        found = solver.solve(table, Limits())
        assert found.termination is Termination.OPTIMAL
        assert found.value == pytest.approx(best, rel=1e-9)
        assert table.allowed(found.sizes, found.kinds)
    for rule in (greedy, equal_share):
        found = rule.solve(table, Limits())
        assert table.allowed(found.sizes, found.kinds)
        assert found.value == table.value_of(found.sizes, found.kinds)
        assert found.value <= best * (1 + 1e-12) + 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_an_objective_that_ties_tasks_together_sees_each_on_the_kind_chosen_for_it(seed: int) -> None:
    table = ValueTableBuilder(WorstOff()).table(random_problem(seed))
    found = highs.solver.solve(table, Limits())
    assert found.value == pytest.approx(best_by_trying_all(table), rel=1e-6, abs=1e-9)
    assert found.value == table.value_of(found.sizes, found.kinds)


def test_equal_share_sends_tasks_where_most_nodes_are_and_they_do_not_wander() -> None:
    pools = {"v100": 4, "k80": 2}
    tasks = [CompetingTask(name=name, max_nodes=4, curve=FAST) for name in "abc"]
    table = ValueTableBuilder(throughput).table(
        AllocationProblem(pool=6, pools=pools, horizon_s=60.0, tasks=tuple(tasks))
    )
    found = equal_share.solve(table, Limits())
    assert (dict(found.sizes), dict(found.kinds)) == ({"a": 2, "b": 2, "c": 2}, {"a": "v100", "b": "v100", "c": "k80"})
    moved = [make(CompetingTask, name="a", curve=FAST, size=2, kind="k80"), *tasks[1:]]
    table = ValueTableBuilder(throughput).table(
        AllocationProblem(pool=6, pools=pools, horizon_s=60.0, tasks=tuple(moved))
    )
    assert dict(equal_share.solve(table, Limits()).kinds) == {"a": "k80", "b": "v100", "c": "v100"}
