"""Jobs as tables: when each arrived, how long it ran, on how many GPUs. Schedulers' simulators exchange these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.text_cells import first_lines, unquoted
from bftrain_datasets.log.time_formats import RecordClock
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, duration_of, gang_of, number_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from bftrain_datasets.importing.raw_file import RawFile
    from bftrain_datasets.workloads.row_counts import WorkloadRowCounts
    from bftrain_datasets.workloads.workload_options import WorkloadOptions

# what is needed, and the names that it goes by; the first one of them that is there counts
COLUMNS: Final = {
    "submit": ("arrival_s", "submitted_time", "submit_time", "submission_time", "arrival_time", "timestamp"),
    "duration": ("duration_s", "duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num"),
}
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


def read(file: RawFile, books: WorkloadRowCounts, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller settles the row of each."""
    clock = RecordClock(options.zone, lambda: books.tally.where)
    try:
        yield from _jobs(file, books, clock)
    finally:  # also when the reader stops early
        books.note_clock(clock)


def _jobs(file: RawFile, books: WorkloadRowCounts, clock: RecordClock) -> Iterator[TrainingJob]:
    found: dict[str, int] | None = None
    width = number = 0
    for line, text in file.lines():
        if not text.strip():
            continue
        cells = unquoted(text)
        if found is None:
            width, found = len(cells), places(cells)
            if found is None:
                raise BadInput(_missing(cells), where=f"{file.name}:{line}", fix=_REMEDY)
            continue
        books.row(line)
        try:
            job = _job(cells, found, width, number, clock)
        except UnusableJob as why:
            books.refuse(why)
        else:
            yield job
        number += 1


_REMEDY: Final = (
    "give a header such as job_id,arrival_s,duration_s,gpus; docs/workloads.md lists the names that are known"
)


def _missing(header: Sequence[str]) -> str:
    names = {cell.strip().lower() for cell in header}
    lacking = next(key for key, known in COLUMNS.items() if names.isdisjoint(known))
    return f"no column for {lacking}: {' or '.join(COLUMNS[lacking])}"


def _job(cells: Sequence[str], found: dict[str, int], width: int, number: int, clock: RecordClock) -> TrainingJob:
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
    return TrainingJob(
        name=_name(row.get("id") or str(number)),
        submit_s=submit_s,
        gang=gang_of(row["gpus"], "gpus"),
        duration_s=duration_of(number_of(row["duration"], "duration"), "duration"),
        user=row.get("user", ""),
    )


def _name(text: str) -> str:
    """A number becomes a name, a name stays one."""
    return f"job-{text}" if text.isdecimal() else text
