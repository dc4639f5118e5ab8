"""Policies that raise the worst-off first, against every division there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain import (
    AllocationProblem,
    CompetingTask,
    Entity,
    Limits,
    Quality,
    Solution,
    SpeedCurve,
    Termination,
    ValueTable,
    assembly,
)
from bftrain.deciding import fair_objectives
from bftrain.deciding.levels import GroupLevels, LevelCoupling
from bftrain.deciding.objectives import isolated_speed
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.parts import resolve_objective
from bftrain.values.sharing import Inside
from bftrain_solvers import exact, highs
from bftrain_solvers.max_min import feasibility, one_kind
from bftrain_solvers.max_min.one_kind import alike
from tests.helpers.policy_cases import divisions, of_two_kinds, plain, varied_problem

POLICIES = ("max-min", "max-min-plain", "max-min-now", "water-filling", "finish-time", "makespan")
LIMITS = Limits()


def table_for(policy: str, problem: AllocationProblem) -> ValueTable:
    return ValueTableBuilder(resolve_objective(policy)).table(replace(problem, objective=policy))


def sizes_of(policy: str, problem: AllocationProblem) -> list[int]:
    solution = exact.solver.solve(table_for(policy, problem), LIMITS)
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
    """Follow the formulas of docs/policies.md; ``None`` for a task that does not count."""
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
@pytest.mark.parametrize("seeds", [range(start, start + 15) for start in range(0, 60, 15)], ids=str)
def test_against_every_division(policy: str, seeds: range) -> None:
    for seed in seeds:
        problem = varied_problem(seed)
        table = table_for(policy, problem)
        coupling = table.coupling
        assert isinstance(coupling, LevelCoupling)
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
        searched, stated = exact.solver.solve(table, LIMITS), highs.solver.solve(table, LIMITS)
        coupling = table.coupling
        assert isinstance(coupling, LevelCoupling)

        def reached(solution: Solution, table: ValueTable = table, coupling: LevelCoupling = coupling) -> list[float]:
            chosen = table.chosen(solution.sizes)
            assert chosen is not None
            return sorted(table.values[place, chosen[place]] for place in coupling.counted)[: coupling.first]

        assert searched.value == pytest.approx(stated.value, rel=1e-7, abs=1e-9)
        assert reached(searched) == pytest.approx(reached(stated), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("policy", ["water-filling", "hierarchical"])
def test_no_task_can_be_raised_without_lowering_another_to_its_old_level(policy: str) -> None:
    for seed in range(40):
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
    coupling = table.coupling
    assert isinstance(coupling, GroupLevels)
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
    for seed in range(40):
        problem = replace(varied_problem(seed), entities={"ada": Entity(weight=2.0, inside=inside)})
        solution = exact.solver.solve(table_for("hierarchical", problem), LIMITS)
        assert solution.value == pytest.approx(by_trying_all(problem), rel=1e-9)


def test_a_users_nodes_stay_with_the_users_other_tasks() -> None:
    """The small task of a user can use one node only: what it leaves is not for other users."""
    steady = [10.0 * nodes for nodes in range(1, 11)]
    tasks = (plain("small", 10.0, user="ada"), plain("large", *steady, user="ada"), plain("other", *steady, user="bob"))
    # One node is all that a third of ten brings the small one, so it counts 1; to the others 10/3 nodes do
    assert sizes_of("hierarchical", shared(10, *tasks)) == [1, 3, 6]  # 1 + 0.9 beside 1.8
    assert sizes_of("hierarchical", shared(10, *tasks, entities={"ada": Entity(weight=4.0)})) == [1, 6, 3]
    first = {"ada": Entity(inside=Inside.FIFO)}
    assert sizes_of("hierarchical", shared(10, *tasks[::-1], entities=first)) == [5, 5, 0]
    # Without users the small one is first, and then the other two are alike
    assert sizes_of("water-filling", shared(9, *tasks)) == [1, 4, 4]


def test_programmes_are_for_several_kinds() -> None:
    solution = highs.solver.solve(table_for("hierarchical", varied_problem(3)), LIMITS)
    assert (solution.quality, "use exact" in solution.solver_words) == (Quality.NONE, True)


def test_more_tasks_than_nodes_the_best_for_those_who_can_run() -> None:
    tasks = [plain(name, 10.0, 19.0) for name in "abcd"]
    for policy in POLICIES:
        working = [replace(task, work_left_samples=1000.0) for task in tasks]
        assert sorted(sizes_of(policy, shared(2, *working))) == [0, 0, 1, 1]
    # One needs three nodes, three need one: as many as possible run
    big = plain("big", 10.0, 20.0, 30.0, min_nodes=3)
    for policy in ("max-min", "water-filling"):
        assert sizes_of(policy, shared(3, big, *tasks[:3])) == [0, 1, 1, 1]
        assert sizes_of(policy, shared(2, big, *tasks[:3])) == [0, 1, 1, 0]


def test_who_had_least_so_far_comes_first() -> None:
    tasks = [
        plain(name, 10.0, done_samples=done, held_node_s=done) for name, done in zip("abc", (500, 0, 200), strict=True)
    ]
    for policy in ("max-min", "max-min-plain", "water-filling"):
        assert sizes_of(policy, shared(1, *tasks)) == [0, 1, 0]
        assert sizes_of(policy, shared(2, *tasks)) == [0, 1, 1]
    late = [
        plain(name, 10.0, 20.0, work_left_samples=1000.0, age_s=age)
        for name, age in zip("abc", (0, 500, 100), strict=True)
    ]
    assert sizes_of("finish-time", shared(4, *late)) == [1, 2, 1]


def test_weight_0_has_what_no_other_task_can_use() -> None:
    tasks = (plain("a", 10.0, 20.0), plain("none", 1000.0, 2000.0, 3000.0, weight=0.0))
    for policy in ("max-min", "water-filling", "hierarchical"):
        assert sizes_of(policy, shared(2, *tasks)) == [2, 0]
        assert sizes_of(policy, shared(4, *tasks)) == [2, 2]


def test_a_task_that_can_never_run_does_not_keep_the_others_down() -> None:
    never = (plain("stuck", 0.0, 0.0), plain("huge", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, min_nodes=8))
    for policy in POLICIES:
        tasks = [
            replace(task, work_left_samples=1000.0) for task in (*never, plain("a", 10.0, 20.0), plain("b", 10.0, 20.0))
        ]
        assert sizes_of(policy, shared(3, *tasks))[0:2] == [0, 0] or policy == "max-min-plain"
        assert sorted(sizes_of(policy, shared(4, *tasks))[2:]) == [2, 2] or policy == "max-min-plain"


def test_no_task_and_no_node() -> None:
    for policy in (*POLICIES, "hierarchical"):
        assert exact.solver.solve(table_for(policy, shared(3)), LIMITS).value == 0.0
        assert sizes_of(policy, shared(0, plain("a", 10.0))) == [0]


def test_no_end_is_known() -> None:
    tasks = (plain("endless", 10.0, 20.0), plain("other", 10.0, 20.0))
    assert sizes_of("finish-time", shared(2, *tasks)) == [1, 1]  # by their speeds alone
    assert sum(sizes_of("makespan", shared(2, *tasks))) == 2  # no weights: what is left goes where most is done
    ends = (tasks[0], replace(tasks[1], work_left_samples=100.0))
    assert sizes_of("makespan", shared(2, *ends)) == [0, 2]


def test_a_rescale_that_costs_more_than_it_brings_is_left_out() -> None:
    running = plain("a", 10.0, 20.0, 30.0, size=1, grow_cost_s=1000.0)
    assert sizes_of("water-filling", shared(6, running, plain("b", 10.0, 20.0, 30.0))) == [1, 3]


def test_ties_that_are_too_large_to_look_through_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"a": (0.0, 10.0, 40.0), "b": (0.0, 10.0, 30.0), "c": (0.0, 25.0, 26.0)}
    problem = shared(5, *(plain(name, *speeds, min_nodes=2) for name, speeds in rates.items()))
    solution = exact.solver.solve(table_for("water-filling", problem), LIMITS)
    assert solution.solver_words == ""
    monkeypatch.setattr(one_kind, "_LARGEST", 0)
    unsure = exact.solver.solve(table_for("water-filling", problem), LIMITS)
    assert "chosen by a rule" in unsure.solver_words
    assert unsure.value == solution.value  # the worst-off is proven nevertheless


@pytest.mark.parametrize("policy", POLICIES)
def test_over_two_kinds_against_every_division(policy: str) -> None:
    for seed in range(12):
        table = table_for(policy, of_two_kinds(seed))
        solution = exact.solver.solve(table, LIMITS)
        coupling = table.coupling
        assert isinstance(coupling, LevelCoupling)
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
        solution = exact.solver.solve(table, LIMITS)
        best = max(table.value_at(list(chosen)) for chosen in divisions(table))
        assert solution.value == pytest.approx(best, rel=1e-7, abs=1e-9)


def test_in_a_harvester_the_worst_off_takes_its_turn() -> None:
    problem = shared(1, *(plain(name, 10.0) for name in "ab"))
    assert assembly.solve(problem, objective="max-min").value == 0.0
    assert fair_objectives.max_min.capabilities.uses_history


def test_over_kinds_the_time_may_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found by then is given, and no more is claimed of it."""
    problem = of_two_kinds(3)
    table = table_for("water-filling", problem)
    best = exact.solver.solve(table, LIMITS)
    for asked in range(80):
        left = iter(range(asked))

        def clock(left: Iterator[int] = left) -> float:
            return 0.0 if next(left, None) is not None else 1e9

        monkeypatch.setattr(feasibility, "perf_counter", clock)
        solution = exact.solver.solve(table, LIMITS)
        assert table.allowed(solution.sizes, solution.kinds)
        assert solution.value is not None
        assert best.value is not None
        assert solution.value <= best.value + 1e-9
        if solution.termination is Termination.OPTIMAL:
            break
        assert solution.termination is Termination.TIME_LIMIT
        assert "out of time" in solution.solver_words
        assert solution.bound is not None
        assert solution.bound >= best.value - 1e-9
    else:
        pytest.fail("it never came to its end")
    assert asked > 3
    assert solution.value == best.value


