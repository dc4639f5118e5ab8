"""Ideal: the fluid by hand and against brute force, and the bound against all possible decisions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from bftrain import BadInput, ReplaySettings, TaskSpec
from tests.unit.replay.cases import curve_of, on_cluster, task


def ideal(tasks: Sequence[TaskSpec], nodes: Mapping[str, int], objective: str = "throughput") -> Any:  # noqa: ANN401 - figures of a study
    """Replay, and return the figures of nodes that are divided at no cost, and the bound of any division."""
    settings = ReplaySettings(objective=objective, horizon_s=120.0)
    return on_cluster(nodes, tasks, settings, until_s=1e6, ideally=True).fixed.ideal


def fluid(tasks: Sequence[TaskSpec], nodes: Mapping[str, int], objective: str = "throughput") -> tuple[float, float]:
    """Return the mean time to finish and the makespan where nodes are divided at no cost."""
    found = ideal(tasks, nodes, objective)
    return found.fluid_completion_s, found.fluid_makespan_s


def rigid(name: str, size: int, work: float, **given: object) -> TaskSpec:
    rate = (*(0.0,) * (size - 1), 1.0)
    return task(name, **({"rate": rate, "min_nodes": size, "work_samples": work} | given))


def test_gangs_that_do_not_fit_together_share_the_time() -> None:
    # 3 nodes, gangs of 2: one whole and one half of the time; whole nodes could hold one of them only
    done = fluid([rigid("a", 2, 100.0), rigid("b", 2, 100.0)], {"": 3})
    assert done == pytest.approx(((100.0 + 150.0) / 2, 150.0))  # b: 50 by then, and alone from then on


def test_an_elastic_task_lies_between_its_sizes() -> None:
    # Five nodes: one task on three of them, the other half of its time on three and half on one
    tasks = [task(name, rate=(10.0, 10.0, 24.0), work_samples=240.0) for name in "ab"]
    assert fluid(tasks, {"": 5}) == pytest.approx((10.0 + 35.0 / 24.0, 10.0 + 70.0 / 24.0))
    capped = task("a", rate=(10.0, 18.0, 18.0), work_samples=180.0)
    assert fluid([capped], {"": 3}) == pytest.approx((10.0, 10.0))


def test_every_task_runs_on_the_kind_that_suits_it() -> None:
    a = task("a", curves={"v": curve_of(40.0), "k": curve_of(10.0)}, work_samples=400.0)
    b = task("b", curves={"v": curve_of(12.0), "k": curve_of(4.0)}, work_samples=400.0)
    done = fluid([a, b], {"v": 1, "k": 1})
    # 40 + 4 is more than 12 + 10; then b alone on the better node
    assert done == pytest.approx((25.0, 10.0 + 360.0 / 12.0))


def test_arrivals_change_the_shares() -> None:
    late = task("late", rate=(20.0,), work_samples=100.0, submit_s=5.0)
    found = fluid([task("a", rate=(10.0,), work_samples=100.0), late], {"": 1})
    assert found == pytest.approx(((15.0 + 5.0) / 2, 15.0))


def test_who_is_worth_nothing_is_never_served() -> None:
    nothing = task("a", rate=(10.0,), work_samples=100.0, weight=0.0)
    found = ideal([nothing], {"": 1}, "weighted")
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
        assert fluid(tasks, {"v": 1, "k": 1}, objective) == pytest.approx((7.0, 7.0), rel=1e-6)


def test_what_has_no_fluid_is_refused_before_anything_is_done() -> None:
    with pytest.raises(BadInput, match="'max-min' is known for tasks of one size only, and 't' has several"):
        fluid([task(work_samples=1.0)], {"": 2}, "max-min")
    with pytest.raises(BadInput, match=r"the fluid of the objective 'finish-time' is not known .*such as throughput"):
        fluid([rigid("a", 1, 1.0)], {"": 2}, "finish-time")


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
    least = ideal(tasks, nodes)
    means, spans = zip(*(_in_order(order, nodes) for order in itertools.permutations(tasks)), strict=True)
    assert min(means) >= least.least_completion_s * (1 - 1e-9)
    assert min(spans) >= least.least_makespan_s * (1 - 1e-9)
    for objective in ("throughput", "speedup"):
        result = on_cluster(nodes, tasks, ReplaySettings(objective=objective)).result.summary()
        assert result.completion_s is not None
        assert result.makespan_s is not None
        assert result.completion_s.mean >= least.least_completion_s * (1 - 1e-9)
        assert result.makespan_s >= least.least_makespan_s * (1 - 1e-9)
        assert fluid(tasks, nodes, objective)[0] >= least.least_completion_s * (1 - 1e-9)


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
    least = ideal(tasks, {"": 1})
    assert least.least_completion_s == pytest.approx((13.0 + 2.0 + 1.0) / 3)
    assert least.least_makespan_s == 13.0


def test_a_study_tells_its_ideal() -> None:
    tasks = [rigid("a", 2, 100.0), rigid("b", 2, 100.0)]
    study = on_cluster({"": 3}, tasks, ReplaySettings(), ideally=True)
    assert study.fixed is not None
    found = study.fixed.ideal
    assert found is not None
    assert (found.fluid_completion_s, found.fluid_makespan_s) == pytest.approx((125.0, 150.0))
    assert found.least_makespan_s == pytest.approx(400.0 / 3)
    assert study.result.makespan_s == 200.0
