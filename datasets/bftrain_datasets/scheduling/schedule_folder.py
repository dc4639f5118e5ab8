"""Outputs: a schedule as tables, figures and an SWF log. docs/how-to/schedule.md describes each column.

The same inputs lead to the same bytes, except for measured times (:data:`MEASURED`) in ``summary.json``, which its
``figures_sha256`` excludes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import summaries
from bftrain.files import whole_file
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain.version import __version__
from bftrain_datasets.readers import swf
from bftrain_datasets.result_tables import Table
from bftrain_datasets.scheduling.scheduling import ScheduleResult
from bftrain_datasets.scheduling.virtual_schedule import NO_CAMPAIGN

_CAMPAIGN_COLUMNS: Final = (
    "jobs", "created_s", "end_s", "flow_s", "work", "longest_s", "least_s", "stretch", "virtual_end_s", "rivals",
    "previous_work", "bound_s", "stretch_bound",
)  # fmt: skip


def jobs_table(result: ScheduleResult) -> Table:
    """Return one row per job, in submission order."""
    schedule, jobs, figures = result.schedule, result.workload.jobs, result.jobs
    of = np.array(schedule.campaigns.of)
    # The last stretch is for jobs with no campaign
    stretch = np.append(result.campaigns.stretch, np.nan)[of]
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
    """Return one row per campaign with arrived jobs, in creation order."""
    figures, jobs = result.campaigns, result.workload.jobs
    seen = np.flatnonzero(figures.jobs > 0)
    done = figures.done
    within = [bool(each) if ended else None for each, ended in zip(figures.within, done, strict=True)]
    columns = {name: _cells(getattr(figures, name)[seen]) for name in _CAMPAIGN_COLUMNS}
    users = [jobs.users[user] for user in figures.user[seen].tolist()]
    return {
        "campaign": (seen + 1).tolist(),
        "user": users,
        **columns,
        "within": [within[number] for number in seen.tolist()],
    }


def utilisation_table(result: ScheduleResult) -> Table:
    """Return the state after each time with job arrivals, starts or ends, one row per time."""
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


def _swf_lines(result: ScheduleResult) -> Iterator[str]:
    workload, schedule, summary = result.workload, result.schedule, result.summary
    jobs = workload.jobs
    started = [job for job, start_s in enumerate(schedule.start_s) if start_s < math.inf]
    yield "; Version: 2.2"
    yield f"; UnixStartTime: {_number(workload.header_begin_s)}"
    yield f"; MaxNodes: {workload.nodes}"
    yield f"; MaxProcs: {math.ceil(workload.nodes * workload.cores_per_node)}"
    yield f"; MaxJobs: {len(started)}"
    yield f"; MaxRecords: {len(started)}"
    yield f"; Note: derived: bftrain {__version__} simulated the main scheduler ({summary.policy})"
    yield f"; Note: from {workload.source.name}, SHA-256 {workload.source.sha256}"
    if len(started) < len(jobs):
        yield f"; Note: without {counted(len(jobs) - len(started), 'job')} that did not start"
    first_s = float(jobs.fields[0][swf.SUBMIT])
    for job in started:
        fields = list(jobs.fields[job])
        fields[swf.SUBMIT] = _number(first_s + jobs.submit_s[job])
        fields[swf.WAIT] = _number(schedule.start_s[job] - jobs.submit_s[job])
        fields[swf.PROCS] = str(jobs.procs[job])
        for place, number in ((swf.JOB, job + 1), (swf.USER, jobs.user[job] + 1), (swf.QUEUE, swf.UNKNOWN)):
            fields[place] = fields[place] if _is_number(fields[place]) else str(number)  # the format has only numbers
        yield " ".join(fields)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


_EXACT: Final = 2.0**53


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < _EXACT else repr(value)


FORMAT: Final = "bftrain schedule 1"
LOG_FILE: Final = "idle.npz"
SCHEDULE_FILE: Final = "schedule.swf"
MEASURED: Final = frozenset({"wall_s", "jobs_per_s"})
TABLES: Final[Mapping[str, Callable[[ScheduleResult], Table]]] = {
    "jobs": jobs_table,
    "campaigns": campaigns_table,
    "utilisation": utilisation_table,
}


def write_swf(result: ScheduleResult, folder: Path) -> None:
    """Write the schedule as an SWF log into ``folder``."""
    with whole_file(folder / SCHEDULE_FILE) as file:
        file.writelines(f"{line}\n".encode() for line in _swf_lines(result))


def summary(result: ScheduleResult, name: str = "") -> dict[str, Any]:
    """Return the content of ``summary.json``: the figures, then inputs and settings."""
    workload, log = result.workload, result.log
    data: dict[str, Any] = {
        "format": FORMAT,
        **wire.plain(result.summary),
        "begin_s": workload.jobs.begin_s,
        "cores_per_node": workload.cores_per_node,
        "refused_jobs": [workload.jobs.name(job) for job in result.schedule.refused],
        "wall_s": result.wall_s,
        "jobs_per_s": result.summary.done / result.wall_s if result.wall_s > 0 else None,
        "inputs": {"log": {**wire.plain(workload.source), "name": name or workload.source.name}},
        "rows": wire.plain(workload.rows),
        "idle_log": {
            "file": LOG_FILE,
            "sha256": log.sha256,
            "nodes": len(log.node_names),
            "events": len(log),
            "start_s": log.start_s,
            "end_s": log.end_s,
            "idle_share": log.idle_share,
            "idle_node_h": log.idle_node_s / 3600,
        },
        "findings": wire.plain(log.provenance.findings),
        "settings": wire.plain(result.settings),
        "versions": summaries.versions(),
    }
    return summaries.with_sum(data, MEASURED)
