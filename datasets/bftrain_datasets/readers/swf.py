"""Standard Workload Format of the Parallel Workloads Archive: 18 numbers per job, and optional hosts.

Without hosts, use ``--counts`` (with ``--sharing cores`` if jobs share nodes), or ``bftrain schedule``. Times count
from ``UnixStartTime``; ``MaxNodes`` and ``MaxProcs`` give node sizes.

| field | required | meaning |
|---|---|---|
| 1 | yes | job |
| 2, 3, 4 | yes | submission, wait (-1: unknown, none assumed) and run time |
| 5, 8 | yes | processors; the requested number if -1 |
| 11 | | status; 2, 3 and 4 are parts of a job, 5 is cancelled |
| 15 | | queue |
| 19 | | hosts in braces, such as ``{17,17,18}``, or a node set; then the queue |
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.node_units import NODE
from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import CORES
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import JobTable, Texts, key_of
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines
from bftrain_datasets.log.time_formats import LARGEST_S

name: Final = "swf"
about: Final = "Standard Workload Format, with host lists in field 19, or with --counts"

FIELDS: Final = 18
SwfRow = tuple[list[str], list[float]]  # the fields of a job as written, and its 18 numbers
JOB, SUBMIT, WAIT, RUN, PROCS = 0, 1, 2, 3, 4
PROCS_ASKED, LIMIT, STATUS, USER, QUEUE = 7, 8, 10, 11, 14
UNKNOWN: Final = -1
PARTIAL: Final = frozenset({2, 3, 4})  # parts of a swapped-out job; usually the job has its own line
CANCELLED: Final = 5
COMPLETED: Final = 1
COMMENT: Final = ";"

_PLAIN: Final = re.compile(rb"[-0-9 \r\n]*[0-9][ \r\n]*\Z")
_HEADING: Final = re.compile(r";+\s*(\w+)\s*:\s*(-?\d{1,18})?")
_KNOWN_HEADINGS: Final = frozenset({"Version", "Computer", "UnixStartTime", "MaxNodes", "MaxProcs", "MaxJobs"})
_HEADINGS_NEEDED: Final = 2


class SwfHeader:
    """Data in the comments: the begin of time, and the size of the machine."""

    def __init__(self) -> None:
        self.begin_s = 0
        self.nodes = 0
        self.procs = 0

    def take(self, line: str) -> None:
        """Parse a comment."""
        match = _HEADING.match(line)
        if match is None or match[2] is None:
            return
        number = int(match[2])
        if match[1] == "UnixStartTime":
            self.begin_s = number
        elif match[1] == "MaxNodes":
            self.nodes = max(0, number)
        elif match[1] == "MaxProcs":
            self.procs = max(0, number)

    @property
    def capacity(self) -> int | None:
        """The recorded number of nodes; without MaxNodes a node has one processor."""
        return self.nodes or self.procs or None

    def epoch(self, submit_s: float) -> float:
        """Return a submission time in seconds UTC. Logs with a begin that count from 1970 are detected."""
        return submit_s if submit_s > self.begin_s / 2 or self.begin_s <= 0 else self.begin_s + submit_s

    def nodes_for(self, procs: int) -> int:
        """Return the number of whole nodes that ``procs`` processors fill."""
        return -(-procs * self.nodes // self.procs) if self.has_multi_processor_nodes else procs

    @property
    def has_multi_processor_nodes(self) -> bool:
        """Whether a node has more than one processor."""
        return 0 < self.nodes < self.procs


def recognises(head: bytes) -> bool:
    """Return whether there is a line of 18 numbers, or a header of SWF that fills all of ``head``."""
    headings = 0
    for line in first_lines(head):
        if line.startswith(COMMENT):
            match = _HEADING.match(line)
            headings += match is not None and match[1] in _KNOWN_HEADINGS
        elif _numbers(line.split(None, FIELDS)) is not None:
            return True
    return headings >= _HEADINGS_NEEDED


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    header, parts_of_jobs = SwfHeader(), JobParts()
    by_columns = intake.options.counts and intake.options.unit == NODE
    for first, block in file.blocks():
        values = _plain_block(block) if by_columns else None
        if values is not None:
            names = list(map(str, values[JOB].astype(np.int64).tolist()))
            parts_of_jobs.add_whole(names)
            _add_block(values, first + np.arange(len(names)), names, header, intake)
            continue
        lines = ((number, file.text(line, number)) for number, line in enumerate(block.split(b"\n"), first) if line)
        for parts, numbers in parts_of_jobs.hold_back_parts(rows(lines, intake, header), intake):
            _add_job(parts, numbers, header, intake)
    for parts, numbers in parts_of_jobs.finish(intake):
        _add_job(parts, numbers, header, intake)
    intake.capacity = header.capacity or intake.capacity


class JobParts:
    """Stores lines of parts of jobs until it is known which jobs have their own line."""

    def __init__(self) -> None:
        self._whole = array("q")
        self._pieces: list[tuple[int, list[str], list[float]]] = []

    def add_whole(self, jobs: Iterable[str]) -> None:
        """Record that these jobs have their own line."""
        self._whole.extend(map(key_of, jobs))

    def hold_back_parts(self, records: Iterable[SwfRow], tally: FindingsTally) -> Iterator[SwfRow]:
        """Yield lines of whole jobs; store those of parts."""
        for parts, values in records:
            if values[STATUS] in PARTIAL:
                tally.use()  # until it is known whether the job has its own line
                self._pieces.append((tally.line, parts, values))
            else:
                self._whole.append(key_of(parts[JOB]))
                yield parts, values

    def finish(self, tally: FindingsTally) -> Iterator[SwfRow]:
        """Yield parts of jobs without their own line; set the others aside as steps."""
        known = set(self._whole) if self._pieces else set()
        for line, parts, values in self._pieces:
            tally.again(tally.file, line)
            if key_of(parts[JOB]) in known:
                tally.set_aside("other_record")
            else:
                yield parts, values


def _plain_block(block: bytes) -> NDArray[np.float64] | None:
    """Parse rows of whole jobs with 18 whole numbers each, as written by ``str``; None if any row differs."""
    begun = block.count(b" -") + block.count(b"\n-") + block.startswith(b"-")
    if (
        not _PLAIN.match(block)
        or block.count(b"-") != begun
        or any(odd in block for odd in (b"- ", b"-\n", b"--", b"-0"))
    ):
        return None
    letters = np.frombuffer(block, dtype=np.uint8)
    blank = letters <= ord(" ")
    begins = ~blank
    begins[1:] &= blank[:-1]
    ends_of_lines = np.append(np.flatnonzero(letters == ord("\n")), letters.size - 1)
    fields = np.diff(np.cumsum(begins)[ends_of_lines], prepend=0)
    zeros = np.flatnonzero(begins[:-1] & (letters[:-1] == ord("0")))
    if (fields != FIELDS).any() or not blank[zeros + 1].all():
        return None
    values = np.fromstring(block, sep=" ").reshape(-1, FIELDS).T
    size = np.abs(values)
    if np.isin(values[STATUS], tuple(PARTIAL)).any() or size[[SUBMIT, WAIT, RUN]].max() >= LARGEST_S:
        return None
    if size[[PROCS, PROCS_ASKED]].max() > MOST_NODES or size[JOB].max() >= LARGEST_S:
        return None
    return values


def _add_block(
    values: NDArray[np.float64], lines: NDArray[np.int64], jobs: list[str], header: SwfHeader, intake: RecordIntake
) -> None:
    """Process jobs like ``_add_job``, in columns."""
    submit_s, wait_s, run_s, procs, asked, status = values[[SUBMIT, WAIT, RUN, PROCS, PROCS_ASKED, STATUS]]
    did_run = np.where(run_s == 0, status != CANCELLED, (run_s != UNKNOWN) | ((status == COMPLETED) & (procs > 0)))
    size = np.where(procs > 0, procs, np.maximum(asked, 0)).astype(np.int64)
    whole_nodes = header.has_multi_processor_nodes and intake.options.sharing != CORES
    for name, mask in (
        ("missing_field", wait_s < 0),
        ("request_differs", (procs <= 0) & (asked > 0)),
        ("procs_as_nodes", np.full(size.size, whole_nodes)),
    ):
        noted = np.flatnonzero(mask & did_run)
        if noted.size:
            intake.line = int(lines[noted[0]])
            intake.note(name, count=noted.size)
    if header.has_multi_processor_nodes and not whole_nodes:
        intake.cores_per_node = header.procs / header.nodes
    since_begin = (submit_s <= header.begin_s / 2) & (header.begin_s > 0)
    submit_s = submit_s + np.where(since_begin, header.begin_s, 0)
    start = submit_s + np.maximum(wait_s, 0)
    start[~did_run] = np.nan
    end = np.where(did_run & (run_s != UNKNOWN), start + run_s, np.nan)
    unfilled = whole_nodes & (size * header.nodes % max(header.procs, 1) != 0)
    table = JobTable(
        lines=lines,
        job=jobs,
        start=start,
        end=end,
        count=-(-size * header.nodes // header.procs) if whole_nodes else size,
        queue=_numbered(values[QUEUE]),
        user=_numbered(values[USER]),
        submit=submit_s,
        most=np.where(unfilled, size, 0),
    )
    intake.take(table)


def _numbered(column: NDArray[np.float64]) -> Texts:
    """Return numbers as texts, none for -1."""
    numbers, codes = np.unique(column, return_inverse=True)
    texts = [str(int(number)) if number != UNKNOWN else "" for number in numbers.tolist()]
    codes[column == UNKNOWN] = -1
    return Texts(codes.astype(np.int32), texts)


def whole_jobs(records: Iterable[SwfRow], tally: FindingsTally) -> Iterator[SwfRow]:
    """Yield lines of whole jobs, then parts of jobs without such a line; set other parts aside as steps."""
    parts_of_jobs = JobParts()
    yield from parts_of_jobs.hold_back_parts(records, tally)
    yield from parts_of_jobs.finish(tally)


def rows(
    lines: Iterable[tuple[int, str]],
    tally: FindingsTally,
    header: SwfHeader,
    leave_out: Callable[[], object] | None = None,
) -> Iterator[SwfRow]:
    """Yield the fields of every job, as written and as numbers; the caller uses or rejects each row.

    Comments go into the ``header``; a line that is no job is set aside here, unless ``leave_out`` is called for it.
    """
    for number, line in lines:
        text = line.strip()
        if not text:
            continue
        if text.startswith(COMMENT):
            header.take(text)
            continue
        tally.row(number)
        parts = text.split(None, FIELDS)
        values = _numbers(parts)
        if values is None:
            if leave_out is None:
                tally.set_aside("malformed")
            else:
                leave_out()
            continue
        if "\t" in text or ("." in text and any("." in part for part in parts[SUBMIT : PROCS + 1])):
            tally.note("notation")
        yield parts, values


def _numbers(parts: Sequence[str]) -> list[float] | None:
    if len(parts) < FIELDS:
        return None
    try:
        return list(map(float, parts[:FIELDS]))
    except ValueError:
        return None


def _add_job(parts: Sequence[str], values: Sequence[float], header: SwfHeader, intake: RecordIntake) -> None:
    times = submit_s, wait_s, run_s = values[SUBMIT], values[WAIT], values[RUN]
    if not max(map(abs, times)) < LARGEST_S or math.isnan(sum(times)):
        submit_s, wait_s, run_s = (each if abs(each) < LARGEST_S else math.nan for each in times)
    if not ran(values):
        intake.job(parts[JOB], None, None, "")
        return
    if wait_s < 0:
        intake.note("missing_field")
    start_s = header.epoch(submit_s) + (0.0 if wait_s < 0 else wait_s)  # NaN remains NaN
    nodes, queue = _hosts(parts, values)
    count, most = _size(nodes, values, header, intake)
    end_s = None if run_s == UNKNOWN else start_s + run_s
    user, submitted_s = parts[USER] if parts[USER] != str(UNKNOWN) else "", header.epoch(submit_s)
    intake.job(
        *(parts[JOB], start_s, end_s, nodes),
        count=count,
        queue=queue,
        expand=_distinct_hosts,
        user=user,
        submit_s=submitted_s,
        most=most,
    )


def ran(values: Sequence[float]) -> bool:
    """Return whether the job ever held a node; a job without a run time did if its status is completed."""
    run_s, status = values[RUN], values[STATUS]
    if run_s == 0:
        return status != CANCELLED
    return run_s != UNKNOWN or (status == COMPLETED and values[PROCS] > 0)


def _hosts(parts: Sequence[str], values: Sequence[float]) -> tuple[str, str]:
    """Return the hosts as written, and the queue: its number, or the word after the hosts if there is no number.

    Hosts are in braces, one per processor; or they are a node set with a comma or a bracket.
    """
    rest = parts[FIELDS].strip() if len(parts) > FIELDS else ""
    nodes, further = "", ""
    if rest.startswith("{"):
        nodes, _, further = rest[1:].partition("}")
    elif rest:
        first, _, further = rest.partition(" ")
        nodes = first if "," in first or "[" in first else ""
    number = values[QUEUE]
    if number != UNKNOWN:
        return nodes, parts[QUEUE]
    words = further.split(None, 1)
    return nodes, words[0] if words else ""


def _distinct_hosts(nodes: str) -> list[str]:
    """Return distinct host names: repetition per processor is normal."""
    return list(dict.fromkeys(expand_set(nodes)))


def _size(nodes: str, values: Sequence[float], header: SwfHeader, intake: RecordIntake) -> tuple[int, int]:
    """Return the number of nodes that the job held, and its upper bound, if larger.

    Assumptions are made, and counted, only if hosts are not required.
    """
    if not intake.options.counts:
        return 0, 0
    if nodes and intake.options.sharing != CORES:
        try:
            return len(_distinct_hosts(nodes)), 0
        except ValueError:
            pass  # then only the number of processors is known
    procs = values[PROCS]
    if procs <= 0:
        procs = values[PROCS_ASKED]
        if procs > 0:
            intake.note("request_differs")
    if not math.isfinite(procs):
        return -1, 0  # impossible size, which the intake reports
    whole = max(0, math.ceil(procs))
    if not header.has_multi_processor_nodes:
        return whole, 0
    if intake.options.sharing == CORES:
        intake.cores_per_node = header.procs / header.nodes
        return whole, 0
    intake.note("procs_as_nodes")
    fills_them = whole * header.nodes % header.procs == 0
    return header.nodes_for(whole), 0 if fills_them else whole
