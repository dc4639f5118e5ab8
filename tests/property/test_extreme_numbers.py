"""Solvers on rates and costs from 1e-300 to 1e300: a wrong plan is never claimed optimal, no plan never infeasible."""

from __future__ import annotations

import warnings
from math import isclose, isfinite
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from bftrain import (
    AllocationProblem,
    BadInput,
    CompetingTask,
    Entity,
    Limits,
    Quality,
    SharingProblem,
    SharingTask,
    SpeedCurve,
    Termination,
    registry,
    share,
)
from tests.helpers.named_parts import table_for
from tests.helpers.solver_conformance import best_by_trying_all

_SUMS = ["throughput", "speedup", "completion", "proportional", "deadline"]
_FAIR = ["max-min", "max-min-plain", "water-filling", "finish-time", "makespan", "max-min-now"]
OBJECTIVES = st.sampled_from([*_SUMS, *_FAIR])
_AGREE = 1e-9
_FITS = 1e-7
_SLOW = ((0, 1e-16), (0, 1.0), (1, 1.0))
_PATIENCE_S = 30.0  # for a problem of four tasks, on a machine that has other things to do
SOLVERS = ("exact", "highs", "cbc", "gurobi")
POLICIES = (
    *("max-min", "max-min-blind", "water-filling", "hierarchical", "makespan"),
    *("finish-time", "throughput", "cost", "proportional", "isolated"),
)


@st.composite
def numbers(draw: st.DrawFn, middle: int | None = None) -> float:
    """Return a number of any size, or one near 10**middle."""
    low, high = (-300, 300) if middle is None else (max(-300, middle - 2), min(300, middle + 2))
    return draw(st.floats(1.0, 9.0)) * 10.0 ** draw(st.integers(low, high - 1))


@st.composite
def problems(draw: st.DrawFn) -> AllocationProblem:
    """Return a few tasks, most of them about as fast as each other, on nodes of one or two kinds."""
    kinds = draw(st.sampled_from([(), (), ("a", "b")]))
    middle = draw(st.none() | st.integers(-300, 300))
    costs = st.just(0.0) | st.sampled_from([12.0, 18.0]) | numbers()
    tasks = []
    for place in range(draw(st.integers(1, 4))):
        sizes = sorted(draw(st.sets(st.integers(1, 4), min_size=1)))
        curves = []
        for _ in kinds or ("",):
            one = draw(numbers() if draw(st.integers(0, 4)) == 0 else numbers(middle))
            parts = [draw(st.floats(0.1, 1.0)) * one / 4.0 for _ in sizes]
            rate = tuple(sum(parts[: end + 1]) for end in range(len(parts)))
            curves.append(SpeedCurve(nodes=tuple(sizes), rate=rate))
        size = draw(st.integers(0, 2))
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                size=size,
                kind=draw(st.sampled_from(kinds)) if size and kinds else "",
                max_nodes=sizes[-1],
                curve=curves[0],
                curves=dict(zip(kinds, curves, strict=False)),
                weight=draw(st.sampled_from([1.0, 1.0, 3.0])),
                grow_cost_s=draw(costs),
                shrink_cost_s=draw(costs),
                start_cost_s=draw(costs),
                work_left_samples=draw(st.none() | numbers(middle)),
                done_samples=draw(st.just(0.0) | numbers(middle)),
            )
        )
    held = {kind: sum(task.size for task in tasks if task.kind == kind) for kind in kinds or ("",)}
    free = {kind: draw(st.integers(0, 4)) + nodes for kind, nodes in held.items()}
    pool, pools = sum(free.values()), free if kinds else {}
    horizon_s = draw(st.just(120.0) | numbers(0) | numbers())
    return AllocationProblem(pool=pool, pools=pools, horizon_s=horizon_s, tasks=tuple(tasks))


def check_claims(name: str, problem: AllocationProblem, objective: str) -> None:
    """Solve, and hold what is claimed against the best of all plans."""
    solver = registry.load("solver", name)
    if not solver.available().ok:
        pytest.skip(solver.available().reason)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = table_for(problem=problem, objective=objective)
    except BadInput:
        reject()
    begun = perf_counter()
    found = solver.solve(table, Limits())
    assert perf_counter() - begun < _PATIENCE_S
    best = best_by_trying_all(table)
    assert found.termination is not Termination.INFEASIBLE  # no node for any task is always a plan
    if found.quality is Quality.NONE:
        assert found.termination is Termination.FAILED
        assert found.solver_words
    elif found.termination is Termination.OPTIMAL:
        assert isclose(found.value, best, rel_tol=_AGREE)
    if found.bound is not None:
        assert found.bound >= best - _AGREE * abs(best)
    assert name != "exact" or found.quality is Quality.PROVEN


@st.composite
def sharing_problems(draw: st.DrawFn) -> SharingProblem:
    """Return a few tasks with speeds, weights, work and ages of any size, or near to each other."""
    kinds, middle = "abc"[: draw(st.integers(1, 3))], draw(st.none() | st.integers(-300, 300))
    weights = st.sampled_from([1.0, 2.0]) | numbers(0) | numbers()
    tasks = []
    for place in range(draw(st.integers(1, 5))):
        speeds = {kind: draw(st.just(0.0) | numbers(middle) | numbers(middle)) for kind in kinds}
        if not any(speeds.values()):
            speeds[kinds[0]] = draw(numbers(middle))
        tasks.append(
            SharingTask(
                name=f"t{place}",
                speeds=speeds,
                entity=draw(st.sampled_from("xy")),
                weight=draw(weights),
                work_left_samples=draw(numbers(middle)),
                age_s=draw(st.just(0.0) | numbers(1) | numbers()),
                alone_s=draw(st.just(0.0) | numbers(1) | numbers()),
            )
        )
    nodes, prices = ({kind: draw(number) for kind in kinds} for number in (st.integers(1, 4), weights))
    entities = {"x": Entity(weight=draw(weights), inside=draw(st.sampled_from(["fair", "fifo"])))}
    return SharingProblem(nodes=nodes, tasks=tuple(tasks), entities=entities, prices=prices)


