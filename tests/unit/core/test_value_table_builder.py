"""Rows of value tables are kept for the next decision, and not for ever; those of many tasks are computed at once."""

from __future__ import annotations

from itertools import count
from time import sleep

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, SpeedCurve, Termination, registry, solve
from bftrain.assembly import table_of
from bftrain.deciding.objectives import FunctionObjective, throughput
from bftrain.deciding.table_deadline import TableOverdue
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BadObjective
from bftrain.ports import ObjectiveCapabilities

CURVE = SpeedCurve(nodes=(1, 8), rate=(10.0, 50.0))


def problem(number: int) -> AllocationProblem:
    weights = {"always": 1.0, f"t{number}": 2.0 + number}
    tasks = tuple(CompetingTask(name=name, max_nodes=8, curve=CURVE, weight=each) for name, each in weights.items())
    return AllocationProblem(pool=8, horizon_s=60.0, tasks=tasks)


class Counted:
    """Throughput that counts how often it is asked; ``of_speeds`` says that a name does not matter to it."""

    name = "counted"

    def __init__(self, *, of_speeds: bool) -> None:
        self.asked = 0
        if of_speeds:
            self.of_speeds = throughput.of_speeds

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        self.asked += 1
        return throughput.values(task, sizes)


@pytest.mark.parametrize(("of_speeds", "asked"), [(True, 2), (False, 4)])
def test_tasks_alike_have_one_row_if_their_names_do_not_matter(*, of_speeds: bool, asked: int) -> None:
    objective = Counted(of_speeds=of_speeds)
    held = {"a": 0, "b": 2, "c": 0, "d": 2}
    tasks = tuple(CompetingTask(name=name, size=size, max_nodes=8, curve=CURVE) for name, size in held.items())
    given = AllocationProblem(pool=8, horizon_s=60.0, tasks=tasks)
    table = ValueTableBuilder(objective).table(given)
    assert objective.asked == asked
    assert np.array_equal(table.values, ValueTableBuilder(throughput).table(given).values)


