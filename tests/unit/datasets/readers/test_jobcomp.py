"""Slurm's jobcomp/filetxt."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain_datasets.readers import jobcomp
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import NO_TIME, jobcomp_job
from tests.helpers.site_data import site_data


def test_jobs_hold_their_nodes(tmp_path: Path) -> None:
    found = imported(tmp_path, jobcomp_job(1, DAY, DAY + 60, "n[1-2]") + jobcomp_job(2, DAY + 30, DAY + 90, "n2"))
    assert found.format == "jobcomp"
    assert found.log.node_names == ("n1", "n2")
    assert (found.log.start_s, found.log.end_s) == (DAY, DAY + 90)
    assert busy_node_s(found.log) == 60 + 90
    assert found.rows.used == 2


def test_blanks_and_equal_signs_in_free_text(tmp_path: Path) -> None:
    name = "x JobState=RUNNING Partition=p StartTime=1"
    text = jobcomp_job(1, DAY, DAY + 60, "n1", name=name, folder="/home/ann/my work NodeList=n9")
    found = imported(tmp_path, text)
    assert found.log.node_names == ("n1",)
    assert busy_node_s(found.log) == 60


@pytest.mark.parametrize("state", ["CANCELLED", "NODE_FAIL", "TIMEOUT", "FAILED", "PREEMPTED", "REQUEUED", "RESIZING"])
def test_a_job_that_ran_counts_however_it_ended(tmp_path: Path, state: str) -> None:
    found = imported(tmp_path, jobcomp_job(1, DAY, DAY + 60, "n1", state=state))
    assert busy_node_s(found.log) == 60
    assert ("preempted_jobs" in kinds(found)) == (state == "PREEMPTED")


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [jobcomp_job(2, NO_TIME, NO_TIME, "(null)"), jobcomp_job(3, NO_TIME, DAY, "")],
        "zero_length": [jobcomp_job(4, DAY + 5, DAY + 5, "n1")],
        "backwards": [jobcomp_job(5, DAY + 5, DAY + 4, "n1")],
        "no_end": [jobcomp_job(6, DAY, NO_TIME, "n1")],
        "no_nodes": [jobcomp_job(7, DAY, DAY + 9, "(null)")],
        "bad_nodes": [jobcomp_job(8, DAY, DAY + 9, "n[1-")],
        "bad_time": [jobcomp_job(9, "yesterday", DAY, "n1"), jobcomp_job(10, "nan", "1e400", "n1")],
        "malformed": ["JobId=11 JobState=RUNNING\n", "\0\1\2\n", "JobId=12 UserId=ann Name=cut off"],
    }
    text = jobcomp_job(1, DAY, DAY + 60, "n1") + "\n" + "".join(row for group in rows.values() for row in group)
    found = imported(tmp_path, text)
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}
    assert finding(found, "no_nodes").node_s == 9


def test_preemptible_partitions_are_idle(tmp_path: Path) -> None:
    text = jobcomp_job(1, DAY, DAY + 60, "n1") + jobcomp_job(2, DAY, DAY + 60, "n2", queue="pilot", state="PREEMPTED")
    found = imported(tmp_path, text, preemptible=("pilot",), nodes=("n1", "n2"))
    assert busy_node_s(found.log) == 60
    assert finding(found, "preemptible").node_s == 60


def test_what_scontrol_shows_is_not_taken_for_it() -> None:
    line = "JobId=1 JobName=a UserId=a(1) JobState=RUNNING Reason=None StartTime=Unknown EndTime=Unknown NodeList=n1"
    assert not jobcomp.recognises(line.encode())


def test_a_real_file(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("scheduler-samples/jobcomp_filetxt_sample.txt").read_bytes())
    assert (found.rows.used, found.rows.aside) == (16, {})
    assert finding(found, "preempted_jobs").count == 8


@pytest.mark.parametrize("count", ["1000001", "9" * 5000], ids=["more-than-a-machine", "more-than-python-reads"])
def test_a_number_of_nodes_that_no_machine_has(tmp_path: Path, count: str) -> None:
    large = jobcomp_job(2, DAY, DAY + 60, "n1").replace("NodeCnt=1", f"NodeCnt={count}")
    assert count in large
    found = imported(tmp_path, jobcomp_job(1, DAY, DAY + 60, "n1") + large, counts=True)
    assert found.rows.aside == {"bad_count": 1}
