"""Gavel's traces: one job a line, its fields with tabs between them.

The newest have 10 fields: type, command, directory, argument for the steps, whether it needs data, steps, gang, weight,
SLO, arrival. Those of 9 lack the directory; those of 7 and of 6, which are older, end with steps, arrival and gang.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain_datasets.importing.text_cells import first_lines
from bftrain_datasets.log.time_formats import LARGEST_S
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, gang_of, number_of

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from bftrain_datasets.importing.raw_file import RawFile
    from bftrain_datasets.workloads.row_counts import WorkloadRowCounts
    from bftrain_datasets.workloads.workload_options import WorkloadOptions

name: Final = "gavel"
about: Final = "traces of Gavel, with a throughput table"


@dataclass(frozen=True, slots=True)
class _Layout:
    """Places of the fields; a weight and an SLO are not in all layouts."""

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
_BATCH: Final = re.compile(r"\s*\(batch size (\d+)\)")
_ODD: Final = re.compile(r"[^a-z0-9]+")


def recognises(head: bytes) -> bool:
    """Say whether there is a line whose fields are a job's."""
    return any(_is_job(line) for line in first_lines(head))


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    del options  # a trace leaves nothing of this kind open
    number = 0
    for line, text in file.lines():
        if not text.strip():
            continue
        books.row(line)
        try:
            job = _job(text.split("\t"), number)
        except UnusableJob as why:
            books.refuse(why)
        else:
            yield job
        number += 1


def _is_job(line: str) -> bool:
    try:
        _job(line.split("\t"), 0)
    except UnusableJob:
        return False
    return True


def _job(fields: Sequence[str], number: int) -> TrainingJob:
    layout = _LAYOUTS.get(len(fields))
    if layout is None:
        raise UnusableJob("malformed", f"{len(fields)} fields with tabs between them", "give 10 of them, or 9, 7 or 6")
    model = fields[0].strip()
    if not model or not model.isprintable():
        raise UnusableJob("malformed", f"type: {fields[0][:40]!r} is no name", "give the job's type first")
    submit_s = number_of(fields[layout.arrival], "arrival", reason="bad_time")
    if not 0 <= submit_s < LARGEST_S:
        raise UnusableJob("bad_time", f"arrival: {submit_s:g} s is no time of arrival", "count seconds from 0")
    weight = 1.0 if layout.weight is None else number_of(fields[layout.weight], "weight")
    if weight < 0:
        raise UnusableJob("malformed", f"weight: {weight:g} is less than nothing", "give a weight of at least 0")
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
        raise UnusableJob("malformed", f"steps: {steps:g} is less than nothing", "give the steps that the job is to do")
    if steps == 0:
        raise UnusableJob("no_work", "steps: 0")
    return steps


def short(model: str) -> str:
    """Shorten a type to what can stand in the name of a task: ``resnet-18-b64``."""
    plain = _ODD.sub("-", _BATCH.sub(r" b\1", model).lower()).strip("-")
    return plain or "job"
