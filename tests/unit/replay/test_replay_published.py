"""The published rules, followed by hand: nothing is noticed between events, and costs are taken off at once."""

from __future__ import annotations

import pytest

import bftrain
from bftrain import BadValue, EventLog, ReplaySettings, TaskSpec
from tests.unit.replay.cases import ReplayOutcome, log_of, task

ONE_LOSS = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)
# A third node comes at 250 s, which is the first event after the work is done
NOTICED = log_of((0.0, "ab", ""), (100.0, "", "b"), (250.0, "c", ""), end_s=300.0)
COSTLY = task(work_samples=3000.0, start_cost_s=7.0, grow_cost_s=5.0, shrink_cost_s=3.0)


def published(log: EventLog, *tasks: TaskSpec, **settings: object) -> ReplayOutcome:
    return bftrain.replay(log, tasks, ReplaySettings(semantics="published", **settings))  # type: ignore[arg-type]  # the fields' own types


def test_a_completion_is_noticed_at_the_next_event_and_what_is_done_until_then_is_lost() -> None:
    result = published(NOTICED, COSTLY).result
    (record,) = result.tasks
    assert record.finish_s == 250.0  # 1,800 - 54 done at 100 s, 3,000 at 225.4 s
    assert (record.done_samples, record.owed_samples) == (3000.0, 0.0)
    assert (record.lost_preemption_samples, record.lost_unnoticed_samples) == (54.0, 246.0)
    assert (record.lost_start_up_samples, record.lost_rescaling_samples) == (0.0, 0.0)
    assert result.lost_node_s["unnoticed"] == pytest.approx(24.6)
    assert result.lost_node_s["preemption"] == pytest.approx(6.0)  # three seconds of two nodes
    assert result.used_node_s == 2 * 100.0 + 150.0
    assert len(result.decisions) == 3


def test_the_end_of_the_log_is_the_last_chance_to_notice() -> None:
    (record,) = published(ONE_LOSS, COSTLY).result.tasks
    assert (record.state, record.finish_s, record.lost_unnoticed_samples) == ("finished", 300.0, 746.0)


def test_the_cost_of_growing_is_taken_off_at_once() -> None:
    log = log_of((0.0, "a", ""), (50.0, "b", ""), end_s=100.0)
    (record,) = published(log, task(grow_cost_s=5.0)).result.tasks
    assert record.done_samples == 500.0 - 50.0 + 900.0
    assert record.lost_rescaling_samples == 50.0


def test_work_may_go_backwards() -> None:
    log = log_of((0.0, "ab", ""), (1.0, "", "b"), end_s=2.0)
    (record,) = published(log, task(shrink_cost_s=60.0)).result.tasks
    assert record.done_samples == 18.0 - 60.0 * 18.0 + 10.0


def test_nodes_that_leave_cost_once_however_many_and_even_if_none_is_left() -> None:
    log = log_of((0.0, "abcd", ""), (100.0, "", "bcd"), (200.0, "", "a"), end_s=300.0)
    (record,) = published(log, task(rate=(10.0, 18.0, 24.0, 28.0), shrink_cost_s=3.0)).result.tasks
    assert record.lost_preemption_samples == 3 * 28.0 + 3 * 10.0
    assert record.preemptions == 2


def test_nodes_that_leave_cost_a_task_that_is_done_but_not_noticed() -> None:
    log = log_of((0.0, "ab", ""), (200.0, "", "ab"), end_s=300.0)
    (record,) = published(log, COSTLY).result.tasks
    assert (record.finish_s, record.preemptions) == (200.0, 1)
    assert (record.lost_preemption_samples, record.lost_unnoticed_samples) == (54.0, 546.0)


def test_a_loss_may_undo_a_completion_that_was_not_noticed() -> None:
    log = log_of((0.0, "ab", ""), (167.0, "", "b"), (300.0, "c", ""), end_s=400.0)
    (record,) = published(log, COSTLY).result.tasks
    assert record.finish_s == 300.0  # 3,006 at 167 s, less 54
    assert record.lost_unnoticed_samples == pytest.approx(2952.0 + 1330.0 - 3000.0)


def test_an_arrival_is_noticed_at_the_next_event() -> None:
    log = log_of((0.0, "a", ""), (50.0, "b", ""), end_s=100.0)
    (record,) = published(log, task(submit_s=30.0)).result.tasks
    assert record.first_start_s == 50.0


def test_events_of_other_nodes_count_unless_only_the_chosen_ones_are_asked_for() -> None:
    seen = published(NOTICED, COSTLY, nodes="0:2").result
    alone = published(NOTICED, COSTLY, nodes="0:2", events="chosen").result
    assert (seen.tasks[0].finish_s, len(seen.decisions)) == (250.0, 3)
    assert (alone.tasks[0].finish_s, len(alone.decisions)) == (300.0, 2)


def test_the_dedicated_pool_sees_the_same_events() -> None:
    done = published(NOTICED, task("t", rate=(10.0,), work_samples=900.0), task("u", rate=(10.0,)), max_tasks=1)
    assert done.result.yardsticks is not None
    # The first task is done at 90 s, which is noticed at 100 s, and the second gets the 200 s that are left
    assert done.result.yardsticks.dedicated_samples == 900.0 + 2000.0


def test_starting_costs_nothing_and_what_the_rules_do_not_know_is_refused() -> None:
    assert published(ONE_LOSS, COSTLY).result.lost_samples["start_up"] == 0.0
    for given in ({"start_cost_s": 1.0}, {"min_interval_s": 1.0}, {"decision_latency_s": "measured"}):
        with pytest.raises(BadValue, match="is unknown to the published rules"):
            ReplaySettings(semantics="published", **given)  # type: ignore[arg-type]  # the fields' own types


def test_the_books_balance() -> None:
    tasks = [task(f"t{number}", work_samples=700.0, shrink_cost_s=9.0, grow_cost_s=4.0) for number in range(3)]
    result = published(NOTICED, *tasks).result
    assert result.used_node_s + sum(result.unused_node_s.values()) == pytest.approx(result.idle_node_s)
    for record in result.tasks:
        if record.finish_s is not None:
            assert record.done_samples == 700.0
