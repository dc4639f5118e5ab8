"""A schedule in the Standard Workload Format: the rows of the log that was read, with the waiting times it led to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bftrain.files import whole_file
from bftrain.version import __version__
from bftrain_datasets.readers import swf

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bftrain_datasets.scheduling.schedule_result import ScheduleResult


def write(result: ScheduleResult, path: Path) -> None:
    """Write all jobs that started."""
    with whole_file(path) as file:
        file.writelines(f"{line}\n".encode() for line in lines(result))


def lines(result: ScheduleResult) -> Iterator[str]:
    """Give the header and one line a job."""
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
        yield f"; Note: {len(jobs) - len(started)} jobs that did not start are left out"
    first_s = float(jobs.fields[0][swf.SUBMIT])
    for job in started:
        fields = list(jobs.fields[job])
        fields[swf.SUBMIT] = _number(first_s + jobs.submit_s[job])
        fields[swf.WAIT] = _number(schedule.start_s[job] - jobs.submit_s[job])
        fields[swf.PROCS] = str(jobs.procs[job])
        yield " ".join(fields)


_EXACT: Final = 2.0**53


def _number(value: float) -> str:
    """Write a whole number without a fraction."""
    return str(int(value)) if value == int(value) and abs(value) < _EXACT else repr(value)
