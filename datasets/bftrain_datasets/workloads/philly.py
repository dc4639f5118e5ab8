"""Tables of jobs, as schedulers' simulators exchange them, and Microsoft's Philly trace: such a table, or its job log.

A table says when each job arrived, how long it ran, on how many GPUs. In the job log, which is JSON, a job's gang is
how many GPUs its first attempt held, and its duration goes from the start of the first attempt to the end of the last:
so says the notebook that was published with the trace, and so have others read it.
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

# what is needed, and the names that it goes by; the first one of them that is there counts
COLUMNS: Final = {
    "submit": ("arrival_s", "submitted_time", "submit_time", "submission_time", "arrival_time", "timestamp"),
    "duration": ("duration_s", "duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num"),
}
BLOX_HEADER: Final = ("job_id", "arrival_s", "duration_s", "gpus")
_REMEDY: Final = (
    "give a header such as job_id,arrival_s,duration_s,gpus; docs/workloads.md lists the names that are known"
)
OPTIONAL: Final = {
    "id": ("job_id", "jobid", "id"),
    # A virtual cluster is all that some tables tell of who a job belongs to
    "user": ("user", "user_id", "vc", "cluster"),
}


def places(header: Sequence[str]) -> dict[str, int] | None:
    """Find the columns; None if one that is needed is missing."""
    names = [cell.strip().lower() for cell in header]
    found = {
        key: next((names.index(known) for known in known_names if known in names), None)
        for key, known_names in (COLUMNS | OPTIONAL).items()
    }
    if any(found[key] is None for key in COLUMNS):
        return None
    return {key: place for key, place in found.items() if place is not None}


def header_of(head: bytes) -> list[str]:
    """Give the cells of the first line."""
    return next((unquoted(line) for line in first_lines(head) if line.strip()), [])


def is_blox(head: bytes) -> bool:
    """Say whether the header is the one of Blox's job lists."""
    return tuple(cell.strip() for cell in header_of(head)) == BLOX_HEADER


def read_arrivals(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    clock = RecordClock(options.zone, lambda: books.where)
    rows = ((line, unquoted(text)) for line, text in file.lines() if text.strip())
    line, header = next(rows, (0, []))
    found, numbers = places(header), count()
    if line and found is None:
        names = {cell.strip().lower() for cell in header}
        lacking = next(key for key, known in COLUMNS.items() if names.isdisjoint(known))
        what = f"no column for {lacking}: {' or '.join(COLUMNS[lacking])}"
        raise BadInput(what, where=f"{file.name}:{line}", fix=_REMEDY)
    try:
        yield from books.jobs(rows, lambda cells: _arrival(cells, found or {}, len(header), next(numbers), clock))
    finally:  # also when the reader stops early
        books.note_clock(clock)


def _arrival(cells: Sequence[str], found: dict[str, int], width: int, number: int, clock: RecordClock) -> TrainingJob:
    if len(cells) != width:
        raise UnusableJob(
            "malformed", f"{len(cells)} cells, and the header has {width}", "give every row as many cells"
        )
    row = {key: cells[place].strip() for key, place in found.items()}
    if not row["duration"]:
        raise UnusableJob("no_duration", "duration: is empty")
    try:
        submit_s = clock.seconds(row["submit"])
    except (ValueError, OverflowError) as error:
        what = f"submit: {row['submit'][:40]!r} is no time"
        raise UnusableJob("bad_time", what, "give seconds, or an ISO time") from error
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
    """Say whether it is a job log, or a table that tells of arrivals."""
    if head.lstrip()[:1] in {b"[", b"{"}:
        return all(key in head for key in _KEYS)
    return places(header_of(head)) is not None


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    if file.head.lstrip()[:1] not in {b"[", b"{"}:
        yield from read_arrivals(file, books, options)
        return
    clock, decoder = RecordClock(options.zone, lambda: books.where), msgspec.json.Decoder(_Entry)
    try:
        yield from books.jobs(_entries(file), lambda entry: _job(decoder, entry, clock, books))
    finally:  # also when the reader stops early
        books.note_clock(clock)


def _entries(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Give each entry as it is written, and its line: those of a list, or one a line."""
    content = file.binary().read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise BadInput("larger than a gigabyte", where=file.name, fix="give a part of the job log")
    try:
        if content.lstrip()[:1] == b"[":
            entries = msgspec.json.Decoder(list[msgspec.Raw]).decode(content)
        else:
            entries = msgspec.json.Decoder(msgspec.Raw).decode_lines(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", where=file.name, fix="fetch the file again: it may be cut off") from error
    line, place = 1, 0
    for entry in entries:
        written = bytes(entry)
        found = content.index(written, place)
        line += content.count(b"\n", place, found)
        yield line, written
        line += written.count(b"\n")
        place = found + len(written)


def _job(
    decoder: msgspec.json.Decoder[_Entry], entry: bytes, clock: RecordClock, books: WorkloadRowCounts
) -> TrainingJob:
    try:
        job = decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = str(error)
        raise UnusableJob("malformed", what, "give jobid, submitted_time and attempts as the trace has them") from error
    if not job.attempts:
        raise UnusableJob("never_started", "attempts: there are none")
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
        books.note("gang_changed")  # in a later attempt
    return made


def _moment(text: str | None, field: str, clock: RecordClock) -> float:
    if text is None or text in _UNTOLD:
        raise UnusableJob("no_duration" if field != "submitted_time" else "bad_time", f"{field}: is missing")
    try:
        return clock.seconds(text)
    except (ValueError, OverflowError) as error:
        raise UnusableJob(
            "bad_time", f"{field}: {text[:40]!r} is no time", "give times such as 2017-10-07 01:11:39"
        ) from error
