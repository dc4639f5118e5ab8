"""Grid Engine's accounting (Sun, Univa, Altair, Open Cluster Scheduler): a record per job or task.

Files: ``accounting``, ``accounting.jsonl``, ``reporting.jsonl``, and the output of ``qacct -j`` with local times.
Parallel jobs have a record per host only with ``accounting_summary FALSE``. Otherwise they count as
``hosts_incomplete``, except in environments such as ``smp`` or ``openmp``.

| key (field) | required | meaning |
|---|---|---|
| ``qname`` (1) | | queue |
| ``hostname`` (2) | yes | the node |
| ``jobnumber`` (6), ``taskid`` (36), ``pe_taskid`` (42) | yes | job, array task, and parallel task |
| ``start_time`` (10), ``end_time`` (11) | yes | a start of 0 or ``-/-``: it never started |
| ``granted_pe`` (34), ``slots`` (35) | | parallel environment and cores |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from operator import itemgetter
from typing import Any, Final, NamedTuple

from bftrain.node_units import CORE
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import count_of, date_line, first_lines, moments
from bftrain_datasets.job_tables.tables import format_of, records
from bftrain_datasets.log.idle_doubts import HOSTS_INCOMPLETE

name: Final = "sge"
about: Final = "Grid Engine (SGE, UGE, AGE, OCS): the file accounting, as text or JSON, and qacct -j"
tells_units: Final = (CORE,)

PLACES: Final = (0, 1, 5, 9, 10, 33, 34, 35, 41, 3, 8)  # positions of the fields in a line
LISTED: Final = (
    "qname", "hostname", "jobnumber", "start_time", "end_time", "granted_pe", "slots", "taskid", "pe_taskid",
    "owner", "qsub_time",
)  # fmt: skip
JSON_KEYS: Final = (
    "qname", "hostname", "job_number", "start_time", "end_time", "granted_pe", "slots", "task_number", "pe_taskid",
    "owner", "submission_time",
)  # fmt: skip
NUMBERS: Final = (5, 8, 9, 10, 11, 34, 35)  # positions of numbers
LEAST_FIELDS: Final = 36  # number of fields up to the task number; version 6 has 45 fields, other versions have more
NOTHING: Final = frozenset({"", "NONE", "0", "UNKNOWN", "undefined", "None"})
NO_TIME: Final = frozenset({"0", "-/-"})
COMMENT: Final = "#"
RULE: Final = "=" * 20  # the first line of a qacct record
ACCOUNTING: Final = "acct"  # the type of accounting records in the file "reporting"
# Parallel environments that usually have all slots on one host; other environments may use several
ONE_HOST: Final = frozenset({"smp", "threads", "threaded", "thread", "shm", "shared", "openmp", "omp", "multithread"})
MOST_WAITING: Final = 1 << 16  # parallel jobs that may still get a record for another host
LONGEST_MS: Final = 14  # number of digits of an epoch in milliseconds; version 9 writes microseconds
_US_DATE: Final = re.compile(r"(\d\d)/(\d\d)/(\d{4}) ")  # written by Univa's qacct


_picked = itemgetter(*PLACES)


class _Record(NamedTuple):
    """Fields of a record, as written."""

    queue: str
    host: str
    job: str
    start: str
    end: str
    environment: str
    slots: str
    task: str
    slave: str
    owner: str
    submitted: str


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with a job's keys, or has its fields in a line or in qacct's list."""
    if head.lstrip().startswith(b"{"):
        return format_of(head) == name
    lines = first_lines(head)
    if any(_is_job(line.split(":")) for line in lines if not line.startswith(COMMENT)):
        return True
    rules = (place for place, line in enumerate(lines) if line.startswith(RULE))
    first = next(rules, len(lines)) + 1
    listed = {line.partition(" ")[0] for line in takewhile(lambda line: not line.startswith(RULE), lines[first:])}
    return listed.issuperset(LISTED[:5])


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
        if self._waiting.pop(job, None) is None:
            self._named[job] = None
            if len(self._named) > MOST_WAITING:
                self._named.pop(next(iter(self._named)))

    def master(self, job: str, start_s: float, end_s: float, slots: int) -> None:
        if self._named.pop(job, self) is self or self._intake.options.unit == CORE:
            self._waiting[job] = start_s, end_s, slots
            if self._intake.options.unit == CORE:
                self._note(job)  # the distribution of the slots over hosts is unknown
            elif len(self._waiting) > MOST_WAITING:
                self._note(next(iter(self._waiting)))

    def finish(self) -> None:
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
    if file.head.lstrip().startswith(b"{"):
        found = _objects(file, intake)
    else:
        listed = any(line.startswith(RULE) for line in first_lines(file.head))
        found = _listed(file) if listed else _lines(file)
    for number, record in found:
        intake.row(number)
        if record is None:
            intake.set_aside("malformed")
        else:
            _add_job(record, parallel, intake)
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
        fields += [""] * (max(PLACES) + 1 - len(fields))
        yield number, _Record._make(_picked(fields))


