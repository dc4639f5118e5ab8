"""Mean completion, proportional fairness and cost, against every division there is."""

from __future__ import annotations

import random
from math import inf, log

import pytest
from msgspec.structs import replace

from bftrain import AllocationProblem, BadInput, CompetingTask, Limits, Termination, ValueTable
from bftrain.deciding.objectives import isolated_speed
from tests.helpers.named_parts import EXACT, table_for
from tests.helpers.policy_cases import divisions, of_two_kinds, plain, varied_problem


def tables(policy: str, problem: AllocationProblem) -> tuple[ValueTable, ValueTable]:
    """Return the table of samples, and the one that is solved."""
    found = [table_for(name, problem) for name in ("throughput", policy)]
    return found[0], found[1]


def worth(policy: str, samples: ValueTable, chosen: tuple[int, ...]) -> tuple[float, float]:
    """Follow the formulas: how many run, then the sum."""
    problem = samples.problem
    running, total = 0, 0.0
    for place, task in enumerate(problem.tasks):
        speed = samples.values[place, chosen[place]] / problem.horizon_s
        alone = isolated_speed(task, problem.by_kind, len(problem.tasks))
        ends = policy == "proportional" or task.work_left_samples is not None
        if task.weight == 0.0 or not ends or (policy == "proportional" and alone == 0.0):
            continue
        if speed > 0.0:
            running += 1
            if policy == "completion":
                assert task.work_left_samples is not None
                total -= task.weight * task.work_left_samples / speed
            else:
                total += task.weight * log(speed / alone)
    return running, total


@pytest.mark.parametrize("policy", ["completion", "proportional"])
def test_against_every_division(policy: str) -> None:
    for problem in (*map(varied_problem, range(40)), *map(of_two_kinds, range(12))):
        samples, table = tables(policy, problem)
        solution = EXACT.solve(table, Limits())
        assert solution.termination is Termination.OPTIMAL
        chosen = table.chosen(solution.sizes, solution.kinds)
        assert chosen is not None
        found = worth(policy, samples, tuple(chosen))
        best = max(worth(policy, samples, way) for way in divisions(samples))
        assert found[0] == best[0]
        assert found[1] == pytest.approx(best[1], rel=1e-6, abs=1e-6)


def rate(policy: str, task: CompetingTask, size: int) -> float:
    """Follow the formulas: value a second of so many nodes."""
    speed = task.curve.speed(size)
    single = next(size for size in range(1, 1000) if task.curve.speed(size) > 0.0)
    single_speed = task.curve.speed(single) / single
    if policy == "throughput":
        return speed
    if policy == "weighted":
        return task.weight * speed
    if policy == "speedup":
        return speed / single_speed
    needed = 0.0
    if task.deadline_in_s is not None and task.deadline_in_s > 0.0 and task.work_left_samples is not None:
        needed = task.work_left_samples / task.deadline_in_s
        if needed > max(task.curve.speed(size) for size in range(task.max_nodes + 1)):
            needed = 0.0  # which no size can keep
    return task.weight * (speed + 9.0 * min(speed, needed)) / single_speed


@pytest.mark.parametrize("policy", ["throughput", "weighted", "speedup", "deadline"])
def test_sums_of_single_tasks_against_every_division(policy: str) -> None:
    tried = 0
    for seed in range(40):
        dice = random.Random(seed)  # noqa: S311 - cases to try, not secrets
        problem = varied_problem(seed)
        tasks = tuple(
            replace(task, deadline_in_s=dice.choice([None, dice.uniform(-10.0, 500.0)])) for task in problem.tasks
        )
        if any(max(task.curve.rate) == 0.0 for task in tasks):
            continue
        tried += 1
        problem = replace(problem, tasks=tasks, objective=policy)
        samples, table = tables(policy, problem)

        def worth(chosen: tuple[int, ...], problem: AllocationProblem = problem) -> float:
            total = 0.0
            for task, size in zip(problem.tasks, chosen, strict=True):
                now, then = rate(policy, task, task.size), rate(policy, task, size)
                cost = task.start_cost_s * then * (size > 0) if not task.size else task.shrink_cost_s * now
                cost = task.grow_cost_s * now if 0 < task.size < size else cost
                total += problem.horizon_s * then - (cost if size != task.size else 0.0)
            return total

        found = EXACT.solve(table, Limits())
        assert found.termination is Termination.OPTIMAL
        assert found.value == pytest.approx(max(map(worth, divisions(samples))), rel=1e-9)
    assert tried >= 30


def test_cost_is_samples_over_the_price_of_the_kind() -> None:
    for seed in range(30):
        problem = of_two_kinds(seed)
        samples, table = tables("cost", problem)
        prices = [problem.prices[kind] for kind in table.kinds]

        def bought(chosen: tuple[int, ...], samples: ValueTable = samples, prices: list[float] = prices) -> float:
            return sum(
                task.weight * samples.values[place, column] / prices[int(samples.kind_of[column])]
                for place, (task, column) in enumerate(zip(samples.problem.tasks, chosen, strict=True))
            )

        solution = EXACT.solve(table, Limits())
        assert solution.value == pytest.approx(max(map(bought, divisions(table))), rel=1e-9)


class _Own:
    """An objective of somebody's own, whose recast() is at fault."""

    name = "mine"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def values(self, task: object, sizes: object) -> object:  # noqa: ARG002 - the port's
        return sizes

    def recast(self, table: ValueTable) -> object:
        if isinstance(self._answer, Exception):
            raise self._answer
        if self._answer is None:
            return None
        return ValueTable(problem=table.problem, values=table.values * 0.0 + self._answer)  # type: ignore[operator]  # a number


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (ZeroDivisionError("no"), r"recast\(\) raised ZeroDivisionError: no"),
        (None, "did not return a table of the same"),
        (inf, "not finite"),
        (-inf, "changed the allowed sizes"),
    ],
)
def test_an_objective_that_spoils_the_table_is_named(answer: object, complaint: str) -> None:
    problem = AllocationProblem(pool=2, horizon_s=10.0, tasks=(plain("a", 10.0, 20.0),))
    with pytest.raises(BadInput, match=f"objective 'mine': .*{complaint}"):
        table_for(_Own(answer), problem)  # type: ignore[arg-type]  # that is what is wrong
