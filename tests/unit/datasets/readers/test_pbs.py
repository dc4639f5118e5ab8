"""Accounting of PBS Professional, OpenPBS and Torque."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from bftrain_datasets.readers import pbs as reader
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import pbs, pbs_end, pbs_start
from tests.helpers.site_data import site_data

if TYPE_CHECKING:
    from pathlib import Path


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
    assert "local_times" not in kinds(found)  # epochs are told


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
    assert reader.places_of(text) == nodes.split()


@pytest.mark.parametrize("text", ["", " ", "+", "n1 /0", "[name]/0", "n1/0+n\0/1", "(/0"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="names no node"):
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


def test_a_job_that_is_deleted_and_of_which_no_end_is_told(tmp_path: Path) -> None:
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
    found = imported(tmp_path, site_data(name).read_bytes())
    assert (found.format, found.rows.used, len(found.log.node_names)) == ("pbs", used, nodes)
