"""Which rows of an SWF log become jobs, and of what machine."""

from __future__ import annotations

import gzip
import io
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadInput, schedule
from tests.helpers.records import imported
from tests.helpers.samples import DAY, swf_job
from tests.helpers.schedules import Row, swf

HEADER = f"; UnixStartTime: {DAY}\n; MaxNodes: 4\n; MaxProcs: 16\n"


def workload(folder: Path, text: str, **options: Any) -> Any:  # noqa: ANN401 - a workload
    path = folder / "log.swf"
    path.write_text(text)
    found = schedule(path, **options).workload
    assert found.rows.read == found.rows.used + sum(found.rows.aside.values())
    assert found.rows.used == len(found.jobs)
    return found


def counts_of(found: Any) -> dict[str, int]:  # noqa: ANN401 - a workload
    return {each.name: each.count for each in found.findings}


def line(job: int, submit: float, run: float, procs: int, limit: float = -1, user: object = 3, **more: object) -> str:
    asked, status = more.get("asked", procs), more.get("status", 1)
    return f"{job} {submit} -1 {run} {procs} -1 -1 {asked} {limit} -1 {status} {user} 1 -1 2 -1 -1 -1\n"


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    found = workload(tmp_path, HEADER + line(7, 100, 50, 6, 90, user=12) + line(8, 120, 40, 4, user=3))
    jobs = found.jobs
    assert (found.nodes, found.cores_per_node) == (4, 4)
    assert jobs.begin_s == DAY + 100
    assert (jobs.submit_s, jobs.run_s, jobs.limit_s) == ([0, 20], [50, 40], [90, math.inf])
    assert (jobs.size, jobs.procs) == ([2, 1], [6, 4])
    assert (jobs.users, jobs.user) == (("3", "12"), [1, 0])
    assert [jobs.name(job) for job in range(len(jobs))] == ["7", "8"]
    assert counts_of(found) == {"request_differs": 1}


def test_rows_that_tell_of_no_job_that_ran_are_set_aside(tmp_path: Path) -> None:
    rows = {
        "other_record": [line(99, 5, 9, 1, status=status) for status in (2, 3, 4)],
        "bad_time": [
            line(2, float("nan"), 9, 1),
            line(3, 5, float("inf"), 1),
            line(4, 1e12, 9, 1),
            line(7, 5, -1, 1, status=1),
        ],
        "no_usage": [line(5, 5, -1, 1, status=5), line(6, 5, 0, 1, status=5)],
        "bad_value": [line(8, 5, -7, 1), line(9, 5, 9, 0), line(10, 5, 9, -1, asked=-1), line(11, 5, 9, 10**12)],
        "malformed": ["1 2 3\n", line(12, 5, 9, 1).replace("-1", "x", 1)],
    }
    text = HEADER + "".join(row for those in rows.values() for row in those) + line(99, 5, 9, 1)
    assert workload(tmp_path, text).rows.aside == {reason: len(those) for reason, those in rows.items()}


def test_parts_and_cancelled_jobs_count_as_they_do_in_an_import(tmp_path: Path) -> None:
    text = HEADER + line(1, 50, 9, 1) + line(1, 5, 9, 1, status=3) + line(2, 5, 8, 1, status=2)
    text += line(2, 50, 7, 1, status=4) + line(3, 5, -1, 1, status=2) + line(4, 20, 6, 1, status=5)
    text += line(5, 20, -1, 1, status=5) + line(6, 20, 0, 1, status=5)
    found = workload(tmp_path, text)
    assert found.rows.aside == {"other_record": 1, "no_usage": 3}
    assert found.rows.aside == imported(tmp_path, text, counts=True).rows.aside
    assert [found.jobs.name(job) for job in range(len(found.jobs))] == ["2", "4", "1", "2"]
    assert found.jobs.run_s == [8, 6, 9, 7]
    cut = workload(tmp_path, text, first=3)  # of the log's rows, parts of jobs among them
    assert (cut.rows.read, cut.rows.used, cut.rows.aside) == (3, 2, {"other_record": 1})


def test_a_job_that_ended_at_once_is_a_job_all_the_same(tmp_path: Path) -> None:
    assert workload(tmp_path, HEADER + line(1, 5, 0, 1)).jobs.run_s == [0]


def test_what_is_assumed_is_counted(tmp_path: Path) -> None:
    text = HEADER + line(1, 9, 80, -1, 20, asked=5) + line(2, 5, 9, 1, 9) + line(3, 7, 9, 1)
    found = workload(tmp_path, text)
    assert counts_of(found) == {"request_differs": 3, "notation": 1}
    assert [found.jobs.name(job) for job in range(3)] == ["2", "3", "1"]
    assert found.jobs.size == [1, 1, 2]


def test_jobs_submitted_at_once_keep_the_order_of_the_log(tmp_path: Path) -> None:
    found = workload(tmp_path, HEADER + "".join(line(job, 5, 9, 1) for job in (3, 1, 2)))
    assert [found.jobs.name(job) for job in range(3)] == ["3", "1", "2"]
    assert "notation" not in counts_of(found)


def test_missing_users_are_reported(tmp_path: Path) -> None:
    assert counts_of(workload(tmp_path, HEADER + line(1, 5, 9, 1, 9, user=-1)))["missing_field"] == 1


