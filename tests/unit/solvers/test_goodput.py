"""Goodput: the progress of a task at its best batch, by hand and against all batches tried one by one."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain import (
    AllocationProblem,
    BadValue,
    BatchScaling,
    CompetingTask,
    NodesJoined,
    Settings,
    SpeedCurve,
    TaskMeasured,
    TaskSpec,
    TaskSubmitted,
    build_harvester,
    registry,
    solve,
)

GOODPUT = registry.load("objective", "goodput")

# A node computes 100 samples/s: a step of 50 samples on each of two takes 0.5 s, and 0.125 s for the exchange
CURVE = SpeedCurve(nodes=(1, 2), rate=(100.0, 160.0))


def task(name: str = "a", curve: SpeedCurve = CURVE, **batch: float) -> CompetingTask:
    """Return a task; without ``batch`` one that does not say its batches."""
    scaling = BatchScaling(**batch) if batch else None  # type: ignore[arg-type]  # counts are whole numbers
    return CompetingTask(name=name, max_nodes=curve.last_measured, curve=curve, batch=scaling)


def progress(given: CompetingTask) -> list[float]:
    return GOODPUT.values(given, np.arange(given.max_nodes + 1)).tolist()


def test_the_best_batch_weighs_exchange_against_noise() -> None:
    given = task(initial=50, noise_scale=400.0, largest=1000)
    # On one node there is no exchange, and the initial batch is best. On two, the exchange takes as long as computing
    # 25 samples: of sqrt(400 * 25) = 100 samples a step takes 100 / 200 + 0.125 s, and 450 / 500 of each counts
    assert progress(given) == pytest.approx([0.0, 100.0, 160.0 * 450.0 / 500.0], rel=1e-15)


def test_a_part_of_a_step_may_be_fixed_on_one_node_too() -> None:
    given = task(initial=50, noise_scale=400.0, largest=1000, fixed_share=0.2)
    # A step of 50 samples takes 0.5 s on one node: 0.1 s for any batch, and a node computes 125 samples/s. In 0.1 s
    # that is 12.5 samples, and in the 0.225 s that are fixed on two nodes 56.25: sqrt(400 * 12.5) = 70.7, and 150
    step_s = 71.0 / 125.0 + 0.1, 150.0 / 250.0 + 0.225
    assert progress(given)[1:] == pytest.approx([71.0 / step_s[0] * 450.0 / 471.0, 150.0 / step_s[1] * 450.0 / 550.0])


def test_without_a_largest_batch_nodes_do_what_they_did_when_the_curve_was_measured() -> None:
    given = task(initial=50, noise_scale=400.0)
    assert progress(given) == pytest.approx([0.0, 100.0, 160.0 * 450.0 / 500.0], rel=1e-15)
    half = task(initial=50, noise_scale=400.0, per_node=25)  # the same speeds, with half as long an exchange
    assert progress(half) == pytest.approx([0.0, 100.0, 160.0], rel=1e-15)


def curve_of(dice: random.Random) -> SpeedCurve:
    sizes = sorted(dice.sample(range(1, 13), dice.randint(1, 4)))
    return SpeedCurve(nodes=tuple(sizes), rate=tuple(dice.uniform(10.0, 900.0) for _ in sizes))


@pytest.mark.parametrize("seed", range(20))
def test_without_batches_or_with_endless_noise_it_is_throughput(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - cases to try, not secrets
    curve = curve_of(dice)
    speeds = curve.speeds(curve.last_measured).tolist()
    assert progress(task(curve=curve)) == speeds
    assert progress(task(curve=curve, initial=dice.randint(1, 99), noise_scale=1e18)) == pytest.approx(
        speeds, rel=1e-12
    )


def of_batch(given: CompetingTask, size: int, batch: int) -> float:
    """Compute the goodput from the seconds that a step takes."""
    scaling, curve = given.batch, given.curve
    assert scaling is not None
    if not size or not curve.speed(size):
        return 0.0
    sample_s = min(nodes / rate for nodes, rate in zip(curve.nodes, curve.rate, strict=True)) * (
        1.0 - scaling.fixed_share
    )
    per_node = scaling.per_node or scaling.initial
    fixed_s = size * per_node / curve.speed(size) - per_node * sample_s
    speed = batch / (batch / size * sample_s + fixed_s)
    return speed * (scaling.noise_scale + scaling.initial) / (scaling.noise_scale + batch)


def batches(given: CompetingTask, size: int) -> range:
    assert given.batch is not None
    assert given.batch.largest is not None
    return range(max(given.batch.initial, size), given.batch.largest + 1)


@pytest.mark.parametrize("seed", range(30))
def test_no_sizes_and_batches_are_better(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - cases to try, not secrets
    tasks = []
    for number in range(3):
        initial = dice.randint(1, 40)
        noise = dice.choice([0.0, 10.0 ** dice.uniform(-1.0, 5.0)])
        more = {} if dice.random() < 0.5 else {"per_node": dice.randint(1, 60), "fixed_share": dice.uniform(0.0, 0.9)}
        largest = max(12, initial) + dice.randint(0, 80)
        tasks.append(task(f"t{number}", curve_of(dice), initial=initial, noise_scale=noise, largest=largest, **more))
    pool = dice.randint(1, 12)
    best = [
        [max(of_batch(given, size, batch) for batch in batches(given, size)) for size in range(given.max_nodes + 1)]
        for given in tasks
    ]
    for given, wanted in zip(tasks, best, strict=True):
        assert progress(given) == pytest.approx(wanted, rel=1e-12)
    work = [dice.choice([None, 10.0 ** dice.uniform(0.0, 6.0)]) for _ in tasks]
    tasks = [
        replace(given, weight=dice.choice([0.5, 1.0, 3.0]), work_left_samples=left)
        for given, left in zip(tasks, work, strict=True)
    ]
    rows = [
        [task.weight * (10.0 * made / left) ** 0.5 for made in row]
        for task, row, left in zip(tasks, best, left_samples(tasks, best), strict=True)
    ]
    value = max(
        sum(row[size] for row, size in zip(rows, sizes, strict=True))
        for sizes in product(*(range(len(row)) for row in best))
        if sum(sizes) <= pool
    )
    problem = AllocationProblem(pool=pool, horizon_s=10.0, objective="goodput", tasks=tuple(tasks))
    found = solve(problem, ("exact", "highs")[seed % 2])
    assert (found.quality, found.value) == ("proven", pytest.approx(value, rel=1e-9))


def left_samples(tasks: list[CompetingTask], best: list[list[float]]) -> list[float]:
    """Return the remaining work, at least 10 s of one node; unknown work takes as long as the longest known."""
    sizes = [next(size for size, made in enumerate(row) if made > 0.0) for row in best]
    single = [row[size] / size for row, size in zip(best, sizes, strict=True)]
    seconds = [
        10.0 if task.work_left_samples is None else max(10.0, task.work_left_samples / one)
        for task, one in zip(tasks, single, strict=True)
    ]
    return [
        one * (max(seconds) if task.work_left_samples is None else left)
        for task, one, left in zip(tasks, single, seconds, strict=True)
    ]


def test_short_tasks_go_first_and_models_count_alike() -> None:
    curve = SpeedCurve(nodes=(1, 8), rate=(100.0, 800.0))
    slow = SpeedCurve(nodes=(1, 8), rate=(1.0, 8.0))
    short, long = (replace(task(name, curve), work_left_samples=work) for name, work in (("short", 1e5), ("long", 3e5)))
    other = replace(task("slow", slow), work_left_samples=1e3)  # as long as the short one

    def sizes(*tasks: CompetingTask) -> list[int]:
        return list(solve(AllocationProblem(pool=8, horizon_s=60.0, objective="goodput", tasks=tasks)).sizes.values())

    assert sizes(short, long) == [6, 2]  # the sum of roots of n / r is largest where n is as 1 / r
    assert sizes(short, other) == [4, 4]
    assert sizes(replace(short, work_left_samples=5e3), other) == [7, 1]  # as 60 s, the horizon, beside 1,000 s
    assert sizes(replace(long, weight=3.0), short) == [6, 2]  # as w^2 / r: 9 / 3 beside 1


def test_every_solver_takes_it_and_it_prefers_the_task_with_more_noise() -> None:
    curve = SpeedCurve(nodes=(1, 4, 16), rate=(500.0, 1700.0, 4000.0))
    calm, noisy = (task(name, curve, initial=128, noise_scale=noise) for name, noise in (("c", 300.0), ("n", 2e4)))
    problem = AllocationProblem(pool=16, horizon_s=60.0, objective="goodput", tasks=(calm, noisy))
    for solver in ("exact", "highs", "greedy"):
        sizes = solve(problem, solver).sizes
        assert sizes["n"] > sizes["c"]


def test_a_harvester_divides_nodes_by_it() -> None:
    curve = SpeedCurve(nodes=(1, 4, 16), rate=(500.0, 1700.0, 4000.0))
    harvester = build_harvester(Settings(objective="goodput"))
    harvester.handle(NodesJoined(time_s=0.0, nodes=tuple(f"n{number}" for number in range(16))))
    for name, noise in (("c", 300.0), ("n", 2e4)):
        batch = BatchScaling(initial=128, noise_scale=noise, largest=8192)
        spec = TaskSpec(name=name, curve=curve, max_nodes=16, batch=batch)
        harvester.handle(TaskSubmitted(time_s=0.0, spec=spec))
    assert {name: len(held) for name, held in harvester.held.items()} == {"c": 4, "n": 12}


def test_a_measured_noise_scale_changes_the_batch() -> None:
    harvester = build_harvester(Settings(objective="goodput"))
    curve = SpeedCurve(nodes=(1, 2), rate=(100.0, 160.0))
    batch = BatchScaling(initial=50, largest=1000, noise_scale=400.0)
    for name, own in (("a", batch), ("plain", None)):
        harvester.absorb(TaskSubmitted(time_s=0.0, spec=TaskSpec(name=name, max_nodes=2, curve=curve, batch=own)))
    harvester.absorb(NodesJoined(time_s=0.0, nodes=("n1", "n2", "n3", "n4")))
    before = harvester.decide(0.0).batches["a"]
    harvester.absorb(*(TaskMeasured(time_s=9.0, task=name, noise_scale=40_000.0) for name in ("a", "plain")))
    assert harvester.decide(10.0).batches["a"] == 10 * before == 1000
    assert harvester.spec("plain").batch is None
    with pytest.raises(BadValue, match="noise_scale"):
        TaskMeasured(time_s=9.0, task="a", noise_scale=-1.0)
