"""Formats with one job per line: Gavel's traces, and logs in the Standard Workload Format as rigid tasks.

A line of Gavel has tab-separated fields. The newest have 10: type, command, directory, argument for the
steps, whether data is required, steps, gang, weight, SLO, arrival. Those of 9 lack the directory; those of 7 and of 6,
which are older, end with steps, arrival and gang.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import HAZARDS
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines
from bftrain_datasets.log.time_formats import LARGEST_S
from bftrain_datasets.readers import swf as log
from bftrain_datasets.workloads.job import (
    TrainingJob,
    UnusableJob,
    WorkloadRowCounts,
    duration_of,
    gang_of,
    number_of,
    short,
)
from bftrain_datasets.workloads.workload_options import WorkloadOptions


@dataclass(frozen=True, slots=True)
class _Layout:
    """Indices of the fields; some layouts have no weight and SLO."""

    steps: int
    gang: int
    arrival: int
    weight: int | None = None
    slo: int | None = None


_LAYOUTS: Final = {
    10: _Layout(steps=5, gang=6, weight=7, slo=8, arrival=9),
    9: _Layout(steps=4, gang=5, weight=6, slo=7, arrival=8),
    7: _Layout(steps=4, arrival=5, gang=6),
    6: _Layout(steps=3, arrival=4, gang=5),
}


def is_gavel(head: bytes) -> bool:
    """Return whether a line has the fields of a job."""
    return any(map(_is_job, first_lines(head)))


def read_gavel(file: RawFile, tally: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    del options  # a trace needs no options
    rows, numbers = ((line, text) for line, text in file.lines() if text.strip()), count()
    yield from tally.jobs(rows, lambda text: _gavel_job(text.split("\t"), next(numbers)))


def _is_job(line: str) -> bool:
    try:
        return bool(_gavel_job(line.split("\t"), 0))
    except UnusableJob:
        return False


def _gavel_job(fields: Sequence[str], number: int) -> TrainingJob:
    layout = _LAYOUTS.get(len(fields))
    if layout is None:
        raise UnusableJob("malformed", f"{len(fields)} tab-separated fields", "write 10 fields, or 9, 7 or 6")
    model = fields[0].strip()
    if not model or not model.isprintable():
        raise UnusableJob("malformed", f"type: {fields[0][:40]!r} is not a name", "write the job's type first")
    submit_s = number_of(fields[layout.arrival], "arrival", reason="bad_time")
    if not 0 <= submit_s < LARGEST_S:
        raise UnusableJob("bad_time", f"arrival: {submit_s:g} s is not an arrival time", "count seconds from 0")
    weight = 1.0 if layout.weight is None else number_of(fields[layout.weight], "weight")
    if weight < 0:
        raise UnusableJob("malformed", f"weight: {weight:g} is negative", "use a weight of at least 0")
    slack = -1.0 if layout.slo is None else number_of(fields[layout.slo], "SLO")
    return TrainingJob(
        name=f"{short(model)}-{number}",
        submit_s=submit_s,
        gang=gang_of(fields[layout.gang], "gang"),
        steps=_steps(fields[layout.steps]),
        model=model,
        weight=weight,
        slack=slack if slack > 0 else None,
    )


def _steps(text: str) -> float:
    steps = number_of(text, "steps")
    if steps < 0:
        raise UnusableJob("malformed", f"steps: {steps:g} is negative", "write the number of steps of the job")
    if steps == 0:
        raise UnusableJob("no_usage", "steps: 0")
    return steps


def read_swf(file: RawFile, tally: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    header = log.SwfHeader()
    several = False
    malformed = UnusableJob("malformed", HAZARDS["malformed"].says)
    try:
        for parts, values in log.rows(file.lines(), tally, header, lambda: tally.refuse(malformed)):
            try:
                job = _swf_job(parts, values, header, tally, options)
            except UnusableJob as why:
                tally.refuse(why)
            else:
                several = several or (header.has_multi_processor_nodes and options.per_node is None)
                yield job
    finally:  # also when the reader stops early
        if several:
            tally.note("procs_as_nodes", where="")


def _swf_job(
    parts: Sequence[str],
    values: Sequence[float],
    header: log.SwfHeader,
    tally: WorkloadRowCounts,
    options: WorkloadOptions,
) -> TrainingJob:
    if values[log.STATUS] in log.PARTIAL:
        raise UnusableJob("other_record", "status: a part of a job")
    submit_s, run_s = values[log.SUBMIT], values[log.RUN]
    for field, value in (("submit time", submit_s), ("run time", run_s)):
        if not abs(value) < LARGEST_S:  # also false for NaN
            raise UnusableJob("bad_time", f"{field}: {value:g} is not a time", "write seconds")
    if not log.ran(values):
        raise UnusableJob("no_usage", "never ran")
    if run_s == log.UNKNOWN:
        raise UnusableJob("missing_time", "run time: is missing")
    duration_s = duration_of(run_s, "run time")
    asked = values[log.PROCS] <= 0
    procs = values[log.PROCS_ASKED if asked else log.PROCS]
    if not 0 < procs <= MOST_NODES:  # also false for NaN
        raise UnusableJob("bad_value", f"processors: {procs:g} is not a number of processors", "use at least 1")
    if asked:
        tally.note("request_differs")
    gang = math.ceil(procs)
    user = parts[log.USER]
    return TrainingJob(
        name=f"job-{parts[log.JOB]}",
        submit_s=header.epoch(submit_s),
        gang=gang,
        nodes=header.nodes_for(gang) if options.per_node is None else None,
        duration_s=duration_s,
        user="" if user.startswith("-") else user,
    )
