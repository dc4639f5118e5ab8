"""Tables of a schedule. docs/schedule.md describes each column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.schedule_figures import DONE
from bftrain_datasets.scheduling.virtual_schedule import NO_CAMPAIGN

if TYPE_CHECKING:
    from bftrain_datasets.scheduling.scheduling import ScheduleResult

    # Column by column; a cell without a value is None
    Table = Mapping[str, list[Any]]

NAMES: Final = ("jobs", "campaigns", "users", "utilisation")


def tables(result: ScheduleResult) -> Mapping[str, Table]:
    """Return all tables by name."""
    return {
        "jobs": jobs_table(result),
        "campaigns": campaigns_table(result),
        "users": users_table(result),
        "utilisation": utilisation_table(result),
    }


def jobs_table(result: ScheduleResult) -> Table:
    """Return one row per job, in order of submission."""
    schedule, jobs, figures = result.schedule, result.workload.jobs, result.jobs
    of = np.array(schedule.campaigns.of)
    stretch = np.append(result.campaigns.stretch, np.nan)[of]  # the last is for jobs without a campaign
    return {
        "job": [fields[swf.JOB] for fields in jobs.fields],
        "user": [jobs.users[user] for user in jobs.user],
        "queue": [fields[swf.QUEUE] for fields in jobs.fields],
        "state": figures.state,
        "submit_s": list(jobs.submit_s),
        "start_s": _cells(figures.start_s),
        "end_s": _cells(figures.end_s),
        "wait_s": _cells(figures.wait_s),
        "run_s": list(jobs.run_s),
        "limit_s": _cells(np.array(jobs.limit_s)),
        "planned_s": _cells(np.array(schedule.first_planned_s)),
        "procs": list(jobs.procs),
        "size": list(jobs.size),
        "slowdown": _cells(figures.slowdown),
        "bounded_slowdown": _cells(figures.bounded_slowdown),
        "campaign": [None if number == NO_CAMPAIGN else number + 1 for number in schedule.campaigns.of],
        "stretch": _cells(stretch),
        "promised_s": _cells(figures.promised_s),
        "overtook": list(schedule.overtook),
        "overran": list(schedule.prolonged),
        "node_set": result.places.node_sets,
    }


def campaigns_table(result: ScheduleResult) -> Table:
    """Return one row per campaign, in order of creation, without those of which no job arrived."""
    figures, jobs = result.campaigns, result.workload.jobs
    seen = np.flatnonzero(figures.jobs > 0)
    done = figures.done
    within = [bool(each) if ended else None for each, ended in zip(figures.within, done, strict=True)]
    return {
        "campaign": (seen + 1).tolist(),
        "user": [jobs.users[user] for user in figures.user[seen].tolist()],
        "jobs": figures.jobs[seen].tolist(),
        "created_s": figures.created_s[seen].tolist(),
        "end_s": _cells(figures.end_s[seen]),
        "flow_s": _cells(figures.flow_s[seen]),
        "work": figures.work[seen].tolist(),
        "longest_s": figures.longest_s[seen].tolist(),
        "least_s": figures.least_s[seen].tolist(),
        "stretch": _cells(figures.stretch[seen]),
        "virtual_end_s": _cells(figures.virtual_end_s[seen]),
        "rivals": figures.rivals[seen].tolist(),
        "previous_work": figures.previous[seen].tolist(),
        "bound_s": _cells(figures.bound_s[seen]),
        "stretch_bound": _cells(figures.stretch_bound[seen]),
        "within": [within[number] for number in seen.tolist()],
    }


def users_table(result: ScheduleResult) -> Table:
    """Return one row per user, by name."""
    jobs, figures, campaigns = result.workload.jobs, result.jobs, result.campaigns
    count = len(jobs.users)
    user = np.array(jobs.user)
    done = np.array([state == DONE for state in figures.state])
    held_s = np.array(jobs.size) * np.array(jobs.run_s)
    started = np.isfinite(figures.wait_s)
    ended = campaigns.done
    return {
        "user": list(jobs.users),
        "share": list(jobs.shares),
        "jobs": np.bincount(user, minlength=count).tolist(),
        "done": np.bincount(user[done], minlength=count).tolist(),
        "held_h": (np.bincount(user[done], held_s[done], minlength=count) / 3600).tolist(),
        "wait_mean_s": _means(user[started], figures.wait_s[started], count),
        "wait_max_s": _largest(user[started], figures.wait_s[started], count),
        "campaigns": np.bincount(campaigns.user[campaigns.jobs > 0], minlength=count).tolist(),
        "stretch_mean": _means(campaigns.user[ended], campaigns.stretch[ended], count),
        "stretch_max": _largest(campaigns.user[ended], campaigns.stretch[ended], count),
        "beyond_bound": np.bincount(campaigns.user[ended & ~campaigns.within], minlength=count).tolist(),
    }


def utilisation_table(result: ScheduleResult) -> Table:
    """Return one row for each time at which jobs arrive, start or end, with the state from then on."""
    schedule, jobs, figures = result.schedule, result.workload.jobs, result.jobs
    size = np.array(jobs.size)
    arrived = np.isfinite(schedule.first_planned_s)
    started, ended = np.isfinite(figures.start_s), np.isfinite(figures.end_s)
    one = np.ones(len(jobs), dtype=np.int64)
    none = np.zeros(len(jobs), dtype=np.int64)
    parts = (
        (np.array(jobs.submit_s)[arrived], none[arrived], none[arrived], one[arrived], size[arrived]),
        (figures.start_s[started], size[started], one[started], -one[started], -size[started]),
        (figures.end_s[ended], -size[ended], -one[ended], none[ended], none[ended]),
    )
    times, *changes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    last = np.append(np.diff(times[order]) > 0, np.ones(min(times.size, 1), dtype=np.bool_))
    busy, running, waiting, wanted = (np.cumsum(each[order])[last] for each in changes)
    return {
        "time_s": times[order][last].tolist(),
        "busy": busy.tolist(),
        "free": (schedule.nodes - busy).tolist(),
        "running": running.tolist(),
        "waiting": waiting.tolist(),
        "wanted": wanted.tolist(),
    }


def _cells(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers, with ``None`` for infinite ones and NaN."""
    return [value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values), strict=True)]


def _means(group: NDArray[np.int64], values: NDArray[np.float64], count: int) -> list[float | None]:
    sums, sizes = np.bincount(group, values, minlength=count), np.bincount(group, minlength=count)
    return _cells(np.divide(sums, sizes, out=np.full(count, np.nan), where=sizes > 0))


def _largest(group: NDArray[np.int64], values: NDArray[np.float64], count: int) -> list[float | None]:
    largest = np.full(count, -np.inf)
    np.maximum.at(largest, group, values)
    return _cells(largest)


def rows(table: Table) -> Iterable[tuple[Any, ...]]:
    """Yield a table row by row."""
    return zip(*table.values(), strict=True)
