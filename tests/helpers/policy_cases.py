"""Small allocation problems with all that policies look at, and every way to divide their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, SpeedCurve, ValueTable
from tests.helpers.solver_conformance import random_problem


def varied_problem(seed: int) -> AllocationProblem:
    """Return a small problem whose tasks differ in weight, user, work and past; some have none."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed)
    tasks = tuple(
        replace(
            task,
            weight=float(rng.choice([0.0, 1.0, 1.0, 2.0])),
            user=str(rng.choice(["ada", "bob"])),
            work_left_samples=float(rng.uniform(1.0, 1e4)) if rng.random() < 0.8 else None,
            age_s=float(rng.uniform(0.0, 1e3)),
            done_samples=float(rng.choice([0.0, 0.0, 500.0])),
            held_node_s=float(rng.choice([0.0, 0.0, 100.0])),
        )
        for task in problem.tasks
    )
    return replace(problem, tasks=tasks)


def of_two_kinds(seed: int) -> AllocationProblem:
    """Return a small problem on two kinds of nodes; one task in five runs on one of them only."""
    rng = np.random.default_rng(seed)
    pools = {"v": int(rng.integers(1, 4)), "p": int(rng.integers(1, 4))}
    tasks = []
    for place in range(int(rng.integers(2, 4))):
        curves = {
            kind: SpeedCurve(nodes=(1, 2, 3), rate=tuple(np.sort(rng.uniform(1.0, 100.0, 3)).tolist()))
            for kind in pools
            if rng.random() < 0.8
        } or {"v": SpeedCurve(nodes=(1,), rate=(10.0,))}
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                max_nodes=3,
                curve=next(iter(curves.values())),
                curves=curves,
                weight=float(rng.choice([1.0, 2.0])),
                user=str(rng.choice(["ada", "bob"])),
                work_left_samples=float(rng.uniform(1e2, 1e4)),
                done_samples=float(rng.choice([0.0, 300.0])),
                start_cost_s=float(rng.choice([0.0, 5.0])),
            )
        )
    return AllocationProblem(
        pool=sum(pools.values()), pools=pools, horizon_s=60.0, tasks=tuple(tasks), prices={"v": 3.0, "p": 1.0}
    )


def plain(name: str, *rates: float, **more: object) -> CompetingTask:
    """Return a task with these speeds on 1, 2, 3, ... nodes."""
    curve = SpeedCurve(nodes=tuple(range(1, len(rates) + 1)), rate=rates)
    return replace(CompetingTask(name=name, max_nodes=len(rates), curve=curve), **more)


def divisions(table: ValueTable) -> Iterator[tuple[int, ...]]:
    """Yield every choice of columns for which there are enough nodes."""
    counts = [*table.problem.by_kind.values(), 0]
    for chosen in product(*(np.flatnonzero(row > -np.inf).tolist() for row in table.values)):
        used = [0] * len(counts)
        for column in chosen:
            used[int(table.kind_of[column])] += int(table.nodes[column])
        if all(use <= count for use, count in zip(used, counts, strict=True)):
            yield chosen
