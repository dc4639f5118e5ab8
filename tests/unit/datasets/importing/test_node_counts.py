"""Counts become a log of numbered nodes: right at every time, and with the fewest changes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bftrain import BadInput, EventLog, ImportOptions, NodeState
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing import job_checks as intake_module
from bftrain_datasets.importing import node_counts
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.node_counts import UNKNOWN_TOTAL, log_from_counts
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.log.provenance import LogFinding
from tests.helpers.records import imported

BUSY, IDLE, DOWN = (int(state) for state in NodeState)
DAY = 1_600_000_000.0


def series(rows: Iterable[tuple[float, int, int]], **options: object) -> RecordIntake:
    intake = RecordIntake(ImportOptions(**options))  # type: ignore[arg-type]  # any of its fields
    intake.begin_file("counts")
    for line, (time_s, active, total) in enumerate(rows, 1):
        intake.row(line)
        intake.counted(DAY + time_s, active, total)
        intake.use()
    return intake


def jobs(rows: Iterable[tuple[float, float, int]], **options: object) -> RecordIntake:
    intake = RecordIntake(ImportOptions(counts=True, **options))  # type: ignore[arg-type]  # any of its fields
    intake.begin_file("jobs")
    for line, (start_s, end_s, count) in enumerate(rows, 1):
        intake.row(line)
        intake.job(f"j{line}", DAY + start_s, DAY + end_s, "", count=count)
    return intake


def found(intake: RecordIntake) -> dict[str, LogFinding]:
    rows = intake.rows()
    assert rows.read == rows.used + sum(rows.aside.values())
    return {each.name: each for each in intake.findings()}


def states(log: EventLog, time_s: float) -> list[int]:
    return log.states_at(DAY + time_s).tolist()


def test_the_first_nodes_are_busy_then_idle_and_down_beyond_the_total() -> None:
    intake = series([(0, 2, 4), (10, 1, 5), (20, 4, 4), (30, 0, 3), (40, 0, 3)])
    log = log_from_counts(intake)
    assert log.node_names == ("n0001", "n0002", "n0003", "n0004", "n0005")
    assert states(log, 0) == [BUSY, BUSY, IDLE, IDLE, DOWN]
    assert states(log, 10) == [BUSY, IDLE, IDLE, IDLE, IDLE]
    assert states(log, 20) == [BUSY, BUSY, BUSY, BUSY, DOWN]
    assert states(log, 30) == [IDLE, IDLE, IDLE, DOWN, DOWN]
    assert (log.start_s, log.end_s) == (DAY, DAY + 40)
    assert found(intake)["which_unknown"].count == 4  # the last says nothing of any time


def test_any_counts_are_met_with_the_fewest_changes() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        total = rng.integers(0, 9, 40)
        active = np.minimum(rng.integers(0, 9, 40), total)
        intake = series(zip(range(40), active.tolist(), total.tolist(), strict=True), node_count=9)
        log = log_from_counts(intake)
        wanted = np.where(np.arange(9) < active[:, None], BUSY, np.where(np.arange(9) < total[:, None], IDLE, DOWN))
        for step, expected in enumerate(wanted[:-1]):
            assert states(log, step) == expected.tolist()
        assert log.nodes.size == int((np.diff(wanted[:-1], axis=0, prepend=BUSY) != 0).sum())


def test_jobs_are_added_up_and_release_comes_before_acquire() -> None:
    intake = jobs([(0, 10, 3), (10, 20, 3), (5, 20, 1)], node_count=4)
    log = log_from_counts(intake)
    assert log.pool_sizes().tolist() == [1, 0]
    assert "over_capacity" not in found(intake)
    assert log.idle_node_s == pytest.approx(5.0)


def test_more_than_there_are_is_cut_off_and_counted() -> None:
    intake = jobs([(0, 10, 3), (4, 10, 3)], node_count=4)
    log = log_from_counts(intake)
    over = found(intake)["over_capacity"]
    assert (over.count, over.node_s) == (1, 12.0)
    assert states(log, 5) == [BUSY] * 4
    intake = series([(0, 5, 4), (10, 1, 9), (20, 0, 4), (30, 0, 4)], node_count=6)
    log = log_from_counts(intake)
    over = found(intake)["over_capacity"]
    assert (over.count, over.node_s) == (2, 10 + 30)  # one node too many busy, then three more than six
    assert states(log, 0) == [BUSY] * 4 + [DOWN] * 2


def test_the_number_of_nodes_comes_from_the_options_then_the_records_then_the_largest_seen() -> None:
    rows = [(0.0, 10.0, 3)]
    assert len(log_from_counts(jobs(rows, node_count=7)).node_names) == 7
    assert log_from_counts(jobs(rows, nodes=("x", "y", "z", "w"))).node_names == ("x", "y", "z", "w")
    intake = jobs(rows)
    intake.capacity = 5
    assert len(log_from_counts(intake).node_names) == 5
    assert "nodes_inferred" not in found(intake)
    intake = jobs(rows)
    assert len(log_from_counts(intake).node_names) == 3
    assert "largest" in found(intake)["nodes_inferred"].done


def test_without_a_total_it_is_the_whole_machine() -> None:
    log = log_from_counts(series([(0, 2, UNKNOWN_TOTAL), (5, 1, UNKNOWN_TOTAL), (9, 1, UNKNOWN_TOTAL)], node_count=3))
    assert log.pool_sizes().tolist() == [1, 2]


def test_the_window_is_kept() -> None:
    log = log_from_counts(series([(0, 2, 4), (10, 1, 4), (20, 3, 4)], window=(DAY + 5, DAY + 15)))
    assert (log.start_s, log.end_s) == (DAY + 5, DAY + 15)
    assert log.pool_sizes().tolist() == [2, 3]
    log = log_from_counts(jobs([(0, 10, 1), (12, 30, 2)], node_count=2, window=(DAY + 5, DAY + 20)))
    assert (log.start_s, log.end_s) == (DAY + 5, DAY + 20)
    assert log.idle_node_s == pytest.approx(5 * 1 + 2 * 2)
    with pytest.raises(BadInput, match="outside of --window"):
        log_from_counts(series([(0, 2, 4), (10, 1, 4)], window=(DAY + 50, None)))


def test_counts_in_any_order_and_twice_at_one_time() -> None:
    intake = series([(10, 1, 4), (0, 2, 4), (10, 3, 4), (20, 0, 4)])
    log = log_from_counts(intake)
    assert log.pool_sizes().tolist() == [2, 1, 4][: len(log)]
    assert found(intake)["unsorted"].count == 1
    assert found(intake)["superseded"].count == 1
    assert intake.rows().used == 3


def test_a_pause_in_a_steady_series_is_doubtful_but_not_in_one_without_a_pace() -> None:
    steady = [(float(minute * 60), 1, 2) for minute in (*range(50), *range(90, 120))]
    intake = series(steady)
    log_from_counts(intake)
    gap = found(intake)["poll_gap"]
    assert (gap.count, gap.node_s) == (1, 41 * 60 * 2)
    intake = series([(float(2**power), 1, 2) for power in range(20)])
    log_from_counts(intake)
    assert "poll_gap" not in found(intake)


def test_idle_time_in_a_pause_between_counts_is_doubtful(tmp_path: Path) -> None:
    minutes = (*range(50), *range(90, 120))
    rows = (f"{1_000_000_000 + 60 * minute},{1 + (minute < 5)},2" for minute in minutes)
    text = "time,active,total\n" + "\n".join(rows) + "\n"
    assert doubts_of(imported(tmp_path, text).log).causes == {"poll_gap": pytest.approx(41 / 60)}


def test_the_end_of_a_dump_is_doubtful_unless_a_job_runs_or_a_window_says_so() -> None:
    rows = [(0.0, 10.0, 2), (5.0, 20.0, 1)]
    intake = jobs(rows, node_count=3)
    log_from_counts(intake)
    assert found(intake)["censored_end"].node_s == 2 * 10
    for calm in (jobs([*rows, (6.0, RUNNING, 1)], node_count=3), jobs(rows, node_count=3, window=(None, DAY + 20))):
        log_from_counts(calm)
        assert "censored_end" not in found(calm)


def test_the_same_job_twice_counts_once() -> None:
    intake = RecordIntake(ImportOptions(counts=True))
    intake.begin_file("jobs")
    for line in (1, 2):
        intake.row(line)
        intake.job("same", DAY, DAY + 10, "", count=2)
    assert len(log_from_counts(intake).node_names) == 2
    assert found(intake)["duplicate"].count == 1


def test_absurd_numbers_are_refused_or_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    intake = jobs([(0, 10, 2**70), (0, 10, -1), (0, 10, 10**400), (0, 10, 1)])
    assert len(log_from_counts(intake).node_names) == 1
    assert intake.aside["bad_count"] == 3
    intake = jobs([(0, 10, 1)])
    intake.capacity = MOST_NODES + 1
    with pytest.raises(BadInput, match="beyond the limit"):
        log_from_counts(intake)
    monkeypatch.setattr(node_counts, "MOST_CHANGES", 10)
    with pytest.raises(BadInput, match="more than 10 changes"):
        log_from_counts(series([(0, 0, 20), (1, 20, 20)]))


def test_more_counts_than_memory_allows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "MOST_COUNTS", 3)
    with pytest.raises(BadInput, match="more than 3 counts"):
        series([(float(second), 1, 2) for second in range(4)])


def test_without_a_job_that_ran_the_reasons_are_reported() -> None:
    with pytest.raises(BadInput, match="1 no_nodes"):
        log_from_counts(jobs([(0, 10, 0)]))
