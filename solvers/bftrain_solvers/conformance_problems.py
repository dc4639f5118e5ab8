"""Small problems drawn by a seed, for :mod:`bftrain_solvers.conformance`."""

from __future__ import annotations

from typing import Final

import numpy as np

from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import AllocationProblem, CompetingTask

_SHARE_WITH_COSTS: Final = 0.7
_SHARE_THAT_RUNS: Final = 0.7


def random_problem(seed: int) -> AllocationProblem:
    """Give a small problem, the same for the same seed: odd curves, minima, costs, sizes outside the allowed ones."""
    rng = np.random.default_rng(seed)
    pool = int(rng.integers(0, 13))
    tasks = []
    held = 0
    for place in range(int(rng.integers(1, 5))):
        smallest = int(rng.integers(1, 5))
        largest = int(rng.integers(smallest, 9))
        points = np.sort(rng.choice(np.arange(1, largest + 1), size=int(rng.integers(1, largest + 1)), replace=False))
        rate = rng.uniform(0.0, 100.0, points.size) * points ** rng.uniform(0.0, 1.2)
        size = int(rng.integers(0, 1 + min(8, pool - held)))
        held += size
        grow, shrink, start = rng.uniform(0.0, 60.0, 3) * (rng.random(3) < _SHARE_WITH_COSTS)
        tasks.append(
            CompetingTask(
                name=f"task{place}",
                size=size,
                min_nodes=smallest,
                max_nodes=largest,
                curve=SpeedCurve(nodes=tuple(points.tolist()), rate=tuple(rate.tolist())),
                grow_cost_s=float(grow),
                shrink_cost_s=float(shrink),
                start_cost_s=float(start),
            )
        )
    return AllocationProblem(pool=pool, horizon_s=float(rng.uniform(10.0, 600.0)), tasks=tuple(tasks))


def random_kinds(seed: int) -> AllocationProblem:
    """Give a small problem with two or three kinds of nodes, the same for the same seed; some kinds run no task."""
    rng = np.random.default_rng(seed)
    kinds = ("fast", "slow", "odd")[: int(rng.integers(2, 4))]
    pools = {kind: int(rng.integers(0, 6)) for kind in kinds}
    free, tasks = dict(pools), []
    for place in range(int(rng.integers(1, 4))):
        smallest = int(rng.integers(1, 4))
        largest = int(rng.integers(smallest, 6))
        points = np.arange(1, largest + 1)
        curves = {
            kind: SpeedCurve(nodes=tuple(points.tolist()), rate=tuple(rng.uniform(0.0, 50.0, points.size).tolist()))
            for kind in kinds
            if rng.random() < _SHARE_THAT_RUNS
        }
        held = str(rng.choice(kinds))
        size = int(rng.integers(0, 1 + free[held])) if held in curves else 0
        free[held] -= size
        grow, shrink, start = rng.uniform(0.0, 60.0, 3) * (rng.random(3) < _SHARE_WITH_COSTS)
        tasks.append(
            CompetingTask(
                name=f"task{place}",
                size=size,
                kind=held if size else "",
                min_nodes=smallest,
                max_nodes=largest,
                curve=SpeedCurve(nodes=(1,), rate=(1.0,)),
                curves=curves or {"none": SpeedCurve(nodes=(1,), rate=(1.0,))},
                grow_cost_s=float(grow),
                shrink_cost_s=float(shrink),
                start_cost_s=float(start),
            )
        )
    return AllocationProblem(pool=sum(pools.values()), pools=pools, horizon_s=100.0, tasks=tuple(tasks))
