"""The proven bound against brute force, against a linear programme written out in full, and against replays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any, Final

import numpy as np
import pytest
from msgspec.structs import replace as changed
from scipy.optimize import linprog

import bftrain
from bftrain import EventLog, SpeedCurve, SpreadSpeed, SpreadSpeeds, TaskSpec
from tests.unit.replay.cases import log_of, mix, task

SPAN_S: Final = 8.0


def drawn_log(draw: Random, nodes: int) -> EventLog:
    """Return a log of so many nodes that come and go at whole seconds."""
    idle, changes = {"n0"}, [(0.0, ["n0"], list[str]())]
    for time_s in range(1, int(SPAN_S)):
        moved = {f"n{number}" for number in range(nodes) if draw.random() < 0.4}
        changes.append((float(time_s), sorted(moved - idle), sorted(moved & idle)))
        idle ^= moved
    return log_of(*changes, end_s=SPAN_S)


def summary_of(log: EventLog, tasks: Sequence[TaskSpec], most: int, **settings: Any) -> Any:  # noqa: ANN401 - figures
    return bftrain.replay(log, tasks, max_tasks=most, **settings).result.summary()


def idle_nodes(log: EventLog) -> list[tuple[float, float, int]]:
    """Return from when, for how long and how many nodes were idle."""
    starts = log.times - log.start_s
    return list(zip(starts.tolist(), log.durations_s.tolist(), log.pool_sizes().tolist(), strict=True))


def brute_force(speeds: Mapping[int, float], nodes: int, tasks: int) -> float:
    """Try all sizes of all tasks."""

    @cache
    def best(left: int, more: int) -> float:
        if not more:
            return 0.0
        return max(
            [
                best(left, more - 1),
                *(speed + best(left - size, more - 1) for size, speed in speeds.items() if size <= left),
            ]
        )

    return best(nodes, tasks)


@pytest.mark.parametrize("seed", range(200))
def test_identical_tasks_have_the_bound_of_brute_force(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - it draws cases
    log, most = drawn_log(draw, draw.randint(1, 6)), draw.randint(1, 4)
    rate = tuple(draw.choice((0.0, 1.0, 2.0, 3.0, 5.0, 8.0)) + size for size in range(1, draw.randint(2, 6)))
    smallest = draw.randint(1, len(rate))
    arrivals = [0.0, *(float(draw.randint(0, 6)) for _ in range(draw.randint(0, 4)))]
    work = draw.choice((None, 10.0, 1000.0))
    tasks = [
        task(f"t{number}", rate=rate, min_nodes=smallest, submit_s=submit_s, work_samples=work)
        for number, submit_s in enumerate(arrivals)
    ]
    speeds = {size: rate[size - 1] for size in range(smallest, len(rate) + 1)}
    expected = 0.0
    for start_s, length_s, nodes in idle_nodes(log):
        moments = sorted(
            {start_s, start_s + length_s, *(each for each in arrivals if start_s < each < start_s + length_s)}
        )
        for begin_s, end_s in pairwise(moments):
            here = sum(each <= begin_s for each in arrivals)
            expected += (end_s - begin_s) * brute_force(speeds, nodes, min(here, most))
    if work is not None:
        expected = min(expected, work * len(tasks))
    found = summary_of(log, tasks, most)
    assert found.bound_samples == pytest.approx(expected)
    assert found.harvested <= expected * (1 + 1e-9)


def written_out(log: EventLog, tasks: Sequence[TaskSpec], most: int) -> float:
    """Return the optimum of a linear programme with a column for each task, size and moment."""
    columns, worth, rows, limits = [], [], [], []
    moments = idle_nodes(log)
    for moment, (_, length_s, nodes) in enumerate(moments):
        for number, spec in enumerate(tasks):
            for size in range(spec.min_nodes, min(spec.max_nodes, nodes) + 1):
                columns.append((moment, number, size))
                worth.append(spec.curve.speed(size) * length_s)
    for moment, (_, _, nodes) in enumerate(moments):
        rows.append([size * (at == moment) for at, _, size in columns])
        rows.append([float(at == moment) for at, _, _ in columns])
        limits += [nodes, most]
        for number in range(len(tasks)):
            rows.append([float(at == moment and who == number) for at, who, _ in columns])
            limits.append(1.0)
    for number, spec in enumerate(tasks):
        if spec.work_samples is not None:
            rows.append([value * (who == number) for value, (_, who, _) in zip(worth, columns, strict=True)])
            limits.append(spec.work_samples)
    found = linprog(-np.array(worth), A_ub=np.array(rows), b_ub=limits)
    return -float(found.fun)


@pytest.mark.parametrize("seed", range(20))
def test_different_tasks_have_the_bound_of_the_linear_programme(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - it draws cases
    log, most = drawn_log(draw, 4), draw.randint(1, 3)
    tasks = [
        task(
            f"t{number}", rate=tuple(draw.uniform(1, 3) + size for size in range(draw.randint(1, 4))), work_samples=work
        )
        for number, work in enumerate((None, 7.0, 15.0, 100.0))
    ]
    found = summary_of(log, tasks, most)
    assert found.bound_samples == pytest.approx(written_out(log, tasks, most), rel=1e-6)
    assert found.harvested <= found.bound_samples


@pytest.mark.parametrize("objective", ["throughput", "max-min", "goodput"])
@pytest.mark.parametrize("admission", ["first-come", "all"])
def test_no_replay_is_above_the_bound(objective: str, admission: str) -> None:
    log = bftrain.generate_log(24, 0.5, 3)
    tasks = mix(30, 1)
    for most in (1, 4, 12):
        found = summary_of(log, tasks, most, objective=objective, admission=admission)
        assert 0.0 < found.harvested <= found.bound_samples
        assert found.one_each_samples is None


def test_kinds_of_nodes_have_pools_of_their_own() -> None:
    log = bftrain.generate_log(24, 0.5, 3)
    log = replace(log, kind_names=("fast", "slow"), node_kinds=np.arange(24, dtype=np.int32) % 2)
    spec = task(rate=(10.0, 18.0))
    tasks = [
        task(f"t{number}", rate=(10.0, 18.0), curves={"fast": spec.curve, "slow": task(rate=(1.0, 2.0)).curve})
        for number in range(20)
    ]
    found = summary_of(log, tasks, 4)
    assert 0.0 < found.harvested <= found.bound_samples


@pytest.mark.parametrize(
    "on_two_hosts", [SpreadSpeed(share=1.5), SpreadSpeed(curve=SpeedCurve(nodes=(1, 2), rate=(10.0, 27.0)))]
)
@pytest.mark.parametrize("rates", [((10.0, 18.0),), ((10.0, 18.0), (9.0, 16.0))])
def test_tasks_that_are_faster_on_two_hosts_stay_below_the_bound(
    on_two_hosts: SpreadSpeed, rates: Sequence[tuple[float, ...]]
) -> None:
    log = log_of((0.0, ("a/gpu0", "b/gpu0"), ""), end_s=100.0)
    log = replace(log, provenance=changed(log.provenance, unit="gpu"))
    spread = SpreadSpeeds(speeds=(on_two_hosts,), per_place=4)
    tasks = [task(f"t{number}", rate=rate, min_nodes=2, spread=spread) for number, rate in enumerate(rates)]
    found = summary_of(log, tasks, 1)
    assert found.harvested == pytest.approx(2700.0)
    assert found.harvested <= found.bound_samples * (1 + 1e-9)


def test_a_cap_that_costs_more_than_all_overheads_is_named() -> None:
    log = log_of((0.0, [f"n{number}" for number in range(20)], []), end_s=100.0)
    tasks = [task(f"t{number}", rate=(10.0, 15.0, 18.0)) for number in range(30)]
    capped, free = (bftrain.replay(log, tasks, max_tasks=most).headline for most in (5, 30))
    assert any("cap on competing tasks costs 55.0 %" in each for each in capped.caveats), capped.caveats
    assert not any("cap on competing" in each for each in free.caveats)


def test_no_cap_is_named_that_the_admission_ignores() -> None:
    log = log_of((0.0, [f"n{number}" for number in range(20)], []), end_s=100.0)
    tasks = [task(f"t{number}", rate=(10.0, 15.0, 18.0)) for number in range(10)]
    done = bftrain.replay(log, tasks, max_tasks=5, admission="all")
    assert done.result.harvested_samples == 15_000.0  # all ten run
    assert not any("cap on competing" in each for each in done.headline.caveats)


def test_max_tasks_auto_doubles_the_cap_until_that_adds_less_than_a_percent() -> None:
    log = log_of((0.0, [f"n{number}" for number in range(100)], []), end_s=100.0)
    tasks = [task(f"t{number}", rate=(10.0, 15.0, 18.0)) for number in range(300)]
    assert bftrain.replay(log, tasks, max_tasks="auto").result.settings.max_tasks == 140
    assert bftrain.replay(log, tasks[:50], max_tasks="auto").result.settings.max_tasks == 50
    assert bftrain.replay(log, max_tasks="auto").result.settings.max_tasks == 101