def check_shares(problem: SharingProblem, policy: str) -> None:
    """Share, and see that all fits, that what is claimed is reached, and of max-min that no more can be."""
    begun = perf_counter()
    try:
        found = share(problem, policy)
    except BadInput as refused:
        assert "too many orders of magnitude" in str(refused)  # noqa: PT017 - most problems are not refused
        return
    assert perf_counter() - begun < _PATIENCE_S
    shares = np.array([[found.shares[task.name].get(kind, 0.0) for kind in problem.nodes] for task in problem.tasks])
    assert (shares.sum(axis=1) <= 1.0 + _FITS).all()
    assert (shares.sum(axis=0) <= np.array(list(problem.nodes.values())) * (1.0 + _FITS)).all()
    assert isfinite(found.value)
    assert all(map(isfinite, found.speeds.values()))
    if policy == "makespan":
        takes = max((task.work_left_samples or 0.0) / found.speeds[task.name] for task in problem.tasks)
        assert isclose(takes, found.value, rel_tol=1e-6)
    if policy == "max-min":
        counts = np.array(list(problem.nodes.values()), dtype=np.float64)
        speeds = np.array([[task.speeds.get(kind, 0.0) for kind in problem.nodes] for task in problem.tasks])
        level = np.array([task.weight for task in problem.tasks]) * (speeds @ (counts / counts.sum()))
        assert min(np.array(list(found.speeds.values())) / level) >= found.value * (1.0 - 1e-6)
        assert found.value >= highest_level(speeds / level[:, None], counts) * (1.0 - 1e-6)


def highest_level(speeds: np.ndarray, counts: np.ndarray) -> float:
    """Find by a plain programme how high all can rise: each as high as it can alone at the most, times a part."""
    tasks, kinds = speeds.shape
    one = float(speeds.max(axis=1).min())  # no more can be
    by_task = np.kron(np.eye(tasks), np.ones(kinds))
    rise = np.minimum(speeds / one, 1e6)[:, :, None] * np.eye(tasks)[:, None, :]
    rows = np.vstack((by_task, np.kron(np.ones(tasks), np.eye(kinds)), -rise.reshape(-1, tasks).T))
    last = np.concatenate((np.zeros(tasks + kinds), np.ones(tasks)))
    limits = np.concatenate((np.ones(tasks), counts, np.zeros(tasks)))
    found = linprog(np.append(np.zeros(tasks * kinds), -1.0), A_ub=np.column_stack((rows, last)), b_ub=limits)
    assert found.status == 0, found.message
    return one * float(-found.fun)


@pytest.mark.parametrize("name", SOLVERS)
@settings(max_examples=40, deadline=None)
@given(problem=problems(), objective=OBJECTIVES)
def test_claims_hold_for_numbers_of_any_size(name: str, problem: AllocationProblem, objective: str) -> None:
    check_claims(name, problem, objective)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None)
@given(problem=sharing_problems())
def test_shares_of_time_are_right_or_refused_in_words(policy: str, problem: SharingProblem) -> None:
    check_shares(problem, policy)


@pytest.mark.parametrize("work", [1e-124, 1e-110])
def test_work_that_vanishes_beside_a_speed_is_refused_in_words(work: float) -> None:
    task = SharingTask(name="quick", speeds={"a": 1e200}, work_left_samples=work)
    with pytest.raises(BadInput, match="orders of magnitude to be computed: work over a speed"):
        share(SharingProblem(nodes={"a": 1}, tasks=(task,)), "makespan")


def test_tasks_of_which_one_is_very_slow_have_the_makespan_of_the_slow_one() -> None:
    tasks = [SharingTask(name=f"t{speed:g}{turn}", speeds={"a": speed}, work_left_samples=1.0) for turn, speed in _SLOW]
    found = share(SharingProblem(nodes={"a": 1}, tasks=tuple(tasks)), "makespan")
    assert found.value == pytest.approx(1e16, rel=1e-5)
    assert all(share > 0.0 for shares in found.shares.values() for share in shares.values())


def test_an_old_task_whose_time_is_lost_in_rounding_has_all_it_can_have() -> None:
    old = SharingTask(name="old", speeds={"a": 7e30}, work_left_samples=10.0, age_s=1.125e108)
    found = share(SharingProblem(nodes={"a": 1}, tasks=(old,)), "finish-time")
    assert found.shares == {"old": {"a": 1.0}}
    assert found.value == pytest.approx(1.125e108 / (10.0 / 7e30))


@pytest.mark.parametrize("policy", ["max-min", "water-filling", "hierarchical"])
def test_a_weight_that_vanishes_beside_a_speed_is_refused_not_taken_for_none(policy: str) -> None:
    small = SharingTask(name="small", speeds={"a": 8e-138}, weight=3.1e-248)
    large = SharingTask(name="large", speeds={"a": 1.0})
    with pytest.raises(BadInput, match="orders of magnitude to be computed: a weight times a speed"):
        share(SharingProblem(nodes={"a": 1}, tasks=(small, large)), policy)