@pytest.mark.parametrize("many", [1, 10**9])
def test_rows_with_equal_numbers_are_equal(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrain.deciding.value_table_builder._MANY", many)
    monkeypatch.setattr("bftrain.deciding.value_table_builder._CACHED_ROWS", 12)
    chance, kept = np.random.default_rng(3), ValueTableBuilder(throughput)
    tasks = [CompetingTask(name=f"t{number}", max_nodes=8, curve=CURVE) for number in range(30)]
    for _ in range(20):
        for place in chance.integers(0, len(tasks), 3).tolist():
            size, weight, shrink_cost_s = chance.integers(0, 3, 3).tolist()
            tasks[place] = replace(tasks[place], size=size, weight=weight, shrink_cost_s=shrink_cost_s)
        pool = int(chance.integers(60, 100))
        table = kept.table(AllocationProblem(pool=pool, horizon_s=60.0, tasks=tuple(tasks)))
        numbers = table.row_numbers
        assert np.array_equal(table.values, ValueTableBuilder(throughput).table(table.problem).values)
        assert numbers is not None
        assert len(set(zip(numbers, map(np.ndarray.tobytes, table.values), strict=True))) == len(set(numbers))


@pytest.mark.parametrize("many", [1, 10**9])
def test_rows_with_the_same_values_have_one_number(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bftrain.deciding.value_table_builder._MANY", many)
    tasks = tuple(CompetingTask(name=f"t{n}", max_nodes=8, curve=CURVE, size=n % 3, weight=n) for n in range(20))
    table = ValueTableBuilder(throughput).table(AllocationProblem(pool=60, horizon_s=60.0, tasks=tasks))
    assert len(set(table.row_numbers or ())) == 1


def test_wide_rows_have_no_numbers() -> None:
    wide = CompetingTask(name="a", max_nodes=5_000, curve=CURVE)
    for pool in (4_000, 8):
        problem = AllocationProblem(pool=pool, horizon_s=60.0, tasks=(wide, replace(wide, name="b", weight=2.0)))
        assert (ValueTableBuilder(throughput).table(problem).row_numbers is None) == (pool > 255)


def test_many_short_tasks_do_not_fill_the_memory_and_values_stay_right() -> None:
    kept = ValueTableBuilder(throughput)
    most = 0
    for number in range(5_000):
        table = kept.table(problem(number))
        (store,) = kept._stores.values()  # noqa: SLF001 - what it keeps is not seen from outside
        most = max(most, store.most - store.room)
    assert 1_000 < most <= 1_400
    assert np.array_equal(table.values, ValueTableBuilder(throughput).table(problem(4_999)).values)


def test_tasks_that_come_to_a_table_of_many_are_computed_together() -> None:
    tasks = tuple(
        CompetingTask(name=f"t{number}", size=number % 3, max_nodes=3 + number % 7, curve=CURVE, grow_cost_s=number)
        for number in range(500)
    )
    objective, seen = Counted(of_speeds=True), []
    builder = ValueTableBuilder(objective)
    for part in (tasks[:150], tasks[100:490], tasks[90:]):
        given = AllocationProblem(pool=600, horizon_s=60.0, tasks=part)
        seen.append(objective.asked)
        alone = [ValueTableBuilder(throughput).table(replace(given, tasks=(task,))).values[0] for task in part]
        for row, expected in zip(builder.table(given).values, alone, strict=True):
            assert row[: expected.size].tolist() == expected.tolist()
            assert (row[expected.size :] == -np.inf).all()
    assert seen == [0, 0, 0]
    assert objective.asked == 10  # few are computed one after the other


def test_rows_of_pools_of_many_sizes_are_kept() -> None:
    objective = Counted(of_speeds=True)
    builder = ValueTableBuilder(objective)
    task = CompetingTask(name="a", max_nodes=4096, curve=CURVE)
    pools = [2**power for power in range(5, 12)]
    for pool in pools + pools[::-1]:
        given = AllocationProblem(pool=pool, horizon_s=60.0, tasks=(task, replace(task, name="b", grow_cost_s=9.0)))
        assert np.array_equal(builder.table(given).values, ValueTableBuilder(throughput).table(given).values)
    assert objective.asked == 2 * len({max(64, 2 * pool) for pool in pools})


def test_a_number_that_is_too_large_is_said_of_its_task_however_many_there_are() -> None:
    huge = SpeedCurve(nodes=(1,), rate=(1e299,))
    tasks = tuple(
        CompetingTask(name=f"t{place}", max_nodes=2, curve=huge if place == 77 else CURVE) for place in range(200)
    )
    with pytest.raises(BadObjective, match="task 't77': comes to more than 1e\\+300 over the horizon at size 1"):
        ValueTableBuilder(throughput).table(AllocationProblem(pool=9, horizon_s=60.0, tasks=tasks))


@pytest.mark.parametrize("tasks", [50, 500])
def test_a_table_whose_time_is_over_is_not_built_and_the_next_one_is_right(tasks: int) -> None:
    kinds = {kind: SpeedCurve(nodes=(1, 64), rate=(rate, 40.0)) for kind, rate in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    every = tuple(CompetingTask(name=f"t{n}", max_nodes=64, curve=CURVE, curves=kinds) for n in range(tasks))
    given = AllocationProblem(pool=300, pools=dict.fromkeys(kinds, 100), horizon_s=60.0, tasks=every)
    expected, builder = ValueTableBuilder(throughput).table(given).values, ValueTableBuilder(throughput)
    for checks in count(1):
        left = [False] * checks + [True]
        try:
            found = builder.table(given, lambda left=left: left.pop(0))
        except TableOverdue:
            continue
        assert found.values.tolist() == expected.tolist()
        assert checks > 1
        break


def test_a_solution_that_has_no_time_for_its_table_says_so() -> None:
    asked = []

    def slow(task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        asked.append(task.name)
        sleep(0.001)
        return task.curve.speeds(int(sizes[-1]))

    tasks = tuple(CompetingTask(name=f"t{n}", max_nodes=8, min_nodes=1 + n % 8, curve=CURVE) for n in range(400))
    given = AllocationProblem(pool=64, horizon_s=60.0, tasks=tasks)
    found = solve(given, objective=FunctionObjective("slow", slow), limits=Limits(deadline_s=0.001))
    assert (found.termination, found.quality) == (Termination.TIME_LIMIT, Quality.NONE)
    assert found.solver_words == "the deadline passed before the value table was built"
    assert len(asked) < 50
    assert solve(given, objective=FunctionObjective("slow", slow)).quality is Quality.PROVEN


@pytest.mark.parametrize("name", registry.BUILT_IN["objective"])
def test_what_looks_at_all_tasks_at_once_ends_at_the_deadline_too(name: str) -> None:
    if not hasattr(registry.load("objective", name), "recast"):
        return
    curves = {kind: SpeedCurve(nodes=(1, 8), rate=(10.0 * fast, 50.0 * fast)) for fast, kind in enumerate("abc", 1)}
    plain = CompetingTask(name="plain", max_nodes=8, curve=CURVE, curves=curves, work_left_samples=9e3)
    tasks = tuple(replace(plain, name=f"t{number}") for number in range(150))
    given = AllocationProblem(pool=60, pools=dict.fromkeys("abc", 20), horizon_s=60.0, tasks=tasks)

    def checks(objective: str, passes_at: int | None = None) -> int:
        """Count how often the clock is looked at; the deadline passes at one of the looks."""
        looks = count(1)
        table_of(given, objective, lambda: next(looks) == passes_at)
        return next(looks) - 1

    rows, whole = checks("throughput"), checks(name)
    assert whole > rows
    for passes_at in (rows + 1, (rows + whole) // 2, whole):
        with pytest.raises(TableOverdue):
            checks(name, passes_at)


@pytest.mark.parametrize(("uses_work_left", "asked"), [(False, 1), (True, 50)])
def test_tasks_with_other_work_left_have_one_row_unless_the_objective_uses_it(
    *, uses_work_left: bool, asked: int
) -> None:
    objective = Counted(of_speeds=True)
    objective.capabilities = ObjectiveCapabilities(uses_work_left=uses_work_left)
    tasks = tuple(
        CompetingTask(name=f"t{number}", max_nodes=8, curve=CURVE, work_left_samples=1e9 + number)
        for number in range(50)
    )
    ValueTableBuilder(objective).table(AllocationProblem(pool=8, horizon_s=60.0, tasks=tasks))
    assert objective.asked == asked


def test_descriptions_of_one_model_and_size_have_hashes_of_their_own() -> None:
    task = CompetingTask(name="a", size=2, max_nodes=8, curve=CURVE, grow_cost_s=9.0, start_cost_s=3.0)
    others = [{"grow_cost_s": 8.0}, {"start_cost_s": 2.0}, {"weight": 2.0}, {"work_left_samples": 5.0}]
    assert len({hash(task), *(hash(replace(task, **other)) for other in others)}) == 5
