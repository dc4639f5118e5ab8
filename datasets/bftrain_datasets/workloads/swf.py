"""Jobs of an archive's log in the Standard Workload Format, as rigid tasks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.log.time_formats import LARGEST_S
from bftrain_datasets.readers import swf as log
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, duration_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bftrain_datasets.importing.raw_file import RawFile
    from bftrain_datasets.workloads.row_counts import WorkloadRowCounts
    from bftrain_datasets.workloads.workload_options import WorkloadOptions

name: Final = "swf"
about: Final = "logs of the Parallel Workloads Archive"

recognises = log.recognises


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    header = log.SwfHeader()
    several = False
    try:
        for parts, values in log.rows(file, books, header):
            try:
                job = _job(parts, values, header, books, options)
            except UnusableJob as why:
                books.refuse(why)
            else:
                several = several or (header.several_a_node and options.per_node is None)
                yield job
    finally:  # also when the reader stops early
        if several:
            books.note("procs_as_nodes", where="")


def _job(
    parts: Sequence[str],
    values: Sequence[float],
    header: log.SwfHeader,
    books: WorkloadRowCounts,
    options: WorkloadOptions,
) -> TrainingJob:
    if values[log.STATUS] in log.PARTIAL:
        raise UnusableJob("step", "status: a part of a job")
    submit_s, run_s = values[log.SUBMIT], values[log.RUN]
    for field, value in (("submit time", submit_s), ("run time", run_s)):
        if not abs(value) < LARGEST_S:  # NaN too
            raise UnusableJob("bad_time", f"{field}: {value:g} is no time", "give seconds")
    if not log.ran(values):
        raise UnusableJob("never_started", "it never ran")
    if run_s == log.UNKNOWN:
        raise UnusableJob("no_duration", "run time: is missing")
    duration_s = duration_of(run_s, "run time")
    asked = values[log.PROCS] <= 0
    procs = values[log.PROCS_ASKED if asked else log.PROCS]
    if not 0 < procs <= MOST_NODES:  # NaN too
        raise UnusableJob("bad_count", f"processors: {procs:g} is no number of processors", "give a number from 1")
    if asked:
        books.note("requested_size")
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
