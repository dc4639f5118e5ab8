"""Grid Engine's accounting: one host a line, and parallel jobs that name only the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bftrain_datasets.readers import sge
from tests.helpers.records import busy_node_s, finding, imported, kinds
from tests.helpers.samples import DAY, sge_job
from tests.helpers.site_data import site_data

if TYPE_CHECKING:
    from pathlib import Path


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
        "never_started": [sge_job(1, "a", 0, 0, failed=21), sge_job(1, "a", 0, DAY)],
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


def test_records_of_real_sites(tmp_path: Path) -> None:
    found = imported(tmp_path, site_data("fixtures/sge_accounting-logs.log").read_bytes())
    assert (found.rows.used, found.rows.aside) == (1, {"duplicate": 1})
    found = imported(tmp_path, site_data("fixtures/uge_accounting-logs.log").read_bytes())
    assert found.rows.used == 2
    assert busy_node_s(found.log) == pytest.approx(60 + 1652124460.193 - 1652111622.875)
