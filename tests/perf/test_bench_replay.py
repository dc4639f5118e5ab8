"""How fast a replay goes: the engine alone, and with the decision core on a log like Summit's."""

from __future__ import annotations

from time import perf_counter

import pytest

from bftrain.assembly import build_harvester
from bftrain.config import Settings
from bftrain.values.actions import Action, Start
from bftrain.values.curve import SpeedCurve
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft
from bftrain.values.solution import Quality, Termination
from bftrain.values.task import TaskSpec
from bftrain_datasets.builder import log_from_pool_changes
from bftrain_datasets.generators import generate_log
from bftrain_datasets.task_generators import generate_trials
from bftrain_replay.engine import run
from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

TASKS = 35
KEPT = tuple(f"kept{number}" for number in range(TASKS))


class FixedPlan:
    """Starts every task on a node that stays, and then decides nothing any more."""

    def __init__(self) -> None:
        self._pool = 0
        self._sizes: dict[str, int] = {}

    def absorb(self, *events: Event) -> tuple[Action, ...]:
        for event in events:
            if isinstance(event, NodesJoined):
                self._pool += len(event.nodes)
            elif isinstance(event, NodesLeft):
                self._pool -= len(event.nodes)
        return ()

    def decide(self, time_s: float) -> Decision:
        actions: tuple[Action, ...] = ()
        if not self._sizes:
            self._sizes = {f"t{number}": 1 for number in range(TASKS)}
            actions = tuple(Start(task=f"t{number}", nodes=(node,)) for number, node in enumerate(KEPT))
        return Decision(
            time_s=time_s,
            number=1,
            pool=self._pool,
            used=TASKS,
            sizes=self._sizes,
            value=0.0,
            bound=None,
            solver="fixed",
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            actions=actions,
        )


def test_the_engine_without_a_solver(figures: Figures) -> None:
    events, group = 50_000, tuple(f"n{number}" for number in range(8))
    flicker = ((1.0 + time_s, *((group, ()) if time_s % 2 == 0 else ((), group))) for time_s in range(events))
    log = log_from_pool_changes([(0.0, KEPT, ()), *flicker])
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    tasks = [TaskSpec(name=f"t{number}", curve=curve, max_nodes=64) for number in range(TASKS)]
    begin = perf_counter()
    done = run(log, tasks, FixedPlan())
    rate = len(done.decisions) / (perf_counter() - begin)
    figures.add("engine alone, 8 nodes an event, 35 tasks", rate, "events/s")
    assert rate > 20_000


@pytest.mark.parametrize("max_tasks", [10, 35])
def test_two_weeks_of_a_thousand_nodes(figures: Figures, max_tasks: int) -> None:
    log, tasks = generate_log(1024, 15, seed=0), generate_trials(1000, seed=0)
    begin = perf_counter()
    done = run(log, tasks, build_harvester(Settings(max_tasks=max_tasks)))
    took_s = perf_counter() - begin
    figures.add(f"1,024 nodes, 1,000 tasks, {max_tasks} compete", took_s, "s")
    figures.add("decisions in it", len(done.decisions))
    figures.add(
        "a decision, solver not counted", 1e6 * (took_s - sum(done.decisions.solve_s)) / len(done.decisions), "us"
    )
    assert took_s < 10.0
