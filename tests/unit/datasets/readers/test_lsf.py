"""LSF's lsb.acct: finished jobs, with the hosts they used."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported, kinds
from tests.helpers.samples import DAY, lsf_job, lsf_new, lsf_start, lsf_status
from tests.helpers.site_data import site_data


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


STAYS = [("a", DAY, DAY + 60), ("b", DAY, DAY + 60), ("a", DAY + 70, DAY + 100), ("b", DAY + 80, DAY + 100)]


def test_idle_time_by_events_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    text = lsf_new(1, DAY) + lsf_start(1, DAY, "16*a", "16*b") + lsf_status(1, DAY + 60)
    text += lsf_new(2, DAY) + lsf_start(2, DAY + 70, "a", index=1) + lsf_start(2, DAY + 80, "b", index=2)
    text += lsf_status(2, DAY + 100, index=1) + lsf_status(2, DAY + 100, status=32, index=2)
    found = imported(tmp_path, text, window=(DAY, DAY + 100))
    assert found.log.idle_node_s == idle_second_by_second(found.log, STAYS) == 10 + 20
    accounting = lsf_job(1, DAY, DAY + 60, "a", "b") + lsf_job(2, DAY + 70, DAY + 100, "a", index=1)
    accounting += lsf_job(2, DAY + 80, DAY + 100, "b", index=2)
    assert imported(tmp_path, accounting, window=(DAY, DAY + 100)).log.sha256 == found.log.sha256


def test_events_of_jobs_that_run_wait_again_or_never_started(tmp_path: Path) -> None:
    text = lsf_new(1, DAY, queue="soft") + lsf_start(1, DAY, "a") + lsf_status(1, DAY + 9)  # preemptible
    text += lsf_new(2, DAY) + lsf_status(2, DAY + 9, status=32)  # killed while it waited
    text += lsf_new(3, DAY) + lsf_start(3, DAY, "b") + lsf_status(3, DAY + 10, status=1)  # requeued, and again
    text += lsf_start(3, DAY + 20, "c") + f'"JOB_REQUEUE" "10.1" {DAY + 30} 3 0\n' + lsf_status(3, DAY + 30, status=1)
    text += lsf_start(4, DAY + 20, "b") + lsf_status(4, DAY + 25, status=16)  # suspended: it keeps its host
    text += lsf_status(5, DAY + 25)  # its start was not read
    text += lsf_status(3, DAY + 40, status=192)  # after its last process
    found = imported(tmp_path, text, preemptible=("soft",))
    assert found.rows.aside == {"other_record": 6, "never_started": 1, "preemptible": 1, "no_start": 1}
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 10 + 10 + 10


def test_events_in_any_order_of_files(tmp_path: Path) -> None:
    earlier, later = lsf_new(1, DAY) + lsf_start(1, DAY, "a"), lsf_status(1, DAY + 60)
    first, second = imported(tmp_path, earlier, later), imported(tmp_path, later, earlier)
    assert first.log.sha256 == second.log.sha256
    assert busy_node_s(first.log) == 60


def test_events_that_are_cut_off(tmp_path: Path) -> None:
    whole = lsf_start(1, DAY, "a") + lsf_status(1, DAY + 60)
    cut = ['"JOB_START" "10.1" 1600000000 7 4\n', '"JOB_START" "10.1" 1600000000 7 4 0 0 60.0 9 "a"\n']
    cut += ['"JOB_STATUS" "10.1" 1600000000 7 64\n', '"JOB_REQUEUE" "10.1" 1600000000\n']
    odd = lsf_start(8, "soon", "a") + lsf_status(8, "soon")
    assert imported(tmp_path, whole + "".join(cut) + odd).rows.aside == {"malformed": 4, "bad_time": 2}


def test_slots_are_cores(tmp_path: Path) -> None:
    finished = lsf_job(1, DAY, DAY + 60, "3*a", "b", "b") + lsf_job(2, DAY, DAY + 100, "a")
    events = (
        lsf_start(1, DAY, "3*a", "b", "b") + lsf_status(1, DAY + 60) + lsf_start(2, DAY, "a") + lsf_status(2, DAY + 100)
    )
    held = [
        (f"{host}/core{number}", DAY, DAY + 60) for host, slots in {"a": 3, "b": 2}.items() for number in range(slots)
    ]
    held.append(("a/core3", DAY, DAY + 100))
    for text in (finished, events):
        log = imported(tmp_path, text, unit="core", node_units=4, window=(DAY, DAY + 100)).log
        assert log.idle_node_s == idle_second_by_second(log, held) == 8 * 100 - 5 * 60 - 100
    with pytest.raises(BadInput, match=r"no GPUs of jobs out of lsf.*--unit core goes with lsf too"):
        imported(tmp_path, finished, unit="gpu")