def test_over_kinds_who_stays_low_may_be_left_to_the_last_answer() -> None:
    """Six equal tasks without nodes, two nodes: levels alone do not decide which run, only how well off they are."""
    curves = {"v": plain("any", 30.0).curve, "p": plain("any", 10.0).curve}
    tasks = tuple(plain(name, 30.0, curves=curves) for name in "abcdef")
    problem = shared(2, *tasks, pools={"v": 1, "p": 1})
    solution = exact.solver.solve(table_for("water-filling", problem), LIMITS)
    assert sorted(solution.kinds.values()) == ["p", "v"]
    assert solution.value == 0.0


def on(kinds: tuple[str, ...], name: str, *rates: float, nodes: tuple[int, ...] = ()) -> CompetingTask:
    """A task that runs on ``kinds`` only, as fast on all of them."""
    curve = SpeedCurve(nodes=nodes or tuple(range(1, len(rates) + 1)), rate=rates)
    return CompetingTask(name=name, max_nodes=curve.nodes[-1], curve=curve, curves=dict.fromkeys(kinds, curve))


def test_who_must_wait_is_counted_kind_by_kind() -> None:
    tasks = (
        *(on(("a",), name, 1.0) for name in ("a1", "a2")),
        *(on(("b",), name, rate, 8 * rate, nodes=(1, 8)) for name, rate in (("b1", 10.0), ("b2", 9.0))),
    )
    problem = AllocationProblem(pool=9, pools={"a": 1, "b": 8}, horizon_s=120.0, tasks=tasks)
    assert table_for("max-min", problem).coupling.first == 2  # one of the first two, and one more
    for solver in (exact.solver, highs.solver):
        found = solver.solve(table_for("max-min", problem), LIMITS)
        assert (found.sizes["b1"], found.sizes["b2"]) == (4, 4)  # not all where most is done


