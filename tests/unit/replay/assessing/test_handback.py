"""Handback: extra waits of batch jobs are those that follow from the turn of each job on each of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from bftrain import BadInput, ImportOptions, import_logs, schedule
from bftrain_datasets.importing.pipeline import import_files
from bftrain_replay.assessing.handback import BatchJobs, effect_of, extra_waits, jobs_of
from bftrain_replay.run.harvest_by_block import TimeBlocks
from tests.helpers.site_data import site_data
from tests.unit.replay.cases import START_S, log_of

Row = tuple[float, float, tuple[int, ...]]  # start, end, nodes


def _jobs(rows: Sequence[Row], users: Sequence[str] = ()) -> BatchJobs:
    names = tuple(dict.fromkeys(users))
    return BatchJobs(
        start_s=np.array([row[0] for row in rows], dtype=np.float64),
        end_s=np.array([row[1] for row in rows], dtype=np.float64),
        offsets=np.cumsum([0, *(len(row[2]) for row in rows)]),
        nodes=np.array([node for row in rows for node in row[2]], dtype=np.int64),
        submit_s=np.full(len(rows), np.nan),
        user=np.array([names.index(user) for user in users] or [-1] * len(rows)),
        users=names,
    )


def _by_definition(rows: Sequence[Row], delay_s: float) -> list[float]:
    """Compute each start from all jobs that start before it on each of its nodes."""
    starts: list[float] = []

    def late_end(job: int) -> float:
        return rows[job][1] + starts[job] - rows[job][0]

    for job, (start_s, _, nodes) in enumerate(rows):
        free = []
        for node in nodes:
            before = [other for other in range(job) if node in rows[other][2] and rows[other][0] < start_s]
            if all(rows[other][1] <= start_s for other in before):  # else it was shared, and not idle
                free.append(max(map(late_end, before), default=float("-inf")))
        ready_s = max([start_s, *free])
        starts.append(ready_s + (delay_s if free and min(free) < ready_s else 0.0))
    return [new - row[0] for new, row in zip(starts, rows, strict=True)]


def test_a_job_that_follows_at_once_does_not_wait_and_one_after_a_gap_does() -> None:
    rows = [(0.0, 100.0, (0,)), (100.0, 200.0, (0,)), (250.0, 300.0, (0,))]
    assert extra_waits(_jobs(rows), 1, 30.0)[0].tolist() == [30.0, 30.0, 30.0]
    # The first is late by 30 s, so the second is; the gap of 50 s takes that up, and is a gap of 20 s still


def test_a_gap_that_lateness_fills_costs_no_delay_of_its_own() -> None:
    rows = [(0.0, 100.0, (0,)), (120.0, 200.0, (0,)), (500.0, 600.0, (0,))]
    assert extra_waits(_jobs(rows), 1, 30.0)[0].tolist() == [30.0, 10.0, 30.0]


def test_no_task_comes_into_the_seconds_that_schedulers_leave_between_jobs() -> None:
    rows = [(0.0, 100.0, (0,)), (102.0, 200.0, (0,)), (202.0, 300.0, (0,)), (400.0, 500.0, (0,))]
    assert extra_waits(_jobs(rows), 1, 60.0, 0.0)[0].tolist() == [0.0, 60.0, 58.0, 60.0]
    assert extra_waits(_jobs(rows), 1, 60.0, 0.0, least_gap_s=18.0)[0].tolist() == [0.0, 0.0, 0.0, 60.0]


def test_the_last_of_several_nodes_decides() -> None:
    rows = [(0.0, 100.0, (0,)), (0.0, 400.0, (1,)), (400.0, 500.0, (0, 1))]
    assert extra_waits(_jobs(rows), 2, 30.0)[0].tolist() == [30.0, 30.0, 60.0]  # waits for node 1, then for node 0


def test_a_node_that_jobs_share_was_not_idle() -> None:
    rows = [(0.0, 100.0, (0,)), (50.0, 80.0, (0,)), (90.0, 95.0, (0,))]
    assert extra_waits(_jobs(rows), 1, 30.0)[0].tolist() == [30.0, 0.0, 0.0]


def test_jobs_that_start_together_on_an_idle_node_all_wait_in_any_order_of_records() -> None:
    rows = [(0.0, 100.0, (0,)), (0.0, 80.0, (0, 1)), (200.0, 300.0, (1,))]
    for order in ((0, 1, 2), (1, 0, 2)):
        assert extra_waits(_jobs([rows[place] for place in order]), 2, 30.0)[0].tolist() == [30.0, 30.0, 30.0]


@pytest.mark.parametrize("seed", range(8))
def test_random_jobs_wait_as_the_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.sort(rng.integers(0, 300, 60)).tolist()
    rows = [
        (float(start_s), float(start_s + rng.integers(1, 60)), tuple(rng.choice(8, rng.integers(1, 5), replace=False)))
        for start_s in starts
    ]
    delay_s = float(rng.integers(0, 40))
    assert extra_waits(_jobs(rows), 8, delay_s)[0].tolist() == pytest.approx(_by_definition(rows, delay_s))


SUBMITTED: Final = {  # the forms in which a job of `ann` that was submitted at 08:00 is recorded
    "pbs": "01/05/2026 10:00:00;E;1.pbs;user=ann group=g queue=q ctime=1767600000 qtime=1767600000 "
    "start=1767603600 exec_host=n1/0 end=1767607200 Exit_status=0",
    "sacct": "1|1|c|q|normal|a|g|7|ann|8|2026-01-05T08:00:00|2026-01-05T08:00:00|2026-01-05T09:00:00|"
    "2026-01-05T10:00:00|01:00:00|0:0|COMPLETED|1|1|1|1Mn|cpu=1|cpu=1|02:00:00|n1|x",
    "sge": "q:n1:g:ann:x:1:sge:0:1767600000:1767603600:1767607200:0:0:60:60.0:0.0:1:0:0:0:0:2:0:0:0.0:24:0:0:0:4:5:"
    "NONE:d:NONE:1:0:60.1:7.3:0.0:NONE:0.0:NONE:1.0:0:0",
    "lsf": '"JOB_FINISH" "9.11" 1767607200 1 22025 33882739 1 1767600000 0 0 1767603600 "ann" "q" "" "" "" "n0" "/x" '
    '"" "o" "" "1767600000.1" 0 1 "n1" 64 60.0 "x" "y" 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 "" "" 0 1 "" "" 0 0',
}


@pytest.mark.parametrize("form", SUBMITTED)
def test_users_and_submissions_are_known_from_the_records_of_each_scheduler(form: str, tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_text(f"{SUBMITTED[form]}\n")
    log = import_files([path], ImportOptions(keep_end=True)).log
    found = jobs_of([path], log)
    assert (found.users, found.submit_s.tolist(), found.start_s.tolist()) == (("ann",), [1767600000], [1767603600])


def _rows(found: BatchJobs) -> list[tuple[float, float, tuple[int, ...]]]:
    return [
        (start_s, end_s, tuple(found.nodes[low:high].tolist()))
        for start_s, end_s, low, high in zip(
            found.start_s.tolist(), found.end_s.tolist(), found.offsets[:-1], found.offsets[1:], strict=True
        )
    ]


@pytest.mark.parametrize(("name", "jobs", "user"), [("sacct/ub-micro-slurm_acct.out", 444, "user4")])
def test_real_jobs_wait_as_the_definition_says(name: str, jobs: int, user: str) -> None:
    path = site_data(name)
    log = import_logs(path).log
    found = jobs_of([path], log, ImportOptions())
    assert len(found) == jobs
    assert not np.isnan(found.submit_s).any()
    rows = _rows(found)[:300]
    assert extra_waits(found, len(log.node_names), 30.0)[0][: len(rows)].tolist() == pytest.approx(
        _by_definition(rows, 30.0)
    )
    effect = effect_of(log, TimeBlocks.of_span(log.span_s), 30.0, found)
    assert effect.worst_user is not None
    assert effect.worst_user.name == user


def test_jobs_of_a_simulated_schedule_wait_as_the_definition_says(tmp_path: Path) -> None:
    path = _workload(tmp_path)
    made = schedule(path, policy="fcfs")
    log = made.log
    found = jobs_of([path], log)
    started = [start_s for start_s in made.schedule.start_s if start_s + log.start_s < log.end_s]
    assert len(found) == len(started)
    held_s = float(((found.end_s - found.start_s) * found.sizes).sum())
    assert held_s + log.idle_node_s == pytest.approx(len(log.node_names) * log.span_s)
    part = jobs_of([path], log)
    rows = _rows(part)[:400]
    found_s = extra_waits(part, len(log.node_names), 30.0)[0][: len(rows)].tolist()
    assert found_s == pytest.approx(_by_definition(rows, 30.0))
    assert max(found_s) > 0.0


def _workload(folder: Path) -> Path:
    rng, path = np.random.default_rng(3), folder / "own.swf"
    submits = np.sort(rng.integers(0, 20_000, 80)).tolist()
    rows = [
        f"{job} {at} 0 {rng.integers(10, 900)} {rng.integers(1, 7)} -1 -1 -1 -1 -1 1 {job % 3} 1 -1 {job % 2} -1 -1 -1"
        for job, at in enumerate(submits, 1)
    ]
    path.write_text("; MaxNodes: 8\n; MaxProcs: 8\n; UnixStartTime: 1000000000\n" + "\n".join(rows) + "\n")
    return path


def test_a_schedule_of_other_jobs_is_refused_and_its_users_are_those_of_the_file(tmp_path: Path) -> None:
    path = _workload(tmp_path)
    log = schedule(path, policy="fcfs").log
    found = jobs_of([path], log)
    assert sorted(found.users) == ["0", "1", "2"]
    other = tmp_path / "other.swf"
    other.write_text(path.read_text() + "81 30000 0 10 1 -1 -1 -1 -1 -1 1 1 1 -1 1 -1 -1 -1\n")
    with pytest.raises(BadInput, match="are not the records of this log"):
        jobs_of([other], log)


def test_figures_are_those_of_the_waits() -> None:
    log = log_of((0.0, "ab", ""), (100.0, "", "ab"), (200.0, "ab", ""), (300.0, "", "a"), end_s=400.0)
    jobs = _jobs([(START_S + 100.0, START_S + 200.0, (0, 1)), (START_S + 300.0, START_S + 400.0, (0,))], ["one", "two"])
    found = effect_of(log, TimeBlocks.of_span(log.span_s), 36.0, jobs)
    assert (found.jobs, found.jobs_delayed, found.most_s, found.extra_s) == (2, 2, 36.0, {50: 36.0, 90: 36.0, 99: 36.0})
    assert found.delayed is not None
    assert found.mean_s is not None
    assert found.taking is not None
    assert (found.taking.median, found.delayed.median, found.mean_s.median) == (1.0, 1.0, 36.0)
    assert found.node_h_a_week.median == pytest.approx(0.03 * 604_800 / 400)  # three nodes wait 36 s
    assert found.moments_a_week.median == pytest.approx(2 * 604_800 / 400)
    assert found.worst_user is not None
    assert (found.worst_user.name, found.worst_user.jobs, found.worst_user.mean_s) == ("one", 1, 36.0)
    alone = effect_of(log, TimeBlocks.of_span(log.span_s), 36.0)
    assert (alone.moments_a_week, alone.node_h_a_week, alone.jobs) == (found.moments_a_week, found.node_h_a_week, None)


def test_jobs_are_counted_by_how_much_later_they_begin() -> None:
    log = log_of((0.0, "abc", ""), (100.0, "", "abc"), end_s=2000.0)
    rows = [
        (START_S + 100.0, START_S + 200.0, (0,)),  # 30 s late
        (START_S + 220.0, START_S + 300.0, (0,)),  # 10 s, of the gap of 20 s
        (START_S + 100.0, START_S + 300.0, (1, 2)),  # 30 s
        (START_S + 1000.0, START_S + 1100.0, (0, 1)),  # 30 s
        (START_S + 1100.0, START_S + 1200.0, (0, 2)),  # 30 s for node 2, after 30 s for node 0
    ]
    rows.sort()
    effect = effect_of(log, TimeBlocks.of_span(log.span_s), 30.0, _jobs(rows))
    waits = _by_definition([(start - START_S, end - START_S, nodes) for start, end, nodes in rows], 30.0)
    assert sorted(waits) == [10.0, 30.0, 30.0, 30.0, 60.0]
    assert [each.over_s for each in effect.distribution] == [0.0, 15.0, 30.0, 60.0, 150.0, 300.0]
    assert [each.jobs for each in effect.distribution] == [
        sum(wait > each.over_s for wait in waits) for each in effect.distribution
    ]
    assert [each.share for each in effect.distribution] == [1.0, 0.8, 0.2, 0.0, 0.0, 0.0]