def _listed(file: RawFile) -> Iterator[tuple[int, _Record | None]]:
    first, values = 0, dict[str, str]()
    for number, line in file.lines():
        if line.startswith(RULE):
            if first:
                yield first, _of_keys(values, LISTED)
            first, values = number, {}
        elif first:
            key, _, value = line.partition(" ")
            if key in LISTED:
                values.setdefault(key, value.strip())
    if first:
        yield first, _of_keys(values, LISTED)


def _objects(file: RawFile, intake: RecordIntake) -> Iterator[tuple[int, _Record | None]]:
    for number, fields in records(file, intake):
        if fields.get("type", ACCOUNTING) == ACCOUNTING:
            yield number, _of_keys(fields, JSON_KEYS)
        else:
            intake.row(number)
            intake.set_aside("other_record")


def _of_keys(values: Mapping[str, Any], keys: Sequence[str]) -> _Record | None:
    if not all(key in values for key in keys[:5]):
        return None
    return _Record(*(str(values.get(key, "")) for key in keys))


def _time(text: str, intake: RecordIntake) -> float | None:
    """Return an epoch in seconds, milliseconds or microseconds, or a date; None if missing."""
    if text in NO_TIME:
        return None
    if len(text) > LONGEST_MS and text.isdecimal():
        text = f"{text[:-6]}.{text[-6:]}"
    try:
        return intake.seconds(text)
    except ValueError:
        time_s = date_line(_US_DATE.sub(r"\3-\1-\2T", text), intake.clock)
        if time_s is None:
            raise
        return time_s


def _submitted(text: str, intake: RecordIntake) -> float | None:
    if len(text) > LONGEST_MS and text.isdecimal():
        text = text[:-6]
    return intake.clock.uncounted(text) or None


def _add_job(record: _Record, parallel: _ParallelJobs, intake: RecordIntake) -> None:
    start_s, end_s = moments(partial(_time, intake=intake), record.start, record.end)
    job = record.job if record.task in NOTHING else f"{record.job}[{record.task}]"
    host, slots = record.host.strip(), count_of(record.slots)
    spread, is_slave = record.environment not in NOTHING | ONE_HOST and slots > 1, record.slave not in NOTHING
    end_s = 0.0 if end_s is None else end_s

    def used() -> None:
        if is_slave:
            parallel.other_host(job)
        else:
            parallel.master(job, start_s or 0.0, end_s, slots)  # the job may have more hosts

    intake.job(
        f"{job} {record.slave}" if is_slave else job,
        start_s,
        end_s,
        "" if host in NOTHING else host,
        count=1,
        queue=record.queue,
        units=((host, 1 if spread or is_slave else max(slots, 1)),),
        user=record.owner,
        submit_s=_submitted(record.submitted, intake),
        on_use=used if is_slave or spread else None,
    )