def test_who_must_wait_is_counted_by_sizes_that_do_something() -> None:
    big = tuple(plain(f"big{i}", 0.0, 0.0, 0.0, 40.0, 50.0, 60.0, 70.0, 80.0) for i in range(2))
    small = tuple(plain(f"s{i}", *((10.0 + i) * size for size in range(1, 9))) for i in range(3))
    for policy in ("max-min", "max-min-plain", "finish-time"):
        assert sizes_of(policy, shared(10, *big, *small)) == [4, 0, 2, 2, 2]


@pytest.mark.parametrize("limit", [10**9, 0])
def test_waiting_over_kinds_is_the_fewest_or_more(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_objectives, "_LARGEST", limit)
    numbers = np.random.default_rng(5)
    missed = 0
    for _ in range(60):
        needs, pools = numbers.integers(1, 6, (4, 2)), numbers.integers(0, 7, 2).tolist()
        most = 0
        for choice in product(range(3), repeat=4):  # on the first kind, on the second, not at all
            used = [sum(int(needs[i, kind]) for i, at in enumerate(choice) if at == kind) for kind in range(2)]
            if used[0] <= pools[0] and used[1] <= pools[1]:
                most = max(most, sum(at < 2 for at in choice))
        found = fair_objectives.count_fitting(needs, pools)
        assert found <= most
        missed += found < most
    assert missed == 0 if limit else missed < 15


