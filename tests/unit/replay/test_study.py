"""Yardsticks, baseline, warnings, and stopping half-way."""

from __future__ import annotations

import pytest

import bftrain
from bftrain import ReplaySettings, Settings
from tests.helpers.coupled_objective import COUPLED
from tests.unit.replay.cases import ReplayOutcome, log_of, task

# 400 node-seconds in 300 s: 1.33 nodes on average
LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)
COSTLY = task(start_cost_s=7.0, shrink_cost_s=3.0, grow_cost_s=5.0)


def test_efficiency_is_held_against_a_constant_pool_without_costs() -> None:
    done = bftrain.replay(LOG, [COSTLY], Settings())
    yardsticks = done.result.yardsticks
    assert yardsticks is not None
    assert (yardsticks.dedicated_nodes, yardsticks.dedicated_samples) == (1, 3000.0)
    assert yardsticks.ceiling_samples == 1800.0 + 2000.0
    assert done.result.harvested_samples == 3800.0 - 126.0 - 54.0
    assert done.result.efficiency == 3620.0 / 3000.0
    summary = done.result.summary()
    assert (summary.efficiency, summary.ceiling_efficiency) == (3620.0 / 3000.0, 3800.0 / 3000.0)
    assert done.complete
    assert done.baseline is None


def test_the_ceiling_pays_nothing_and_is_never_below_the_replay() -> None:
    done = bftrain.replay(LOG, [COSTLY, task("u", rate=(9.0, 12.0, 14.0), grow_cost_s=30.0, submit_s=20.0)], Settings())
    assert done.ceiling is not None
    assert set(done.ceiling.lost_samples.values()) == {0.0}
    assert done.ceiling.harvested_samples >= done.result.harvested_samples


@pytest.mark.parametrize("semantics", ["realistic", "published"])
def test_every_solver_is_held_against_the_same_references(semantics: str) -> None:
    tasks = [task("slow", rate=(1.0, 2.0)), COSTLY, task("u", rate=(30.0,), submit_s=20.0)]
    exact, poor = (
        bftrain.replay(LOG, tasks, ReplaySettings(semantics=semantics, solver=solver, solver_gap=gap))
        for solver, gap in (("exact", 0.0), ("equal-share", 0.5))
    )
    assert poor.result.harvested_samples < exact.result.harvested_samples
    assert poor.result.yardsticks == exact.result.yardsticks
    assert poor.ceiling is not None
    assert poor.ceiling.summary().solver == "exact"


def test_an_objective_that_ties_tasks_together_keeps_its_solver() -> None:
    done = bftrain.replay(LOG, [COSTLY, task("u")], ReplaySettings(objective=COUPLED, solver="highs"))
    assert done.ceiling is not None
    assert done.ceiling.summary().solver == "highs"


def test_too_little_idle_time_for_a_dedicated_node_leaves_efficiency_unknown() -> None:
    done = bftrain.replay(log_of((0.0, "a", ""), (10.0, "", "a"), end_s=1000.0), [task()], Settings())
    assert (done.result.harvested_samples, done.result.efficiency) == (100.0, None)
    assert done.complete


def test_a_baseline_is_replayed_with_the_same_yardsticks() -> None:
    done = bftrain.replay(LOG, [COSTLY, task("u", rate=(1.0, 2.0))], Settings(), baseline="equal-share")
    assert done.baseline is not None
    assert done.baseline.settings == ReplaySettings(solver="equal-share")
    assert done.baseline.yardsticks == done.result.yardsticks
    assert done.baseline.harvested_samples < done.result.harvested_samples


def watched(stop_in: str) -> tuple[ReplayOutcome, list[str]]:
    heard: list[str] = []

    def watch(name: str, _simulated_s: float, decisions: int) -> bool:
        if name not in heard:
            heard.append(name)
        return not (name == stop_in and decisions == 1)

    return bftrain.replay(LOG, [COSTLY], Settings(), baseline="equal-share", watch=watch), heard


def test_the_watch_hears_of_every_replay_in_order() -> None:
    done, heard = watched("none")
    assert tuple(heard) == ("exact", "equal-share", "without costs", "dedicated pool")
    assert done.complete


@pytest.mark.parametrize("stop_in", ["exact", "equal-share", "without costs"])
def test_when_stopped_what_is_whole_is_kept_and_the_rest_left_out(stop_in: str) -> None:
    done, heard = watched(stop_in)
    assert heard[-1] == stop_in
    assert not done.complete
    assert done.result.complete == (stop_in != "exact")
    assert (done.baseline is not None) == (stop_in == "without costs")
    assert (done.ceiling, done.result.yardsticks, done.result.efficiency) == (None, None, None)


def warnings(*args: object) -> tuple[str, ...]:
    return bftrain.replay(*args, Settings()).result.warnings  # type: ignore[arg-type]  # a log and tasks


def test_odd_inputs_are_named() -> None:
    assert warnings(LOG, [COSTLY]) == ()
    assert warnings(LOG, []) == ("there are no tasks",)
    assert warnings(log_of(end_s=0.0), [COSTLY])[0].startswith("the log has no duration")
    assert warnings(log_of(end_s=9.0), [COSTLY])[0] == "no node is ever idle in the log"
    (misfit,) = warnings(LOG, [task("big", rate=(1.0,) * 5, min_nodes=3)])
    assert misfit == (
        "task 'big' needs more nodes than the 2 idle at the peak, so it can never run, but still competes"
    )
    twice = log_of((0.0, "a", ""), (50.0, "ab", ""), end_s=100.0)  # a joins a second time
    assert warnings(twice, [task()]) == ("log entries that repeat the current state of a node: 1",)
    (late,) = warnings(LOG, [task("x", submit_s=300.0), task("y", submit_s=301.0)])
    assert late == "2 tasks ('x', 'y') arrive after the end of the log"
    (late,) = warnings(LOG, [task(f"t{number}", submit_s=300.0) for number in range(1000)])
    assert late == "1,000 tasks ('t0', 't1', 't2', 't3', 't4', ...) arrive after the end of the log"


def test_a_solver_whose_decisions_others_made_is_named() -> None:
    late = bftrain.replay(LOG, [task()], Settings(solver="highs", solver_deadline_s=1e-9))
    counted = len(late.result.decisions)
    assert len(late.result.decisions.fallbacks) == counted
    (of_replay,) = late.result.warnings
    assert of_replay.startswith(
        f"highs ran out of time in {counted} of {counted} decisions; greedy decided. The first: "
    )
    assert of_replay.endswith("; sizes of greedy taken")
    tied = bftrain.replay(LOG, [task()], Settings(solver="highs", solver_deadline_s=1e-9, objective=COUPLED))
    assert ["highs without costs ran out of time" in warning for warning in tied.result.warnings] == [False, True]
    assert bftrain.replay(LOG, [task()], Settings(solver="highs")).result.warnings == ()


@pytest.mark.parametrize(("horizon", "warned"), [(120.0, True), (121.0, False), ("auto", False)])
def test_a_start_that_can_never_be_worth_it_is_warned_of(horizon: float | str, warned: bool) -> None:  # noqa: FBT001
    done = bftrain.replay(LOG, [task("a"), task("b")], ReplaySettings(horizon_s=horizon, start_cost_s=120.0))
    assert warned == any("no start is worth it" in text for text in done.result.warnings)
    assert warned == (done.result.harvested_samples == 0.0)
