"""From jobs to a log, by examples small enough to be worked out by hand. Storms of jobs: tests/property."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import BadInput, EventLog, ImportOptions, NodeState
from bftrain_datasets.importing import held_spans
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.occupancy import log_from_jobs

DAY = 1_700_000_000.0
BUSY, IDLE = int(NodeState.BUSY), int(NodeState.IDLE)
Job = tuple[float, float, str]


def taken(*jobs: Job, names: tuple[str, ...] = (), **options: object) -> tuple[EventLog, dict[str, tuple[int, float]]]:
    """Build the log of these jobs; times count from DAY."""
    intake = RecordIntake(ImportOptions(**options))  # type: ignore[arg-type]  # any of its fields
    intake.begin_file("jobs")
    for line, (start_s, end_s, nodes) in enumerate(jobs, 1):
        intake.row(line)
        intake.job(names[line - 1] if names else str(line), DAY + start_s, DAY + end_s, nodes)
    log = log_from_jobs(intake)
    return log, {each.name: (each.count, each.node_s) for each in intake.findings()}


def spans(log: EventLog, node: str) -> list[tuple[float, int]]:
    """Return what a node is from which time on."""
    place = log.node_names.index(node)
    mine = log.nodes == place
    times = log.times[log.time_index[mine]] - DAY
    return list(zip(times.tolist(), log.states[mine].tolist(), strict=True))


def test_a_node_is_idle_between_its_jobs() -> None:
    log, found = taken((0, 10, "a"), (15, 20, "a"), (5, 8, "b"), (0, 30, "c"))
    assert log.node_names == ("a", "b", "c")
    assert (log.start_s, log.end_s) == (DAY, DAY + 30)
    assert spans(log, "a") == [(10, IDLE), (15, BUSY), (20, IDLE)]
    assert spans(log, "b") == [(0, IDLE), (5, BUSY), (8, IDLE)]
    assert spans(log, "c") == []
    assert found["nodes_inferred"] == (3, 0.0)
    assert found["unsorted"] == (1, 0.0)  # by their ends; by their starts two are
    assert found["censored_end"] == (2, 32.0)


def test_jobs_may_share_a_node_nest_and_touch() -> None:
    log, found = taken((0, 10, "a"), (2, 5, "a"), (8, 12, "a"), (12, 14, "a"), (20, 22, "a"))
    assert spans(log, "a") == [(14, IDLE), (20, BUSY)]
    assert found["shared"] == (2, 3.0 + 2.0)
    assert found["back_to_back"] == (1, 0.0)


def test_a_job_that_holds_a_node_twice_is_a_doubt() -> None:
    _, found = taken((0, 10, "a"), (4, 12, "a"), (0, 12, "b"), names=("7", "7", "8"))
    assert found["held_twice"] == (1, 6.0)
    assert "shared" not in found


def test_the_same_job_again_counts_once() -> None:
    log, found = taken((0, 10, "a[1-2]"), (0, 10, "a2,a1"), (0, 10, "a1"), (1, 10, "a[1-2]"), names=("7",) * 4)
    assert found["duplicate"] == (1, 20.0)
    assert log.idle_node_s == 0
    assert "shared" not in found


def test_running_jobs_hold_their_nodes_to_the_end() -> None:
    log, found = taken((0, 10, "a"), (5, RUNNING, "b"), (0, 30, "c"))
    assert found["still_running"] == (1, 0.0)
    assert log.end_s == DAY + 30
    assert spans(log, "b") == [(0, IDLE), (5, BUSY)]
    assert "censored_end" not in found


def test_a_window_cuts_jobs_at_its_edges() -> None:
    log, found = taken((0, 10, "a"), (15, 40, "a"), (0, 50, "b"), window=(DAY + 5, DAY + 20))
    assert (log.start_s, log.end_s) == (DAY + 5, DAY + 20)
    assert spans(log, "a") == [(10, IDLE), (15, BUSY)]
    assert log.idle_node_s == 5
    assert "censored_end" not in found


def test_a_window_may_be_longer_than_the_records() -> None:
    log, _ = taken((0, 10, "a"), window=(DAY - 10, DAY + 20))
    assert spans(log, "a") == [(-10, IDLE), (0, BUSY), (10, IDLE)]


def test_the_nodes_that_the_options_name_keep_their_order() -> None:
    log, found = taken((0, 10, "n2"), (5, 10, "n10"), nodes=("n10", "n2", "n1"))
    assert log.node_names == ("n10", "n2", "n1")
    assert "nodes_inferred" not in found
    assert spans(log, "n1") == [(0, IDLE)]


def test_a_dump_of_ended_jobs_begins_when_the_first_one_ends() -> None:
    day = 86400.0
    log, found = taken((0, 2 * day, "a"), (day, 2.5 * day, "b"), (3 * day, 4 * day, "a"))
    assert log.start_s == DAY + 2 * day
    assert found["censored_start"] == (2, 2 * day * 2)
    log, found = taken((0, 2 * day, "a"), (day, RUNNING, "b"), (3 * day, 4 * day, "a"))  # of all that ran in some days
    assert log.start_s == DAY + 2 * day
    assert found["censored_start"] == (2, 2 * day * 2)
    log, found = taken((0, 2 * day, "a"), (3 * day, 4 * day, "a"), window=(DAY, None))  # the user knows better
    assert log.start_s == DAY
    assert "censored_start" not in found


def test_a_dump_of_ended_jobs_ends_when_the_last_one_starts() -> None:
    day = 86400.0
    jobs = ((0, 0.01 * day, "b"), (0, 2 * day, "a"), (4 * day, 5 * day, "a"), (4 * day, 7 * day, "b"))
    log, found = taken(*jobs)
    assert (log.start_s, log.end_s) == (DAY, DAY + 4 * day)
    assert found["cut_end"] == (2, 3 * day * 2)
    assert found["censored_end"] == (2, (2 + 3.99) * day)  # jobs that ended later may have begun before that
    for kept in ({"keep_end": True}, {"window": (None, DAY + 7 * day)}):
        log, found = taken(*jobs, **kept)
        assert log.end_s == DAY + 7 * day
        assert "cut_end" not in found
    log, found = taken(*jobs, (1 * day, RUNNING, "c"))  # of all that ran, those that still run included
    assert log.end_s == DAY + 7 * day
    assert "cut_end" not in found


def test_an_end_of_less_than_an_hour_or_most_of_the_time_is_kept() -> None:
    day = 86400.0
    log, found = taken((0, 100, "b"), (0, day, "a"), (day, day + 3600, "a"))
    assert (log.end_s, "cut_end" in found) == (DAY + day + 3600, False)
    log, found = taken((0, 100, "b"), (0, day, "a"), (200, 3 * day, "b"))  # a few jobs are no dump
    assert (log.end_s, "cut_end" in found) == (DAY + 3 * day, False)


def test_large_machines_are_built_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = [(at, at + 7, f"n[{at % 9}-{at % 9 + 5}]") for at in range(0, 90, 3)]
    whole, found = taken(*jobs)
    monkeypatch.setattr(held_spans, "_PAIRS_AT_ONCE", 4)
    parts, found_in_parts = taken(*jobs)
    assert parts == whole
    assert found_in_parts == found


def test_nothing_to_build_from_says_why() -> None:
    with pytest.raises(BadInput, match=r"jobs: no row describes a node that was held: there are none"):
        taken()
    with pytest.raises(BadInput, match=r"2 zero_length, 1 bad_nodes .bftrain check explains each"):
        taken((0, 0, "a"), (0, 0, "a"), (0, 1, "a["))
    with pytest.raises(BadInput, match=r"no job lists its nodes.*--counts uses the number"):
        taken((0, 5, ""))
    with pytest.raises(BadInput, match=r"jobs: nothing usable is between 2023-11-14 .* UTC .set the time"):
        taken((0, RUNNING, "a"))


def test_the_first_place_of_a_doubt_is_a_line_of_a_file() -> None:
    intake = RecordIntake()
    for name, rows in (("one", [(0, 10)]), ("two", [(20, 30), (0, 10), (5, 25)])):
        intake.begin_file(name)
        for line, (start_s, end_s) in enumerate(rows, 1):
            intake.row(line)
            intake.job("7" if start_s != 5 else "8", DAY + start_s, DAY + end_s, "a")
    log = log_from_jobs(intake)
    first = {each.name: each.first for each in intake.findings()}
    assert first["told_before"] == "two:2"
    assert first["unsorted"] == "two:2"
    assert first["shared"] == "two:3"
    assert np.array_equal(log.times, [DAY])