def test_no_task_is_counted_over_large_kinds_without_a_table_of_all_of_them() -> None:
    assert fair_objectives.count_fitting(np.empty((0, 3), dtype=np.int64), [15_000] * 3) == 0


def test_nodes_on_which_a_task_does_not_run_are_no_service() -> None:
    tasks = tuple(plain(name, 0.0, 0.0, 5.0, 10.0) for name in "xy")
    assert sorted(sizes_of("max-min-plain", shared(4, *tasks))) == [0, 4]  # not two nodes for each to idle on


def test_rounding_does_not_decide_who_is_worst_off() -> None:
    # Two nodes for x are 599.9999999999999, two for y 1200; one for x and three for y are 600 and 900
    tasks = tuple(
        replace(plain(name, *(speed * size for size in range(1, 9))), weight=weight)
        for name, speed, weight in (("x", 13.0, 0.1), ("y", 0.1, 0.2))
    )
    for policy in ("water-filling", "max-min"):
        assert sizes_of(policy, shared(4, *tasks, horizon_s=120.0)) == [2, 2]
    users = tuple(
        replace(plain(name, *(speed * size for size in range(1, 9))), user=name)
        for name, speed in (("x", 0.7), ("y", 0.1))
    )
    entities = {"x": Entity(weight=0.3), "y": Entity(weight=0.6)}
    assert sizes_of("hierarchical", shared(4, *users, horizon_s=120.0, entities=entities)) == [2, 2]
    of_kinds = replace(shared(4, *tasks, horizon_s=120.0), pools={"a": 4, "b": 0})
    found = exact.solver.solve(table_for("water-filling", of_kinds), LIMITS)
    assert (found.sizes, found.quality) == ({"x": 2, "y": 2}, Quality.PROVEN)


def test_alike_merges_what_differs_by_rounding_only() -> None:
    near = np.nextafter(600.0, 0.0)
    levels = np.array([[-np.inf, 0.0, near, 600.0], [600.0000001, -5.0, -np.inf, np.nextafter(-5.0, 0.0)]])
    assert alike(levels).tolist() == [[-np.inf, 0.0, near, near], [600.0000001, -5.0, -np.inf, -5.0]]
    assert alike(np.empty((0, 3))).shape == (0, 3)


def test_of_those_alike_to_all_others_who_does_more_is_raised() -> None:
    gangs = tuple(plain(name, 0.0, 0.0, speed, min_nodes=3) for name, speed in (("a", 1.0), ("b", 100.0)))
    for policy in ("water-filling", "max-min", "finish-time"):
        assert sizes_of(policy, shared(3, *gangs)) == [0, 3]
        assert sizes_of(policy, shared(3, *reversed(gangs))) == [3, 0]
