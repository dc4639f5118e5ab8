"""Shares of time: no task can get more without another getting less, and none of what a policy makes best is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from bftrain import Entity, SharingProblem, SharingTask, share
from bftrain.values.sharing import Shares

_KINDS = ("a", "b", "c")
_SPEED = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.7, 8.0])


@st.composite
def problems(draw: st.DrawFn) -> SharingProblem:
    """Return a few tasks, some of which are confined to few kinds, on nodes that are scarce or plenty."""
    kinds = _KINDS[: draw(st.integers(1, 3))]
    nodes = {kind: draw(st.integers(1, 6)) for kind in kinds}
    tasks = []
    for place in range(draw(st.integers(1, 6))):
        speeds = {kind: draw(_SPEED) for kind in kinds}
        needs = draw(st.sampled_from([1, 1, 2]))
        if not any(speed > 0.0 and needs <= nodes[kind] for kind, speed in speeds.items()):
            needs, speeds[kinds[0]] = 1, 2.0
        work, age_s = draw(st.sampled_from([1.0, 5.0, 40.0])), draw(st.sampled_from([0.0, 0.0, 3.0]))
        tasks.append(
            SharingTask(
                name=f"t{place}",
                speeds=speeds,
                nodes=needs,
                entity=draw(st.sampled_from("xy")),
                weight=draw(st.sampled_from([1.0, 2.0])),
                work_left_samples=work,
                age_s=age_s,
                alone_s=age_s / 2.0,
            )
        )
    return SharingProblem(nodes=nodes, tasks=tuple(tasks), entities={"x": Entity(weight=2.0, inside="fifo")})


class Market:
    """The speeds of all tasks on all kinds, and the nodes that tasks need and kinds have, as arrays."""

    def __init__(self, problem: SharingProblem) -> None:
        self.kinds = tuple(problem.nodes)
        self.nodes = np.array([task.nodes for task in problem.tasks])
        self.counts = np.array(list(problem.nodes.values()))
        rows = [[task.speeds.get(kind, 0.0) for kind in self.kinds] for task in problem.tasks]
        self.speeds = np.where(self.nodes[:, None] <= self.counts, np.array(rows), 0.0)


def gain_without_loss(market: Market, floor: NDArray[np.float64]) -> float:
    """Return by how much the speeds can rise in all, in parts of the fastest, if none falls below ``floor``."""
    tasks, kinds = market.speeds.shape
    of_tasks, of_kinds = np.kron(np.eye(tasks), np.ones(kinds)), np.kron(market.nodes, np.eye(kinds))
    relative = market.speeds / market.speeds.max(axis=1, keepdims=True)
    levels = floor / market.speeds.max(axis=1) * (1.0 - 1e-7)
    of_speeds = np.zeros((tasks, tasks * kinds))
    for place in range(tasks):
        of_speeds[place, place * kinds : (place + 1) * kinds] = relative[place]
    general: Any = linprog
    found = general(
        -np.where(relative > 0.0, relative, -1.0).ravel(),
        A_ub=np.vstack((of_tasks, of_kinds, -of_speeds)),
        b_ub=np.concatenate((np.ones(tasks), market.counts, -levels)),
    )
    assert found.status == 0, found.message
    return float(-found.fun - levels.sum())


def fits(market: Market, found: Shares) -> bool:
    shares = np.array([[found.shares[name].get(kind, 0.0) for kind in market.kinds] for name in found.shares])
    in_time = (shares.sum(axis=1) <= 1.0 + 1e-7).all()
    return bool(in_time and (market.nodes @ shares <= market.counts * (1.0 + 1e-7)).all())


@settings(max_examples=60)
@pytest.mark.parametrize("policy", ["makespan", "finish-time", "water-filling", "hierarchical"])
@given(problem=problems())
def test_no_task_can_get_more_without_another_getting_less(policy: str, problem: SharingProblem) -> None:
    market, found = Market(problem), share(problem, policy)
    speeds = np.array(list(found.speeds.values()))
    assert fits(market, found)
    assert gain_without_loss(market, speeds) <= 1e-5 * len(speeds)
    work = np.array([task.work_left_samples or 0.0 for task in problem.tasks])
    if policy == "makespan":
        assert (work / speeds).max() <= found.value * (1.0 + 1e-7)
    if policy == "finish-time":
        age, alone = (np.array([getattr(task, name) for task in problem.tasks]) for name in ("age_s", "alone_s"))
        rho = (age + work / speeds) / (alone + work / np.array(list(share(problem, "isolated").speeds.values())))
        assert rho.max() <= found.value * (1.0 + 1e-7)
