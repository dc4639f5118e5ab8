"""Replays with the compiled core equal those with the Harvester alone, to the last node and bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain import (
    CompetingTask,
    Decision,
    EventLog,
    Harvester,
    NodeState,
    ReplaySettings,
    SpeedCurve,
    TaskSpec,
    build_harvester,
)
from bftrain.deciding.objectives import Entries, FunctionObjective, relative_speed, speedup
from bftrain.ports import ObjectiveCapabilities
from bftrain_replay.simulation import compiled_core, engine
from bftrain_replay.simulation.task_progress import TaskProgress
from bftrain_solvers.exact import ExactSolver
from bftrain_solvers.knapsack import compiled_allocation
from bftrain_solvers.knapsack.compiled_knapsack import compiled_library
from tests.helpers.core_storms import NAMES, NamedAlone, node_names, outcome, storm
from tests.helpers.transitions import log_from_transitions

pytestmark = pytest.mark.skipif(compiled_library() is None, reason="there is no compiled code")

OWN = f"{Path(__file__).parents[2]}/examples/objectives/thrifty.py:thrifty"
seconds = st.integers(0, 60).map(lambda number: 10.0 * number) | st.floats(0.0, 600.0)
costs = st.sampled_from((0.0, 0.0, 3.0, 18.0, 500.0))
rates = st.floats(0.1, 100.0) | st.sampled_from((0.0, 1e-250, 1e250, 5.0, 10.0))


@st.composite
def logs(draw: st.DrawFn) -> EventLog:
    names = node_names(draw(st.sampled_from(NAMES)), 24)
    first = st.integers(0, 23)
    jobs = draw(st.lists(st.tuples(seconds, first, st.integers(1, 12), st.sampled_from(NodeState)), max_size=40))
    changes = [(time_s, node, state) for time_s, start, count, state in jobs for node in names[start : start + count]]
    return log_from_transitions(changes, node_names=names, begin_s=0.0, end_s=700.0)


@st.composite
def tasks(draw: st.DrawFn) -> list[TaskSpec]:
    shapes = []
    for _ in range(draw(st.integers(1, 3))):
        nodes = sorted(draw(st.sets(st.integers(1, 16), min_size=1, max_size=4)))
        rate = draw(st.lists(rates, min_size=len(nodes), max_size=len(nodes)))
        smallest = draw(st.integers(1, 4))
        shape = TaskSpec(
            name="shape",
            curve=SpeedCurve(nodes=tuple(nodes), rate=tuple(rate)),
            min_nodes=smallest,
            max_nodes=draw(st.integers(smallest, 20)),
            grow_cost_s=draw(costs),
            shrink_cost_s=draw(costs),
            start_cost_s=draw(costs),
            weight=draw(st.sampled_from((1.0, 2.5))),
        )
        shapes.append(shape)
    found = []
    for number in range(draw(st.integers(1, 12))):
        work = draw(st.none() | st.floats(1.0, 30_000.0))
        submit_s = draw(st.just(0.0) | seconds)
        found.append(replace(draw(st.sampled_from(shapes)), name=f"t{number}", work_samples=work, submit_s=submit_s))
    return found


common = {
    "objective": st.sampled_from(("throughput", "speedup", "weighted", "deadline", OWN)),
    "max_tasks": st.integers(1, 6),
    "horizon_s": st.sampled_from(("auto", 120.0)),
}
chosen = st.one_of(
    st.builds(ReplaySettings, speed_error=st.sampled_from((0.0, 0.3)), **common),
    st.builds(ReplaySettings, decision_latency_s=st.just(7.0), min_interval_s=st.sampled_from((0.0, 25.0)), **common),
    st.builds(ReplaySettings, semantics=st.just("published"), placement=st.just("neighbours"), **common),
)


def same(log: EventLog, specs: Sequence[TaskSpec], given_settings: ReplaySettings) -> None:
    ours = outcome(log, specs, given_settings, compiled=True)
    event(f"error: {len(ours) == 1}")
    assert ours == outcome(log, specs, given_settings, compiled=False)


@pytest.mark.parametrize("seed", range(8))
def test_storms(seed: int) -> None:
    log, specs, given_settings = storm(seed)
    assert outcome(log, specs, given_settings, compiled=True) == outcome(log, specs, given_settings, compiled=False)


@settings(max_examples=200, deadline=None)
@given(logs(), tasks(), chosen)
def test_the_same_replays(log: EventLog, specs: list[TaskSpec], given_settings: ReplaySettings) -> None:
    same(log, specs, given_settings)


@settings(max_examples=60, deadline=None)
@given(logs(), tasks(), chosen, st.sampled_from((64, 300, 1000)))
def test_what_the_knapsack_declines_is_the_harvesters(
    log: EventLog, specs: list[TaskSpec], given_settings: ReplaySettings, room: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled_allocation, "ROOM", room)
        same(log, specs, given_settings)


@settings(max_examples=60, deadline=None)
@given(logs(), tasks(), chosen)
def test_classes_and_fits_are_forgotten(log: EventLog, specs: list[TaskSpec], given_settings: ReplaySettings) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled_core, "_CLASSES_PER_TASK", 1)
        patched.setattr(compiled_core, "_LEAST_CLASSES", 1)
        patched.setattr(compiled_core, "_MOST_FITS", 1)
        same(log, specs, given_settings)


CURVE = SpeedCurve(nodes=(1,), rate=(1.0,))
ONE_NODE = log_from_transitions([(0.0, "n1", NodeState.IDLE)], node_names=["n1"], begin_s=0.0, end_s=9.0)
PAIR = [TaskSpec(name=name, curve=CURVE, max_nodes=4, user=name) for name in "ab"]


def takes(harvester: Harvester) -> bool:
    return compiled_core.compiled_core(harvester, ONE_NODE, PAIR, records=False) is not None


def test_the_default_parts_take_the_compiled_core() -> None:
    def built(**given_settings: str | float) -> Harvester:
        return build_harvester(ReplaySettings(**given_settings))  # type: ignore[arg-type]

    assert takes(built())
    assert takes(built(objective="speedup", max_tasks=1, horizon_s=60.0))
    assert takes(built(objective="weighted"))
    for other in ({"objective": "max-min"}, {"solver": "greedy"}, {"admission": "load"}, {"placement": "grouped"}):
        assert not takes(built(**other))


def of_user(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    return task.curve.speeds(int(sizes[-1])) * (5.0 if task.user == "b" else 1.0)


def of_size(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    return task.curve.speeds(int(sizes[-1])) * (2.0 if task.user == "b" and task.size else 1.0)


def of_work(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    return task.curve.speeds(int(sizes[-1])) * (task.work_left_samples or 1.0)


def of_copy(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    return of_user(replace(task, size=0), sizes)


def test_an_objective_that_reads_constants_takes_the_compiled_core() -> None:
    assert takes(harvester_of(of_user))
    decided = [
        [task.done_samples for task in engine.run(ONE_NODE, PAIR, decider).tasks if isinstance(task, TaskProgress)]
        for decider in (harvester_of(of_user), NamedAlone(harvester_of(of_user)))
    ]
    assert decided == [[0.0, 9.0]] * 2


def test_an_objective_that_reads_what_changes_is_the_harvesters() -> None:
    assert not takes(harvester_of(of_size))
    assert not takes(harvester_of(of_copy))  # it may read all fields of a copy
    assert takes(harvester_of(of_work))
    finite = [replace(spec, work_samples=5.0) for spec in PAIR]
    assert compiled_core.compiled_core(harvester_of(of_work), ONE_NODE, finite, records=False) is None


def test_an_objective_with_other_capabilities_is_the_harvesters() -> None:
    coupled = ObjectiveCapabilities(uses_work_left=False, level_coupling=True)
    assert not takes(Harvester(solver=ExactSolver(), objective=FunctionObjective("own", relative_speed, coupled)))


def test_a_subclass_decides_itself() -> None:
    class Counting(Harvester):
        calls = 0

        def decide(self, time_s: float) -> Decision:
            self.calls += 1
            return super().decide(time_s)

    counting = Counting(solver=ExactSolver(), objective=speedup)
    engine.run(ONE_NODE, PAIR, counting)
    assert counting.calls == 1


def harvester_of(function: Callable[[CompetingTask, NDArray[np.int64]], Entries]) -> Harvester:
    return Harvester(solver=ExactSolver(), objective=FunctionObjective("own", function))
