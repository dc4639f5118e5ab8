"""How progress is kept: the setting, what each way loses, and how it is reported."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import BadValue, EventLog, ReplaySettings, TaskSpec
from bftrain_replay.simulation.task_progress import COPY_COST_S, COPY_LOST_SHARE
from tests.unit.replay.cases import TaskRecord, log_of, task

ONE_OF_TWO = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)
BOTH = log_of((0.0, "ab", ""), (100.0, "", "ab"), (150.0, "ab", ""), end_s=300.0)


def record_of(log: EventLog, spec: TaskSpec, **settings: object) -> TaskRecord:
    (record,) = bftrain.replay(log, [spec], ReplaySettings(**settings)).result.tasks  # type: ignore[arg-type]  # their own types
    return record


def test_in_memory_nothing_is_done_again_while_a_node_remains() -> None:
    record = record_of(ONE_OF_TWO, task())
    assert (record.lost_preemption_samples, record.done_samples) == (0.0, 100 * 18.0 + 200 * 10.0)
    assert record_of(ONE_OF_TWO, task(shrink_cost_s=3.0)).lost_preemption_samples == 3 * 18.0


def test_a_start_is_wasted_if_all_nodes_are_lost_before_it_is_over() -> None:
    assert record_of(BOTH, task(start_cost_s=70.0)).wasted_starts == 0
    assert record_of(BOTH, task(start_cost_s=110.0)).wasted_starts == 1
    assert record_of(ONE_OF_TWO, task(start_cost_s=110.0)).wasted_starts == 0, "it keeps a node"


def test_what_all_nodes_took_with_them_is_done_again() -> None:
    record = record_of(BOTH, task())
    assert record.lost_preemption_samples == 40 * 18.0  # it saved at 60 s
    assert record.done_samples == 250 * 18.0 - 40 * 18.0
    assert record_of(BOTH, task(shrink_cost_s=3.0)).lost_preemption_samples == 40 * 18.0
    assert record_of(BOTH, task(), progress="memory:25").lost_preemption_samples == 0.0  # it saved at 100 s
    assert record_of(BOTH, task(), progress="memory:1000").lost_preemption_samples == 100 * 18.0


def test_a_wait_is_no_work_that_could_be_lost() -> None:
    record = record_of(BOTH, task(start_cost_s=70.0))
    assert record.lost_preemption_samples == 30 * 18.0  # at its save at 60 s it had not begun


def test_work_that_is_done_again_is_not_lost_twice() -> None:
    log = log_of((0.0, "ab", ""), (50.0, "", "ab"), (60.0, "ab", ""), (80.0, "", "ab"), (90.0, "ab", ""), end_s=190.0)
    record = record_of(log, task())
    # Lost at 50 s: 50 s of work; at 80 s the 20 s of it that were done again; both are paid by 140 s
    assert record.lost_preemption_samples == (50 + 20) * 18.0
    assert record.done_samples == (50 + 20 + 100) * 18.0 - record.lost_preemption_samples


def lost_with_copies(log: EventLog, spec: TaskSpec, since_copy_s: float, since_save_s: float) -> float:
    """Return the expected repeated work of a task on two nodes, without the cost of the copies themselves."""
    record = record_of(log, spec, progress="copies:4")
    net = 18.0 * (1.0 - COPY_COST_S / 4.0)
    repeated = net * (since_copy_s + COPY_LOST_SHARE * (since_save_s - since_copy_s))
    copies = record.lost_preemption_samples - repeated
    produced = record.done_samples * COPY_COST_S / 4.0 / (1.0 - COPY_COST_S / 4.0)
    assert copies == pytest.approx(produced), "copies take their share of the time"
    return record.lost_preemption_samples


def test_a_copy_outside_bounds_what_all_nodes_take_with_them() -> None:
    """Copies are taken each 4 s and arrive 2 s later: at 100 s the one of 96 s is there, at 101.9 s it still is."""
    assert lost_with_copies(BOTH, task(), 4.0, 40.0) < 40 * 18.0 / 2
    late = log_of((0.0, "ab", ""), (101.9, "", "ab"), (150.0, "ab", ""), end_s=300.0)
    lost_with_copies(late, task(), 5.9, 41.9)
    early = log_of((0.0, "ab", ""), (1.0, "", "ab"), (150.0, "ab", ""), end_s=300.0)
    lost_with_copies(early, task(), 1.0, 1.0)


def test_one_node_left_saves_at_once() -> None:
    log = log_of((0.0, "ab", ""), (50.0, "", "b"), (55.0, "", "a"), (60.0, "ab", ""), end_s=100.0)
    assert record_of(log, task()).lost_preemption_samples == 5 * 10.0


def test_those_that_remain_below_the_minimum_save_before_they_stop() -> None:
    record = record_of(ONE_OF_TWO, task(min_nodes=2, max_nodes=2))
    assert (record.lost_preemption_samples, record.done_samples) == (0.0, 1800.0)
    record = record_of(ONE_OF_TWO, task(min_nodes=2, max_nodes=2, shrink_cost_s=3.0))
    assert record.owed_samples == 3 * 18.0  # what the task says, as for a stop that was decided


def test_a_wait_for_the_group_ends_with_a_stop() -> None:
    log = log_of((0.0, "abc", ""), (100.0, "", "c"), (101.0, "", "ab"), end_s=110.0)
    spec = task(rate=(10.0, 18.0, 24.0), shrink_cost_s=50.0)
    assert record_of(log, spec).owed_samples == 40 * 24.0  # since 60 s; in the last second it only waited
    assert record_of(log, spec, progress="task").owed_samples > 40 * 24.0


def test_as_the_task_says_and_on_disk() -> None:
    spec = task(shrink_cost_s=3.0)
    assert record_of(ONE_OF_TWO, spec, progress="task").lost_preemption_samples == 54.0
    record = record_of(ONE_OF_TWO, spec, progress="disk:30")
    assert record.lost_preemption_samples == 10 * 18.0  # it committed at 90 s
    assert record.done_samples == 1800.0 + 2000.0 - 180.0
    record = record_of(ONE_OF_TWO, task(start_cost_s=7.0), progress="disk:1000")
    assert record.lost_preemption_samples == 1800.0 - 126.0  # waiting is no work that could be lost
    log = log_of((0.0, "a", ""), (100.0, "", "a"), (150.0, "a", ""), end_s=300.0)
    record = record_of(log, task(rate=(10.0,), shrink_cost_s=50.0), progress="disk:40")
    assert (record.lost_preemption_samples, record.done_samples) == (200.0, 1000.0 + 1500.0 - 200.0)


def test_copies_are_named_with_their_period() -> None:
    assert ReplaySettings(progress="copies:2").progress == "copies"
    assert ReplaySettings(progress="copies:0.5").progress == "copies:0.5"


@pytest.mark.parametrize(
    "text", ["", "disk", "disk:", "disk:0", "disk:-1", "disk:inf", "disk:nan", "task:3", "copies:0", "ram", 3]
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match="copies:DURATION, disk:DURATION or task") as caught:
        ReplaySettings(progress=text)
    assert caught.value.where == "ReplaySettings.progress"


def test_published_rules_have_no_such_setting() -> None:
    published = ReplaySettings(semantics="published")
    assert published.progress is published.progress_kept is None
    assert replace(ReplaySettings(), semantics="published") == published
    assert replace(published, semantics="realistic").progress == "memory"
    for given in ({"progress": "task"}, {"progress": "disk:300"}):
        with pytest.raises(BadValue, match="unknown to the published rules"):
            ReplaySettings(semantics="published", **given)  # type: ignore[arg-type]  # their own types


@pytest.mark.parametrize(
    ("settings", "kept", "disk_s", "words"),
    [
        ({}, "memory", 60.0, "up to 60 s old (--progress memory)"),
        ({"progress": "disk:1800"}, "disk", 1800.0, "a checkpoint every 30 min;"),
        ({"progress": "task"}, "task", None, "costs each task shrink_cost_s of work (--progress task)"),
        ({"semantics": "published"}, "task", None, "the published rules"),
    ],
)
def test_the_summary_says_what_is_assumed(
    settings: dict[str, object], kept: str, disk_s: float | None, words: str
) -> None:
    done = bftrain.replay(ONE_OF_TWO, [task()], ReplaySettings(**settings))  # type: ignore[arg-type]  # their own types
    summary = done.summary
    assert (summary["progress"]["kept"], summary["progress"]["disk_s"]) == (kept, disk_s)
    assert words in summary["progress"]["sentence"]
    assert summary["sensitivity"] is None
