"""Slurm's slurmctld.log."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain_datasets.log.eventlog import NodeState
from bftrain_datasets.readers import slurmctld
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import allocated, ctld, done
from tests.helpers.site_data import site_data


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    text = (
        ctld(DAY, "_slurm_rpc_submit_batch_job: JobId=1 InitPrio=4294901759 usec=392")
        + allocated(DAY + 1.5, 1, "n[1-2]")
        + ctld(DAY + 2, "sched/backfill: _start_job: Started JobId=2 in main on n3")
        + done(DAY + 61.75, 1)
        + done(DAY + 62, 2)
    )
    found = imported(tmp_path, text)
    assert found.format == "slurmctld"
    assert found.log.node_names == ("n1", "n2", "n3")
    assert (found.log.start_s, found.log.end_s) == (DAY + 1.5, DAY + 62)
    assert busy_node_s(found.log) == 2 * 60.25 + 60
    assert found.rows.used == 4
    assert found.rows.aside == {"other_record": 3}
    assert kinds(found) == {"local_times", "other_record", "nodes_inferred", "censored_end"}


@pytest.mark.parametrize(
    "start",
    [
        "sched: Allocate JobId=7 NodeList=n[1-2] #CPUs=4 Partition=main",
        "sched: Allocate JobID=7 NodeList=n[1-2] #CPUs=4",
        "sched: _slurm_rpc_allocate_resources JobId=7 NodeList=n[1-2] usec=470",
        "_slurm_rpc_allocate_resources: JobId=7 NodeList=n[1-2] usec=470",
        "sched/backfill: _start_job: Started JobId=7 in main on n[1-2]",
        "backfill: Started JobId=7 in main on n[1-2]",
        "backfill: Started JobId=7 on n[1-2]",
        "sched: Allocate JobId=3_4(7) NodeList=n[1-2] #CPUs=4 Partition=main",
        "backfill: Started JobId=3_4 (7) on n[1-2]",
        "sched: Allocate JobId=6+1(7) NodeList=n[1-2] #CPUs=4 Partition=main",
    ],
)
@pytest.mark.parametrize(
    "end",
    [
        "_job_complete: JobId=7 done",
        "job_complete: JobId=7 done",
        "job_complete: JobID=7 State=0x8003 NodeCnt=2 done",
        "_job_complete: requeue JobId=7 per user/system request",
        "_job_complete: requeue JobId=7 due to node failure",
        "_job_complete: JobId=3_4(7) done",
        "Time limit exhausted for JobId=7",
        "job_time_limit: inactivity time limit reached for JobId=7",
        "Killing JobId=7 on failed node n2",
        "requeue JobId=7 due to failure of node n2",
        "requeue job JobId=7 due to failure of node n2",
        "preempted JobId=7 has been requeued to reclaim resources for JobId=8",
        "preempted JobId=7 has been killed to reclaim resources for JobId=8_1(8)",
        "Requeuing JobId=7",
        "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7 uid 0",
        "_slurm_rpc_kill_job2: REQUEST_KILL_JOB job 7 uid 0",
    ],
)
def test_wordings(tmp_path: Path, start: str, end: str) -> None:
    text = ctld(DAY, start) + ctld(DAY + 60, end) + allocated(DAY + 90, 9, "n9") + done(DAY + 100, 9)
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 2 * 60 + 10
    assert "still_running" not in kinds(found)
    assert ("preempted_jobs" in kinds(found)) == end.startswith("preempted")


@pytest.mark.parametrize(
    "stamp",
    [
        "[2020-09-13T12:26:40.000]",
        "[2020-09-13T12:26:40]",
        "[2020-09-13T14:26:40.000+02:00]",
        "[2020-09-13T12:26:40.000] [4711.1]",
        "[2020-09-13T12:26:40.000 4711 sched]",
        "[2020-09-13T12:26:40.000] debug: ",
        "2020-09-13T14:26:40+0200 head slurmctld[4711]: slurmctld:",
    ],
)
def test_ways_to_say_when(tmp_path: Path, stamp: str) -> None:
    text = f"{stamp} sched: Allocate JobId=1 NodeList=n1 #CPUs=4 Partition=main\n" + done(DAY + 60, 1)
    assert imported(tmp_path, text).log.start_s == DAY


def test_jobs_that_run_at_both_ends_of_the_log(tmp_path: Path) -> None:
    text = done(DAY, 1) + allocated(DAY, 2, "n1") + allocated(DAY + 1, 3, "n2") + done(DAY + 61, 3)
    found = imported(tmp_path, text + ctld(DAY + 100, "error: anything"))
    assert finding(found, "no_start").count == 1
    assert finding(found, "no_start").first.endswith("0:2")
    assert found.rows.aside["no_start"] == 1
    assert finding(found, "still_running").first.endswith("0:3")
    assert found.log.end_s == DAY + 100
    assert busy_node_s(found.log) == 100 + 60


def test_lines_that_follow_the_end_of_a_job(tmp_path: Path) -> None:
    text = (
        allocated(DAY, 1, "n1")
        + ctld(DAY + 50, "preempted JobId=1 has been requeued to reclaim resources for JobId=2")
        + ctld(DAY + 51, "Requeuing JobId=1")
        + allocated(DAY + 52, 2, "n1")
        + ctld(DAY + 90, "Time limit exhausted for JobId=2")
        + done(DAY + 92, 2)
        + allocated(DAY + 100, 1, "n1")
        + done(DAY + 110, 1)
    )
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 50 + 38 + 10
    assert "no_start" not in kinds(found)


def test_a_signal_is_no_end_if_one_follows(tmp_path: Path) -> None:
    kill = ctld(DAY + 10, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=1 uid 0")
    text = allocated(DAY, 1, "n1") + kill + done(DAY + 60, 1) + kill.replace("JobId=1 ", "JobId=77 ")
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 60
    assert found.rows.aside == {"other_record": 2}


@pytest.mark.parametrize(
    "refusal",
    [
        "error: Security violation, REQUEST_KILL_JOB RPC for JobId=1 from uid 501",
        "_slurm_rpc_kill_job: job_str_signal() uid=501 JobId=1 sig=9 returned: Access/permission denied",
    ],
)
def test_a_request_to_cancel_that_is_refused_is_no_end(tmp_path: Path, refusal: str) -> None:
    kill = ctld(DAY + 10, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=1 uid 501")
    found = imported(tmp_path, allocated(DAY, 1, "n1") + kill + ctld(DAY + 10, refusal) + ctld(DAY + 60, "and so on"))
    assert busy_node_s(found.log) == 60
    assert "still_running" in kinds(found)


@pytest.mark.parametrize(("target", "busy_s"), [("17", 20), ("17_[1-2]", 20), ("17_[1,2%1]", 20), ("17_2", 10 + 100)])
def test_cancelling_an_array(tmp_path: Path, target: str, busy_s: float) -> None:
    text = allocated(DAY, "17_1(18)", "n1") + allocated(DAY, "17_2(17)", "n2")
    text += ctld(DAY + 10, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={target} uid 0") + ctld(DAY + 100, "and so on")
    found = imported(tmp_path, text)
    assert found.log.idle_node_s == pytest.approx(2 * found.log.span_s - busy_s)


def test_files_in_the_wrong_order(tmp_path: Path) -> None:
    older = allocated(DAY, 1, "n1") + allocated(DAY + 1, 2, "n2") + allocated(DAY + 1, 3, "n3")
    newer = (
        done(DAY + 100, 1)
        + ctld(DAY + 110, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=2 uid 0")
        + allocated(DAY + 120, 1, "n1")
        + done(DAY + 130, 1)
        + done(DAY + 200, 99)
    )
    right, wrong = imported(tmp_path, older, newer), imported(tmp_path, newer, older)
    assert right.log.sha256 == wrong.log.sha256
    assert busy_node_s(right.log) == 100 + 10 + 109 + 199
    for found in (right, wrong):
        assert found.rows.aside["no_start"] == 1
        assert finding(found, "still_running").count == 1


def test_a_start_that_is_logged_twice_and_one_without_an_end(tmp_path: Path) -> None:
    text = ctld(DAY, "sched: _slurm_rpc_allocate_resources JobId=1 NodeList=(null) usec=5978")
    text += (
        allocated(DAY + 1, 1, "n1") + allocated(DAY + 1, 1, "n1") + allocated(DAY + 101, 1, "n2") + done(DAY + 201, 1)
    )
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 100 + 100
    assert found.rows.aside == {"other_record": 2, "duplicate": 1}
    assert finding(found, "restarted").count == 1


@pytest.mark.parametrize(
    ("out", "back"),
    [
        ("error: Nodes n[1-2] not responding", "Node n1 now responding"),
        ("error: Nodes n1 not responding, setting DOWN", "node n1 returned to service"),
        ("error: Nodes n1 not responding, setting DOWN", "update_node: node n1 state set to IDLE"),
        ("update_node: node n1 state set to DOWN", "update_node: node n1 state set to RESUME"),
        ("update_node: node n1 state set to DRAINED*", "node_did_resp: node n1 returned to service"),
        ("drain_nodes: node n1 state set to DRAIN", "update_node: node n1 state set to IDLE"),
        ("error: Setting node n1 state to DOWN", "Node n1 returned to service"),
        (
            "validate_node_specs: Node n1 unexpectedly rebooted boot_time=1 last response=2",
            "node n1 returned to service",
        ),
    ],
)
def test_nodes_that_go_out_and_come_back(tmp_path: Path, out: str, back: str) -> None:
    text = allocated(DAY, 1, "n1") + done(DAY + 10, 1) + ctld(DAY + 20, out) + ctld(DAY + 50, back)
    found = imported(tmp_path, text + allocated(DAY + 90, 2, "n1") + done(DAY + 100, 2), nodes=("n1",))
    assert found.log.states_at(DAY + 19).tolist() == [NodeState.IDLE]
    assert found.log.states_at(DAY + 20).tolist() == [NodeState.DOWN]
    assert found.log.states_at(DAY + 50).tolist() == [NodeState.IDLE]
    assert (finding(found, "node_down").count, finding(found, "node_down").node_s) == (1, 30)


def test_a_drained_node_that_responds_is_still_drained_and_its_job_still_counts(tmp_path: Path) -> None:
    text = (
        allocated(DAY, 1, "n1")
        + ctld(DAY + 5, "update_node: node n1 state set to DRAINING")
        + ctld(DAY + 6, "error: Nodes n1 not responding")
        + ctld(DAY + 7, "Node n1 now responding")
        + done(DAY + 10, 1)
        + ctld(DAY + 60, "update_node: node n1 state set to POWER_DOWN")
    )
    found = imported(tmp_path, text)
    assert found.log.states_at(DAY + 9).tolist() == [NodeState.BUSY]
    assert found.log.states_at(DAY + 10).tolist() == [NodeState.DOWN]
    assert found.log.idle_node_s == 0


def test_preemptible_partitions_are_idle(tmp_path: Path) -> None:
    text = allocated(DAY, 1, "n1", "pilot") + allocated(DAY, 2, "n2")
    text += ctld(DAY, "backfill: Started JobId=3 in pilot on n3") + done(DAY + 60, 1) + done(DAY + 60, 2)
    found = imported(tmp_path, text, preemptible=("pilot",), nodes=("n1", "n2", "n3"))
    assert busy_node_s(found.log) == 60
    assert found.rows.aside["preemptible"] == 2


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    text = (
        allocated(DAY, 1, "n1")
        + "no time here\n"
        + "\0\1\2\n"
        + "[2020-99-99T12:26:40.000] sched: Allocate JobId=2 NodeList=n1 #CPUs=4\n"
        + allocated(DAY, 3, "n[1-")
        + ctld(DAY, "update_node: node n[1- state set to DOWN")
        + ctld(DAY, "update_node: node n1 state set to NO_CHANGE")
        + done(DAY + 60, 1)
        + ctld(DAY + 10, "_job_complete: JobId=1 done")
    )
    found = imported(tmp_path, text)
    assert found.rows.aside == {"malformed": 2, "bad_time": 1, "bad_nodes": 2, "other_record": 3}
    assert finding(found, "clock_step").count == 1


def test_what_only_says_that_slurmctld_runs_is_recognised() -> None:
    assert slurmctld.recognises(b"junk\n[2020-09-13T12:26:40.000] slurmctld version 22.05.8 started on cluster c\n")
    assert not slurmctld.recognises(b"[2020-09-13T12:26:40.000] slurmd version 22.05.8 started\n")


def test_hostile_lines_cost_little(tmp_path: Path) -> None:
    text = allocated(DAY, 1, "n1") + ctld(DAY, "job_complete: JobId=1 " * 20_000) + done(DAY + 60, 1)
    assert busy_node_s(imported(tmp_path, text).log) == 60


def test_a_real_file(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("scheduler-samples/slurmctld_log_sample.txt").read_bytes())
    assert (found.rows.used, found.rows.aside) == (34, {"other_record": 32})
    assert finding(found, "preempted_jobs").count == 8
    assert finding(found, "still_running").count == 2
