"""Sharing of node kinds among many tasks, kinds without nodes, and problems that make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import linprog
from scipy.sparse import csr_array

from bftrain import BftrainError, SharingProblem, SharingTask, registry, share
from tests.unit.solvers.test_packed import drawn


@pytest.mark.parametrize("policy", ["finish-time", "makespan", "water-filling"])
def test_a_blind_policy_shares_as_if_all_kinds_had_the_speed_of_the_first(policy: str) -> None:
    speeds = {"a": {"v": 4.0, "k": 1.0}, "b": {"v": 2.0, "k": 2.0}, "c": {"v": 1.0, "k": 3.0}, "d": {"k": 5.0}}
    tasks = tuple(
        SharingTask(name=name, speeds=given, work_left_samples=1000.0, weight=weight, alone_s=1.0)
        for weight, (name, given) in enumerate(speeds.items(), 1)
    )
    problem = SharingProblem(nodes={"v": 1, "k": 1}, tasks=tasks, policy=policy)
    alike = tuple(replace(task, speeds=dict.fromkeys(task.speeds, max(task.speeds.values()))) for task in tasks[:2])
    alike += (replace(tasks[2], speeds={"v": 1.0, "k": 1.0}), tasks[3])
    blind, expected = share(replace(problem, policy=f"{policy}-blind")), share(replace(problem, tasks=alike))
    assert blind.shares == expected.shares != share(problem).shares
    for name, shares in blind.shares.items():  # at the real speeds
        assert blind.speeds[name] == pytest.approx(sum(speeds[name][kind] * part for kind, part in shares.items()))


@pytest.mark.parametrize("scarce", [0.5, 4, 18])
@pytest.mark.parametrize("alike", [False, True])
def test_many_tasks_come_to_what_one_large_programme_does(scarce: float, alike: bool) -> None:  # noqa: FBT001
    """Without weights: as fast as can be beside an n-th part of everything, also where kinds are nearly alike."""
    count, rng = 600, np.random.default_rng(int(10 * scarce))
    speeds = rng.lognormal(0.0, 1.0, (count, 3))
    if alike:
        speeds = rng.lognormal(0.0, 1.0, (count, 1)) * [3.0, 2.0, 1.0] * rng.lognormal(0.0, 0.05, (count, 3))
    nodes, room = rng.choice([1, 2, 4, 8], count), int(count / scarce)
    tasks = tuple(
        SharingTask(name=f"t{place}", speeds=dict(zip("abc", row, strict=True)), nodes=int(size))
        for place, (row, size) in enumerate(zip(speeds.tolist(), nodes, strict=True))
    )
    given = SharingProblem(nodes=dict.fromkeys("abc", room), tasks=tasks)
    found = share(given, "max-min")
    rate = speeds.mean(axis=1) / nodes
    # One programme over all tasks: columns of shares, then the height
    task, entry = np.repeat(np.arange(count), 3), np.arange(3 * count)
    row = np.concatenate((task, count + task, 2 * count + entry % 3, np.arange(count)))
    data = np.concatenate((-speeds.ravel() / rate[task], np.ones(3 * count), nodes[task], np.ones(count)))
    matrix = csr_array((data, (row, np.concatenate((entry, entry, entry, np.full(count, 3 * count))))))
    limits = np.concatenate((np.zeros(count), np.ones(count), np.full(3, float(room))))
    solve: Any = linprog  # its types do not know that arrays may be sparse
    plain = solve(np.append(np.zeros(3 * count), -1.0), A_ub=matrix, b_ub=limits)
    assert found.value == pytest.approx(-plain.fun, rel=1e-6)
    shares = np.array([[found.shares[each.name].get(kind, 0.0) for kind in "abc"] for each in tasks])
    assert (shares.sum(axis=1) <= 1.0 + 1e-7).all()
    assert (nodes @ shares <= room * (1.0 + 1e-7)).all()
    assert ((speeds * shares).sum(axis=1) >= rate * found.value * (1.0 - 1e-6)).all()


@pytest.mark.parametrize("policy", sorted(registry.parts("sharing")))
def test_a_kind_without_nodes_is_as_one_that_is_not_there(policy: str) -> None:
    given = drawn(2, packed=False)
    given = replace(given, tasks=tuple(replace(task, deadline_in_s=500.0) for task in given.tasks))
    away = tuple(replace(task, speeds={"gone": 50.0, **task.speeds}) for task in given.tasks)
    found = share(replace(given, nodes={"gone": 0, **given.nodes}, tasks=away), policy)
    wanted = share(given, policy)
    assert (found.value, found.shares, found.speeds) == (wanted.value, wanted.shares, wanted.speeds)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"q": 1.0}}]}, "unknown kind"),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": 1.0}, "nodes": 2}]}, "'a' cannot run"),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": 0.0}}]}, "'a' cannot run"),
        ({"nodes": {"k": 1}, "tasks": [{"name": "a", "speeds": {"k": -1.0}}]}, "at least 0"),
        ({"nodes": {"k": -1}, "tasks": []}, "at least 0"),
        ({"nodes": {"k": 1}, "tasks": [], "entities": {"e": {"weight": 0.0}}}, "weight"),
    ],
)
def test_problems_that_make_no_sense(given: dict[str, object], words: str) -> None:
    with pytest.raises(BftrainError, match=words):
        share(given)


class Generous:
    """A policy of another package that gives more time than there is."""

    name = "generous"

    def share(self, problem: SharingProblem) -> object:
        found = share(problem, "isolated")
        return replace(found, shares={name: dict.fromkeys(problem.nodes, 1.0) for name in found.shares})


def test_shares_of_another_package_that_cannot_be_carried_out_are_named() -> None:
    with pytest.raises(BftrainError, match="policy 'generous'"):
        share(drawn(0, packed=False), Generous())  # type: ignore[arg-type]  # that is what is wrong
