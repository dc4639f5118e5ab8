"""Each rule of docs/explanation/semantics.md with numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bftrain import TaskSpec
from bftrain_replay.simulation.task_progress import USUAL_LOSSES, LossTimes, SampleLoss, TaskProgress
from tests.unit.replay.cases import task

COSTS = {"start_cost_s": 7.0, "grow_cost_s": 5.0, "shrink_cost_s": 3.0}
SPEEDS = (10.0, 18.0, 24.0)
COSTLY = task(rate=SPEEDS, work_samples=3000.0, **COSTS)


def progress(spec: TaskSpec, now_s: float = 0.0) -> TaskProgress:
    return TaskProgress(spec, spec.curve.speeds(spec.max_nodes).tolist(), now_s)


def test_a_waiting_task_does_nothing_and_expects_no_end() -> None:
    waiting = progress(COSTLY)
    waiting.advance_to(500.0)
    assert (waiting.done_samples, waiting.node_s, waiting.expected_finish_s) == (0.0, 0.0, math.inf)


def test_a_start_is_paid_first_at_the_new_speed() -> None:
    started = progress(COSTLY)
    started.start(10.0, 2)
    assert started.expected_finish_s == 10.0 + (7 * 18 + 3000) / 18
    started.advance_to(12.0)  # 36 of 126 samples paid
    assert (started.done_samples, started.lost_samples["start_up"], started.owed_samples) == (0.0, 36.0, 90.0)
    started.advance_to(110.0)
    assert started.done_samples == 1800.0 - 126.0
    assert started.lost_node_s["start_up"] == 2 * 7.0
    assert (started.node_s, started.first_start_s, started.starts) == (200.0, 10.0, 1)


def test_growing_costs_seconds_at_the_old_speed_paid_at_the_new_one() -> None:
    growing = progress(task(rate=SPEEDS, grow_cost_s=5.0))
    growing.start(0.0, 1)
    growing.grow(100.0, 2)
    growing.advance_to(200.0)
    assert growing.done_samples == 1000.0 + 2400.0 - 5 * 10
    assert growing.lost_samples["rescaling"] == 50.0
    assert growing.lost_node_s["rescaling"] == pytest.approx(3 * 50 / 24)
    assert (growing.rescales, growing.preemptions, growing.size) == (1, 0, 3)


@pytest.mark.parametrize(("preempted", "cause"), [(False, "rescaling"), (True, "preemption")])
def test_shrinking_costs_seconds_at_the_speed_before(preempted: bool, cause: SampleLoss) -> None:  # noqa: FBT001 - a parameter
    shrinking = progress(task(rate=SPEEDS, shrink_cost_s=3.0))
    shrinking.start(0.0, 3)
    shrinking.shrink(100.0, 2, preempted=preempted)  # two nodes, one loss
    shrinking.advance_to(200.0)
    assert shrinking.done_samples == 2400.0 + 1000.0 - 3 * 24
    assert shrinking.lost_samples == dict.fromkeys(USUAL_LOSSES, 0.0) | {cause: 72.0}
    assert (shrinking.rescales, shrinking.preemptions) == ((0, 1) if preempted else (1, 0))


@pytest.mark.parametrize(("preempted", "cause"), [(False, "rescaling"), (True, "preemption")])
def test_a_stop_loses_what_was_not_committed_and_nothing_more_while_it_waits(
    preempted: bool,  # noqa: FBT001 - pytest names it
    cause: SampleLoss,
) -> None:
    stopped = progress(task(rate=SPEEDS, shrink_cost_s=3.0, start_cost_s=7.0))
    stopped.start(0.0, 1)
    stopped.advance_to(100.0)  # 70 samples for the start, 930 done
    stopped.stop(100.0, preempted=preempted)
    stopped.advance_to(900.0)
    assert (stopped.done_samples, stopped.owed_samples, stopped.size) == (930.0, 30.0, 0)
    stopped.start(900.0, 1)
    stopped.advance_to(1000.0)
    assert stopped.done_samples == 930.0 + 1000.0 - 70.0 - 30.0
    assert (stopped.lost_samples[cause], stopped.lost_samples["start_up"]) == (30.0, 140.0)


def test_a_stop_cannot_lose_more_than_was_done_since_the_last_change() -> None:
    stopped = progress(task(rate=SPEEDS, shrink_cost_s=50.0))
    stopped.start(0.0, 1)
    stopped.advance_to(100.0)
    stopped.grow(100.0, 1)  # a commit: the first 1,000 samples are safe
    stopped.advance_to(110.0)
    stopped.stop(110.0, preempted=True)
    assert (stopped.done_samples, stopped.owed_samples) == (1180.0, 180.0)


def test_a_start_up_cut_short_lapses_and_the_next_one_is_paid_in_full() -> None:
    stopped = progress(COSTLY)
    stopped.start(0.0, 1)
    stopped.stop(4.0, preempted=True)
    assert (stopped.owed_samples, stopped.lost_samples["start_up"]) == (0.0, 40.0)
    stopped.start(10.0, 1)
    assert stopped.owed_samples == 70.0


def test_lost_work_does_not_come_back_by_stopping() -> None:
    stopped = progress(COSTLY)
    stopped.start(0.0, 3)
    stopped.advance_to(100.0)
    stopped.shrink(100.0, 1, preempted=True)  # 72 samples to do again
    stopped.grow(101.0, 1)  # 18 of them done; a rescale is under way
    stopped.stop(101.0, preempted=True)
    assert stopped.owed_samples == 72.0 - 18.0


def test_debts_add_up_and_start_up_is_paid_first() -> None:
    busy = progress(COSTLY)
    busy.start(0.0, 2)
    busy.advance_to(100.0)
    busy.stop(100.0, preempted=True)  # 54 to do again
    busy.start(200.0, 1)  # 70 to start
    busy.grow(200.0, 1)  # 5 * 10 to grow
    assert busy.owed_samples == 54.0 + 70.0 + 50.0
    busy.advance_to(200.0 + 80.0 / 18.0)
    assert busy.lost_samples["start_up"] == 126.0 + 70.0
    assert busy.lost_samples["preemption"] == pytest.approx(10.0)
    assert busy.lost_samples["rescaling"] == 0.0


def test_finishing_leaves_nothing_undone_and_nothing_owed() -> None:
    done = progress(task(rate=(0.1,), work_samples=0.3))
    done.start(0.0, 1)
    done.finish(done.expected_finish_s)
    assert (done.done_samples, done.owed_samples, done.size) == (0.3, 0.0, 0)
    assert done.finish_s == done.node_s


def test_a_size_without_speed_holds_nodes_and_gets_nowhere() -> None:
    stuck = progress(task(rate=(0.0, 5.0), work_samples=10.0))
    stuck.start(0.0, 1)
    stuck.advance_to(100.0)
    assert (stuck.done_samples, stuck.node_s, stuck.expected_finish_s) == (0.0, 100.0, math.inf)


def test_losses_are_booked_when_they_are_paid_however_late_a_task_is_settled() -> None:
    waiting = progress(COSTLY)
    waiting.losses = LossTimes()
    waiting.start(10.0, 2)  # 7 s of start-up, until 17
    waiting.grow(110.0, 1)  # 5 s at speed 18, paid at 24, from 110 to 113.75
    waiting.advance_to(400.0)
    edges = np.array([0.0, 16.9, 17.0, 110.0, 113.7, 113.75, 400.0])
    assert waiting.losses.between("start_up", edges).tolist() == [0.0, 14.0, 0.0, 0.0, 0.0, 0.0]
    assert waiting.losses.between("rescaling", edges).tolist() == [0.0, 0.0, 0.0, 0.0, 3 * 3.75, 0.0]
