"""100 tasks on 1,000 nodes of three kinds: how soon ``exact`` has the best sizes, beside HiGHS on the same table."""

from __future__ import annotations

from time import perf_counter

import numpy as np
import pytest

from bftrain import AllocationProblem, CompetingTask, Limits, SpeedCurve
from tests.helpers.figures import Figures
from tests.helpers.named_parts import EXACT, GREEDY, HIGHS, THROUGHPUT, table_for

pytestmark = pytest.mark.bench

GAP = 1e-3
POOLS = {"v100": 300, "p100": 300, "k80": 400}
SPEED = {"v100": 1.0, "p100": 0.5, "k80": 0.2}  # of the kinds, give or take 30 % for each task


def problem(seed: int) -> AllocationProblem:
    """Return tasks of up to 64 nodes that run on most kinds; three of five hold nodes; rescaling costs something."""
    rng = np.random.default_rng(seed)
    free, tasks = dict(POOLS), []
    for place in range(100):
        most = int(rng.integers(4, 65))
        at = tuple(sorted({1, *(nodes for nodes in (2, 4, 8, 16, 32) if nodes < most), most}))
        rate = rng.uniform(10.0, 100.0) * np.array(at) ** rng.uniform(0.6, 1.0)
        curves = {
            kind: SpeedCurve(nodes=at, rate=tuple((rate * faster * rng.uniform(0.7, 1.3, len(at))).tolist()))
            for kind, faster in SPEED.items()
            if rng.random() < 0.9
        }
        held = str(rng.choice(list(POOLS)))
        size = int(rng.integers(0, 1 + min(most, free[held]))) if held in curves and rng.random() < 0.6 else 0
        free[held] -= size
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                size=size,
                kind=held if size else "",
                max_nodes=most,
                curve=SpeedCurve(nodes=(1,), rate=(1.0,)),
                curves=curves or {"none": SpeedCurve(nodes=(1,), rate=(1.0,))},
                grow_cost_s=18.0,
                shrink_cost_s=12.0,
                start_cost_s=20.0,
            )
        )
    return AllocationProblem(pool=sum(POOLS.values()), pools=POOLS, horizon_s=120.0, tasks=tuple(tasks))


def test_the_best_sizes_over_three_kinds(figures: Figures) -> None:
    took, soon, highs_took, gaps, behind = [], [], [], [], []
    for seed in range(5):
        table = table_for(THROUGHPUT, problem(seed))
        found = EXACT.solve(table, Limits())
        took.append(found.wall_s)
        assert found.value is not None
        assert found.bound is not None
        gaps.append((found.bound - found.value) / found.value)
        near = EXACT.solve(table, Limits(relative_gap=GAP))
        soon.append(near.wall_s)
        assert near.value is not None
        assert near.bound is not None
        assert near.bound - near.value <= GAP * near.value
        assert near.value <= found.bound * (1 + 1e-9)
        begun = perf_counter()
        other = HIGHS.solve(table, Limits(deadline_s=30.0))
        highs_took.append(perf_counter() - begun)
        assert other.value is not None
        assert found.value >= other.value * (1 - 1e-9)
        rule = GREEDY.solve(table, Limits()).value
        assert rule is not None
        behind.append(1.0 - rule / found.value)
    case = "100 tasks, 1,000 nodes of 3 kinds: "
    figures.add(case + "exact, median", 1e3 * float(np.median(took)), "ms")
    figures.add(case + "exact, longest", 1e3 * max(took), "ms")
    figures.add(case + "exact, largest gap", 100 * max(gaps), "%")
    figures.add(case + "exact within 0.1 %, median", 1e3 * float(np.median(soon)), "ms")
    figures.add(case + "exact within 0.1 %, longest", 1e3 * max(soon), "ms")
    figures.add(case + "highs, median", 1e3 * float(np.median(highs_took)), "ms")
    figures.add(case + "highs, longest", 1e3 * max(highs_took), "ms")
    figures.add(case + "greedy, furthest behind", 100 * max(behind), "%")
    assert max(gaps) < GAP
    assert np.median(soon) < 5.0
