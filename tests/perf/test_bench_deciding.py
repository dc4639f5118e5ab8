"""What the decision core costs at each event beside the solver, and how soon vacated nodes are handed back."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from bftrain import (
    Event,
    Harvester,
    Journal,
    NodesJoined,
    NodesLeft,
    Release,
    Settings,
    SpeedCurve,
    TaskSpec,
    TaskSubmitted,
    registry,
)
from tests.helpers.figures import Figures
from tests.helpers.named_parts import EXACT, THROUGHPUT

pytestmark = pytest.mark.bench

EVENTS = 2_000
CURVE = SpeedCurve(nodes=(1, 2, 4, 8, 16, 32, 64), rate=(1, 2, 3.9, 7.5, 14, 26, 50))


def harvester(tasks: int, nodes: tuple[str, ...]) -> Harvester:
    """Return a core in which ``tasks`` compete, as many wait, and ``nodes`` are idle."""
    core = Harvester(solver=EXACT, objective=THROUGHPUT, admission=registry.load("admission", "first-come")(tasks))
    specs = [
        TaskSpec(name=f"t{number}", curve=CURVE, max_nodes=64, grow_cost_s=18, shrink_cost_s=12)
        for number in range(2 * tasks)
    ]
    core.handle(*(TaskSubmitted(time_s=0.0, spec=spec) for spec in specs), NodesJoined(time_s=0.0, nodes=nodes))
    return core


def storm(nodes: tuple[str, ...], spare: int) -> list[Event]:
    """Up to 35 nodes leave or join at each event; the pool stays about as large as it begins."""
    rng = np.random.default_rng(1)
    idle, busy = list(nodes), [f"spare{number}" for number in range(spare)]
    events: list[Event] = []
    for moment in range(1, EVENTS + 1):
        leaving = len(idle) > len(nodes)
        source, goal = (idle, busy) if leaving else (busy, idle)
        start, count = int(rng.integers(0, len(source) - 35)), int(rng.integers(1, 36))
        moved = source[start : start + count]
        del source[start : start + count]
        goal.extend(moved)
        events.append((NodesLeft if leaving else NodesJoined)(time_s=float(moment), nodes=tuple(moved)))
    return events


@pytest.mark.parametrize(("tasks", "pool"), [(10, 640), (35, 1_000), (100, 4_734)])
def test_an_event_costs(tasks: int, pool: int, figures: Figures) -> None:
    nodes = tuple(f"n{number}" for number in range(pool))
    core = harvester(tasks, nodes)
    absorbing, deciding, solving = [], [], []
    for event in storm(nodes, pool):
        begun = perf_counter()
        core.absorb(event)
        absorbed = perf_counter()
        decision = core.decide(event.time_s)
        absorbing.append(absorbed - begun)
        deciding.append(perf_counter() - absorbed - decision.solve_s)
        solving.append(decision.solve_s)
    case = f"{tasks} tasks, pool {pool:,}: "
    figures.add(case + "taking in, median", 1e6 * float(np.median(absorbing)), "us")
    figures.add(case + "deciding without the solver, median", 1e6 * float(np.median(deciding)), "us")
    figures.add(case + "solver, median", 1e6 * float(np.median(solving)), "us")
    # 1 M events with 35 tasks in 10 minutes leave 600 us for everything
    assert np.median(absorbing) < 150e-6
    assert np.median(deciding) < 1e-3


def test_a_thousand_nodes_are_handed_back(figures: Figures) -> None:
    nodes = tuple(f"n{number}" for number in range(4_734))
    took = []
    for _ in range(5):
        core = harvester(100, nodes)
        begun = perf_counter()
        actions = core.absorb(NodesLeft(time_s=1.0, nodes=nodes[:1_000]))
        took.append(perf_counter() - begun)
        assert isinstance(actions[0], Release)
        assert len(actions[0].nodes) == 1_000
    figures.add("1,000 of 4,734 nodes leave at once: until released", 1e3 * min(took), "ms")
    assert min(took) < 0.020


def test_a_step_on_disk_costs(tmp_path: Path, figures: Figures) -> None:
    nodes = tuple(f"n{number}" for number in range(1_000))
    core = harvester(35, nodes)
    with Journal.create(tmp_path / "journal.db", Settings()) as journal:
        took = []
        for event in storm(nodes, 1_000)[:500]:
            core.absorb(event)
            decision = core.decide(event.time_s)
            begun = perf_counter()
            journal.append([event], decision)
            took.append(perf_counter() - begun)
    figures.add("journal, one step with 35 tasks, synced to disk, median", 1e3 * float(np.median(took)), "ms")
