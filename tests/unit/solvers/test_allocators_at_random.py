"""Allocators, each against every division there is, or a plain loop that follows its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, assembly
from tests.helpers.policy_cases import of_two_kinds, varied_problem

SEEDS = range(20)


class Held(NamedTuple):
    """Some nodes of a kind, and the speed that a task has there."""

    nodes: int = 0
    kind: str = ""
    speed: float = 0.0


def drawn(seed: int) -> AllocationProblem:
    """Return tasks on one kind of nodes or on two, in turn, of different age and past."""
    problem, rng = varied_problem(seed), np.random.default_rng(seed)
    if seed % 2:
        problem = of_two_kinds(seed)
        pasts = [{"age_s": float(rng.uniform(0.0, 99.0)), "held_node_s": float(rng.uniform(0.0, 99.0))} for _ in "ttt"]
        tasks = [replace(task, **past) for task, past in zip(problem.tasks, pasts, strict=False)]
        problem = replace(problem, tasks=tuple(tasks))
    return problem


def choices(problem: AllocationProblem, task: CompetingTask) -> list[Held]:
    """List what a task may hold: nothing first, then the kinds in their order, the smallest sizes first."""
    found = [Held()]
    for kind, count in problem.by_kind.items():
        curve = task.curves.get(kind) if task.curves else task.curve
        if curve is not None:
            sizes = range(task.min_nodes, min(task.max_nodes, count) + 1)
            found += [Held(nodes, kind, curve.speed(nodes)) for nodes in sizes]
    return found


def fits(problem: AllocationProblem, held: Sequence[Held]) -> bool:
    return all(
        sum(each.nodes for each in held if each.kind == kind) <= count for kind, count in problem.by_kind.items()
    )


def ways(problem: AllocationProblem, of_each: Sequence[Sequence[Held]]) -> Iterator[list[Held]]:
    """Yield every choice for all tasks that there are the nodes for."""
    if not of_each:
        yield []
        return
    for rest in ways(problem, of_each[:-1]):
        for last in of_each[-1]:
            if fits(problem, [*rest, last]):
                yield [*rest, last]


def check(rule: str, problem: AllocationProblem, expected: Sequence[Held]) -> None:
    found = assembly.solve(problem, rule)
    got = [(found.sizes[task.name], found.kinds.get(task.name, "")) for task in problem.tasks]
    assert got == [(each.nodes, each.kind) for each in expected]


def by_weight(amount: float, task: CompetingTask) -> float:
    return amount / task.weight if task.weight else inf


def remaining_s(problem: AllocationProblem, task: CompetingTask) -> float:
    best = max(each.speed for each in choices(problem, task))
    return inf if task.work_left_samples is None or best <= 0.0 else task.work_left_samples / best


ORDERS: dict[str, Callable[[AllocationProblem, CompetingTask], float]] = {
    "fifo": lambda _, task: -task.age_s,
    "las": lambda _, task: by_weight(task.held_node_s, task),
    "srtf": remaining_s,
}


@pytest.mark.parametrize("rule", sorted(ORDERS))
@pytest.mark.parametrize("seed", SEEDS)
def test_of_all_divisions_that_which_is_fastest_for_one_task_after_the_other(seed: int, rule: str) -> None:
    problem = drawn(seed)
    key = ORDERS[rule]
    in_turn = sorted(range(len(problem.tasks)), key=lambda place: key(problem, problem.tasks[place]))
    every = ways(problem, [choices(problem, task) for task in problem.tasks])
    check(rule, problem, max(every, key=lambda way: [(way[place].speed, -way[place].nodes) for place in in_turn]))


@pytest.mark.parametrize("seed", SEEDS)
def test_isolated_is_fastest_within_an_nth_part_and_then_smallest_for_who_had_least(seed: int) -> None:
    problem = drawn(seed)
    part = problem.pool // len(problem.tasks)
    of_each = [choices(problem, task) for task in problem.tasks]
    within = [[held for held in held if held.nodes <= part] for held in of_each]
    own = max(ways(problem, within), key=lambda way: [(held.speed, -held.nodes) for held in way])
    waiting = [place for place, held in enumerate(own) if not held.nodes]
    waiting.sort(key=lambda place: by_weight(problem.tasks[place].held_node_s, problem.tasks[place]))
    kept = [held if own[place].nodes == 0 else [own[place]] for place, held in enumerate(of_each)]
    kept = [[each for each in held if not each.nodes or each.speed > 0.0] for held in kept]

    def small(way: list[Held]) -> list[tuple[bool, int, float]]:
        return [(way[place].nodes > 0, -way[place].nodes, way[place].speed) for place in waiting]

    check("isolated", problem, max(ways(problem, kept), key=small))


def seconds(problem: AllocationProblem, task: CompetingTask, speed: float) -> float:
    """Return the time to the end; a task without one has a horizon left at its slowest."""
    slowest = min(each.speed for each in choices(problem, task) if each.speed > 0.0)
    work = problem.horizon_s * slowest if task.work_left_samples is None else task.work_left_samples
    return work / speed if speed > 0.0 else inf


@pytest.mark.parametrize("seed", SEEDS)
def test_marginal_gain_lets_all_run_and_then_each_step_saves_most_time_a_node(seed: int) -> None:
    problem = drawn(seed)
    tasks, of_each = problem.tasks, [choices(problem, task) for task in problem.tasks]
    held = [Held() for _ in tasks]

    def room(place: int) -> list[Held]:
        """List what this task could hold while the others stay."""
        return [each for each in of_each[place] if fits(problem, [*held[:place], each, *held[place + 1 :]])]

    for place in sorted(range(len(tasks)), key=lambda place: remaining_s(problem, tasks[place])):
        runs = [each for each in room(place) if each.speed > 0.0]
        held[place] = min(runs, key=lambda each: (each.nodes, -each.speed), default=Held())
    while True:
        steps = []
        for place, (now, task) in enumerate(zip(held, tasks, strict=True)):
            for then in room(place) if now.nodes else ():
                more = then.nodes - now.nodes
                if then.kind == now.kind and more > 0:
                    saved = seconds(problem, task, now.speed) - seconds(problem, task, then.speed)
                    steps.append((saved / more, -place, -more, then))
        best = max(steps, key=lambda step: step[:3], default=(0.0, 0, 0, Held()))
        if best[0] <= 0.0:
            break
        held[-best[1]] = best[3]
    check("marginal-gain", problem, held)


@pytest.mark.parametrize("rule", ["proportional-share", "equal-share"])
@pytest.mark.parametrize("seed", SEEDS)
def test_on_one_kind_the_one_with_least_takes_its_next_size(seed: int, rule: str) -> None:
    problem = varied_problem(seed)
    tasks = problem.tasks if rule == "proportional-share" else [replace(task, weight=1.0) for task in problem.tasks]
    of_each, rungs = [choices(problem, task) for task in tasks], [0] * len(tasks)
    while True:
        able = []
        for place, rung in enumerate(rungs):
            up = [*rungs[:place], rung + 1, *rungs[place + 1 :]]
            if rung + 1 < len(of_each[place]) and fits(problem, [of_each[i][j] for i, j in enumerate(up)]):
                able.append((by_weight(of_each[place][rung].nodes, tasks[place]), place))
        if not able:
            break
        rungs[min(able)[1]] += 1
    check(rule, problem, [of_each[place][rung] for place, rung in enumerate(rungs)])


@pytest.mark.parametrize("seed", SEEDS)
def test_over_kinds_proportional_share_stays_within_the_nodes_that_a_tasks_kinds_have(seed: int) -> None:
    """Follow its words: sizes by weight within each set of kinds, those with least choice first, the rest by weight."""
    problem = of_two_kinds(seed)
    tasks, of_each = problem.tasks, [choices(problem, task) for task in problem.tasks]
    kinds = [{each.kind for each in held if each.speed > 0.0} for held in of_each]
    sets = [set(some) for count in (1, 2) for some in combinations(problem.by_kind, count)]
    sizes = [sorted({each.nodes for each in held}) for held in of_each]
    target, still = [0] * len(tasks), set(range(len(tasks)))
    while still:
        place = min(still, key=lambda place: (by_weight(target[place], tasks[place]), place))
        up = list(target)
        up[place] = next((size for size in sizes[place] if size > target[place]), 0)
        wanted = [sum(up[i] for i in range(len(tasks)) if kinds[i] <= some) for some in sets]
        there = [sum(problem.by_kind[kind] for kind in some) for some in sets]
        if up[place] and all(a <= b for a, b in zip(wanted, there, strict=True)):
            target = up
        else:
            still.remove(place)
    held = [Held() for _ in tasks]
    for place in sorted(range(len(tasks)), key=lambda place: (len(kinds[place]), -target[place])):
        room = [e for e in of_each[place] if e.nodes <= target[place] and fits(problem, [*held, e])]
        held[place] = max(room, key=lambda each: (each.speed, -each.nodes))
    still = set(range(len(tasks)))
    while still:
        place = min(still, key=lambda place: (by_weight(held[place].nodes, tasks[place]), place))
        others = held[:place] + held[place + 1 :]
        room = [each for each in of_each[place] if each.speed > held[place].speed and fits(problem, [*others, each])]
        if held[place].nodes:
            room = [each for each in room if each.kind == held[place].kind and each.nodes > held[place].nodes]
        if not room:
            still.remove(place)
            continue
        held[place] = min(room, key=lambda each: (each.nodes, -each.speed))
    check("proportional-share", problem, held)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_published_rule_by_its_words(seed: int) -> None:
    problem = varied_problem(seed)
    share = problem.pool // len(problem.tasks)
    sizes = [[each.nodes for each in choices(problem, task)] for task in problem.tasks]
    got = [max(size for size in own if size <= share) if len(own) > 1 and own[1] < share else 0 for own in sizes]
    for place, own in enumerate(sizes):
        got[place] = max(size for size in own if size <= problem.pool - sum(got) + got[place])
    check("equal-share-published", problem, [Held(size) for size in got])
