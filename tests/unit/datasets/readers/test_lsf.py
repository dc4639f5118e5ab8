"""LSF's lsb.acct: finished jobs, with the hosts they used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY, lsf_job
from tests.helpers.site_data import site_data

if TYPE_CHECKING:
    from pathlib import Path


def test_hosts_are_busy_from_start_to_the_event(tmp_path: Path) -> None:
    text = lsf_job(1, DAY, DAY + 60, "16*a", "16*b-ib") + lsf_job(2, DAY + 60, DAY + 90, "a", asked=["a", "c", "d"])
    found = imported(tmp_path, text)
    assert found.format == "lsf"
    assert found.log.node_names == ("a", "b-ib")
    assert busy_node_s(found.log) == 2 * 60 + 30


def test_a_host_for_each_slot_is_one_node(tmp_path: Path) -> None:
    found = imported(tmp_path, lsf_job(1, DAY, DAY + 60, "a", "a", "b", "b"))
    assert found.log.node_names == ("a", "b")
    assert finding(found, "repeated_hosts").count == 2


def test_texts_may_hold_quotes_and_go_over_lines(tmp_path: Path) -> None:
    script = '#!/bin/sh;#BSUB -R ""span[ptile=16]""\necho 1 2 3\n""done""\n"" 7 ""x'
    text = lsf_job(1, DAY, DAY + 60, "a", command=script) + lsf_job(2, DAY + 60, DAY + 90, "b")
    found = imported(tmp_path, text)
    assert (found.rows.read, found.rows.used) == (2, 2)


def test_an_open_text_ends_where_the_next_record_begins(tmp_path: Path) -> None:
    cut = lsf_job(1, DAY, DAY + 60, "a", command='the end is "" missing')
    cut = cut[: cut.index("missing")] + "\nlost\n"
    found = imported(tmp_path, cut + lsf_job(2, DAY, DAY + 90, "b") + "\n" + "stray\n")
    assert found.rows.aside == {"malformed": 1}
    assert found.rows.used == 2


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    usual = lsf_job(9, DAY, DAY + 60, "a")
    rows = {
        "never_started": [lsf_job(1, 0, DAY)],
        "zero_length": [lsf_job(2, DAY, DAY, "a")],
        "backwards": [lsf_job(3, DAY + 9, DAY, "a")],
        "no_nodes": [lsf_job(4, DAY, DAY + 9)],
        "bad_nodes": [lsf_job(5, DAY, DAY + 9, "a b")],
        "bad_time": [lsf_job(6, "soon", DAY, "a"), lsf_job(6, DAY, "1e400", "a")],
        "preemptible": [lsf_job(7, DAY, DAY + 9, "a", queue="soft")],
        "other_record": ['"EVENT_ADRSV_FINISH" "10.1" 1600000000 1 2\n', '"JOB_NEW" "10.1" 1600000000 1\n'],
        "malformed": [
            '"JOB_FINISH" "10.1" 1\n',
            usual[: usual.index("501")] + "\n",
            usual.replace(" 0 1 ", f" 0 {'9' * 5000} "),
            usual.replace(" 0 1 ", " 0 40000 "),
        ],
    }
    text = "#1600000000\n\n" + "".join(line for lines in rows.values() for line in lines) + usual
    found = imported(tmp_path, text, preemptible=("soft",))
    assert found.rows.aside == {reason: len(lines) for reason, lines in rows.items()}
    assert found.rows.used == 1


def test_jobs_of_an_array_are_different_jobs(tmp_path: Path) -> None:
    text = "".join(lsf_job(1, DAY, DAY + 60, "a", index=index) for index in (1, 2, 2))
    found = imported(tmp_path, text)
    assert found.rows.aside == {"duplicate": 1}
    assert finding(found, "shared").count == 1


def test_counts_are_of_different_hosts(tmp_path: Path) -> None:
    found = imported(tmp_path, lsf_job(1, DAY, DAY + 60, "a", "a", "b"), counts=True)
    assert busy_node_s(found.log) == 2 * 60


def test_records_of_a_real_site(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("fixtures/lsf_accounting-logs.log").read_bytes())
    assert (found.rows.read, found.rows.used) == (2, 2)
    assert len(found.log.node_names) == 12
    assert busy_node_s(found.log) == 12 * (1389683139 - 1389642771)
    found = imported(tmp_path, site_data("fixtures/lsf_utf8-multibyte-chars.log").read_bytes())
    assert found.rows.used == 1
    assert "not_utf8" not in kinds(found)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_quotes_without_end_cost_no_time(tmp_path: Path, count: int) -> None:
    text = '"JOB_FINISH" "10.1" ' + '"a""' * (1000 * count) + "\n" + lsf_job(1, DAY, DAY + 60, "a")
    assert imported(tmp_path, text).rows.aside == {"malformed": 1}
