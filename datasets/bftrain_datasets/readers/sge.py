"""Accounting of Grid Engine (Sun, Univa, and those that followed): one line a job or task, ``:`` between the fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_datasets.importing.text_cells import first_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "sge"
about: Final = "Grid Engine (SGE, UGE): the file accounting"

QUEUE, HOST, JOB, SUBMIT, START, END, FAILED = 0, 1, 5, 8, 9, 10, 11
PARALLEL, SLOTS, TASK, PARALLEL_TASK = 33, 34, 35, 41
LEAST_FIELDS: Final = 36  # up to the number of the task; version 6 has 45 fields, others have more
NOTHING: Final = frozenset({"", "NONE", "0", "UNKNOWN"})
COMMENT: Final = "#"
# Parallel environments that by custom put all slots on one host; others may use several
ONE_HOST: Final = frozenset({"smp", "threads", "threaded", "thread", "shm", "shared", "openmp", "omp", "multithread"})
MOST_WAITING: Final = 1 << 16  # parallel jobs of which a record of another host may still come


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines has the fields of a job in their places."""
    return any(_is_job(line.split(":")) for line in first_lines(head) if not line.startswith(COMMENT))


def _is_job(fields: Sequence[str]) -> bool:
    numbers = (JOB, SUBMIT, START, END, FAILED, SLOTS, TASK)
    return len(fields) >= LEAST_FIELDS and all(fields[place].isdecimal() for place in numbers)


class _ParallelJobs:
    """Finds parallel jobs of which only one host is named.

    With ``accounting_summary`` off each host of a job has a line of its own, before that of the job or after it. A job
    that may have more hosts waits for such a line until many others wait too, or the file ends.
    """

    def __init__(self, intake: RecordIntake) -> None:
        self._intake = intake
        self._named: dict[str, None] = {}  # jobs whose other hosts were named before the job itself
        self._waiting: dict[str, None] = {}

    def other_host(self, job: str) -> None:
        """Say that a line names a further host of this job."""
        if self._waiting.pop(job, self) is self:
            self._named[job] = None
            if len(self._named) > MOST_WAITING:
                self._named.pop(next(iter(self._named)))

    def master(self, job: str) -> None:
        """Say that a parallel job names its first host."""
        if self._named.pop(job, self) is self:
            self._waiting[job] = None
            if len(self._waiting) > MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                self._intake.note("hosts_incomplete")

    def finish(self) -> None:
        """Count the jobs that wait in vain."""
        if self._waiting:
            self._intake.note("hosts_incomplete", count=len(self._waiting))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every line."""
    parallel = _ParallelJobs(intake)
    for number, line in file.lines():
        if len(line.strip()) <= 1 or line.startswith(COMMENT):  # Grid Engine itself ignores lines of one letter
            continue
        intake.row(number)
        fields = line.split(":")
        if len(fields) < LEAST_FIELDS:
            intake.set_aside("malformed")
            continue
        _take(fields, parallel, intake)
    parallel.finish()


def _take(fields: Sequence[str], parallel: _ParallelJobs, intake: RecordIntake) -> None:
    try:
        start_s, end_s = intake.seconds(fields[START]), intake.seconds(fields[END])
    except ValueError:
        intake.set_aside("bad_time")
        return
    task = fields[TASK]
    job = fields[JOB] if task in NOTHING else f"{fields[JOB]}[{task}]"
    slave = fields[PARALLEL_TASK] if len(fields) > PARALLEL_TASK else ""
    before = intake.tally.used
    host = fields[HOST].strip()
    intake.job(
        job if slave in NOTHING else f"{job} {slave}",
        start_s if start_s > 0 else None,
        end_s,
        "" if host in NOTHING else host,
        count=1,
        queue=fields[QUEUE],
    )
    if intake.tally.used == before:
        return  # it held no node that counts
    if slave not in NOTHING:
        parallel.other_host(job)
    elif _may_have_more_hosts(fields):
        parallel.master(job)


def _may_have_more_hosts(fields: Sequence[str]) -> bool:
    slots, environment = fields[SLOTS], fields[PARALLEL]
    return environment not in NOTHING and environment not in ONE_HOST and slots.lstrip("0") not in {"", "1"}
