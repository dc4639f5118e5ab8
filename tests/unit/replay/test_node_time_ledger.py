"""The ledger: it adds up, or it says so; the harvest over time is exact at the end of every stretch."""

from __future__ import annotations

import numpy as np
import pytest

import bftrain
from tests.unit.replay.cases import log_of, replayed, task

STRETCHES = 1000  # of the harvest over time
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
    spec = task(rate=(10.0, 18.0), work_samples=500.0, shrink_cost_s=12.0)
    done = replayed(COMING_AND_GOING, [spec], semantics="published").harvest.samples
    assert done[49] == pytest.approx(500.0)
    assert done.max() == 500.0  # it goes on until the next event, which is not counted


def test_an_interrupted_replay_has_stretches_up_to_its_end() -> None:
    going = bftrain.replay(COMING_AND_GOING, [task()], watch=lambda _name, now_s, _decisions: now_s < 300.0)
    result = going.result
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
