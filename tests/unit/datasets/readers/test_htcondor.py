"""HTCondor's ads of jobs, of our own making after its manual."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported, kinds
from tests.helpers.samples import DAY, condor_ad, condor_long

STAYS = [("a", DAY, DAY + 60), ("a", DAY + 30, DAY + 80), ("b", DAY + 10, DAY + 40), ("a", DAY + 95, DAY + 100)]
ADS = [condor_ad(job, start, end, f"slot1_{job}@{node}") for job, (node, start, end) in enumerate(STAYS)]
FORMS = {
    "long": condor_long(*ADS),
    "file": condor_long(*ADS, banner='*** Offset = 0 ClusterId = 1 ProcId = 0 Owner = "ann"\n').replace("\n\n", "\n"),
    "json": json.dumps(ADS),
    "jsonl": "".join(json.dumps(ad) + "\n" for ad in ADS),
}


@pytest.mark.parametrize("form", FORMS)
def test_idle_time_is_that_of_a_plain_loop(tmp_path: Path, form: str) -> None:
    found = imported(tmp_path, FORMS[form], window=(DAY, DAY + 100))
    assert found.format == "htcondor"
    assert found.log.idle_node_s == idle_second_by_second(found.log, STAYS) == 15 + 70
    assert finding(found, "shared").count == 1  # slots of one machine


def test_the_end_of_jobs_that_were_not_completed(tmp_path: Path) -> None:
    removed = condor_ad(1, DAY, DAY + 50, "slot1@a", JobStatus=3, CompletionDate=0)
    evicted = condor_ad(2, DAY, DAY + 90, "slot1@b", JobStatus=1, CompletionDate=0, LastRemoteWallClockTime=20.0)
    vacated = {"JobStatus": 5, "CompletionDate": 0, "LastRemoteWallClockTime": 0, "LastVacateTime": DAY + 30}
    held = condor_ad(3, DAY, DAY + 90, "slot1@c", **vacated)
    runs = condor_ad(4, DAY + 10, DAY + 90, "slot1@old", JobStatus=2, RemoteHost="slot1@d", CompletionDate=0)
    epoch = condor_ad(5, DAY, DAY + 99, "slot1@e", JobStatus=2, EpochWriteDate=DAY + 40)
    found = imported(tmp_path, condor_long(removed, evicted, held, runs, epoch))
    assert set(found.log.node_names) == set("abcde")
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 50 + 20 + 30 + 40 + 40


def test_machines_of_glideins_and_of_parallel_jobs(tmp_path: Path) -> None:
    glidein = condor_ad(1, DAY, DAY + 60, "slot1_6@glidein_99_43@worker1.site")
    parallel = condor_ad(2, DAY, DAY + 60, "slot1@a", AllRemoteHosts="slot1@a,slot2@a,slot1@b")
    assert imported(tmp_path, json.dumps([glidein, parallel])).log.node_names == ("a", "b", "worker1.site")


def test_earlier_runs_are_a_doubt(tmp_path: Path) -> None:
    again = condor_ad(1, DAY + 100, DAY + 160, "slot1@a", RemoteWallClockTime=90.0, JobStartDate=DAY)
    found = imported(tmp_path, condor_long(again))
    assert (finding(found, "earlier_runs").count, finding(found, "earlier_runs").node_s) == (1, 30.0)
    assert "earlier_runs" not in kinds(imported(tmp_path, condor_long(condor_ad(1, DAY, DAY + 60, "slot1@a"))))


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    never = {"ClusterId": 7, "ProcId": 0, "JobStatus": 3, "Owner": "ann"}
    local = condor_ad(2, DAY, DAY + 9, "", JobUniverse=12)
    odd = condor_ad(3, DAY, DAY + 9, "slot1@a", JobCurrentStartDate="soon")
    nowhere = condor_ad(4, DAY, DAY + 9, "")
    ads = [condor_ad(1, DAY, DAY + 9, "slot1@a"), never, local, odd, nowhere, {"Owner": "ann"}]
    found = imported(tmp_path, condor_long(*ads))
    assert found.rows.aside == {"never_started": 1, "other_record": 1, "bad_time": 1, "no_nodes": 1, "malformed": 1}


@pytest.mark.parametrize(
    ("unit", "attribute"), [("gpu", "RequestGPUs"), ("gpu", "GPUsProvisioned"), ("core", "RequestCpus")]
)
def test_gpus_and_cores_of_slots(tmp_path: Path, unit: str, attribute: str) -> None:
    one = condor_ad(1, DAY, DAY + 60, "slot1_1@a", **{attribute: 2})
    both = condor_ad(2, DAY, DAY + 100, "slot1_2@a", AllRemoteHosts="slot1_2@a,slot1_1@b", **{attribute: 1})
    odd = condor_ad(3, DAY, DAY + 100, "slot1_3@a", **{attribute: "ifThenElse(1, 2, 3)"})
    found = imported(tmp_path, condor_long(one, both, odd), unit=unit, node_units=4, window=(DAY, DAY + 100))
    held = [(f"a/{unit}0", DAY, DAY + 60), (f"a/{unit}1", DAY, DAY + 60)]
    held += [(f"a/{unit}2", DAY, DAY + 100), (f"b/{unit}0", DAY, DAY + 100)]
    assert found.log.idle_node_s == idle_second_by_second(found.log, held) == 2 * 40 + 100 + 3 * 100
    assert found.rows.aside == {"no_units": 1}
