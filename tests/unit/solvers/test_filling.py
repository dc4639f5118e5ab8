"""Filling: the levels are those that a plain sequence of programmes comes to, however scarce nodes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from bftrain import Entity, SharingProblem, SharingTask, share
from bftrain.values.sharing import Inside
from bftrain_solvers.sharing import rising
from bftrain_solvers.sharing.policies import ShareColumns

Floats = Any
KINDS = ("a", "b", "c")


def drawn(seed: int, tasks: int, part: int, *, alike: bool) -> SharingProblem:
    """Return tasks of six groups, every second one in its order, and n/``part`` nodes of each of three kinds."""
    rng = np.random.default_rng(seed)
    spread = 0.05 if alike else 1.0
    rates = rng.lognormal(0.0, 1.0, (tasks, 1)) * [3.0, 2.0, 1.0] * rng.lognormal(0.0, spread, (tasks, 3))
    given = tuple(
        SharingTask(
            name=f"t{place}",
            speeds=dict(zip(KINDS, row, strict=True)),
            nodes=int(rng.choice([1, 1, 2])) if tasks >= 2 * part else 1,
            entity=f"g{rng.integers(6)}",
            weight=float(rng.choice([1.0, 2.0, 3.0])),
        )
        for place, row in enumerate(rates.tolist())
    )
    entities = {f"g{group}": Entity(weight=1.0 + group % 3, inside=tuple(Inside)[group % 2]) for group in range(6)}
    return SharingProblem(nodes=dict.fromkeys(KINDS, max(1, tasks // part)), tasks=given, entities=entities)


def plain_levels(given: ShareColumns, entities: list[str], *, by_entity: bool) -> NDArray[np.float64]:
    """Raise all that can rise, by one programme; then see of each by another one whether it still can."""
    market, fair = given.market, given.fair
    tasks, kinds = market.speeds.shape
    largest = market.speeds.max(axis=1)
    relative = market.speeds / largest[:, None]
    inside = np.vstack((np.kron(np.eye(tasks), np.ones(kinds)), np.kron(market.nodes, np.eye(kinds))))
    of_task = np.zeros((tasks, tasks * kinds))
    for task in range(tasks):
        of_task[task, task * kinds : (task + 1) * kinds] = relative[task]
    limits = np.concatenate((np.ones(tasks), market.counts))

    def most(gain: Floats, rate: Floats, level: Floats) -> float:
        general: Any = linprog
        found = general(
            np.append(-gain @ of_task, -1.0 if rate.any() else 0.0),
            A_ub=np.vstack((np.column_stack((inside, 0.0 * limits)), np.column_stack((-of_task, rate)))),
            b_ub=np.concatenate((limits, -level)),
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        assert found.status == 0, found.message
        return float(-found.fun)

    level, free = np.zeros(tasks), np.ones(tasks, dtype=bool)
    while free.any():
        part = np.where(free, given.weights, 0.0)
        if by_entity:
            for name in set(entities):
                own = np.flatnonzero(free & np.array([entity == name for entity in entities]))
                entity = given.problem.entities[name]
                part[own[1:] if entity.inside is Inside.FIFO else own[:0]] = 0.0
                part[own] *= entity.weight / max(float(part[own].sum()), 1e-300)
        rate = part * fair / largest
        height = most(np.zeros(tasks), rate, level)
        level = level + rate * height
        for task in np.flatnonzero(free):
            alone = np.zeros(tasks)
            alone[task] = 1.0
            free[task] = most(alone, 0.0 * rate, level * (1.0 - 1e-10)) > level[task] + 1e-7
    return level * largest


@pytest.mark.parametrize("policy", ["water-filling", "hierarchical"])
@pytest.mark.parametrize("part", [4, 6, 12])
@pytest.mark.parametrize("alike", [True, False], ids=["kinds nearly alike to all", "all kinds of speeds"])
@pytest.mark.parametrize("seed", range(1))
def test_levels_are_those_of_a_plain_sequence(
    seed: int,
    alike: bool,  # noqa: FBT001 - a parameter of the test
    part: int,
    policy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rising, "_SMALL", 12)  # as where there are many
    monkeypatch.setattr(rising, "_FEWEST", 6)
    problem = drawn(seed, 36, part, alike=alike)
    columns, found = ShareColumns.of(problem), share(problem, policy)
    expected = plain_levels(columns, [task.entity for task in problem.tasks], by_entity=policy == "hierarchical")
    assert not isinstance(found.notes, tuple)
    assert list(found.speeds.values()) == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_a_task_at_its_largest_speed_is_in_doubt_only_where_two_other_kinds_save_nearly_as_much() -> None:
    market = rising.ShareDemands(np.array([[3.0, 2.0, 1.0]]) / 3.0, np.ones(1), np.ones(3))
    # A little less speed saves 1 a unit if the task rests, 0.3 beside the second kind, 1.35 beside the third
    chosen = rising.ways(market, np.ones(1), np.array([1.0, 0.9, 0.1]))
    assert (chosen.slow[0], chosen.fast[0]) == (2, 0)
    assert chosen.doubt[0] == pytest.approx(1.0 - 1.0 / 1.35)
    nearly = rising.ways(market, np.ones(1), np.array([1.0, 0.9, 1.0 / 3.0 + 1e-6]))
    assert nearly.doubt[0] == pytest.approx(1.5e-6, rel=1e-3)
