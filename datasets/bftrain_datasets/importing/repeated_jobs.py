"""Jobs that the records tell of several times: in files that overlap, or while they ran and when they ended."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.importing.job_columns import StayColumns, files_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_datasets.importing.job_checks import RecordIntake

_NAMELESS: Final = hash("")  # jobs without a name are no one job


def first_reports(intake: RecordIntake) -> tuple[StayColumns, NDArray[np.bool_]]:
    """Give all jobs, and which of them to keep so that each stay on its nodes counts once."""
    jobs = intake.stays.columns()
    keep = np.ones(jobs.start.size, dtype=np.bool_)
    held = jobs.set_keys()
    elsewhere = _drop_repeated(jobs, held, keep, intake)
    over = _ended_elsewhere(jobs, held, keep, intake)
    _set_aside("told_before", np.concatenate((elsewhere, over)), jobs, intake)
    jobs = _end_restarted(jobs, keep, intake)
    running = np.flatnonzero(keep & np.isinf(jobs.end))
    if running.size:
        first = intake.where(int(jobs.place[running].min()))
        intake.tally.note("still_running", count=int(running.size), where=first)
    _note_order(jobs, intake)
    return jobs, keep


def any_running(jobs: StayColumns, keep: NDArray[np.bool_]) -> bool:
    """Whether any job still runs where the records end."""
    return bool(np.isinf(jobs.end[keep]).any())


def _drop_repeated(
    jobs: StayColumns, held: NDArray[np.uint64], keep: NDArray[np.bool_], intake: RecordIntake
) -> NDArray[np.int64]:
    """Keep one of the jobs that agree in name, times and nodes; return those of other files, which are no doubt."""
    order = np.lexsort((jobs.place, held, jobs.end, jobs.start, jobs.job))
    same = np.flatnonzero(_like_before(order, jobs.job, jobs.start, jobs.end, held))
    again = order[same]
    elsewhere = files_of(jobs.place[again]) != files_of(jobs.place[order[same - 1]])
    from_elsewhere: NDArray[np.int64] = again[elsewhere]
    keep[again] = False
    _set_aside("duplicate", again[~elsewhere], jobs, intake)
    return from_elsewhere


def _ended_elsewhere(
    jobs: StayColumns, held: NDArray[np.uint64], keep: NDArray[np.bool_], intake: RecordIntake
) -> NDArray[np.int64]:
    """Drop, and give, jobs that ran when their row was written, if another has the same start and nodes, and an end."""
    order, running = _runs(jobs, keep, held)
    over: NDArray[np.int64] = order[
        running & (_like_before(order, jobs.job, jobs.start, held) | _ended_outside(order, jobs, intake))
    ]
    keep[over] = False
    return over


def _end_restarted(jobs: StayColumns, keep: NDArray[np.bool_], intake: RecordIntake) -> StayColumns:
    """End jobs that run by one file, and start again later by another, as after a requeue."""
    order, running = _runs(jobs, keep)
    now, later = order[:-1], order[1:]
    again = running[:-1] & (jobs.job[now] == jobs.job[later]) & (jobs.start[now] < jobs.start[later])
    again &= files_of(jobs.place[now]) != files_of(jobs.place[later])
    now, later = now[again], later[again]
    if now.size == 0:
        return jobs
    intake.tally.note("restarted", count=int(now.size), where=intake.where(int(jobs.place[now].min())))
    end = jobs.end.copy()
    end[now] = jobs.start[later]
    return replace(jobs, end=end)


def _runs(
    jobs: StayColumns, keep: NDArray[np.bool_], *keys: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Give the rows of all jobs that seem to run, by name and start and then ``keys``, and which rows say so."""
    running = keep & np.isinf(jobs.end) & (jobs.job != _NAMELESS)
    rows = np.flatnonzero(keep & np.isin(jobs.job, jobs.job[running]))
    order = rows[np.lexsort((jobs.end[rows], *(key[rows] for key in keys), jobs.start[rows], jobs.job[rows]))]
    return order, running[order]


def _ended_outside(rows: NDArray[np.int64], jobs: StayColumns, intake: RecordIntake) -> NDArray[np.bool_]:
    """Say of which of these jobs another row, outside the window, tells that they have ended."""
    job, start = intake.stays.outside()
    among = np.isin(job, jobs.job[rows])
    known = set(zip(job[among].tolist(), start[among].tolist(), strict=True))
    pairs = zip(jobs.job[rows].tolist(), jobs.start[rows].tolist(), strict=True)
    return np.array([pair in known for pair in pairs], dtype=np.bool_)


def _like_before(order: NDArray[np.int64], *columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Say for each row, in this order, whether all columns are as in the row before."""
    same = np.ones(order.size, dtype=np.bool_)
    same[:1] = False
    for column in columns:
        ordered = column[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    return same


def _set_aside(reason: str, rows: NDArray[np.int64], jobs: StayColumns, intake: RecordIntake) -> None:
    if rows.size == 0:
        return
    held_s = jobs.end[rows] - jobs.start[rows]
    known = np.isfinite(held_s)
    node_s = float((held_s * jobs.count[rows])[known].sum())
    intake.tally.unuse(reason, intake.where(int(jobs.place[rows].min())), int(rows.size), node_s)


def _note_order(jobs: StayColumns, intake: RecordIntake) -> None:
    """Count rows that are sorted neither by start nor by end, where one row tells of both."""
    falls = min((np.flatnonzero(each[1:] < each[:-1]) + 1 for each in (jobs.start, jobs.end)), key=len)
    if falls.size and not intake.open_jobs.any_begun:
        intake.tally.note("unsorted", count=int(falls.size), where=intake.where(int(jobs.place[falls[0]])))
