"""The ledger: it adds up, or it says so; the harvest over time is exact at the end of every stretch."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import ReplaySettings, Settings, build_harvester
from bftrain.errors import Fault
from bftrain_replay.accounting.node_time_ledger import PLAIN, STRETCHES, Ledger, UnusedReason, idle_node_s
from bftrain_replay.results.result import result_of
from bftrain_replay.simulation.engine import run
from bftrain_replay.simulation.rules import semantics_of
from tests.unit.replay.cases import log_of, replayed, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)


def kept(*, until_s: float = 300.0) -> Ledger:
    ledger = Ledger()
    ledger.open(0.0, 2, 1, {UnusedReason.NOT_WORTH: 1})
    ledger.open(100.0, 1, 1, {})
    ledger.close(until_s)
    return ledger


def test_sums_by_reason() -> None:
    ledger = kept()
    assert (ledger.idle_node_s, ledger.used_node_s) == (400.0, 300.0)
    assert ledger.unused_node_s == dict.fromkeys(PLAIN, 0.0) | {UnusedReason.NOT_WORTH: 100.0}
    ledger.check(LOG, [250.0, 50.0])


def test_a_part_of_the_log_adds_up_as_well() -> None:
    assert idle_node_s(LOG, 50.0) == 100.0
    assert idle_node_s(LOG, 150.0) == 250.0
    kept(until_s=150.0).check(LOG, [150.0])


def test_nodes_that_do_not_add_up_are_a_fault() -> None:
    with pytest.raises(Fault, match="do not make 3"):
        Ledger().open(0.0, 3, 1, {UnusedReason.NO_TASK: 1})


def test_time_that_is_missing_is_a_fault() -> None:
    ledger = Ledger()
    ledger.open(1.0, 2, 2, {})  # the first second is not in the book
    ledger.open(100.0, 1, 1, {})
    ledger.close(300.0)
    with pytest.raises(Fault, match=r"used and unused node-seconds are 398\.0, but the log's idle time is 400\.0"):
        ledger.check(LOG, [398.0])


def test_tasks_that_held_something_else_are_a_fault() -> None:
    with pytest.raises(Fault, match=r"node-seconds of the tasks are 299\.0, but those used is 300\.0"):
        kept().check(LOG, [299.0])


def test_an_open_ledger_has_no_sums() -> None:
    ledger = Ledger()
    ledger.open(0.0, 0, 0, {})
    with pytest.raises(Fault, match="still open"):
        _ = ledger.used_node_s


END_S = 1000.0  # so that a stretch is a second long
COMING_AND_GOING = log_of((0.0, "a", ""), (100.5, "b", ""), (300.0, "", "ab"), (400.0, "ab", ""), end_s=END_S)


def test_it_follows_debts_and_finishes_exactly() -> None:
    spec = task(rate=(10.0, 18.0), work_samples=5000.0, start_cost_s=7.0, grow_cost_s=5.0, shrink_cost_s=12.0)
    result = replayed(COMING_AND_GOING, [spec])
    done = dict(zip(result.harvest.ends_s.tolist(), result.harvest.samples.tolist(), strict=True))
    assert len(done) == STRETCHES
    assert done[7.0] == 0.0  # starting up
    assert done[8.0] == 10.0
    assert done[100.0] == 930.0
    assert done[103.0] == 935.0  # growing: 5 s at the old speed are owed
    growing = 935.0 + 18.0 * (300.0 - 100.5) - 50.0
    assert done[300.0] == pytest.approx(growing, rel=1e-12)
    assert done[350.0] == done[300.0]  # all nodes are gone
    assert done[407.0] == done[300.0]  # starting up again
    # Then what the preemption took, 12 s at 18 samples/s, is made up for
    assert done[418.0] == done[300.0]
    assert done[420.0] == pytest.approx(growing + 18.0, rel=1e-12)
    assert done[END_S] == 5000.0
    assert max(done.values()) == 5000.0


def test_published_rules_count_what_they_notice() -> None:
    settings = ReplaySettings(semantics="published")
    harvester = build_harvester(settings)
    semantics = semantics_of(settings, COMING_AND_GOING.times - COMING_AND_GOING.start_s)
    spec = task(rate=(10.0, 18.0), work_samples=500.0, shrink_cost_s=12.0)
    done = run(COMING_AND_GOING, [spec], harvester, semantics=semantics).harvest.samples
    assert done[49] == pytest.approx(500.0)
    assert done.max() == 500.0  # it goes on until the next event, which is not counted


def test_an_interrupted_replay_has_stretches_up_to_its_end() -> None:
    done = run(COMING_AND_GOING, [task()], build_harvester(Settings()), keep_going=lambda now_s, _: now_s < 300.0)
    result = result_of(done, Settings())
    rows = list(result.over_time_rows())
    assert not result.complete
    assert [row[1] for row in rows] == [float(second) for second in range(1, 301)]
    assert rows[-1][4] == result.harvested_samples > 0.0


def test_nodes_are_averaged_over_each_stretch() -> None:
    rows = list(replayed(COMING_AND_GOING, [task(rate=(10.0,))]).over_time_rows())
    idle, used = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    assert (idle[99], idle[100], idle[101], idle[350], idle[999]) == (1.0, 1.5, 2.0, 0.0, 2.0)
    assert (used[99], used[100], used[101], used[350], used[999]) == (1.0, 1.0, 1.0, 0.0, 1.0)


def test_a_log_without_a_task_has_a_course_too() -> None:
    rows = list(replayed(COMING_AND_GOING, []).over_time_rows())
    assert (len(rows), rows[-1][4]) == (STRETCHES, 0.0)
