"""Grid Engine's accounting (Sun, Univa, Altair, Open Cluster Scheduler): a record per job or task.

Files: ``accounting``, ``accounting.jsonl`` and ``reporting.jsonl``; ``qacct`` reads the first.
Parallel jobs have a record per host only with ``accounting_summary FALSE``. Otherwise they count as
``hosts_incomplete``, except in environments such as ``smp`` or ``openmp``.

| key (field) | required | meaning |
|---|---|---|
| ``qname`` (1) | | queue |
| ``hostname`` (2) | yes | the node |
| ``job_number`` (6) | yes | job |
| ``task_number`` (36), ``pe_taskid`` (42) | | array task, and parallel task |
| ``start_time`` (10), ``end_time`` (11) | yes | a start of 0: it never started |
| ``granted_pe`` (34), ``slots`` (35) | | parallel environment and cores |
| ``owner`` (4), ``submission_time`` (9) | | user and submission |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final

from bftrain.node_units import CORE
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import count_of, first_lines, moments
from bftrain_datasets.job_tables.tables import format_of, is_json, records
from bftrain_datasets.log.idle_doubts import HOSTS_INCOMPLETE

name: Final = "sge"
about: Final = "Grid Engine (SGE, UGE, AGE, OCS): the file accounting, as text or JSON"
tells_units: Final = (CORE,)  # the resources in the records

# Keys in JSON, and positions in a line
FIELDS: Final = {
    "qname": 0, "hostname": 1, "owner": 3, "job_number": 5, "submission_time": 8, "start_time": 9, "end_time": 10,
    "granted_pe": 33, "slots": 34, "task_number": 35, "pe_taskid": 41,
}  # fmt: skip
REQUIRED: Final = ("qname", "hostname", "job_number", "start_time", "end_time")
NUMBERS: Final = (5, 8, 9, 10, 11, 34, 35)  # positions that have a number in every record
LEAST_FIELDS: Final = 36  # fields up to the task number, which all versions have
NOTHING: Final = frozenset({"", "NONE", "0", "UNKNOWN", "undefined", "None"})
COMMENT: Final = "#"
ACCOUNTING: Final = "acct"  # the type of accounting records in the file "reporting"
# Parallel environments that usually have all slots on one host; other environments may use several
ONE_HOST: Final = frozenset({"smp", "threads", "threaded", "thread", "shm", "shared", "openmp", "omp", "multithread"})
MOST_WAITING: Final = 1 << 16  # parallel jobs that may still get a record for another host
LONGEST_MS: Final = 14  # digits; longer epochs are in microseconds (version 9)

_Record = Mapping[str, str]  # the fields as written
_picked = itemgetter(*FIELDS.values())


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with a job's keys, or has its fields in a line."""
    if is_json(head):
        return format_of(head) == name
    return any(_is_job(line.split(":")) for line in first_lines(head) if not line.startswith(COMMENT))


def _is_job(fields: Sequence[str]) -> bool:
    return len(fields) >= LEAST_FIELDS and all(fields[place].isdecimal() for place in NUMBERS)


