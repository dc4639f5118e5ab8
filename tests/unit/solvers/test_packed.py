"""Sharing policies, plain and packed, each against one programme over all tasks and pairs that there are."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import linprog

from bftrain import BadInput, Entity, SharingProblem, SharingTask, share
from bftrain.values.sharing import Inside, PairSpeeds, Shares
from bftrain_solvers.sharing import packed as packed_policies

SEEDS = range(20)
KINDS = ("v", "k")
MODELS = ("a", "b", "c")


def drawn(seed: int, *, most: int = 9, packed: bool = True) -> SharingProblem:
    """Return tasks of three models and two gangs, and what pairs of them do; none if they are not ``packed``."""
    rng = np.random.default_rng(seed)
    alone = {(model, kind): float(rng.lognormal(0.0, 1.0)) for model in MODELS for kind in KINDS}
    pairs = []
    for place, one in enumerate(MODELS):
        for other in MODELS[place:]:
            for nodes in (1, 2):
                part = {kind: rng.uniform(0.3, 1.0, 2) * rng.choice([0.0, 1.0], p=[0.1, 0.9]) for kind in KINDS}
                speeds = {
                    kind: (part[kind][0] * alone[one, kind], part[kind][1] * alone[other, kind]) for kind in KINDS
                }
                pairs.append(PairSpeeds(models=(one, other), nodes=nodes, speeds=speeds))
    tasks = []
    for number in range(int(rng.integers(2, most))):
        model, nodes = str(rng.choice(MODELS)), int(rng.choice([1, 2], p=[0.7, 0.3]))
        tasks.append(
            SharingTask(
                name=f"t{number}",
                model=model,
                nodes=nodes,
                speeds={kind: alone[model, kind] for kind in KINDS},
                weight=float(rng.choice([1.0, 2.0])),
                work_left_samples=float(rng.lognormal(5.0, 1.0)),
                age_s=float(rng.uniform(0.0, 50.0)),
                alone_s=float(rng.uniform(0.0, 50.0)),
            )
        )
    prices = {"v": 2.0}
    return SharingProblem(
        nodes={"v": 2, "k": int(rng.integers(1, 4))},
        tasks=tuple(tasks),
        pairs=tuple(pairs) if packed else (),
        prices=prices,
    )


class Column(NamedTuple):
    """Some tasks on a kind: how fast each is there."""

    speeds: dict[int, float]
    kind: str
    nodes: int


def columns_of(problem: SharingProblem) -> list[Column]:
    columns = []
    for kind, count in problem.nodes.items():
        for place, task in enumerate(problem.tasks):
            if task.nodes <= count and task.speeds[kind] > 0.0:
                columns.append(Column({place: task.speeds[kind]}, kind, task.nodes))
        for (i, one), (j, other) in combinations(enumerate(problem.tasks), 2):
            for pair in problem.pairs:
                if one.nodes == other.nodes == pair.nodes <= count and sorted(pair.models) == sorted(
                    [one.model, other.model]
                ):
                    first, second = pair.speeds[kind] if pair.models[0] == one.model else pair.speeds[kind][::-1]
                    if first > 0.0 and second > 0.0:
                        columns.append(Column({i: first, j: second}, kind, one.nodes))
    return columns


def programme(
    problem: SharingProblem,
    worth: list[float],
    rate: list[float] | None,
    floors: list[float] | None = None,
    *,
    feasible: bool = True,
) -> float:
    """Return the largest sum of worth, or how far all speeds can rise in proportion to ``rate``; 0 if none is."""
    columns, count = columns_of(problem), len(problem.tasks)
    rows = [[float(place in column.speeds) for column in columns] + [0.0] for place in range(count)]
    rows += [[column.nodes * float(column.kind == kind) for column in columns] + [0.0] for kind in problem.nodes]
    limits = [1.0] * count + [float(nodes) for nodes in problem.nodes.values()]
    if rate is not None:
        rows += [[-column.speeds.get(place, 0.0) for column in columns] + [rate[place]] for place in range(count)]
        limits += [-floor for floor in floors or [0.0] * count]
        worth = [0.0] * len(columns) + [1.0]
    else:
        worth = [*worth, 0.0]
        rows += [[-column.speeds.get(place, 0.0) for column in columns] + [0.0] for place in range(len(floors or ()))]
        limits += [-floor for floor in floors or ()]
    general: Any = linprog
    found = general(-np.array(worth), A_ub=rows, b_ub=limits, bounds=(0.0, None), method="highs")
    if found.status == 2 and not feasible:
        return 0.0
    assert found.status in {0, 3}
    return -float(found.fun)


def parts_of(problem: SharingProblem, found: Shares) -> list[tuple[Column, float]]:
    """Return the combinations that have time, and how much."""
    place_of = {task.name: place for place, task in enumerate(problem.tasks)}
    table = {(tuple(column.speeds), column.kind): column for column in columns_of(problem)}
    parts = [((name,), shares) for name, shares in found.shares.items()]
    parts += [(each.tasks, each.shares) for each in found.pairs or ()]
    return [
        (table[tuple(sorted(place_of[name] for name in names)), kind], part)
        for names, shares in parts
        for kind, part in shares.items()
    ]


def check_shares(problem: SharingProblem, found: Shares) -> None:
    """Hold shares to the nodes and the time that there are, and speeds to shares."""
    used, time, speed = (
        dict.fromkeys(problem.nodes, 0.0),
        dict.fromkeys(found.shares, 0.0),
        dict.fromkeys(found.shares, 0.0),
    )
    names = [task.name for task in problem.tasks]
    for column, part in parts_of(problem, found):
        used[column.kind] += column.nodes * part
        for place, of_task in column.speeds.items():
            time[names[place]] += part
            speed[names[place]] += part * of_task
    assert all(used[kind] <= count + 1e-6 for kind, count in problem.nodes.items())
    assert max(time.values()) <= 1.0 + 1e-6
    assert found.speeds == pytest.approx(speed, rel=1e-6, abs=1e-9)


def fair(problem: SharingProblem, task: SharingTask) -> float:
    able = {kind: count for kind, count in problem.nodes.items() if task.nodes <= count}
    total = sum(problem.nodes.values())
    return sum(task.speeds[kind] * count for kind, count in able.items()) / total / task.nodes


@pytest.mark.parametrize("packed", ["", "-packed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_levels_are_as_high_as_over_all_pairs(seed: int, packed: str) -> None:
    given = drawn(seed, packed=bool(packed))
    found = share(given, f"max-min{packed}")
    check_shares(given, found)
    assert found.value == pytest.approx(programme(given, [], [task.weight * fair(given, task) for task in given.tasks]))
    assert found.value >= share(given, "max-min").value * (1.0 - 1e-6)
    batch = share(given, f"makespan{packed}")
    check_shares(given, batch)
    assert 1.0 / batch.value == pytest.approx(
        programme(given, [], [task.work_left_samples or 0.0 for task in given.tasks])
    )


@pytest.mark.parametrize("packed", ["", "-packed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_levels_are_filled_one_after_the_other(seed: int, packed: str) -> None:
    given = drawn(seed, most=6, packed=bool(packed))
    found = share(given, f"water-filling{packed}")
    check_shares(given, found)
    rate = [task.weight * fair(given, task) for task in given.tasks]
    level, rising = [0.0] * len(rate), set(range(len(rate)))
    while rising:  # by trial: a task stays if it cannot be faster while all others keep their levels
        height = programme(given, [], [rate[place] if place in rising else 0.0 for place in range(len(rate))], level)
        for place in rising:
            level[place] += rate[place] * height
        stay = set()
        for place in rising:
            alone = [rate[place] if other == place else 0.0 for other in range(len(rate))]
            if programme(given, [], alone, [each * (1.0 - 1e-9) for each in level]) < 1e-6:
                stay.add(place)
        assert stay
        rising -= stay
    assert list(found.speeds.values()) == pytest.approx(level, rel=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_entities_rise_by_weight_and_inside_by_weight_or_in_turn(seed: int) -> None:
    given, rng = drawn(seed, most=6, packed=False), np.random.default_rng(seed)
    owner = [str(rng.choice(["x", "y"])) for _ in given.tasks]
    tasks = [replace(task, entity=name) for task, name in zip(given.tasks, owner, strict=True)]
    entities = {"x": Entity(weight=2.0), "y": Entity(inside=list(Inside)[seed % 2])}
    given = replace(given, tasks=tuple(tasks), entities=entities)
    level, rising = [0.0] * len(tasks), set(range(len(tasks)))
    while rising:  # by trial: a task stays if it cannot be faster while all others keep their levels
        rate = [0.0] * len(tasks)
        for name, entity in entities.items():
            own = [place for place in sorted(rising) if owner[place] == name]
            own = own[:1] if entity.inside is Inside.FIFO else own
            for place in own:
                part = tasks[place].weight / sum(tasks[other].weight for other in own)
                rate[place] = entity.weight * part * fair(given, tasks[place])
        height = programme(given, [], rate, level)
        level = [now + each * height for now, each in zip(level, rate, strict=True)]
        alone = {place: [rate[place] * (other == place) for other in range(len(tasks))] for place in rising}
        floors = [each * (1.0 - 1e-9) for each in level]
        stay = {place for place in rising if rate[place] and programme(given, [], alone[place], floors) < 1e-6}
        assert stay
        rising -= stay
    found = share(given, "hierarchical")
    check_shares(given, found)
    assert list(found.speeds.values()) == pytest.approx(level, rel=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_time_that_a_batch_leaves_goes_where_it_does_most(seed: int) -> None:
    given = drawn(seed)
    found = share(given, "makespan-packed")
    largest = [max(task.speeds[k] for k, count in given.nodes.items() if task.nodes <= count) for task in given.tasks]
    floors = [(task.work_left_samples or 0.0) / found.value for task in given.tasks]
    worth = [sum(speed / largest[place] for place, speed in column.speeds.items()) for column in columns_of(given)]
    got = sum(speed / most for speed, most in zip(found.speeds.values(), largest, strict=True))
    assert got == pytest.approx(programme(given, worth, None, [floor * (1.0 - 1e-6) for floor in floors]), rel=1e-4)


@pytest.mark.parametrize("packed", ["", "-packed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_smaller_unfairness_is_there(seed: int, packed: str) -> None:
    given = drawn(seed, packed=bool(packed))
    found = share(given, f"finish-time{packed}")
    check_shares(given, found)
    alone = share(given, "isolated").speeds

    def reached(rho: float) -> float:
        rate = []
        for task in given.tasks:
            work = task.work_left_samples or 0.0
            rate.append(work / (rho * (task.alone_s + work / alone[task.name]) - task.age_s))
        return programme(given, [], rate) if min(rate) > 0.0 else 0.0

    assert reached(found.value) >= 1.0 - 1e-6
    assert reached(found.value * (1.0 - 1e-4)) < 1.0
    assert found.value <= share(given, "finish-time").value * (1.0 + 1e-6)


@pytest.mark.parametrize("packed", ["", "-packed"])
@pytest.mark.parametrize("seed", SEEDS)
def test_sums_are_as_large_as_over_all_pairs(seed: int, packed: str) -> None:
    given = drawn(seed, packed=bool(packed))
    tasks = given.tasks
    in_turn = sorted(range(len(tasks)), key=lambda place: -tasks[place].age_s)
    able = [[task.speeds[kind] for kind, count in given.nodes.items() if task.nodes <= count] for task in tasks]
    turn = {place: (len(tasks) - rank) / max(able[place]) for rank, place in enumerate(in_turn)}
    for policy, worth in (
        ("throughput-packed", lambda place, _: tasks[place].weight),
        ("cost-packed", lambda place, kind: tasks[place].weight / given.prices.get(kind, 1.0)),
        ("fifo-packed", lambda place, _: turn[place]),
    ):
        if policy == "fifo-packed" and not packed:
            continue
        found = share(given, policy.replace("-packed", packed))
        check_shares(given, found)
        sums = [
            sum(worth(place, column.kind) * speed for place, speed in column.speeds.items())  # type: ignore[no-untyped-call]  # lambdas
            for column in columns_of(given)
        ]
        assert found.value == pytest.approx(programme(given, sums, None))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_fewest_deadlines_are_missed_over_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    given = drawn(seed, most=6)
    tasks = tuple(replace(task, deadline_in_s=float(rng.lognormal(5.5, 1.0))) for task in given.tasks)
    given = replace(given, tasks=tasks)
    found = share(given, "cost-deadlines-packed")
    check_shares(given, found)
    columns, needed = columns_of(given), []
    for place, task in enumerate(tasks):
        speed = (task.work_left_samples or 0.0) / (task.deadline_in_s or 1.0)
        alone = max(column.speeds[place] for column in columns if list(column.speeds) == [place])
        needed.append(speed if speed <= alone else 0.0)
    due = [place for place, speed in enumerate(needed) if speed]
    worth = [
        sum(tasks[place].weight / given.prices.get(column.kind, 1.0) * speed for place, speed in column.speeds.items())
        for column in columns
    ]
    best = 0.0
    for count in range(len(due) + 1):  # missed
        for met in combinations(due, len(due) - count):
            floors = [needed[place] if place in met else 0.0 for place in range(len(tasks))]
            best = max(best, programme(given, worth, None, floors, feasible=False))
        if best:
            break
    assert found.value == count
    got = sum(
        part * column.speeds[place] * tasks[place].weight / given.prices.get(column.kind, 1.0)
        for column, part in parts_of(given, found)
        for place in column.speeds
    )
    assert got == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_those_who_know_no_kinds_share_time_and_the_isolated_have_their_part(seed: int) -> None:
    given = drawn(seed, packed=False)
    alike = replace(given, tasks=tuple(replace(task, speeds=dict.fromkeys(KINDS, 1.0)) for task in given.tasks))
    # On a kind with fewer nodes than its gang a task has no time
    found = share(given, "max-min-blind")
    check_shares(given, found)
    rate = [task.weight / task.nodes for task in given.tasks]
    assert found.value == pytest.approx(programme(alike, [], rate))
    for task in given.tasks:
        part = {kind: count / len(given.tasks) / task.nodes for kind, count in given.nodes.items()}
        part = {kind: each for kind, each in part.items() if task.nodes <= given.nodes[kind]}
        most = max(1.0, sum(part.values()))
        alone = sum(task.speeds[kind] * each / most for kind, each in part.items())
        assert share(given, "isolated").speeds[task.name] == pytest.approx(alone)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_task_gains_a_part_unless_others_lose_as_much(seed: int) -> None:
    given = drawn(seed, packed=False)
    found = share(given, "proportional")
    check_shares(given, found)
    # The sum of logarithms is largest where no shares raise the sum of the parts gained: a plain programme
    worth = [
        sum(given.tasks[place].weight * speed / found.speeds[f"t{place}"] for place, speed in column.speeds.items())
        for column in columns_of(given)
    ]
    weights = sum(task.weight for task in given.tasks)
    assert programme(given, worth, None) <= weights * (1.0 + 1e-4)


def alike_by_model(given: SharingProblem) -> SharingProblem:
    """Return the problem with equal tasks for each model, gang and weight."""
    first = {(task.model, task.nodes, task.weight): task for task in given.tasks}
    tasks = [replace(first[task.model, task.nodes, task.weight], name=task.name) for task in given.tasks]
    return replace(given, tasks=tuple(tasks))


@pytest.mark.parametrize("policy", ["max-min", "water-filling", "finish-time", "makespan", "throughput", "cost"])
@pytest.mark.parametrize("seed", SEEDS)
def test_classes_of_equal_tasks_do_as_well_as_single_tasks(
    seed: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = alike_by_model(drawn(seed, most=16))
    pairs = []
    for pair in given.pairs:
        same = pair.models[0] == pair.models[1]
        pairs.append(replace(pair, speeds={kind: (a, a if same else b) for kind, (a, b) in pair.speeds.items()}))
    given = replace(given, pairs=tuple(pairs))
    one_by_one = share(given, f"{policy}-packed")
    monkeypatch.setattr(packed_policies, "_ONE_BY_ONE", 0)
    by_class = share(given, f"{policy}-packed")
    check_shares(given, by_class)
    assert by_class.value == pytest.approx(one_by_one.value, rel=1e-6)


@pytest.mark.parametrize("policy", ["max-min", "throughput"])
@pytest.mark.parametrize("seed", SEEDS)
def test_classes_with_unequal_speeds_in_a_pair_lose_nothing(
    seed: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = alike_by_model(drawn(seed, most=16))
    one_by_one = share(given, f"{policy}-packed")
    monkeypatch.setattr(packed_policies, "_ONE_BY_ONE", 0)
    by_class = share(given, f"{policy}-packed")
    assert by_class.value >= one_by_one.value * (1.0 - 1e-6)


def test_without_pairs_a_packed_policy_is_the_plain_one() -> None:
    given = replace(drawn(1), pairs=())
    for policy in ("max-min", "water-filling", "makespan", "finish-time", "throughput", "cost"):
        found = share(given, f"{policy}-packed")
        assert found.value == pytest.approx(share(given, policy).value, rel=1e-6)
        assert not found.pairs


def test_what_is_wrong_with_speeds_of_pairs() -> None:
    for speeds in ({"v": (1.0,)}, {"v": (1.0, -2.0)}, {"v": 3.0}):
        with pytest.raises(BadInput, match="speeds"):
            PairSpeeds(models=("a", "b"), speeds=speeds)  # type: ignore[arg-type]  # that is what is wrong
