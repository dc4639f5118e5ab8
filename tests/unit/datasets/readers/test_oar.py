"""OAR's JSON: details of jobs, the data of the Gantt chart, or both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import BadInput
from bftrain_datasets.readers import oar
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY, oar_details, oar_gantt
from tests.helpers.site_data import site_data

HOSTS = "assigned_network_address"


def test_details(tmp_path: Path) -> None:
    first = {"stopTime": DAY + 60, HOSTS: ["a", "b", "b"]}
    found = imported(tmp_path, oar_details(j1=first, j2={"startTime": DAY + 60, "stopTime": DAY + 90, HOSTS: ["a"]}))
    assert found.format == "oar"
    assert found.log.node_names == ("a", "b")
    assert busy_node_s(found.log) == 2 * 60 + 30


def test_the_gantt_chart_names_nodes_that_no_job_used(tmp_path: Path) -> None:
    text = oar_gantt({1: "a", 2: "a", 3: "b", 4: "c"}, j1={"stop_time": DAY + 60, "resources": [1, 2, "3"]})
    found = imported(tmp_path, text)
    assert found.log.node_names == ("a", "b", "c")
    assert busy_node_s(found.log) == 2 * 60
    assert finding(found, "always_idle").count == 1


@pytest.mark.parametrize("turned", [False, True])
def test_both_files_tell_of_a_job_once(tmp_path: Path, *, turned: bool) -> None:
    details = oar_details(j1={"stopTime": DAY + 60, HOSTS: ["a", "b"]})
    gantt = oar_gantt({1: "a", 2: "b", 3: "c"}, j1={"stop_time": DAY + 60, "resources": [2, 1]})
    found = imported(tmp_path, *((gantt, details) if turned else (details, gantt)))
    assert found.rows.aside == {"told_before": 1}
    assert found.log.node_names == ("a", "b", "c")
    assert busy_node_s(found.log) == 2 * 60


def test_states_and_types(tmp_path: Path) -> None:
    text = oar_details(
        j1={"state": "Running", "stopTime": 0, HOSTS: ["a"]},
        j2={"state": "Waiting", HOSTS: []},
        j3={"startTime": 0, "stopTime": 0, "state": "Error", HOSTS: []},
        j4={"stopTime": DAY + 60, "types": ["besteffort"], HOSTS: ["b"]},
        j5={"stopTime": DAY + 60, HOSTS: ["b"]},
        j6={"stopTime": 0, HOSTS: ["b"]},
    )
    found = imported(tmp_path, text, preemptible=("besteffort",))
    assert found.rows.aside == {"never_started": 2, "preemptible": 1, "no_end": 1}
    assert finding(found, "still_running").count == 1
    assert "censored_end" not in kinds(found)


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    late = {"stopTime": DAY + 60}
    text = oar_details(
        j1={"startTime": "soon", **late, HOSTS: ["a"]},
        j2={"startTime": [], **late, HOSTS: ["a"]},
        j3={"startTime": 2**2000, **late, HOSTS: ["a"]},
        j4={**late, HOSTS: ["a", 7]},
        j5={**late, HOSTS: "a"},
        j6={**late, "resources": [1]},
        j7={**late, HOSTS: []},
        j8={**late, HOSTS: ["a"]},
    )
    document = json.loads(text)
    document["jobs"]["9"] = None
    found = imported(tmp_path, json.dumps(document))
    assert found.rows.aside == {"bad_time": 3, "bad_nodes": 3, "no_nodes": 1, "malformed": 1}
    assert found.rows.used == 1


def test_the_first_place_is_a_line(tmp_path: Path) -> None:
    text = oar_details(j1={"stopTime": DAY + 9, HOSTS: ["a"]}, j2={"stopTime": DAY, HOSTS: ["a"]})
    line = text[: text.index('"2"')].count("\n") + 1
    assert finding(imported(tmp_path, text), "zero_length").first.endswith(f":{line}")


def test_jobs_in_a_list_and_jobs_alone(tmp_path: Path) -> None:
    job = {"Job_Id": 7, "startTime": DAY, "stopTime": DAY + 60, HOSTS: ["a"]}
    for document in ({"jobs": [job]}, {"7": job}):
        assert imported(tmp_path, json.dumps(document)).rows.used == 1


@pytest.mark.parametrize(
    "text",
    ['{"assigned_network_address": ', '{"assigned_network_address": ' + "[" * 100_000, '["assigned_network_address"]'],
)
def test_what_is_not_whole_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"incomplete JSON|not written by OAR"):
        imported(tmp_path, text, format="oar")


def test_what_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oar, "LARGEST_BYTES", 100)
    with pytest.raises(BadInput, match="more than 100 bytes"):
        imported(tmp_path, oar_details(j1={"stopTime": DAY, HOSTS: ["a"]}))


def test_both_files_of_a_real_site_agree(tmp_path: Path) -> None:
    details, gantt = (
        site_data(f"pernode/oar-g5k-graphene-seed8.{kind}.json.gz").read_bytes() for kind in ("details", "gantt")
    )
    logs = [imported(tmp_path, *files).log for files in ((details,), (gantt,), (details, gantt))]
    assert len({log.sha256 for log in logs}) == 1
    assert len(logs[0].node_names) == 32
    assert busy_node_s(logs[0]) == 271_204
