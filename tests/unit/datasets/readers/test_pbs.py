"""Accounting of PBS Professional, OpenPBS and Torque."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from bftrain import BadInput, NodeState
from bftrain_datasets.readers import pbs as reader
from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import pbs, pbs_end, pbs_start
from tests.helpers.site_data import site_data


def test_a_job_from_its_start_to_its_end(tmp_path: Path) -> None:
    text = (
        pbs("Q", "1.srv", DAY)
        + pbs_start("1.srv", DAY + 10, "n1/0*4+n2/0*4")
        + pbs("L", "license", DAY + 20)
        + pbs_end("1.srv", DAY + 10, DAY + 70, "n1/0*4+n2/0*4")
    )
    found = imported(tmp_path, text)
    assert found.format == "pbs"
    assert found.log.node_names == ("n1", "n2")
    assert (found.log.start_s, found.log.end_s) == (DAY + 10, DAY + 70)
    assert busy_node_s(found.log) == 2 * 60
    assert found.rows.aside == {"other_record": 2}
    assert "local_times" not in kinds(found)  # epochs are given


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("n1/0+n1/1", "n1"),
        ("n1/7+n1/6+n2/1+n2/0", "n1 n2"),
        ("n1/0*4", "n1"),
        ("n1/0-3", "n1"),
        ("n1/0,2-4+n2/1", "n1 n2"),
        ("n1/0+n2/0*12", "n1 n2"),
        ("n1.site.org/0*4+n2.site.org/0", "n1.site.org n2.site.org"),
        ("n1.site.org:15002/0*4", "n1.site.org"),
        ("n1", "n1"),
        ("torque:n1/0+torque:n1/1+torque:n2/0", "n1 n2"),
        ("0-2,7", "0 1 2 7"),
        ("cc01:cc02", "cc01 cc02"),
        ("VST-22460-22571-4", ""),
        ("VST-22460-22571-8", "VST-22460 VST-22461 VST-22470 VST-22471 VST-22560 VST-22561 VST-22570 VST-22571"),
        ("n1/0*2 (n1:ncpus=2:mem=8kb)", "n1"),
        ("n1/0*4+n1/1*4+n1/2*4 (n1:ncpus=4)+(n1[0]:ncpus=4)+(n1[1]:ncpus=4)", "n1"),
        ("n1/0*4 (n1[0]:ncpus=2+n1[1]:ncpus=2)", "n1"),
        ("n1/0*4+n2/0 (n1.site.org:ncpus=4)+(n2.site.org:ncpus=1)", "n1 n2"),
        (" (n1:ncpus=4:mem=1gb)+(n2:ncpus=4)", "n1 n2"),
        (" (n1[0]:ncpus=4)+(n1[1]:ncpus=4)", "n1"),
        ("service1/0*4+service1/1*4 (c0_1:ncpus=4)+(c0_2:ncpus=4)", "c0_1 c0_2"),
    ],
)
def test_places(text: str, nodes: str) -> None:
    if not nodes:
        with pytest.raises(ValueError, match="is not a block"):
            reader.places_of(text)
        return
    assert reader.places_of(text) == nodes.split()


def test_the_block_of_a_whole_machine() -> None:
    assert len(set(reader.places_of("MIR-00000-7BFF1-49152"))) == 49_152


def test_idle_time_of_cobalt_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    hosts = {1: '"0-1,3"', 2: '"2"', 3: '"0,2-3"'}
    times = {1: (DAY, DAY + 50), 2: (DAY + 10, DAY + 90), 3: (DAY + 60, DAY + 100)}
    usual = {"args": "", "cwd": '"/home/a b"', "ctime": DAY + 0.25, "group": None, "session": '"x y=1"'}
    text = ""
    for job, (start, end) in times.items():
        used = {"start": start + 0.0, "end": end + 0.0, "resources_used__location": hosts[job]}
        text += pbs("S", job, start, start=start + 0.0, exec_host=hosts[job], **usual)
        text += pbs("E", job, end, exec_host=hosts[job] if job > 1 else "None", **usual, **used)
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    named = {1: "013", 2: "2", 3: "023"}
    stays = [(node, *times[job]) for job, nodes in named.items() for node in nodes]
    assert found.log.node_names == ("0", "1", "2", "3")
    assert found.log.idle_node_s == idle_second_by_second(found.log, stays) == 10 + 50 + 10 + 10


def test_a_name_before_each_record(tmp_path: Path) -> None:
    text = pbs_start("1.s", DAY, "n1/0") + pbs_end("1.s", DAY, DAY + 60, "n1/0")
    plain = imported(tmp_path, text).log.sha256
    for before in ("torque: ", "20200913:", "Sep 13 12:26:40 srv pbs_server: "):
        assert imported(tmp_path, "".join(before + line for line in text.splitlines(keepends=True))).log.sha256 == plain


@pytest.mark.parametrize("text", ["", " ", "+", "n1 /0", "[name]/0", "n1/0+n\0/1", "(/0"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="has no node"):
        reader.places_of(text)


def test_a_node_is_idle_when_no_job_holds_any_of_it(tmp_path: Path) -> None:
    text = pbs_end("1", DAY, DAY + 60, "n1/0*2") + pbs_end("2", DAY + 30, DAY + 90, "n1/2*2+n2/0")
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 90 + 60
    assert "shared" in kinds(found)
    assert "repeated_hosts" not in kinds(found)


def test_a_start_without_an_end_still_runs(tmp_path: Path) -> None:
    text = pbs_start("1", DAY, "n1/0") + pbs_end("2", DAY + 10, DAY + 100, "n2/0")
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 100 + 90
    assert finding(found, "still_running").first.endswith("0:1")
    assert (found.rows.read, found.rows.used) == (2, 2)


def test_an_end_without_a_start_tells_all(tmp_path: Path) -> None:
    found = imported(tmp_path, pbs_end("1", DAY, DAY + 60, "n1/0"))
    assert busy_node_s(found.log) == 60
    assert "no_start" not in kinds(found)


def test_a_job_that_is_run_again(tmp_path: Path) -> None:
    text = (
        pbs_start("1", DAY, "n1/0")
        + pbs_end("1", DAY, DAY + 10, "n1/0", kind="R")
        + pbs_start("1", DAY + 20, "n2/0")
        + pbs_end("1", DAY + 20, DAY + 60, "n2/0")
        + pbs_start("2", DAY + 20, "n1/0")
        + pbs("R", "2", DAY + 30)  # as Torque writes it
    )
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 10 + 40 + 10
    assert "still_running" not in kinds(found)
    assert found.rows.used == 6


def test_a_start_again_without_an_end(tmp_path: Path) -> None:
    text = pbs_start("1", DAY, "n1/0") + pbs_start("1", DAY + 500, "n2/0") + pbs_end("1", DAY + 500, DAY + 600, "n2/0")
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 500 + 100
    assert finding(found, "restarted").first.endswith("0:1")


def test_a_deleted_job_without_an_end(tmp_path: Path) -> None:
    text = (
        pbs_start("1", DAY, "n1/0")
        + pbs("D", "1", DAY + 60)
        + pbs("D", "2", DAY + 61)
        + pbs_end("3", DAY, DAY + 99, "n2")
    )
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 60 + 99
    assert found.rows.aside == {"other_record": 1}
    text += pbs_end("1", DAY, DAY + 70, "n1/0")
    assert busy_node_s(imported(tmp_path, text).log) == 70 + 99


def test_a_job_that_gives_nodes_back(tmp_path: Path) -> None:
    text = (
        pbs_start("1", DAY, "n1/0+n2/0")
        + pbs("u", "1", DAY + 40, exec_host="n1/0+n2/0")
        + pbs("c", "1", DAY + 40, exec_host="n1/0")
        + pbs_end("1", DAY, DAY + 100, "n1/0")
    )
    found = imported(tmp_path, text)
    assert busy_node_s(found.log) == 2 * 40 + 60
    assert "held_twice" not in kinds(found)


def test_files_in_any_order(tmp_path: Path) -> None:
    days = [
        pbs_start("1", DAY, "n1/0") + pbs_start("2", DAY + 5, "n2/0") + pbs_start("3", DAY + 6, "n3/0"),
        pbs_end("1", DAY, DAY + 100, "n1/0")
        + pbs_start("1", DAY + 200, "n1/0")
        + pbs_end("9", DAY + 150, DAY + 210, "n2"),
        pbs_end("2", DAY + 5, DAY + 300, "n2/0") + pbs_end("1", DAY + 200, DAY + 310, "n1/0"),
    ]
    logs = {imported(tmp_path, *order).log.sha256 for order in permutations(days)}
    assert len(logs) == 1
    found = imported(tmp_path, *reversed(days))
    assert busy_node_s(found.log) == 100 + 110 + 295 + 304
    assert finding(found, "still_running").count == 1


def test_arrays(tmp_path: Path) -> None:
    text = (
        pbs_start("7[].srv", DAY, "n9/0")
        + pbs_end("7[1].srv", DAY, DAY + 10, "n1/0")
        + pbs_end("7[2].srv", DAY, DAY + 20, "n2/0")
        + pbs("E", "7[].srv", DAY + 20, start=DAY, end=DAY + 20)
    )
    found = imported(tmp_path, text)
    assert found.log.node_names == ("n1", "n2")
    assert found.rows.aside == {"other_record": 2}


def test_quoted_texts_are_no_keys(tmp_path: Path) -> None:
    text = pbs_end("1", DAY, DAY + 60, "n1/0", account='"SC start=1 queue=x exec_host=n9/0 SG"', queue="pilot")
    found = imported(tmp_path, text + pbs_end("2", DAY, DAY + 90, "n2/0"), preemptible=("pilot",))
    assert finding(found, "preemptible").node_s == 60


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [pbs("E", "2", DAY, end=DAY)],
        "zero_length": [pbs_end("3", DAY, DAY, "n1/0")],
        "backwards": [pbs_end("4", DAY + 5, DAY, "n1/0")],
        "no_nodes": [pbs("E", "5", DAY, start=DAY, end=DAY + 60)],
        "bad_nodes": [pbs_end("6", DAY, DAY + 60, "[name]/0*4")],
        "bad_time": [
            pbs("E", "7", DAY, start=number, end=DAY, exec_host="n1/0")
            for number in ("1e400", "nan", "-1", "5", 2**70, "soon")
        ],
        "duplicate": [pbs_end("1", DAY, DAY + 60, "n1/0*4")],
        "other_record": [pbs(kind, "8", DAY) for kind in "QBKkYPpMLzr"],
        "malformed": ["09/13/2020 12:26:40;0100;Server@srv;Job;1.srv;hello\n", "\0\1\n", "09/13/2020 12:26"],
    }
    text = (
        pbs_end("1", DAY, DAY + 60, "n1/0*4")
        + "\n# a comment\n"
        + "".join(row for group in rows.values() for row in group)
    )
    found = imported(tmp_path, text)
    assert found.rows.aside == {reason: len(group) for reason, group in rows.items()}


@pytest.mark.parametrize(
    ("name", "used", "nodes"),
    [
        ("scheduler-samples/pbs_accounting_sample.txt", 8, 1),
        ("fixtures/pbs_ncar-casper-2025.log", 10, 4),
        ("fixtures/pbs_accounting-logs.log", 7, 11),
    ],
)
def test_real_files(tmp_path: Path, name: str, used: int, nodes: int) -> None:
    found = imported(tmp_path, site_data(name).read_bytes(), cluster="*")  # the last one is of four servers
    assert (found.format, found.rows.used, len(found.log.node_names)) == ("pbs", used, nodes)


def test_servers_are_kept_apart(tmp_path: Path) -> None:
    text = pbs_end("1.east.site", DAY, DAY + 50, "n1/0") + pbs_end("1.west", DAY, DAY + 90, "n1/0")
    with pytest.raises(BadInput, match="2 clusters: east, west"):
        imported(tmp_path, text)
    assert busy_node_s(imported(tmp_path, text, cluster="west").log) == 90


VNODES = {"exec_vnode": "(n1:ncpus=4:ngpus=2)+(n2[1]:ncpus=2:mem=4gb:ngpus=1)"}
TORQUE = {"exec_gpus": "n1-gpu/0+n1-gpu/3+n2-gpu/1"}


@pytest.mark.parametrize(
    ("hosts", "values", "unit", "held"),
    [
        ("n1/0*4+n2/1*2", VNODES, "gpu", {"n1/gpu0", "n1/gpu1", "n2/gpu0"}),
        ("n1.site/0*4+n2.site/1*2", VNODES, "gpu", {"n1.site/gpu0", "n1.site/gpu1", "n2.site/gpu0"}),
        ("n1/0*3+n2/1", VNODES, "core", {*(f"n1/core{core}" for core in range(4)), "n2/core0", "n2/core1"}),
        ("n1/0*3+n2/1", {}, "core", {"n1/core0", "n1/core1", "n1/core2", "n2/core0"}),
        ("n1/2-3,6+n2/1", {}, "core", {"n1/core2", "n1/core3", "n1/core6", "n2/core1"}),
        ("n1/0+n1/3", TORQUE, "gpu", {"n1/gpu0", "n1/gpu3", "n2/gpu1"}),
    ],
)
def test_gpus_and_cores_of_a_job(tmp_path: Path, hosts: str, values: dict[str, str], unit: str, held: set[str]) -> None:
    text = pbs_start("1", DAY, hosts, **values) + pbs_end("1", DAY, DAY + 70, hosts, **values)
    log = imported(tmp_path, text, unit=unit).log
    assert log.unit == unit
    states = log.states_at(DAY).tolist()
    assert {name for name, state in zip(log.node_names, states, strict=True) if state == NodeState.BUSY} == held


def test_a_job_still_running_holds_the_gpus_that_its_start_names(tmp_path: Path) -> None:
    text = pbs_start("1", DAY, "n1/0*4+n2/1*2", **VNODES) + pbs_end(
        "2", DAY, DAY + 50, "n3/0", exec_vnode="(n3:ngpus=1)"
    )
    log = imported(tmp_path, text, unit="gpu", node_units=2).log
    assert log.idle_node_s == 50 * (2 * 3 - 4)
