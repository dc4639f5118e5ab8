"""How fast policies decide that look at all tasks at once: 100 tasks on 1,000 nodes, which one event may ask for."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain import AllocationProblem, CompetingTask, Limits, SpeedCurve, Termination, assembly
from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

SIZES = (1, 2, 4, 8, 16, 32, 64)
OBJECTIVES = (
    *("max-min", "max-min-plain", "water-filling", "hierarchical", "finish-time", "makespan"),
    *("completion", "proportional", "cost"),
)
RISING = ("max-min", "water-filling", "hierarchical", "finish-time", "makespan")
OBJECTIVES_OF_KINDS = (*RISING, "completion", "proportional", "cost")
ALLOCATORS = ("fifo", "las", "srtf", "isolated", "proportional-share", "marginal-gain")
BAR_S = 1.0
BAR_OF_KINDS_S = 10.0  # the deadline of a decision, unless set otherwise


def problem(seed: int, *, past: bool, pool: int = 1000) -> AllocationProblem:
    """Return 100 tasks of sixteen users with curves that flatten out, new ones or such that have a past."""
    rng = np.random.default_rng(seed)
    held = 0
    tasks = []
    for place in range(100):
        bend, single = rng.uniform(0.6, 1.0), rng.uniform(10.0, 1000.0)
        size = int(rng.integers(0, 20)) if past else 0
        held += size
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                size=size if held <= pool else 0,
                max_nodes=64,
                curve=SpeedCurve(nodes=SIZES, rate=tuple(single * nodes**bend for nodes in SIZES)),
                weight=float(rng.choice([1.0, 2.0, 4.0])),
                user=f"user{place % 16}",
                work_left_samples=float(rng.uniform(1e3, 1e7)),
                age_s=past * float(rng.uniform(0.0, 1e4)),
                done_samples=past * float(rng.uniform(0.0, 1e5)),
                held_node_s=past * float(rng.uniform(0.0, 1e5)),
                grow_cost_s=18.0,
                shrink_cost_s=12.0,
                start_cost_s=18.0,
            )
        )
    return AllocationProblem(pool=pool, horizon_s=120.0, tasks=tuple(tasks))


@pytest.mark.parametrize("past", [False, True], ids=["new", "with a past"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name: str, figures: Figures, *, past: bool) -> None:
    took, words = [], set()
    for seed in range(3):
        solution = assembly.solve(replace(problem(seed, past=past), objective=name))
        assert solution.termination is Termination.OPTIMAL
        took.append(solution.wall_s)
        words.add(solution.solver_words)
    figures.add(
        f"{name}, 100 tasks {'with a past' if past else 'all new'}, 1,000 nodes, worst of 3", 1e3 * max(took), "ms"
    )
    assert words == {""}  # everything is proven
    assert max(took) < BAR_S


@pytest.mark.parametrize("name", ["max-min", "water-filling", "hierarchical"])
def test_more_tasks_than_nodes(name: str, figures: Figures) -> None:
    took = []
    for seed in range(3):
        solution = assembly.solve(replace(problem(seed, past=False, pool=60), objective=name))
        took.append(solution.wall_s)
        assert sum(solution.sizes.values()) == 60
    figures.add(f"{name}, 100 new tasks on 60 nodes, worst of 3", 1e3 * max(took), "ms")
    assert max(took) < BAR_S


def over_kinds(seed: int, count: int = 35, each: int = 36) -> AllocationProblem:
    """Return new tasks on so many nodes of each of three kinds."""
    rng = np.random.default_rng(seed)
    kinds = {"v100": 3.0, "p100": 2.0, "k80": 1.0}
    tasks = []
    for place in range(count):
        bend, single = rng.uniform(0.6, 1.0), rng.uniform(10.0, 1000.0)
        curves = {
            kind: SpeedCurve(
                nodes=SIZES[:5], rate=tuple(single * fast * rng.uniform(0.7, 1.3) * n**bend for n in SIZES[:5])
            )
            for kind, fast in kinds.items()
        }
        work = float(rng.uniform(1e3, 1e7))
        tasks.append(
            CompetingTask(
                name=f"t{place}",
                max_nodes=16,
                curve=curves["v100"],
                curves=curves,
                user=f"user{place % 16}",
                work_left_samples=work,
            )
        )
    return AllocationProblem(pool=3 * each, pools=dict.fromkeys(kinds, each), horizon_s=120.0, tasks=tuple(tasks))


@pytest.mark.parametrize("name", OBJECTIVES_OF_KINDS)
def test_over_three_kinds(name: str, figures: Figures) -> None:
    took = []
    for seed in range(3):
        solution = assembly.solve(replace(over_kinds(seed), objective=name), limits=Limits(deadline_s=30.0))
        assert solution.termination is Termination.OPTIMAL
        took.append(solution.wall_s)
    figures.add(f"{name}, 35 tasks, 36 nodes of each of three kinds, worst of 3", 1e3 * max(took), "ms")
    assert max(took) < BAR_OF_KINDS_S


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize(("count", "each"), [(300, 200), (300, 36)])
def test_hundreds_of_tasks_over_three_kinds(name: str, count: int, each: int, figures: Figures) -> None:
    took = []
    for seed in range(3):
        solution = assembly.solve(replace(over_kinds(seed, count, each), objective=name))
        assert solution.termination is Termination.OPTIMAL
        took.append(solution.wall_s)
    figures.add(f"{name}, {count} tasks, {each} nodes of each of three kinds, worst of 3", 1e3 * max(took), "ms")
    assert max(took) < BAR_OF_KINDS_S


@pytest.mark.parametrize("name", ALLOCATORS)
def test_allocators(name: str, figures: Figures) -> None:
    took = [assembly.solve(problem(seed, past=True), name).wall_s for seed in range(3)]
    figures.add(f"{name}, 100 tasks, 1,000 nodes, worst of 3", 1e3 * max(took), "ms")
    assert max(took) < BAR_S
