"""Formats of jobs that become tasks: Gavel's traces, SWF logs, tables of jobs, and Microsoft's Philly trace.

A Gavel line has tab-separated fields. The newest form has 10: type, command, directory, argument for the steps, whether
data is required, steps, gang, weight, SLO, arrival. The form with 9 lacks the directory. The older forms with 7 and 6
finish with steps, arrival and gang. Jobs of an SWF log become rigid tasks.

A table has the arrival, run time and number of GPUs of each job. In Philly's job log (JSON), a job's gang is the number
of GPUs of its first attempt. Its duration is the time from the first attempt's start until the last attempt's end, as
in the notebook published with the trace and in other readers.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import msgspec

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines, unquoted
from bftrain_datasets.job_tables.json_records import content_of
from bftrain_datasets.log.time_formats import LARGEST_S, RecordClock
from bftrain_datasets.readers import swf as log
from bftrain_datasets.workloads.job import (
    TrainingJob,
    UnusableJob,
    WorkloadOptions,
    duration_of,
    gang_of,
    jobs_of,
    number_of,
    short,
)


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


def read_gavel(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    del options  # a trace needs no options
    rows, numbers = ((line, text) for line, text in file.lines() if text.strip()), count()
    yield from jobs_of(tally, rows, lambda text: _gavel_job(text.split("\t"), next(numbers)))


def _is_job(line: str) -> bool:
    try:
        return bool(_gavel_job(line.split("\t"), 0))
    except UnusableJob:
        return False


def _gavel_job(fields: Sequence[str], number: int) -> TrainingJob:
    layout = _LAYOUTS.get(len(fields))
    model = fields[0].strip()
    if layout is None or not model or not model.isprintable():
        raise UnusableJob("malformed")
    submit_s = number_of(fields[layout.arrival], reason="bad_time", at_least=0.0)
    if submit_s >= LARGEST_S:
        raise UnusableJob("bad_time")
    weight = 1.0 if layout.weight is None else number_of(fields[layout.weight], at_least=0.0)
    slack = -1.0 if layout.slo is None else number_of(fields[layout.slo])
    gang, steps = gang_of(fields[layout.gang]), number_of(fields[layout.steps], at_least=0.0)
    if steps == 0:
        raise UnusableJob("no_usage")
    return TrainingJob(
        name=f"{short(model)}-{number}",
        submit_s=submit_s,
        gang=gang,
        steps=steps,
        model=model,
        weight=weight,
        slack=slack if slack > 0 else None,
    )


def read_swf(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    header = log.SwfHeader()
    several = False
    try:
        for parts, values in log.rows(file.lines(), tally, header):
            try:
                job = _swf_job(parts, values, header, tally, options)
            except UnusableJob as why:
                tally.set_aside(why.reason)
            else:
                several = several or (header.has_multi_processor_nodes and options.per_node is None)
                yield job
    finally:  # runs even if the reader stops early
        if several:
            tally.note("procs_as_nodes", where="")


def _swf_job(
    parts: Sequence[str], values: Sequence[float], header: log.SwfHeader, tally: FindingsTally, options: WorkloadOptions
) -> TrainingJob:
    if values[log.STATUS] in log.PARTIAL:
        raise UnusableJob("other_record")
    submit_s, run_s = values[log.SUBMIT], values[log.RUN]
    if not (abs(submit_s) < LARGEST_S and abs(run_s) < LARGEST_S):  # also false for NaN
        raise UnusableJob("bad_time")
    if not log.ran(values):
        raise UnusableJob("no_usage")
    if run_s == log.UNKNOWN:
        raise UnusableJob("missing_time")
    duration_s = duration_of(run_s)
    asked = values[log.PROCS] <= 0
    procs = values[log.PROCS_ASKED if asked else log.PROCS]
    if not 0 < procs <= MOST_NODES:  # also false for NaN
        raise UnusableJob("bad_value")
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


# Required fields and their names; the first match is used
_COLUMNS: Final = {
    "submit": ("arrival_s", "submitted_time", "submit_time", "submission_time", "arrival_time", "timestamp"),
    "duration": ("duration_s", "duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num"),
}
_BLOX_HEADER: Final = ("job_id", "arrival_s", "duration_s", "gpus")
_REMEDY: Final = "use a header such as job_id,arrival_s,duration_s,gpus; docs/how-to/workloads.md lists the known names"
_OPTIONAL: Final = {
    "id": ("job_id", "jobid", "id"),
    # Some tables have only a virtual cluster as the owner of a job
    "user": ("user", "user_id", "vc", "cluster"),
}


def _places(header: Sequence[str]) -> dict[str, int] | None:
    """Return the index of each column, or None if a required one is missing."""
    names = [cell.strip().lower() for cell in header]
    found = {
        key: next((names.index(known) for known in known_names if known in names), None)
        for key, known_names in (_COLUMNS | _OPTIONAL).items()
    }
    if any(found[key] is None for key in _COLUMNS):
        return None
    return {key: place for key, place in found.items() if place is not None}


def _header_of(head: bytes) -> list[str]:
    """Return the cells of the first line."""
    return next((unquoted(line) for line in first_lines(head) if line.strip()), [])


def is_blox(head: bytes) -> bool:
    """Return whether this is the header of Blox's job lists."""
    return tuple(cell.strip() for cell in _header_of(head)) == _BLOX_HEADER


