"""Tasks that say their batches advance by progress: in replays, in rounds, and as objectives of work left see them."""

from __future__ import annotations

import pytest

from bftrain import BatchScaling, NodesJoined, Settings, TaskSpec, TaskSubmitted, build_harvester, rounds
from tests.unit.replay.cases import log_of, replayed, task

# A node computes 100 samples/s; on two, the exchange of a step takes as long as computing 25 samples. Of a batch of 100
# each sample counts 450/500; of the 50 that each node does when the curve is measured, too
BATCH = BatchScaling(initial=50, noise_scale=400.0, largest=1000)
RATE = (100.0, 160.0)
GOODPUT = 160.0 * 450.0 / 500.0
TWO = log_of((0.0, ("n1", "n2"), ()), end_s=1000.0)


def task_with(batch: BatchScaling | None = BATCH, **given: object) -> TaskSpec:
    return task(rate=RATE, batch=batch, work_samples=14_400.0, **given)


def test_a_task_is_done_when_its_progress_is() -> None:
    (done,) = replayed(TWO, [task_with()], objective="goodput").tasks
    assert done.finish_s == pytest.approx(14_400.0 / GOODPUT)
    assert (done.mean_batch, done.mean_goodput) == (pytest.approx(100.0), pytest.approx(GOODPUT))
    assert replayed(TWO, [task_with(None)]).tasks[0].finish_s == pytest.approx(90.0)


def test_under_throughput_it_trains_with_the_batch_of_its_curve() -> None:
    batch = BatchScaling(initial=50, noise_scale=400.0, largest=1000, per_node=200)
    # 400 samples a step: those that the curve was measured with, and of each 450/800 count
    (done,) = replayed(TWO, [task_with(batch)], objective="throughput").tasks
    assert done.mean_batch == pytest.approx(400.0)
    assert done.finish_s == pytest.approx(14_400.0 / (160.0 * 450.0 / 800.0))
    (better,) = replayed(TWO, [task_with(batch)], objective="goodput").tasks
    assert better.finish_s < done.finish_s


def test_the_mean_batch_is_over_the_time_that_it_held_nodes() -> None:
    log = log_of((0.0, ("n1",), ()), (100.0, ("n2",), ()), end_s=200.0)
    (seen,) = replayed(log, [task(rate=RATE, batch=BATCH)], objective="goodput").tasks
    assert seen.mean_batch == pytest.approx((50.0 + 100.0) / 2.0)
    assert seen.done_samples == pytest.approx(100.0 * 100.0 + 100.0 * GOODPUT)
    assert seen.mean_goodput == pytest.approx(seen.done_samples / 200.0)


def test_a_task_that_says_no_batches_has_no_mean() -> None:
    (done,) = replayed(TWO, [task_with(None)], objective="goodput").tasks
    assert (done.mean_batch, done.mean_goodput) == (None, None)


@pytest.mark.parametrize("objective", ["goodput", "completion", "finish-time", "max-min"])
def test_what_looks_at_work_sees_progress_and_chooses_batches(objective: str) -> None:
    harvester = build_harvester(Settings(objective=objective))
    harvester.absorb(NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=task_with()))
    question = harvester.ask(0.0)
    assert question.problem is not None
    assert question.problem.tasks[0].curve.speeds(2).tolist() == pytest.approx([0.0, 100.0, GOODPUT])
    decision = harvester.decide(0.0)
    assert (dict(decision.sizes), dict(decision.batches)) == ({"t": 2}, {"t": 100})
    assert harvester.spec("t") == task_with()


@pytest.mark.parametrize("objective", ["throughput", "speedup"])
def test_what_looks_at_speeds_sees_samples_and_leaves_batches_alone(objective: str) -> None:
    harvester = build_harvester(Settings(objective=objective))
    harvester.absorb(NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=task_with()))
    question = harvester.ask(0.0)
    assert question.problem is not None
    assert question.problem.tasks[0].curve.speeds(2).tolist() == [0.0, *RATE]
    assert not harvester.decide(0.0).batches


def test_a_gang_in_rounds_trains_with_its_best_batch() -> None:
    done = rounds({"": 2}, [task_with(min_nodes=2)], policy="fifo", round_s=10.0)
    table = done.tasks_table
    assert table["finish_s"] == [pytest.approx(14_400.0 / GOODPUT)]
    assert (table["mean_batch"], table["mean_goodput"]) == ([100.0], [pytest.approx(GOODPUT)])
    plain = rounds({"": 2}, [task_with(None, min_nodes=2)], policy="fifo", round_s=10.0).tasks_table
    assert (plain["finish_s"], plain["mean_batch"]) == ([90.0], [None])


def test_a_policy_that_chooses_sizes_goes_by_progress() -> None:
    table = rounds({"": 2}, [task_with()], policy="optimus", round_s=10.0).tasks_table
    assert (table["finish_s"], table["mean_batch"]) == ([pytest.approx(14_400.0 / GOODPUT)], [100.0])
