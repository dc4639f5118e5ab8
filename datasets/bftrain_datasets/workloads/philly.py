"""Microsoft's Philly trace: the job log as it was published, in JSON, or as a table of arrivals.

A job's gang is how many GPUs its first attempt held, and its duration goes from the start of the first attempt to the
end of the last: so says the notebook that was published with the trace, and so have others read it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.errors import BadInput
from bftrain_datasets.log.time_formats import RecordClock
from bftrain_datasets.workloads import arrivals_csv
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, duration_of, gang_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from bftrain_datasets.importing.raw_file import RawFile
    from bftrain_datasets.workloads.row_counts import WorkloadRowCounts
    from bftrain_datasets.workloads.workload_options import WorkloadOptions

name: Final = "philly"
about: Final = "the job log of the Philly trace (JSON), or a table of arrivals (CSV)"

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
    return arrivals_csv.places(arrivals_csv.header_of(head)) is not None


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    if file.head.lstrip()[:1] not in {b"[", b"{"}:
        yield from arrivals_csv.read(file, books, options)
        return
    clock = RecordClock(options.zone, lambda: books.tally.where)
    decoder = msgspec.json.Decoder(_Entry)
    try:
        for line, entry in _entries(file):
            books.row(line)
            try:
                job, changed = _job(decoder, entry, clock)
            except UnusableJob as why:
                books.refuse(why)
            else:
                if changed:
                    books.note("gang_changed")
                yield job
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
    except msgspec.DecodeError as error:
        raise BadInput(f"not JSON: {error}", where=file.name, fix="fetch the file again: it may be cut off") from error
    line, place = 1, 0
    for entry in entries:
        written = bytes(entry)
        found = content.index(written, place)
        line += content.count(b"\n", place, found)
        yield line, written
        line += written.count(b"\n")
        place = found + len(written)


def _job(decoder: msgspec.json.Decoder[_Entry], entry: bytes, clock: RecordClock) -> tuple[TrainingJob, bool]:
    """Give the job, and whether a later attempt had another number of GPUs."""
    try:
        job = decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
    return made, len(set(gpus)) > 1


def _moment(text: str | None, field: str, clock: RecordClock) -> float:
    if text is None or text in _UNTOLD:
        raise UnusableJob("no_duration" if field != "submitted_time" else "bad_time", f"{field}: is missing")
    try:
        return clock.seconds(text)
    except (ValueError, OverflowError) as error:
        raise UnusableJob(
            "bad_time", f"{field}: {text[:40]!r} is no time", "give times such as 2017-10-07 01:11:39"
        ) from error