def test_shared_nodes_are_scheduled_by_processor(tmp_path: Path) -> None:
    found = workload(tmp_path, HEADER + line(1, 5, 9, 6) + line(2, 5, 9, 1), sharing="cores")
    assert (found.nodes, found.per_node, found.capacity) == (4, 4, 16)
    assert found.jobs.size == [6, 1]
    odd = "; MaxNodes: 10\n; MaxProcs: 15\n"
    with pytest.raises(BadInput, match=r"1\.5 processors on average"):
        workload(tmp_path, odd + line(1, DAY, 9, 3), sharing="cores")


@pytest.mark.parametrize(
    ("header", "options", "machine"),
    [
        ("; MaxNodes: 4\n; MaxProcs: 16\n", {}, (4, 4)),
        ("; MaxNodes: 4\n; MaxProcs: 16\n", {"nodes": 3}, (3, 4)),
        ("; MaxNodes: 4\n; MaxProcs: 16\n", {"cores_per_node": 8}, (2, 8)),
        ("; MaxNodes: 4\n; MaxProcs: 16\n", {"nodes": 5, "cores_per_node": 8}, (5, 8)),
        ("; MaxNodes: 4\n; MaxProcs: 4\n", {}, (4, 1)),
        ("; MaxProcs: 6\n", {}, (6, 1)),
        ("; MaxProcs: 7\n", {"cores_per_node": 2}, (4, 2)),
        ("; MaxNodes: 9\n", {}, (9, 1)),
        ("; MaxNodes: 9\n", {"cores_per_node": 2}, (9, 2)),
        ("", {"nodes": 8}, (8, 1)),
        ("; MaxNodes: 10\n; MaxProcs: 15\n", {}, (10, 1.5)),
    ],
)
def test_the_machine_is_what_the_log_or_the_options_say(
    tmp_path: Path, header: str, options: dict[str, int], machine: tuple[int, float]
) -> None:
    found = workload(tmp_path, header + line(1, DAY, 9, 3), **options)
    assert (found.nodes, found.cores_per_node) == machine
    assert found.jobs.size == [-(-3 // machine[1])]


def test_a_part_of_the_log_can_be_taken(tmp_path: Path) -> None:
    text = HEADER + "".join(line(job, 10 * job, 9, 1) for job in range(1, 6)) + "nonsense\n"
    found = workload(tmp_path, text, window=f"{DAY + 20}:{DAY + 40}")
    assert [found.jobs.name(job) for job in range(len(found.jobs))] == ["2", "3"]
    assert found.rows.aside == {"not_selected": 3, "malformed": 1}
    assert found.jobs.begin_s == DAY + 20
    found = workload(tmp_path, text, first=2)
    assert (len(found.jobs), found.rows.read) == (2, 2)


def test_the_gaps_between_submissions_can_be_scaled(tmp_path: Path) -> None:
    text = HEADER + line(1, 100, 50, 1, 60) + line(2, 160, 50, 1, 60)
    jobs = workload(tmp_path, text, time_factor=0.5).jobs
    assert (jobs.begin_s, jobs.submit_s, jobs.run_s, jobs.limit_s) == (DAY + 100, [0, 30], [50, 50], [60, 60])


@pytest.mark.parametrize(
    ("text", "options", "what"),
    [
        (line(1, DAY, 9, 1), {}, "the machine's size .*--nodes N"),
        (HEADER + line(1, 5, -1, 1, status=5), {}, "no row describes a job that ran: 1 no_usage"),
        (HEADER, {}, "there are no rows"),
        ("JobID|Start\n", {}, "not in the Standard Workload Format"),
        (HEADER + line(1, 5, 9, 1), {"nodes": 10**9}, "beyond the limit"),
        (HEADER + line(1, 5, 9, 1), {"window": "b:a"}, "not a window"),
        (HEADER + line(1, 5, 9, 17), {}, "every job is larger than the machine of 4 nodes"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, text: str, options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        workload(tmp_path, text, **options)


def test_packed_logs_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress((HEADER + swf_job(1, 5, 0, 9)).encode())
    path = tmp_path / "log.gz"
    path.write_bytes(packed)
    found = schedule(path).workload
    assert found.source.size_bytes == len(packed)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    piped = schedule("-").workload
    assert (piped.jobs, piped.source.sha256) == (found.jobs, found.source.sha256)
    assert piped.source.name == "stdin"


def test_shares_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shares"
    path.write_text("# of the project\n3 2.5  # a large one\n\n12, 0.5\n99 4\n")
    log = swf(tmp_path / "log.swf", [Row(0, 9, user=3), Row(0, 9, user=12), Row(0, 9, user=5)], "MaxNodes: 4")
    found = schedule(log, shares=str(path)).workload
    assert dict(zip(found.jobs.users, found.jobs.shares, strict=True)) == {"3": 2.5, "5": 1, "12": 0.5}
    assert found.unknown_shares == ("99",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("3\n", ":1: 1 words"),
        ("3 1\n4 x\n", ":2: 'x' is not a share"),
        ("3 0\n", "'0' is not a share"),
        ("3 nan\n", "is not a share"),
        ("3 inf\n", "is not a share"),
        ("3 1\n3 2\n", ":2: names user '3' twice"),
    ],
)
def test_shares_that_make_no_sense_are_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "shares"
    path.write_text(text)
    with pytest.raises(BadInput, match=what):
        schedule(swf(tmp_path / "log.swf", [Row(0, 9, user=3)], "MaxNodes: 4"), shares=str(path))


def test_a_missing_file_is_reported_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="missing: no such file"):
        schedule(tmp_path / "missing")
