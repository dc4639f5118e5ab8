"""Sharing policies that maximise a sum: checked by hand, and by a general optimiser."""

from __future__ import annotations

from math import log
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, linprog, minimize

from bftrain import BadInput, SharingProblem, registry, share
from bftrain_solvers.sharing.policies import ShareColumns
from tests.unit.solvers.test_sharing import TWO, drawn, problem


def limits(columns: ShareColumns) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows of the programme over all shares, one after the other, and what they come to at most."""
    tasks, kinds = columns.market.speeds.shape
    of_tasks = np.kron(np.eye(tasks), np.ones(kinds))
    of_kinds = np.kron(columns.market.nodes, np.eye(kinds))
    return np.vstack((of_tasks, of_kinds)), np.concatenate((np.ones(tasks), columns.market.counts))


def best_sum_of_logs(given: SharingProblem) -> float:
    """Find the best average logarithm of a speed by a general method for smooth problems."""
    columns = ShareColumns.of(given)
    speeds, part = columns.market.speeds, columns.weights / columns.weights.sum()
    matrix, most = limits(columns)
    start = 0.9 * columns.alone
    constraint: Any = LinearConstraint(matrix, -np.inf, most)
    general: Any = minimize
    found = general(
        lambda x: -float(part @ np.log((speeds * x.reshape(speeds.shape)).sum(axis=1))),
        start.ravel(),
        jac=lambda x: -((part / (speeds * x.reshape(speeds.shape)).sum(axis=1))[:, None] * speeds).ravel(),
        bounds=[(0.0, 1.0)] * speeds.size,
        constraints=[constraint],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 2000},
    )
    assert found.success, found.message
    return -float(found.fun)


@pytest.mark.parametrize("seed", range(50))
def test_proportional_is_as_good_as_a_general_optimiser(seed: int) -> None:
    given = drawn(seed)
    columns, shares = ShareColumns.of(given), share(given, "proportional")
    reached = sum(task.weight * log(shares.speeds[task.name]) for task in given.tasks) / columns.weights.sum()
    assert reached == pytest.approx(best_sum_of_logs(given), abs=2e-7)
    fair = dict(zip(shares.speeds, columns.fair.tolist(), strict=True))
    value = sum(task.weight * log(shares.speeds[task.name] / fair[task.name]) for task in given.tasks)
    assert shares.value == pytest.approx(value)




def test_no_task_is_raised_by_a_percentage_without_others_losing_as_much_in_all() -> None:
    given = drawn(5, count=30)
    best = share(given, "proportional").speeds
    for other in ("throughput", "max-min", "isolated", "makespan"):
        speeds = share(given, other).speeds
        gained = sum(task.weight * (speeds[task.name] / best[task.name] - 1.0) for task in given.tasks)
        assert gained <= 1e-6 * sum(task.weight for task in given.tasks)


@pytest.mark.parametrize("seed", range(50))
def test_cost_is_the_best_there_is_for_the_prices(seed: int) -> None:
    given = msgspec.structs.replace(drawn(seed), prices={"k0": 3.0, "k1": 0.5})
    columns = ShareColumns.of(given)
    matrix, most = limits(columns)
    worth = columns.weights[:, None] * columns.market.speeds / np.array([3.0, 0.5, 1.0])
    general: Any = linprog
    best = general(-worth.ravel(), A_ub=matrix, b_ub=most, method="highs")
    assert share(given, "cost").value == pytest.approx(-best.fun)


@pytest.mark.parametrize("policy", sorted(registry.parts("sharing")))
@pytest.mark.parametrize("seed", range(3))
def test_a_kind_without_nodes_is_as_one_that_is_not_there(policy: str, seed: int) -> None:
    given = msgspec.structs.replace(drawn(seed), prices={"k0": 3.0})
    away = [msgspec.structs.replace(task, speeds={"gone": 50.0, **task.speeds}) for task in given.tasks]
    with_it = msgspec.structs.replace(given, nodes={"gone": 0, **given.nodes}, tasks=tuple(away))
    found, wanted = share(with_it, policy), share(given, policy)
    assert found.value == wanted.value
    assert found.shares == wanted.shares
    assert found.speeds == wanted.speeds






