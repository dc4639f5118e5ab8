"""Tables of jobs, as used by scheduler simulators, and Microsoft's Philly trace: such a table, or its job log.

A table has the arrival, run time and number of GPUs of each job. In the job log, which is JSON, a job's gang is
the number of GPUs of its first attempt, and its duration is the time from the start of the first attempt to the end of
the last, as in the notebook published with the trace and in other readers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import count
from typing import Final

import msgspec

from bftrain.errors import BadInput
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines, unquoted
from bftrain_datasets.log.time_formats import RecordClock
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, WorkloadRowCounts, duration_of, gang_of, number_of
from bftrain_datasets.workloads.workload_options import WorkloadOptions

# required fields and their names; the first name that is found is used
COLUMNS: Final = {
    "submit": ("arrival_s", "submitted_time", "submit_time", "submission_time", "arrival_time", "timestamp"),
    "duration": ("duration_s", "duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num"),
}
BLOX_HEADER: Final = ("job_id", "arrival_s", "duration_s", "gpus")
_REMEDY: Final = "use a header such as job_id,arrival_s,duration_s,gpus; docs/workloads.md lists the known names"
OPTIONAL: Final = {
    "id": ("job_id", "jobid", "id"),
    # Some tables have only a virtual cluster as the owner of a job
    "user": ("user", "user_id", "vc", "cluster"),
}


def places(header: Sequence[str]) -> dict[str, int] | None:
    """Return the index of each column, or None if a required one is missing."""
    names = [cell.strip().lower() for cell in header]
    found = {
        key: next((names.index(known) for known in known_names if known in names), None)
        for key, known_names in (COLUMNS | OPTIONAL).items()
    }
    if any(found[key] is None for key in COLUMNS):
        return None
    return {key: place for key, place in found.items() if place is not None}


def header_of(head: bytes) -> list[str]:
    """Return the cells of the first line."""
    return next((unquoted(line) for line in first_lines(head) if line.strip()), [])


def is_blox(head: bytes) -> bool:
    """Return whether the header is that of Blox's job lists."""
    return tuple(cell.strip() for cell in header_of(head)) == BLOX_HEADER


def read_arrivals(file: RawFile, tally: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    clock = RecordClock(options.zone, lambda: tally.where)
    rows = ((line, unquoted(text)) for line, text in file.lines() if text.strip())
    line, header = next(rows, (0, []))
    found, numbers = places(header), count()
    if line and found is None:
        names = {cell.strip().lower() for cell in header}
        lacking = next(key for key, known in COLUMNS.items() if names.isdisjoint(known))
        what = f"no column for {lacking}: {' or '.join(COLUMNS[lacking])}"
        raise BadInput(what, where=f"{file.name}:{line}", fix=_REMEDY)
    try:
        yield from tally.jobs(rows, lambda cells: _arrival(cells, found or {}, len(header), next(numbers), clock))
    finally:  # also when the reader stops early
        tally.note_clock(clock)


def _arrival(cells: Sequence[str], found: dict[str, int], width: int, number: int, clock: RecordClock) -> TrainingJob:
    if len(cells) != width:
        raise UnusableJob(
            "malformed", f"{len(cells)} cells, but the header has {width}", "write as many cells in every row"
        )
    row = {key: cells[place].strip() for key, place in found.items()}
    if not row["duration"]:
        raise UnusableJob("missing_time", "duration: is empty")
    try:
        submit_s = clock.seconds(row["submit"])
    except (ValueError, OverflowError) as error:
        what = f"submit: {row['submit'][:40]!r} is not a time"
        raise UnusableJob("bad_time", what, "write seconds, or an ISO time") from error
    name = row.get("id") or str(number)
    return TrainingJob(
        name=f"job-{name}" if name.isdecimal() else name,
        submit_s=submit_s,
        gang=gang_of(row["gpus"], "gpus"),
        duration_s=duration_of(number_of(row["duration"], "duration"), "duration"),
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


def recognises(head: bytes) -> bool:
    """Return whether this is a job log, or a table with arrivals."""
    if head.lstrip()[:1] in {b"[", b"{"}:
        return all(key in head for key in _KEYS)
    return places(header_of(head)) is not None


def read(file: RawFile, tally: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    if file.head.lstrip()[:1] not in {b"[", b"{"}:
        yield from read_arrivals(file, tally, options)
        return
    clock, decoder = RecordClock(options.zone, lambda: tally.where), msgspec.json.Decoder(_Entry)
    try:
        yield from tally.jobs(_entries(file), lambda entry: _job(decoder, entry, clock, tally))
    finally:  # also when the reader stops early
        tally.note_clock(clock)


def _entries(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Yield each entry as written, with its line: the entries of a list, or one per line."""
    content = file.binary().read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise BadInput("larger than a gigabyte", where=file.name, fix="import a part of the job log")
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


def _job(
    decoder: msgspec.json.Decoder[_Entry], entry: bytes, clock: RecordClock, tally: WorkloadRowCounts
) -> TrainingJob:
    try:
        job = decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = str(error)
        raise UnusableJob("malformed", what, "write jobid, submitted_time and attempts as in the trace") from error
    if not job.attempts:
        raise UnusableJob("no_usage", "attempts: none")
    first, last = job.attempts[0], job.attempts[-1]
    begin_s, end_s = _moment(first.start_time, "start_time", clock), _moment(last.end_time, "end_time", clock)
    submit_s = _moment(job.submitted_time, "submitted_time", clock)
    gpus = [sum(len(host.gpus) for host in attempt.detail) for attempt in job.attempts]
    made = TrainingJob(
        name=job.jobid,
        submit_s=submit_s,
        gang=gang_of(str(gpus[0]), "gpus of the first attempt"),
        duration_s=duration_of(end_s - begin_s, "from the first start to the last end"),
        user=job.user or job.vc,
    )
    if len(set(gpus)) > 1:
        tally.note("request_differs")  # in a later attempt
    return made


def _moment(text: str | None, field: str, clock: RecordClock) -> float:
    if text is None or text in _UNTOLD:
        raise UnusableJob("missing_time" if field != "submitted_time" else "bad_time", f"{field}: is missing")
    try:
        return clock.seconds(text)
    except (ValueError, OverflowError) as error:
        raise UnusableJob(
            "bad_time", f"{field}: {text[:40]!r} is not a time", "write times such as 2017-10-07 01:11:39"
        ) from error
