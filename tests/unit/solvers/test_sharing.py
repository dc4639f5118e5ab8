"""Sharing of node kinds: figures calculated by hand or published, and plain programmes that give the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import linprog
from scipy.sparse import csr_array

from bftrain import BadInput, BftrainError, Entity, SharingProblem, SharingTask, UnknownName, share
from bftrain.values import wire
from bftrain.values.sharing import Inside
from bftrain_solvers.sharing import rising
from bftrain_solvers.sharing.policies import ShareColumns
from bftrain_solvers.sharing.rising import ShareDemands, rise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.sharing import Shares

    Floats = NDArray[np.float64]

TWO = ([[2.0, 1.0, 0.5], [3.0, 2.0, 1.0]], (1, 2, 3))
SEEDS = range(50)


def problem(speeds: Sequence[Sequence[float]], counts: Sequence[int], **more: Sequence[Any]) -> SharingProblem:
    kinds = [f"k{place}" for place in range(len(counts))]
    tasks = tuple(
        SharingTask(
            name=f"t{place}",
            speeds={kind: float(speed) for kind, speed in zip(kinds, row, strict=True) if speed > 0.0},
            **{name: values[place] for name, values in more.items()},
        )
        for place, row in enumerate(speeds)
    )
    return SharingProblem(nodes=dict(zip(kinds, counts, strict=True)), tasks=tasks)


def drawn(seed: int, count: int = 6, kinds: int = 3) -> SharingProblem:
    """Draw a problem in which something is scarce, kinds differ and some cannot run everywhere."""
    rng = np.random.default_rng(seed)
    speeds = rng.lognormal(0.0, 1.0, (count, kinds))
    speeds[rng.random(speeds.shape) < 0.2] = 0.0
    speeds[speeds.max(axis=1) == 0.0, 0] = 1.0
    work = [float(samples) for samples in rng.lognormal(3.0, 1.0, count)]
    return problem(
        speeds.tolist(),
        [int(number) for number in rng.integers(4, 4 + count, kinds)],
        nodes=[int(nodes) for nodes in rng.choice([1, 2, 4], count)],
        weight=[float(weight) for weight in rng.choice([1.0, 2.0, 5.0], count)],
        work_left_samples=work,
        age_s=[float(age) for age in rng.uniform(0.0, 20.0, count)],
        alone_s=[float(alone) for alone in rng.uniform(0.0, 20.0, count)],
    )


def most(given: ShareColumns, gains: Floats, floor: Floats | None = None) -> tuple[float, Floats]:
    """Return the largest ``gains @ speeds``, every speed being at least its ``floor``: as a plain programme."""
    market = given.market
    count, kinds = market.speeds.shape
    cost = -(gains[:, None] * market.speeds).ravel()
    time = np.kron(np.eye(count), np.ones(kinds))
    room = np.hstack([market.nodes[place] * np.eye(kinds) for place in range(count)])
    rows, limits = [time, room], [np.ones(count), market.counts]
    if floor is not None:
        rows.append(-np.kron(np.eye(count), np.ones(kinds)) * market.speeds.ravel())
        limits.append(-floor)
    bounds = [(0.0, 1.0 if speed > 0.0 else 0.0) for speed in market.speeds.ravel()]
    precise = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    solve: Any = linprog  # its types do not know these options
    found = solve(cost, A_ub=np.vstack(rows), b_ub=np.concatenate(limits), bounds=bounds, options=precise)
    assert found.status == 0, found.message
    return -float(found.fun), found.x.reshape(count, kinds)


def in_bounds(given: SharingProblem, shares: Shares) -> None:
    """Check that no task runs more than all of the time, and none needs nodes that are not there."""
    tasks = {task.name: task for task in given.tasks}
    for name, row in shares.shares.items():
        assert sum(row.values()) <= 1.0 + 1e-7
        assert min(row.values(), default=0.0) >= 0.0
        speed = sum(tasks[name].speeds[kind] * part for kind, part in row.items())
        assert shares.speeds[name] == pytest.approx(speed, rel=1e-9)
    for kind, count in given.nodes.items():
        used = sum(tasks[name].nodes * row.get(kind, 0.0) for name, row in shares.shares.items())
        assert used <= count * (1.0 + 1e-7)






@pytest.mark.parametrize("seed", SEEDS)
def test_the_slowest_is_as_fast_as_can_be(seed: int) -> None:
    given = drawn(seed)
    columns, found = ShareColumns.of(given), share(given, "max-min")
    in_bounds(given, found)
    rate = columns.weights * columns.fair
    levels = np.array(list(found.speeds.values())) / rate
    assert levels.min() == pytest.approx(found.value, rel=1e-7)
    # No plain programme reaches more than that for all, and one reaches it
    most(columns, np.zeros(len(rate)), rate * found.value * (1.0 - 1e-6))
    with pytest.raises(AssertionError, match="infeasible"):
        most(columns, np.zeros(len(rate)), rate * found.value * (1.0 + 1e-6))


@pytest.mark.parametrize("policy", ["water-filling", "hierarchical"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_task_can_be_faster_without_another_slower(policy: str, seed: int) -> None:
    given = drawn(seed)
    if policy == "hierarchical":
        tasks = tuple(
            SharingTask(name=task.name, speeds=dict(task.speeds), nodes=task.nodes, entity="ab"[place % 2])
            for place, task in enumerate(given.tasks)
        )
        entities = {"a": Entity(weight=2.0), "b": Entity(inside=Inside.FIFO)}
        given = SharingProblem(nodes=dict(given.nodes), tasks=tasks, entities=entities)
    columns, found = ShareColumns.of(given), share(given, policy)
    in_bounds(given, found)
    speeds = np.array(list(found.speeds.values()))
    for place in range(len(speeds)):
        alone = np.zeros(len(speeds))
        alone[place] = 1.0
        largest, _ = most(
            columns, alone, speeds * (1.0 - 3e-9)
        )  # a little: at the worst a hundred times as much elsewhere
        assert largest == pytest.approx(speeds[place], rel=1e-5, abs=1e-6)


def highest(given: ShareColumns, rate: Floats, floor: Floats) -> float:
    """Return how high all can rise together, each at its ``rate`` from its ``floor``: as a plain programme."""
    market = given.market
    count, kinds = market.speeds.shape
    of_tasks = np.kron(np.eye(count), np.ones(kinds))
    room = np.hstack([market.nodes[place] * np.eye(kinds) for place in range(count)])
    rows = np.vstack([of_tasks, room, -of_tasks * market.speeds.ravel()])
    rows = np.hstack([rows, np.concatenate((np.zeros(count + kinds), rate))[:, None]])
    bounds = [(0.0, 1.0 if speed > 0.0 else 0.0) for speed in market.speeds.ravel()]
    found = linprog(
        np.append(np.zeros(count * kinds), -1.0),
        A_ub=rows,
        b_ub=np.concatenate((np.ones(count), market.counts, -floor)),
        bounds=[*bounds, (0.0, None)],
    )
    assert found.status == 0, found.message
    return -float(found.fun)


@pytest.mark.parametrize("seed", SEEDS)
def test_water_filling_is_max_min_again_and_again(seed: int) -> None:
    given = drawn(seed)
    columns, found = ShareColumns.of(given), share(given, "water-filling")
    rate = columns.weights * columns.fair
    rises, floor = np.ones(len(rate), dtype=bool), np.zeros(len(rate))
    while rises.any():  # as slowly as can be: who cannot rise at all stays
        floor += rate * rises * highest(columns, rate * rises, floor * (1.0 - 1e-6))
        for place in np.flatnonzero(rises):
            alone = np.zeros(len(rate))
            alone[place] = 1.0
            rises[place] = most(columns, alone, floor * (1.0 - 1e-6))[0] > floor[place] * (1.0 + 1e-5)
    assert list(found.speeds.values()) == pytest.approx(floor.tolist(), rel=1e-4)




@pytest.mark.parametrize("seed", SEEDS)
def test_blind_to_speeds_the_least_time_by_weight_is_as_long_as_can_be(seed: int) -> None:
    given = drawn(seed)
    alike = tuple(replace(task, speeds=dict.fromkeys(task.speeds, 1.0)) for task in given.tasks)
    columns, found = ShareColumns.of(replace(given, tasks=alike)), share(given, "max-min-blind")
    in_bounds(given, found)
    times = columns.weights / columns.market.nodes * found.value
    most(columns, np.zeros(len(times)), times * (1.0 - 1e-6))
    with pytest.raises(AssertionError, match="infeasible"):
        most(columns, np.zeros(len(times)), times * (1.0 + 1e-6))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plain_programme_ends_sooner_or_is_less_unfair(seed: int) -> None:
    given = drawn(seed)
    columns = ShareColumns.of(given)
    work = np.array([task.work_left_samples or 0.0 for task in given.tasks])
    nothing = np.zeros(len(work))
    makespan = share(given, "makespan")
    in_bounds(given, makespan)
    most(columns, nothing, work / makespan.value * (1.0 - 1e-6))
    with pytest.raises(AssertionError, match="infeasible"):
        most(columns, nothing, work / makespan.value * (1.0 + 1e-6))
    found = share(given, "finish-time")
    in_bounds(given, found)
    age = np.array([task.age_s for task in given.tasks])
    alone_s = np.array([task.alone_s for task in given.tasks]) + work / columns.speeds(columns.alone)
    most(columns, nothing, work / (found.value * alone_s - age) * (1.0 - 1e-6))
    with pytest.raises(AssertionError, match="infeasible"):
        most(columns, nothing, work / (found.value * (1.0 - 1e-6) * alone_s - age) * (1.0 + 1e-9))
    # No task is worse off than alone at the worst: that is where it begins
    assert found.value <= ((age + work / columns.speeds(columns.alone)) / alone_s).max() * (1.0 + 1e-9)
    largest = share(given, "throughput")
    in_bounds(given, largest)
    assert largest.value == pytest.approx(most(columns, columns.weights)[0], rel=1e-7)




@pytest.mark.parametrize("scarce", [4, 6, 18])
def test_tasks_to_which_kinds_are_nearly_alike_need_no_large_programme(
    scarce: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, rng, sizes, maximise = 1024, np.random.default_rng(scarce), [], rising.maximise
    speeds = rng.lognormal(0.0, 1.0, (count, 1)) * [3.0, 2.0, 1.0] * rng.lognormal(0.0, 0.05, (count, 3))
    market = ShareDemands(speeds, rng.choice([1.0, 2.0, 4.0, 8.0], count), np.full(3, float(count // scarce)))
    rate = speeds.mean(axis=1) / market.nodes * rng.choice([1.0, 2.0, 5.0], count)

    def counted(worth: Floats, *rows: Any, **more: Any) -> Any:  # noqa: ANN401 - as the one it stands for
        sizes.append(len(worth))
        return maximise(worth, *rows, **more)

    monkeypatch.setattr(rising, "maximise", counted)
    found = rise(market, np.zeros(count), rate)
    assert max(sizes, default=0) <= 3 * count // 2
    # One plain programme over all tasks: columns of shares, then the height
    task, entry = np.repeat(np.arange(count), 3), np.arange(3 * count)
    row = np.concatenate((task, count + task, 2 * count + entry % 3, np.arange(count)))
    data = np.concatenate((-speeds.ravel() / rate[task], np.ones(3 * count), market.nodes[task], np.ones(count)))
    matrix = csr_array((data, (row, np.concatenate((entry, entry, entry, np.full(count, 3 * count))))))
    limits = np.concatenate((np.zeros(count), np.ones(count), market.counts))
    solve: Any = linprog  # its types do not know that arrays may be sparse
    plain = solve(np.append(np.zeros(3 * count), -1.0), A_ub=matrix, b_ub=limits)
    assert found.height == pytest.approx(-plain.fun, rel=1e-6)
    assert (found.shares.sum(axis=1) <= 1.0 + 1e-7).all()
    assert (market.nodes @ found.shares <= market.counts * (1.0 + 1e-7)).all()
    assert ((speeds * found.shares).sum(axis=1) >= rate * found.height * (1.0 - 1e-7)).all()






@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"q": 1.0}}]},
            "'a' has a speed on 'q', an unknown kind",
        ),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": 1.0}, "nodes": 2}]}, "'a' cannot run"),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": 0.0}}]}, "'a' cannot run"),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": -1.0}}]}, "numbers of at least 0"),
        ({"nodes": {"k": -1}, "tasks": []}, "whole numbers of at least 0"),
        ({"nodes": {"k": 1}, "tasks": [], "entities": {"e": {"weight": 0.0}}}, "weight"),
    ],
)
def test_problems_that_make_no_sense(given: dict[str, object], words: str) -> None:
    with pytest.raises(BftrainError, match=words):
        share(given)


def test_unknown_work_and_unknown_policies() -> None:
    with pytest.raises(BadInput, match="has no remaining work"):
        share(problem(*TWO), "makespan")
    with pytest.raises(UnknownName, match="did you mean 'max-min'"):
        share(problem(*TWO), "maxmin")


