"""Grid Engine's accounting: one host a line, and parallel jobs that name only the first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_datasets.readers import sge
from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported, kinds
from tests.helpers.samples import DAY, qacct_job, sge_job, sge_object
from tests.helpers.site_data import site_data


def test_the_host_is_busy_from_start_to_end(tmp_path: Path) -> None:
    text = "# Version: 6.2\n" + sge_job(1, "a", DAY, DAY + 60) + "\n.\n" + sge_job(2, "b", DAY + 30, DAY + 90)
    found = imported(tmp_path, text)
    assert found.format == "sge"
    assert found.log.node_names == ("a", "b")
    assert busy_node_s(found.log) == 2 * 60


def test_times_in_milliseconds(tmp_path: Path) -> None:
    found = imported(tmp_path, sge_job(1, "a", DAY * 1000 + 500, DAY * 1000 + 2500))
    assert (found.log.start_s, found.log.end_s) == (DAY + 0.5, DAY + 2.5)
    assert finding(found, "epoch_ms").count == 2


def test_what_is_set_aside_and_why(tmp_path: Path) -> None:
    rows = {
        "never_started": [sge_job(1, "a", 0, 0, failed=21)],
        "no_start": [sge_job(1, "a", 0, DAY)],
        "zero_length": [sge_job(2, "a", DAY, DAY)],
        "backwards": [sge_job(3, "a", DAY, 0), sge_job(3, "a", DAY + 9, DAY)],
        "bad_time": [sge_job(4, "a", "soon", DAY)],
        "no_nodes": [sge_job(5, "UNKNOWN", DAY, DAY + 9)],
        "bad_nodes": [sge_job(5, "a[1-", DAY, DAY + 9)],
        "preemptible": [sge_job(6, "a", DAY, DAY + 9, queue="soft.q")],
        "malformed": ["a:b:c\n", sge_job(7, "a", DAY, DAY + 9)[:90] + "\n"],
    }
    text = "".join(line for lines in rows.values() for line in lines) + sge_job(8, "a", DAY, DAY + 9)
    found = imported(tmp_path, text, preemptible=("soft.q",), format="sge")
    assert found.rows.aside == {reason: len(lines) for reason, lines in rows.items()}


def test_tasks_of_an_array_are_different_jobs(tmp_path: Path) -> None:
    found = imported(tmp_path, "".join(sge_job(1, "a", DAY, DAY + 60, task=task) for task in (1, 2, 2)))
    assert found.rows.aside == {"duplicate": 1}
    assert finding(found, "shared").count == 1


def test_a_parallel_job_that_names_one_host_is_doubtful(tmp_path: Path) -> None:
    text = sge_job(1, "a", DAY, DAY + 60, environment="mpi", slots=10)
    text += sge_job(2, "a", DAY, DAY + 60, environment="mpi", slots=1)
    text += sge_job(3, "a", DAY, DAY + 60, environment="smp", slots=8)
    assert finding(imported(tmp_path, text), "hosts_incomplete").count == 1


def test_hosts_that_are_not_named_make_idle_time_doubtful(tmp_path: Path) -> None:
    text = sge_job(1, "a", DAY, DAY + 100) + sge_job(2, "b", DAY + 20, DAY + 60, environment="mpi", slots=3)
    text += sge_job(3, "b", DAY + 50, DAY + 80, environment="mpi", slots=2)
    text += sge_job(4, "c", DAY, DAY + 1) + sge_job(5, "d", DAY, DAY + 1)
    found = imported(tmp_path, text, nodes=tuple("abcd"), window=(DAY, DAY + 100))
    doubtful = 0
    for second in range(100):
        idle = 2 * (second >= 1) + (not 20 <= second < 80)
        doubtful += min(idle, 2 * (20 <= second < 60) + (50 <= second < 80))
    assert doubts_of(found.log).causes["hosts_incomplete"] == pytest.approx(doubtful / 3600)


@pytest.mark.parametrize("first", [True, False])
def test_lines_of_its_other_hosts_complete_it(tmp_path: Path, *, first: bool) -> None:
    master = sge_job(1, "a", DAY, DAY + 60, environment="mpi", slots=16)
    other = sge_job(1, "b", DAY + 10, DAY + 60, environment="mpi", slots=16, slave="1.b")
    found = imported(tmp_path, master + other if first else other + master)
    assert "hosts_incomplete" not in kinds(found)
    assert busy_node_s(found.log) == 60 + 50


def test_waiting_for_other_hosts_takes_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sge, "MOST_WAITING", 3)
    text = "".join(sge_job(job, f"n{job}", DAY, DAY + 60, environment="mpi", slots=2) for job in range(1, 9))
    assert finding(imported(tmp_path, text), "hosts_incomplete").count == 8
    slaves = (sge_job(job, f"n{job}", DAY, DAY + 60, environment="mpi", slots=2, slave="1.x") for job in range(1, 9))
    assert finding(imported(tmp_path, "".join(slaves) + text), "hosts_incomplete").count == 5  # three are remembered


STAYS = [("a", DAY, DAY + 60), ("b", DAY + 10, DAY + 40), ("a", DAY + 90, DAY + 100), ("b", DAY + 70, DAY + 100)]
# How versions of qacct write times: Sun's, Univa's, Open Cluster Scheduler's; the last is that of its JSON
FORMS = {
    "sun": "%a %b %e %H:%M:%S %Y",
    "univa": "%m/%d/%Y %H:%M:%S.000",
    "ocs": "%Y-%m-%d %H:%M:%S.%f",
    "json": "%s000000",
}


def written(form: str, time_s: int) -> str:
    """Write a time as a version of Grid Engine does."""
    return datetime.fromtimestamp(time_s, UTC).strftime(FORMS[form].replace("%s", str(time_s)))


@pytest.mark.parametrize("form", FORMS)
def test_idle_time_is_that_of_a_plain_loop_in_each_form(tmp_path: Path, form: str) -> None:
    write: Callable[..., str] = sge_object if form == "json" else qacct_job
    jobs = [write(job, host, written(form, a), written(form, b)) for job, (host, a, b) in enumerate(STAYS, 1)]
    log = imported(tmp_path, "".join(jobs), window=(DAY, DAY + 100)).log
    assert log.idle_node_s == idle_second_by_second(log, STAYS) == 20 + 10 + 30 + 30 - 20
    old = "".join(sge_job(job, host, a, b) for job, (host, a, b) in enumerate(STAYS, 1))
    assert imported(tmp_path, old, window=(DAY, DAY + 100)).log.sha256 == log.sha256


def test_what_qacct_lists_of_jobs_that_never_started(tmp_path: Path) -> None:
    at = written("sun", DAY)
    text = qacct_job(1, "a", "-/-", "-/-") + qacct_job(2, "a", "-/-", at) + qacct_job(3, "a", "soon", at)
    text += "=" * 62 + "\nqname all.q\n" + qacct_job(4, "a", at, written("sun", DAY + 9))
    found = imported(tmp_path, text + "Total System Usage\n    WALLCLOCK         UTIME\n            9         0.000\n")
    assert found.rows.aside == {"never_started": 1, "no_start": 1, "bad_time": 1, "malformed": 1}
    assert busy_node_s(found.log) == 9


def test_hosts_of_a_parallel_job_in_both_other_forms(tmp_path: Path) -> None:
    at, end = written("ocs", DAY), written("ocs", DAY + 60)
    listed = qacct_job(1, "a", at, end, granted_pe="mpi", slots=2)
    listed += qacct_job(1, "b", at, end, pe_taskid="1.b")
    objects = sge_object(1, "a", DAY, DAY + 60, granted_pe="mpi", slots=2)
    objects += sge_object(1, "b", DAY, DAY + 60, pe_taskid="1.b")
    for text in (listed, objects):
        found = imported(tmp_path, text)
        assert "hosts_incomplete" not in kinds(found)
        assert busy_node_s(found.log) == 120


def test_other_records_of_the_reporting_file_are_set_aside(tmp_path: Path) -> None:
    text = '{"time":1600000000,"type":"host","hostname":"a","load":{}}\n{"type":"acct"}\n[]\n'
    found = imported(tmp_path, sge_object(1, "a", DAY, DAY + 60, type="acct") + text)
    assert found.rows.aside == {"other_record": 1, "malformed": 2}


def test_records_of_real_sites(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("fixtures/sge_accounting-logs.log").read_bytes())
    assert (found.rows.used, found.rows.aside) == (1, {"duplicate": 1})
    found = imported(tmp_path, site_data("fixtures/uge_accounting-logs.log").read_bytes())
    assert found.rows.used == 2
    assert busy_node_s(found.log) == pytest.approx(60 + 1652124460.193 - 1652111622.875)


def test_slots_on_one_host_are_cores(tmp_path: Path) -> None:
    text = sge_job(1, "a", DAY, DAY + 60, environment="smp", slots=3) + sge_job(2, "b", DAY, DAY + 50)
    log = imported(tmp_path, text, unit="core", node_units=4, window=(DAY, DAY + 100)).log
    assert log.idle_node_s == 8 * 100 - 3 * 60 - 50


def test_further_slots_of_a_job_on_several_hosts_are_doubtful(tmp_path: Path) -> None:
    """No record says how many of its slots are on which host."""
    text = sge_job(1, "b", DAY, DAY + 60, environment="mpi", slots=4, slave="1.b")
    text += sge_job(1, "a", DAY, DAY + 60, environment="mpi", slots=4)
    text += "".join(sge_job(host, host, DAY + 60, DAY + 100, environment="smp", slots=4) for host in "ab")
    found = imported(tmp_path, text, unit="core", node_units=4, window=(DAY, DAY + 100), format="sge")
    assert found.log.idle_node_s == 8 * 60 - 2 * 60
    assert finding(found, "hosts_incomplete").count == 1
    assert doubts_of(found.log).causes["hosts_incomplete"] == pytest.approx(3 * 60 / 3600)
