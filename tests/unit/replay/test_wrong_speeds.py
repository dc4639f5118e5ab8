"""Decisions that mistake speeds: tasks run as fast as they are, and decisions may learn how fast that is."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import BadValue, EventLog, NodeState, ReplaySettings, SpeedCurve, TaskSpec
from tests.unit.replay.cases import LogBuilder, ReplayOutcome

FAST, SLOW = SpeedCurve(nodes=(1, 2), rate=(20.0, 40.0)), SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0))
TASKS = tuple(
    TaskSpec(name=name, curve=curve, max_nodes=1, work_samples=1e6) for name, curve in (("fast", FAST), ("slow", SLOW))
)


def one_node(*, kind: str = "") -> EventLog:
    """Return a log in which one node is idle, and another for a moment now and then, so that decisions are taken."""
    builder = LogBuilder()
    for node in ("stays", "comes") if kind else ():
        builder.set_kind(node, kind)
    builder.add(0.0, "stays", NodeState.IDLE)
    for number in range(1, 10):
        builder.add(100.0 * number, "comes", NodeState.IDLE)
        builder.add(100.0 * number + 1.0, "comes", NodeState.BUSY)
    return builder.build(end_s=1000.0)


def replayed(tasks: tuple[TaskSpec, ...] = TASKS, log: EventLog | None = None, **settings: object) -> ReplayOutcome:
    given = ReplaySettings(horizon_s=60.0, max_tasks=9, **settings)  # type: ignore[arg-type]  # any field of it
    return bftrain.replay(log or one_node(), tasks, given)


@cache
def mistaken_seed() -> int:
    """Return a seed with which the slow task is believed to be the faster one, so that it runs."""
    for seed in range(100):
        fast, slow = replayed(speed_error=1.0, seed=seed).result.tasks
        if slow.done_samples > fast.done_samples:
            return seed
    raise AssertionError


def test_tasks_run_as_fast_as_they_are_also_where_decisions_are_mistaken() -> None:
    alone = TASKS[:1]
    right, wrong = replayed(alone), replayed(alone, speed_error=1.0, seed=3)
    assert wrong.result.harvested_samples == right.result.harvested_samples > 0.0


def test_a_wrong_choice_costs_harvest_and_is_corrected_where_decisions_learn() -> None:
    seed = mistaken_seed()
    right = replayed().result.harvested_samples
    wrong = replayed(speed_error=1.0, seed=seed).result.harvested_samples
    learnt = replayed(speed_error=1.0, seed=seed, learning="yes").result.harvested_samples
    assert wrong < learnt < right
    assert replayed(speed_error=1.0, seed=seed).result.harvested_samples == wrong
    assert replayed(speed_error=1.0, seed=seed, profiled=1.0).result.harvested_samples == right


def test_learning_knows_the_kinds_of_nodes() -> None:
    seed = mistaken_seed()
    tasks = tuple(replace(task, curves={"v": task.curve}) for task in TASKS)
    log = one_node(kind="v")
    for each in range(seed, seed + 20):
        found = [replayed(tasks, log, speed_error=1.0, seed=each, learning=learns) for learns in ("no", "yes")]
        assert found[0].result.harvested_samples <= found[1].result.harvested_samples


def test_the_references_know_all_speeds() -> None:
    right, wrong = replayed(), replayed(speed_error=1.0, seed=mistaken_seed())
    assert wrong.result.yardsticks == right.result.yardsticks is not None


def test_a_share_of_the_tasks_is_known() -> None:
    """Of the seeds with which nothing is known, some make the wrong choice; the more is known, the fewer."""

    def wrong(profiled: float) -> int:
        found = (replayed(speed_error=1.0, seed=seed, profiled=profiled).result.tasks for seed in range(40))
        return sum(slow.done_samples > fast.done_samples for fast, slow in found)

    assert wrong(0.0) > wrong(0.7) > wrong(1.0) == 0


def test_what_is_refused() -> None:
    for wrong in ({"speed_error": -1.0}, {"speed_error": 11.0}, {"profiled": 1.1}, {"learning": "perhaps"}):
        with pytest.raises(BadValue, match=next(iter(wrong))):
            ReplaySettings(**wrong)  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(BadValue, match="unknown to the published rules"):
        ReplaySettings(semantics="published", speed_error=0.1)