class _ParallelJobs:
    """Finds parallel jobs with only one listed host.

    With ``accounting_summary`` off, each host of a job has its own line, before or after the job's line. A job with
    possibly more hosts waits for such a line until many jobs wait, or the file is exhausted.
    """

    def __init__(self, intake: RecordIntake) -> None:
        self._intake = intake
        # Jobs with other hosts listed before the job itself
        self._named: dict[str, None] = {}
        self._waiting: dict[str, tuple[float, float, int]] = {}  # start, end, slots

    def other_host(self, job: str) -> None:
        """Take the line of a further host of a job."""
        if self._waiting.pop(job, None) is None:
            self._named[job] = None
            if len(self._named) > MOST_WAITING:
                self._named.pop(next(iter(self._named)))

    def master(self, job: str, start_s: float, end_s: float, slots: int) -> None:
        """Take the line of a job itself, which names its first host."""
        names_hosts = job in self._named
        self._named.pop(job, None)
        if not names_hosts or self._intake.options.unit == CORE:
            self._waiting[job] = start_s, end_s, slots
            if self._intake.options.unit == CORE:
                self._note(job)  # the distribution of the slots over hosts is unknown
            elif len(self._waiting) > MOST_WAITING:
                self._note(next(iter(self._waiting)))

    def finish(self) -> None:
        """Count the jobs without lines of further hosts. Call it after the last line."""
        for job in tuple(self._waiting):
            self._note(job)

    def _note(self, job: str) -> None:
        """Count a job that may use more hosts: up to one for each further slot."""
        start_s, end_s, slots = self._waiting.pop(job)
        self._intake.note("hosts_incomplete")
        self._intake.doubtful_stays.add(HOSTS_INCOMPLETE, start_s, end_s, slots - 1)


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every record."""
    parallel = _ParallelJobs(intake)
    found = _objects(file, intake) if is_json(file.head) else _lines(file)
    intake.take_rows(found, partial(_add_job, parallel=parallel, intake=intake))
    intake.settle()
    parallel.finish()


def _lines(file: RawFile) -> Iterator[tuple[int, _Record | None]]:
    for number, line in file.lines():
        # Grid Engine itself ignores single-letter lines
        if len(line.strip()) <= 1 or line.startswith(COMMENT):
            continue
        fields = line.split(":")
        if len(fields) < LEAST_FIELDS:
            yield number, None
            continue
        fields += [""] * (FIELDS["pe_taskid"] + 1 - len(fields))
        yield number, dict(zip(FIELDS, _picked(fields), strict=True))


def _objects(file: RawFile, intake: RecordIntake) -> Iterator[tuple[int, _Record | None]]:
    for number, fields in records(file, intake):
        if fields.get("type", ACCOUNTING) == ACCOUNTING:
            is_complete = all(key in fields for key in REQUIRED)
            yield number, {key: str(fields.get(key, "")) for key in FIELDS} if is_complete else None
        else:
            intake.row(number)
            intake.set_aside("other_record")


def _time(text: str, intake: RecordIntake) -> float | None:
    """Return an epoch in seconds, milliseconds or microseconds; None for 0."""
    return intake.seconds(_in_seconds(text)) or None


def _in_seconds(text: str) -> str:
    """Return an epoch in microseconds as one in seconds, and any other text unchanged."""
    return f"{text[:-6]}.{text[-6:]}" if len(text) > LONGEST_MS and text.isdecimal() else text


def _add_job(record: _Record | None, parallel: _ParallelJobs, intake: RecordIntake) -> None:
    if record is None:
        raise SkippedRow("malformed")
    start_s, end_s = moments(partial(_time, intake=intake), record["start_time"], record["end_time"])
    job, task, slave = record["job_number"], record["task_number"], record["pe_taskid"]
    job = job if task in NOTHING else f"{job}[{task}]"
    host, slots = record["hostname"].strip(), count_of(record["slots"])
    may_spread, is_slave = record["granted_pe"] not in NOTHING | ONE_HOST and slots > 1, slave not in NOTHING
    end_s = 0.0 if end_s is None else end_s

    def used() -> None:
        if is_slave:
            parallel.other_host(job)
        else:
            parallel.master(job, start_s or 0.0, end_s, slots)  # the job may have more hosts

    intake.job(
        f"{job} {slave}" if is_slave else job,
        start_s,
        end_s,
        "" if host in NOTHING else host,
        count=1,
        queue=record["qname"],
        units=((host, 1 if may_spread or is_slave else max(slots, 1)),),
        user=record["owner"],
        submit_s=intake.clock.uncounted(_in_seconds(record["submission_time"])) or None,
        on_use=used if is_slave or may_spread else None,
    )
