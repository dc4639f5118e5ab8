"""Policies that raise the worst-off first, against every division there is."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain import AllocationProblem, CompetingTask, Entity, Limits, Solution, Termination, ValueTable
from bftrain.deciding.objectives import isolated_speed
from bftrain.values.sharing import Inside
from tests.helpers.named_parts import EXACT, HIGHS, table_for
from tests.helpers.policy_cases import divisions, of_two_kinds, plain, varied_problem

POLICIES = ("max-min", "max-min-plain", "max-min-now", "water-filling", "finish-time", "makespan")
LIMITS = Limits()


def sizes_of(policy: str, problem: AllocationProblem) -> list[int]:
    solution = EXACT.solve(table_for(policy, problem), LIMITS)
    assert solution.termination is Termination.OPTIMAL
    return [solution.sizes[task.name] for task in problem.tasks]


def shared(pool: int, *tasks: CompetingTask, horizon_s: float = 100.0, **more: object) -> AllocationProblem:
    return replace(AllocationProblem(pool=pool, horizon_s=horizon_s, tasks=tasks), **more)


def samples(task: CompetingTask, size: int, horizon_s: float) -> float:
    """Work over the horizon, costs of rescaling taken off."""
    now, then = task.curve.speed(task.size), task.curve.speed(size)
    if size == task.size:
        return horizon_s * then
    if task.size == 0:
        return (horizon_s - task.start_cost_s) * then
    return horizon_s * then - (task.grow_cost_s if size > task.size else task.shrink_cost_s) * now


def how_well_off(policy: str, problem: AllocationProblem, place: int, size: int) -> float | None:
    """Follow the formulas of docs/reference/objectives.md; ``None`` for a task that does not count."""
    task, horizon_s = problem.tasks[place], problem.horizon_s
    alone = isolated_speed(task, problem.by_kind, len(problem.tasks))
    done = samples(task, size, horizon_s)
    speed = max(0.0, done) / horizon_s
    if task.weight == 0.0:
        return None
    match policy:
        case "max-min" | "water-filling" | "max-min-now":
            had = task.done_samples
            if policy == "max-min-now":  # beside the speed on one node, or a node's part of that on the fewest that run
                had = 0.0
                alone = next((task.curve.speed(size) / size for size in range(1, 40) if task.curve.speed(size)), 1.0)
            return (had + done) / alone / task.weight if alone else None
        case "max-min-plain":
            nodes = replace(task, curve=plain("any", *range(1, 20)).curve)
            return (task.held_node_s + samples(nodes, size, horizon_s)) / task.weight
        case "finish-time":
            if not alone:
                return None
            if task.work_left_samples is None:
                return task.weight * speed / alone
            if speed == 0.0:
                return 0.0
            will_take = task.age_s + task.work_left_samples / speed
            return task.weight * (task.done_samples + task.work_left_samples) / alone / will_take
        case "makespan":
            return None if task.work_left_samples is None else speed / task.work_left_samples
    raise AssertionError(policy)


def levels(policy: str, problem: AllocationProblem, counted: tuple[int, ...], sizes: list[int]) -> list[float]:
    return sorted(how_well_off(policy, problem, place, sizes[place]) for place in counted)  # type: ignore[type-var]  # all count


def done(problem: AllocationProblem, sizes: list[int], spare: NDArray[np.float64] | None) -> float:
    """Return what all tasks do together: samples, or node-seconds where only these are looked at."""
    if spare is not None:
        return float(sum(spare[place, size] for place, size in enumerate(sizes)))
    return sum(samples(task, size, problem.horizon_s) for task, size in zip(problem.tasks, sizes, strict=True))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seeds", [range(start, start + 15) for start in range(0, 30, 15)], ids=str)
def test_against_every_division(policy: str, seeds: range) -> None:
    for seed in seeds:
        problem = varied_problem(seed)
        table = table_for(policy, problem)
        coupling: Any = table.coupling
        found = sizes_of(policy, problem)
        ways = [list(chosen) for chosen in divisions(table)]
        assert found in ways
        best = max(levels(policy, problem, coupling.counted, way)[: coupling.first] for way in ways)
        assert levels(policy, problem, coupling.counted, found)[: coupling.first] == pytest.approx(best, rel=1e-9)
        if coupling.first == 1:  # no task has to wait: of all that are as good for the worst-off, it does most
            spare = coupling.spare if policy == "max-min-plain" else None
            worst = levels(policy, problem, coupling.counted, found)[:1]
            as_good = [way for way in ways if levels(policy, problem, coupling.counted, way)[:1] >= worst]
            assert done(problem, found, spare) == pytest.approx(
                max(done(problem, way, spare) for way in as_good), rel=1e-9
            )


@pytest.mark.parametrize("policy", POLICIES)
def test_the_programme_gives_the_same_levels(policy: str) -> None:
    for seed in range(10):
        problem = varied_problem(seed)
        table = table_for(policy, problem)
        searched, stated = EXACT.solve(table, LIMITS), HIGHS.solve(table, LIMITS)
        coupling: Any = table.coupling

        def reached(solution: Solution, table: ValueTable = table, coupling: Any = coupling) -> list[float]:  # noqa: ANN401
            chosen = table.chosen(solution.sizes)
            assert chosen is not None
            return sorted(table.values[place, chosen[place]] for place in coupling.counted)[: coupling.first]

        assert searched.value == pytest.approx(stated.value, rel=1e-7, abs=1e-9)
        assert reached(searched) == pytest.approx(reached(stated), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("policy", ["water-filling", "hierarchical"])
def test_no_task_can_be_raised_without_lowering_another_to_its_old_level(policy: str) -> None:
    for seed in range(25):
        problem = varied_problem(seed)
        table = table_for("water-filling", problem)
        raised = [list(chosen) for chosen in divisions(table)]
        counted = table.coupling.counted  # type: ignore[union-attr]  # a LevelCoupling
        found = sizes_of(policy, problem)
        now = {place: table.values[place, found[place]] for place in counted}
        for way in raised:
            then = {place: table.values[place, way[place]] for place in counted}
            gains = [place for place in counted if then[place] > now[place] + 1e-9]
            losses = [place for place in counted if then[place] < now[place] - 1e-9]
            assert losses or not gains  # a task that gains takes it from another
            for place in gains:
                assert policy == "hierarchical" or any(then[other] <= now[place] + 1e-9 for other in losses)


def by_trying_all(problem: AllocationProblem) -> float:
    """Let every user divide any number of nodes as before, and every number of nodes be divided over the users."""
    table = table_for("hierarchical", problem)
    coupling: Any = table.coupling
    worth = []
    for group in coupling.groups:
        rows = table.values[list(group.places)]
        ways = list(product(*(np.flatnonzero(row > -np.inf).tolist() for row in rows)))
        by_nodes = []
        for nodes in range(problem.pool + 1):
            within = [way for way in ways if sum(way) <= nodes]
            if group.fifo:
                chosen = max(within, key=lambda way: [rows[place, size] for place, size in enumerate(way)])
            else:
                chosen = max(
                    within,
                    key=lambda way: sorted(rows[place, size] / group.weights[place] for place, size in enumerate(way)),
                )
            by_nodes.append(sum(rows[place, size] for place, size in enumerate(chosen)) / group.weight)
        worth.append(by_nodes)
    splits = (split for split in product(range(problem.pool + 1), repeat=len(worth)) if sum(split) <= problem.pool)
    return max(min((worth[number][nodes] for number, nodes in enumerate(split)), default=0.0) for split in splits)


@pytest.mark.parametrize("inside", list(Inside))
def test_users_against_every_division(inside: Inside) -> None:
    for seed in range(25):
        problem = replace(varied_problem(seed), entities={"ada": Entity(weight=2.0, inside=inside)})
        solution = EXACT.solve(table_for("hierarchical", problem), LIMITS)
        assert solution.value == pytest.approx(by_trying_all(problem), rel=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_over_two_kinds_against_every_division(policy: str) -> None:
    for seed in range(12):
        table = table_for(policy, of_two_kinds(seed))
        solution = EXACT.solve(table, LIMITS)
        coupling: Any = table.coupling
        best = max(
            sorted(table.values[place, chosen[place]] for place in coupling.counted)[: coupling.first]
            for chosen in divisions(table)
        )
        chosen = table.chosen(solution.sizes, solution.kinds)
        assert chosen is not None
        assert solution.value == pytest.approx(best[0], rel=1e-7, abs=1e-9)
        found = sorted(table.values[place, chosen[place]] for place in coupling.counted)[: coupling.first]
        assert found == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("inside", list(Inside))
def test_users_over_two_kinds_risetogether(inside: Inside) -> None:
    for seed in range(12):
        problem = replace(of_two_kinds(seed), entities={"ada": Entity(weight=2.0, inside=inside)})
        table = table_for("hierarchical", problem)
        solution = EXACT.solve(table, LIMITS)
        best = max(table.value_at(list(chosen)) for chosen in divisions(table))
        assert solution.value == pytest.approx(best, rel=1e-7, abs=1e-9)
