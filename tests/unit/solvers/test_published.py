"""AlloX, strategy-proof shares and deadlines, each against an enumeration of what there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import linprog

from bftrain import BadInput, SharingProblem, SharingTask, share
from bftrain.values.sharing import Shares

SEEDS = range(20)
KINDS = ("v", "k")


def drawn(seed: int, most: int, gangs: tuple[int, ...] = (1,)) -> SharingProblem:
    """Give up to ``most`` tasks on up to two nodes of each of two kinds."""
    rng = np.random.default_rng(seed)
    tasks = [
        SharingTask(
            name=f"t{number}",
            speeds={
                "v": float(rng.uniform(1.0, 4.0)),
                "k": float(rng.choice([0.0, rng.uniform(0.3, 3.0)], p=[0.2, 0.8])),
            },
            nodes=int(rng.choice(gangs)),
            work_left_samples=float(rng.lognormal(5.0, 1.0)),
            weight=float(rng.choice([1.0, 2.0])),
            deadline_in_s=float(rng.choice([rng.lognormal(5.0, 1.0), -5.0], p=[0.9, 0.1])),
        )
        for number in range(int(rng.integers(2, most + 1)))
    ]
    return SharingProblem(nodes={"v": max(gangs), "k": int(rng.integers(max(gangs), 3))}, tasks=tuple(tasks))


def queues(problem: SharingProblem, first: Mapping[str, str] | None = None) -> float:
    """Return the least sum of times to the end over all ways to line tasks up; ``first`` are kinds of first ones."""
    nodes, best = [kind for kind, count in problem.nodes.items() for _ in range(count)], float("inf")
    for way in product(range(len(nodes)), repeat=len(problem.tasks)):
        total, firsts = 0.0, {}
        for number, kind in enumerate(nodes):
            own = [task for task, place in zip(problem.tasks, way, strict=True) if place == number]
            if any(not task.speeds[kind] for task in own):
                break
            took = sorted(((task.work_left_samples or 0.0) / task.speeds[kind], task.name) for task in own)
            total += sum(time_s * (len(took) - place) for place, (time_s, _) in enumerate(took))
            firsts.update({name: kind for _, name in took[:1]})
        else:
            if first is None or firsts == first:
                best = min(best, total)
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_allox_lines_tasks_up_as_well_as_can_be(seed: int) -> None:
    given = drawn(seed, 5)
    found = share(given, "allox")
    first = {name: next(iter(kinds)) for name, kinds in found.shares.items() if kinds}
    assert set(chain(*(kinds.values() for kinds in found.shares.values()))) == {1.0}
    assert found.value * len(given.tasks) == pytest.approx(queues(given))
    assert queues(given, first) == pytest.approx(queues(given))


def test_allox_lets_a_task_end_where_it_runs_and_gives_gangs_all_of_their_nodes() -> None:
    given = drawn(0, 2)
    slow = replace(given.tasks[0], kind="k", speeds={"v": 9.0, "k": 0.1})
    assert share(replace(given, nodes={"v": 2, "k": 1}, tasks=(slow,)), "allox").shares["t0"] == {"k": 1.0}
    for seed in SEEDS:
        wide = drawn(seed, 6, gangs=(1, 2))
        shares = share(wide, "allox").shares
        for kind, count in wide.nodes.items():
            assert sum(task.nodes for task in wide.tasks if kind in shares[task.name]) <= count
        assert any(shares.values())
    with pytest.raises(BadInput, match="does not state its remaining work"):
        share(replace(given, tasks=(replace(slow, work_left_samples=None),)), "allox")


@pytest.mark.parametrize("seed", SEEDS)
def test_strategy_proof_shares_leave_to_others_what_they_would_have_alone(seed: int) -> None:
    given = drawn(seed, 5)
    fair, found = share(given, "proportional").speeds, share(given, "strategy-proof")
    for task in given.tasks:
        others = tuple(other for other in given.tasks if other is not task)
        without = share(replace(given, tasks=others), "proportional").speeds
        parts = [(fair[other.name] / without[other.name]) ** (other.weight / task.weight) for other in others]
        assert found.speeds[task.name] == pytest.approx(fair[task.name] * float(np.prod(parts)), rel=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lie_about_speeds_does_not_pay(seed: int) -> None:
    given, rng = drawn(seed, 4), np.random.default_rng(seed)
    liar = given.tasks[0]

    def speed(found: Shares) -> float:
        return sum(part * liar.speeds[kind] for kind, part in found.shares["t0"].items())

    lie = replace(liar, speeds={kind: speed * float(rng.uniform(0.3, 3.0)) for kind, speed in liar.speeds.items()})
    truth = speed(share(given, "strategy-proof"))
    assert speed(share(replace(given, tasks=(lie, *given.tasks[1:])), "strategy-proof")) <= truth * (1.0 + 1e-3)


def best_with(problem: SharingProblem, met: Iterable[SharingTask], prices: Mapping[str, float]) -> float | None:
    """Return the largest worth if these deadlines are met; nothing if they cannot be."""
    tasks, kinds = problem.tasks, list(problem.nodes)
    rows, limits = [], []
    for place in range(len(tasks)):
        rows.append([float(other == place) for other in range(len(tasks)) for _ in kinds])
        limits.append(1.0)
    for kind, count in problem.nodes.items():
        rows.append([task.nodes * float(name == kind) for task in tasks for name in kinds])
        limits.append(count)
    for task in met:
        rows.append([-other.speeds[kind] * (other is task) for other in tasks for kind in kinds])
        limits.append(-(task.work_left_samples or 0.0) / (task.deadline_in_s or 1.0))
    bounds = [
        (0.0, 1.0 if task.speeds[kind] and task.nodes <= problem.nodes[kind] else 0.0)
        for task in tasks
        for kind in kinds
    ]
    worth = [task.weight * task.speeds[kind] / prices.get(kind, 1.0) for task in tasks for kind in kinds]
    general: Any = linprog
    found = general([-each for each in worth], A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    return -float(found.fun) if found.status == 0 else None


@pytest.mark.parametrize("policy", ["deadlines", "cost-deadlines"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_fewest_deadlines_are_missed_and_then_most_is_done(seed: int, policy: str) -> None:
    given = replace(drawn(seed, 6, gangs=(1, 2)), prices={"v": 3.0})
    prices = given.prices if policy == "cost-deadlines" else {}
    due = [task for task in given.tasks if (task.deadline_in_s or 0.0) > 0.0]
    able = [task for task in due if best_with(given, [task], {}) is not None]
    for missed in range(len(able) + 1):
        ways = [best_with(given, met, prices) for met in combinations(able, len(able) - missed)]
        best = max((way for way in ways if way is not None), default=None)
        if best is not None:
            break
    found = share(given, policy)
    assert found.value == missed
    worth = sum(
        task.weight * part * task.speeds[kind] / prices.get(kind, 1.0)
        for task in given.tasks
        for kind, part in found.shares[task.name].items()
    )
    assert worth == pytest.approx(best, rel=1e-4)


def test_without_deadlines_most_is_done() -> None:
    given = drawn(3, 6)
    free = replace(given, tasks=tuple(replace(task, deadline_in_s=None) for task in given.tasks))
    for policy, plain in (("deadlines", "throughput"), ("cost-deadlines", "cost")):
        found, wanted = share(free, policy), share(free, plain)
        assert sum(found.speeds.values()) == pytest.approx(sum(wanted.speeds.values()))
