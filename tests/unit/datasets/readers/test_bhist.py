"""What bhist -l prints of LSF's jobs, of our own making."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain.errors import BadInput
from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported
from tests.helpers.samples import DAY, bhist_job

DONE = "Done successfully. The CPU time used is 9.6 seconds"
NAMES = " ".join(f"<16*a-rather-long-name-{number:02d}>" for number in range(1, 9))


def test_idle_time_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    text = bhist_job(1, (DAY, "Dispatched to <a>, Effective RES_REQ <select[type == local] >"), (DAY + 60, DONE))
    tasks = "Dispatched 4 Task(s) on Host(s) <c>, Allocated 4 Slot(s) on Host(s) <2*a> <2*b>, Effective RES_REQ <x>"
    text += "-" * 78 + bhist_job(
        2, (DAY + 70, tasks), (DAY + 71, "Starting (Pid 30)"), (DAY + 100, "Exited with exit code 1")
    )
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    stays = [("a", DAY, DAY + 60), ("a", DAY + 70, DAY + 100), ("b", DAY + 70, DAY + 100)]
    assert found.log.node_names == ("a", "b")
    assert found.log.idle_node_s == idle_second_by_second(found.log, stays) == 10 + 70


def test_names_that_are_cut_in_the_middle_are_whole(tmp_path: Path) -> None:
    found = imported(tmp_path, bhist_job(1, (DAY, f"Dispatched to 128 Hosts/Processors {NAMES}"), (DAY + 60, DONE)))
    assert found.log.node_names == tuple(f"a-rather-long-name-{number:02d}" for number in range(1, 9))
    assert busy_node_s(found.log) == 8 * 60


def test_jobs_that_wait_run_or_start_again(tmp_path: Path) -> None:
    text = bhist_job(1) + bhist_job(2, (DAY + 9, "Exited; job has been forced to exit"))
    again = (
        (DAY, "Dispatched to <a>"),
        (DAY + 10, "Requeued by user or administrator"),
        (DAY + 20, "Dispatched to <b>"),
    )
    text += bhist_job(3, *again, (DAY + 25, DONE))
    text += bhist_job(4, (DAY, "[1] dispatched to <c>"), (DAY + 5, "[2] dispatched to <d>"), (DAY + 30, f"[1] {DONE}"))
    found = imported(tmp_path, text)
    assert found.rows.aside == {"never_started": 2}
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 10 + 5 + 30 + 25


def test_years_are_those_in_which_the_day_of_the_week_fits(tmp_path: Path) -> None:
    events = (DAY, "Dispatched to <a>"), (DAY + 60, DONE)
    later = bhist_job(1, *events, until=DAY + 4 * 365 * 86400)
    assert imported(tmp_path, later).log.start_s == DAY
    bare = bhist_job(1, *events, year="")
    with pytest.raises(BadInput, match="dates without a year"):
        imported(tmp_path, bare)
    assert imported(tmp_path, bare, window=(None, DAY + 86400)).log.start_s == DAY
    wrong = later.replace("Sun Sep 13 12:27", "Sun Feb 30 12:27")
    assert imported(tmp_path, bhist_job(2, *events) + wrong).rows.aside == {"bad_time": 1}


def test_slots_are_cores(tmp_path: Path) -> None:
    slots = "Dispatched 6 Task(s) on Host(s) <c>, Allocated 6 Slot(s) on Host(s) <4*a> <b> <b>, Effective RES_REQ <x>"
    text = bhist_job(1, (DAY, slots), (DAY + 60, DONE))
    log = imported(tmp_path, text, unit="core", node_units=4, window=(DAY, DAY + 100)).log
    assert log.idle_node_s == 8 * 100 - 6 * 60
    with pytest.raises(BadInput, match="no GPUs of jobs out of bhist"):
        imported(tmp_path, text, unit="gpu")