def read_arrivals(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    clock = RecordClock(options.zone, lambda: tally.where)
    rows = ((line, unquoted(text)) for line, text in file.lines() if text.strip())
    line, header = next(rows, (0, []))
    found, numbers = _places(header), count()
    if line and found is None:
        names = {cell.strip().lower() for cell in header}
        lacking = next(key for key, known in _COLUMNS.items() if names.isdisjoint(known))
        what = f"no column for {lacking}: {' or '.join(_COLUMNS[lacking])}"
        raise BadInput(what, where=f"{file.name}:{line}", fix=_REMEDY)
    try:
        yield from jobs_of(tally, rows, lambda cells: _arrival(cells, found or {}, len(header), next(numbers), clock))
    finally:  # runs even if the reader stops early
        tally.note_clock(clock)


def _arrival(cells: Sequence[str], found: dict[str, int], width: int, number: int, clock: RecordClock) -> TrainingJob:
    if len(cells) != width:
        raise UnusableJob("malformed")
    row = {key: cells[place].strip() for key, place in found.items()}
    if not row["duration"]:
        raise UnusableJob("missing_time")
    submit_s = _moment(row["submit"], "bad_time", clock)
    name = row.get("id") or str(number)
    return TrainingJob(
        name=f"job-{name}" if name.isdecimal() else name,
        submit_s=submit_s,
        gang=gang_of(row["gpus"]),
        duration_s=duration_of(number_of(row["duration"])),
        user=row.get("user", ""),
    )


LARGEST_BYTES: Final = 1 << 30
_KEYS: Final = (b'"attempts"', b'"submitted_time"')
_UNTOLD: Final = frozenset({"", "None"})


class _Host(msgspec.Struct):
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Host] = []


class _Entry(msgspec.Struct):
    submitted_time: str
    jobid: str
    attempts: list[_Attempt]
    user: str = ""
    vc: str = ""


def is_philly(head: bytes) -> bool:
    """Return whether this is a job log, or a table with arrivals."""
    if head.lstrip()[:1] in {b"[", b"{"}:
        return all(key in head for key in _KEYS)
    return _places(_header_of(head)) is not None


def read_philly(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    if file.head.lstrip()[:1] not in {b"[", b"{"}:
        yield from read_arrivals(file, tally, options)
        return
    clock, decoder = RecordClock(options.zone, lambda: tally.where), msgspec.json.Decoder(_Entry)
    try:
        yield from jobs_of(tally, _entries(file), lambda entry: _philly_job(decoder, entry, clock, tally))
    finally:  # runs even if the reader stops early
        tally.note_clock(clock)


def _entries(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Yield each entry as written, with its line: the entries of a list, or one per line."""
    content = content_of(file, LARGEST_BYTES)
    try:
        if content.lstrip()[:1] == b"[":
            entries = msgspec.json.Decoder(list[msgspec.Raw]).decode(content)
        else:
            entries = msgspec.json.Decoder(msgspec.Raw).decode_lines(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", where=file.name, fix="fetch the file again: maybe truncated") from error
    line, place = 1, 0
    for entry in entries:
        written = bytes(entry)
        found = content.index(written, place)
        line += content.count(b"\n", place, found)
        yield line, written
        line += written.count(b"\n")
        place = found + len(written)


def _philly_job(
    decoder: msgspec.json.Decoder[_Entry], entry: bytes, clock: RecordClock, tally: FindingsTally
) -> TrainingJob:
    try:
        job = decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnusableJob("malformed") from error
    if not job.attempts:
        raise UnusableJob("no_usage")
    begin_s = _moment(job.attempts[0].start_time, "missing_time", clock)
    end_s = _moment(job.attempts[-1].end_time, "missing_time", clock)
    submit_s = _moment(job.submitted_time, "bad_time", clock)
    gpus = [sum(len(host.gpus) for host in attempt.detail) for attempt in job.attempts]
    made = TrainingJob(
        name=job.jobid,
        submit_s=submit_s,
        gang=gang_of(str(gpus[0])),
        duration_s=duration_of(end_s - begin_s),
        user=job.user or job.vc,
    )
    if len(set(gpus)) > 1:
        tally.note("request_differs")  # a later attempt used a different number
    return made


def _moment(text: str | None, if_missing: str, clock: RecordClock) -> float:
    if text is None or text in _UNTOLD:
        raise UnusableJob(if_missing)
    try:
        return clock.seconds(text)
    except (ValueError, OverflowError) as error:
        raise UnusableJob("bad_time") from error
