"""Ideal: the fluid by hand and against brute force, and the bound against all possible decisions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from scipy.optimize import linprog

from bftrain import BadInput, ReplaySettings, TaskSpec
from bftrain.parts import resolve_objective
from bftrain_replay.reference.fluid_shares import FluidShares
from bftrain_replay.reference.ideal_cluster import ideal, least_of
from tests.unit.replay.cases import curve_of, on_cluster, task


def fluid(tasks: Sequence[TaskSpec], nodes: Mapping[str, int], objective: str = "throughput") -> dict[str, float]:
    return FluidShares(tasks, nodes, resolve_objective(objective), 120.0).run()


def rigid(name: str, size: int, work: float, **given: object) -> TaskSpec:
    rate = (*(0.0,) * (size - 1), 1.0)
    return task(name, **({"rate": rate, "min_nodes": size, "work_samples": work} | given))


def test_gangs_that_do_not_fit_together_share_the_time() -> None:
    # 3 nodes, gangs of 2: one whole and one half of the time; whole nodes could hold one of them only
    done = fluid([rigid("a", 2, 100.0), rigid("b", 2, 100.0)], {"": 3})
    assert done == pytest.approx({"a": 100.0, "b": 150.0})  # b: 50 by then, and alone from then on


def test_an_elastic_task_lies_between_its_sizes() -> None:
    # Five nodes: one task on three of them, the other half of its time on three and half on one
    tasks = [task(name, rate=(10.0, 10.0, 24.0), work_samples=240.0) for name in "ab"]
    assert fluid(tasks, {"": 5}) == pytest.approx({"a": 10.0, "b": 10.0 + 70.0 / 24.0})
    capped = task("a", rate=(10.0, 18.0, 18.0), work_samples=180.0)
    assert fluid([capped], {"": 3}) == pytest.approx({"a": 10.0})


def test_every_task_runs_on_the_kind_that_suits_it() -> None:
    a = task("a", curves={"v": curve_of(40.0), "k": curve_of(10.0)}, work_samples=400.0)
    b = task("b", curves={"v": curve_of(12.0), "k": curve_of(4.0)}, work_samples=400.0)
    done = fluid([a, b], {"v": 1, "k": 1})
    # 40 + 4 is more than 12 + 10; then b alone on the better node
    assert done == pytest.approx({"a": 10.0, "b": 10.0 + 360.0 / 12.0})


def test_arrivals_change_the_shares() -> None:
    late = task("late", rate=(20.0,), work_samples=100.0, submit_s=5.0)
    assert fluid([task("a", rate=(10.0,), work_samples=100.0), late], {"": 1}) == pytest.approx(
        {"a": 15.0, "late": 10.0}
    )
    early = task("a", rate=(10.0,), work_samples=100.0, submit_s=-50.0)
    assert fluid([early], {"": 1}) == pytest.approx({"a": 10.0})


def test_who_is_worth_nothing_is_never_served() -> None:
    nothing = task("a", rate=(10.0,), work_samples=100.0, weight=0.0)
    found = ideal(
        [nothing], {"": 1}, FluidShares([nothing], {"": 1}, resolve_objective("weighted"), 120.0), lambda *_: True
    )
    assert found is not None
    assert (found.fluid_completion_s, found.least_completion_s) == (None, 10.0)
    assert found.over(20.0, 20.0)["completion_over_fluid"] is None
    assert found.over(20.0, None) == {
        "completion_over_fluid": None,
        "completion_over_least": 2.0,
        "makespan_over_fluid": None,
        "makespan_over_least": None,
    }


def test_policies_of_shared_time_for_objectives_that_tie_tasks_together() -> None:
    # The published example: 40 and 10, 12 and 4, 100 and 50 on one node of each kind; the levels are 8/11
    rates = {"a": (40.0, 10.0), "b": (12.0, 4.0), "c": (100.0, 50.0)}
    speeds = {"a": 200 / 11, "b": 64 / 11, "c": 600 / 11}
    tasks = [
        task(name, curves={"v": curve_of(fast), "k": curve_of(slow)}, rate=(1.0,), work_samples=speeds[name] * 7.0)
        for name, (fast, slow) in rates.items()
    ]
    for objective in ("max-min", "max-min-now"):
        assert fluid(tasks, {"v": 1, "k": 1}, objective) == pytest.approx(dict.fromkeys(rates, 7.0), rel=1e-6)


def test_what_has_no_fluid_is_refused_before_anything_is_done() -> None:
    with pytest.raises(BadInput, match="'max-min' is known for tasks of one size only, and 't' has several"):
        fluid([task(work_samples=1.0)], {"": 2}, "max-min")
    with pytest.raises(BadInput, match=r"the fluid of the objective 'finish-time' is not known .*such as throughput"):
        fluid([rigid("a", 1, 1.0)], {"": 2}, "finish-time")


def test_it_can_be_stopped() -> None:
    tasks = [rigid("a", 1, 10.0), rigid("b", 1, 20.0)]
    how = FluidShares(tasks, {"": 1}, resolve_objective("throughput"), 120.0)
    assert ideal(tasks, {"": 1}, how, lambda now_s, _chosen: now_s < 5.0) is None


@pytest.mark.parametrize("seed", range(8))
def test_shares_are_the_best_there_are(seed: int) -> None:
    """Against the same programme with every size in it, and not only the corners of curves."""
    draw = np.random.default_rng(seed)
    nodes = {"v": 2, "k": 2}
    tasks = [
        task(
            f"t{number}",
            curves={kind: curve_of(*np.sort(draw.uniform(1.0, 50.0, 2)).tolist()) for kind in nodes},
            work_samples=1.0,
        )
        for number in range(3)
    ]
    best = _best_mix(tasks, nodes)
    found = FluidShares(tasks, nodes, resolve_objective("throughput"), 120.0)
    speeds = found.speeds({spec.name: spec for spec in tasks}, dict.fromkeys([spec.name for spec in tasks], 1.0), 0.0)
    assert math.fsum(speeds.values()) == pytest.approx(best, rel=1e-9)


def _best_mix(tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> float:
    """Solve the programme with every size as a column, and not only with the corners."""
    columns = [(place, kind, size) for place in range(len(tasks)) for kind in nodes for size in (1, 2)]
    kinds = list(nodes)
    rows = np.zeros((len(tasks) + len(kinds), len(columns)))
    worth = np.zeros(len(columns))
    for number, (place, kind, size) in enumerate(columns):
        curve = tasks[place].curve_on(kind)
        assert curve is not None
        worth[number] = curve.speed(size)
        rows[place, number] = 1.0
        rows[len(tasks) + kinds.index(kind), number] = size
    limits = [1.0] * len(tasks) + [float(nodes[kind]) for kind in kinds]
    return -float(linprog(-worth, A_ub=rows, b_ub=limits).fun)


@pytest.mark.parametrize("seed", range(6))
def test_no_replay_goes_below_the_bound(seed: int) -> None:
    """Against every order in which gangs can be run to their end, one kind after the other, and against our solvers."""
    draw = np.random.default_rng(seed)
    nodes = {"v": 2, "k": 1}
    tasks = []
    for number in range(4):
        size = int(draw.integers(1, 3))
        rate = {kind: float(draw.uniform(1.0, 20.0)) for kind in nodes}
        able = {kind: each for kind, each in rate.items() if nodes[kind] >= size}
        curves = {kind: curve_of(*(0.0,) * (size - 1), each) for kind, each in able.items()}
        work, submit_s = float(draw.uniform(10.0, 200.0)), float(draw.uniform(0.0, 5.0))
        tasks.append(
            task(f"t{number}", curves=curves, min_nodes=size, max_nodes=size, work_samples=work, submit_s=submit_s)
        )
    least = least_of(tasks, nodes)
    means, spans = zip(*(_in_order(order, nodes) for order in itertools.permutations(tasks)), strict=True)
    assert min(means) >= least.completion_s * (1 - 1e-9)
    assert min(spans) >= least.makespan_s * (1 - 1e-9)
    for objective in ("throughput", "speedup"):
        result = on_cluster(nodes, tasks, ReplaySettings(objective=objective)).result.summary()
        assert result.completion_s is not None
        assert result.makespan_s is not None
        assert result.completion_s.mean >= least.completion_s * (1 - 1e-9)
        assert result.makespan_s >= least.makespan_s * (1 - 1e-9)
        done = fluid(tasks, nodes, objective)
        mean_s = math.fsum(done[spec.name] - spec.submit_s for spec in tasks) / len(tasks)
        assert mean_s >= least.completion_s * (1 - 1e-9)


def _in_order(order: Sequence[TaskSpec], nodes: Mapping[str, int]) -> tuple[float, float]:
    """Start gangs in this order, each where it is done first: mean completion time and makespan."""
    free = {kind: [0.0] * count for kind, count in nodes.items()}
    ends = {}
    for spec in order:
        choices = []
        for kind, curve in spec.curves.items():
            if spec.min_nodes <= nodes[kind]:
                begin = max(sorted(free[kind])[spec.min_nodes - 1], spec.submit_s)
                choices.append((begin + float(spec.work_samples or 0) / curve.speed(spec.min_nodes), kind))
        end, kind = min(choices)
        free[kind] = sorted(free[kind])
        free[kind][: spec.min_nodes] = [end] * spec.min_nodes
        ends[spec.name] = end
    mean = math.fsum(ends[spec.name] - spec.submit_s for spec in order) / len(order)
    return mean, max(ends.values()) - min(spec.submit_s for spec in order)


def test_the_least_of_one_machine_is_shortest_first() -> None:
    tasks = [rigid("long", 1, 10.0), rigid("short", 1, 2.0), rigid("late", 1, 1.0, submit_s=3.0)]
    least = least_of(tasks, {"": 1})
    assert least.completion_s == pytest.approx((13.0 + 2.0 + 1.0) / 3)
    assert least.makespan_s == 13.0


def test_a_study_tells_its_ideal() -> None:
    tasks = [rigid("a", 2, 100.0), rigid("b", 2, 100.0)]
    study = on_cluster({"": 3}, tasks, ReplaySettings(), ideally=True)
    assert study.fixed is not None
    found = study.fixed.ideal
    assert found is not None
    assert (found.fluid_completion_s, found.fluid_makespan_s) == pytest.approx((125.0, 150.0))
    assert found.least_makespan_s == pytest.approx(400.0 / 3)
    assert study.result.makespan_s == 200.0
