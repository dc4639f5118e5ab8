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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import CORES
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import BAD_TIME, JobTable, key_of, keys_of
from bftrain_datasets.importing.machine_nodes import size_of
from bftrain_datasets.importing.raw_file import LARGE_BLOCK_BYTES, RawFile
from bftrain_datasets.importing.text_columns import Texts, by_text, coded, columns_of, first_lines, without
from bftrain_datasets.log.arrow_arrays import Column, arrow_texts, numpy_of
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
_MOST_PROCS: Final = 1 << 40  # larger numbers exceed any machine

Procs = TypeVar("Procs", int, NDArray[np.int64])
Seconds = TypeVar("Seconds", float, NDArray[np.float64])
_HEADING: Final = re.compile(r";+\s*(\w+)\s*:\s*(-?\d{1,18})?")
_KNOWN_HEADINGS: Final = frozenset({"Version", "Computer", "UnixStartTime", "MaxNodes", "MaxProcs", "MaxJobs"})
_HEADINGS_NEEDED: Final = 2


class SwfHeader:
    """Header comments: the time origin and the machine size."""

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
        """The recorded number of nodes; without MaxNodes, a node has one processor."""
        return self.nodes or self.procs or None

    def epoch(self, submit_s: Seconds) -> Seconds:
        """Return submission times in seconds UTC. Detects logs with an origin that still count from 1970."""
        return submit_s + self.begin_s * ((submit_s <= self.begin_s / 2) & (self.begin_s > 0))

    def nodes_for(self, procs: Procs) -> Procs:
        """Return the number of whole nodes needed for ``procs`` processors."""
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
    for number, lines in file.blocks(LARGE_BLOCK_BYTES):
        first, block = number, lines
        while block.startswith(COMMENT.encode()):
            line, _, block = block.partition(b"\n")
            header.take(file.text(line, first))
            first += 1
        plain = _plain_rows(block)
        if plain is not None:
            values, (jobs, users, queues) = plain
            keys = keys_of(jobs)
            parts_of_jobs.add_whole(keys)
            user, queue = (coded(without(texts, frozenset({str(UNKNOWN)}))) for texts in (users, queues))
            intake.take(_table_of(values, first + np.arange(keys.size), keys, None, queue, user, header, intake))
            continue
        texts = ((number, file.text(line, number)) for number, line in enumerate(block.split(b"\n"), first) if line)
        _take_rows(parts_of_jobs.hold_back_parts(rows(texts, intake, header), intake), header, intake)
    _take_rows(parts_of_jobs.finish(intake), header, intake)
    intake.capacity = header.capacity or intake.capacity


def _take_rows(records: Iterable[SwfRow], header: SwfHeader, intake: RecordIntake) -> None:
    """Process jobs after their rows were started one by one."""
    found = []
    for parts, numbers in records:
        intake.use_later()
        found.append((intake.line, parts, numbers))
    if not found:
        return
    lines, parts_of, values = zip(*found, strict=True)
    nodes, queue = zip(*map(_hosts, parts_of, values), strict=True)
    users = [parts[USER] if parts[USER] != str(UNKNOWN) else "" for parts in parts_of]
    table = _table_of(
        np.array(values).T,
        np.array(lines),
        np.array([key_of(parts[JOB]) for parts in parts_of], dtype=np.int64),
        without(arrow_texts(nodes), frozenset({""})) if any(nodes) else None,
        *(Texts.of(queue), Texts.of(users)),
        header,
        intake,
    )
    intake.take(table, _distinct_hosts, begun=True)


class JobParts:
    """Stores lines of job parts until it is known which jobs have their own line."""

    def __init__(self) -> None:
        self._whole = array("q")
        self._pieces: list[tuple[int, list[str], list[float]]] = []

    def add_whole(self, jobs: NDArray[np.int64]) -> None:
        """Record the keys of jobs that have their own line."""
        self._whole.frombytes(jobs.tobytes())

    def hold_back_parts(self, records: Iterable[SwfRow], tally: FindingsTally) -> Iterator[SwfRow]:
        """Yield lines of whole jobs; store lines of job parts."""
        for parts, values in records:
            if values[STATUS] in PARTIAL:
                tally.use()  # used until a line for the whole job is found
                self._pieces.append((tally.line, parts, values))
            else:
                self._whole.append(key_of(parts[JOB]))
                yield parts, values

    def finish(self, tally: FindingsTally) -> Iterator[SwfRow]:
        """Yield parts of jobs without their own line; skip the remaining parts as steps."""
        known = set(self._whole) if self._pieces else set()
        for line, parts, values in self._pieces:
            tally.again(tally.file, line)
            if key_of(parts[JOB]) in known:
                tally.set_aside("other_record")
            else:
                yield parts, values


def _plain_rows(block: bytes) -> tuple[NDArray[np.float64], list[Column]] | None:
    """Return the numbers of rows with 18 whole numbers each, and the texts of job, user and queue.

    None if any row differs, or is a part of a job.
    """
    if b"." in block or b"\t" in block or b";" in block:
        return None
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    letters = np.frombuffer(block, dtype=np.uint8)
    single = letters != ord(" ")
    single[:-1] |= letters[1:] > ord(" ")  # the last space before a field
    block = letters[single].tobytes().replace(b"\n ", b"\n").lstrip(b" ")
    found = columns_of(block, " ", FIELDS, range(FIELDS))
    if found is None or found[0].size != lines:
        return None
    texts = found[2]
    try:
        values = np.stack([numpy_of(texts[field].cast(pa.float64())) for field in range(FIELDS)])
    except pa.ArrowException:
        return None
    return None if np.isin(values[STATUS], tuple(PARTIAL)).any() else (values, [texts[JOB], texts[USER], texts[QUEUE]])


def _table_of(
    values: NDArray[np.float64],
    lines: NDArray[np.int64],
    jobs: NDArray[np.int64],
    nodes: Column | None,
    queue: Texts,
    user: Texts,
    header: SwfHeader,
    intake: RecordIntake,
) -> JobTable:
    """Return jobs from the columns of their 18 numbers; unreadable times are ``BAD_TIME``."""
    times = (np.where(np.abs(values[field]) < LARGEST_S, values[field], np.nan) for field in (SUBMIT, WAIT, RUN))
    submit_s, wait_s, run_s = times
    did_run = ran(values)
    _note("missing_field", did_run & (wait_s < 0), lines, intake)
    count, most = _sizes(values, nodes, did_run, lines, header, intake)
    submit_s = header.epoch(submit_s)
    start = submit_s + np.maximum(wait_s, 0)
    end = np.where(run_s == UNKNOWN, np.inf, start + run_s)
    start, end = (np.where(np.isnan(column), BAD_TIME, column) for column in (start, end))
    start[~did_run] = np.nan
    end[~did_run | np.isposinf(end)] = np.nan
    return JobTable(
        lines=lines,
        job=jobs,
        start=start,
        end=end,
        count=count,
        nodes=nodes,
        queue=queue,
        user=user,
        submit=submit_s,
        most=most,
    )


def _note(finding: str, mask: NDArray[np.bool_], lines: NDArray[np.int64], intake: RecordIntake) -> None:
    rows = np.flatnonzero(mask)
    if rows.size:
        intake.line = int(lines[rows[0]])
        intake.note(finding, count=rows.size)


def _sizes(
    values: NDArray[np.float64],
    nodes: Column | None,
    did_run: NDArray[np.bool_],
    lines: NDArray[np.int64],
    header: SwfHeader,
    intake: RecordIntake,
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return each job's number of nodes, -1 if impossible, and its upper bound where larger.

    Assumptions are made, and counted, only if hosts are not required.
    """
    zeros = np.zeros(lines.size, dtype=np.int64)
    if not intake.options.counts:
        return zeros, None
    by_cores, hosts = intake.options.sharing == CORES, zeros
    if nodes is not None and not by_cores:
        hosts = by_text(coded(nodes), lambda text: size_of(text, expand_set), np.int64)
    unnamed = did_run & (hosts == 0)
    asked = values[PROCS] <= 0
    procs = np.where(asked, values[PROCS_ASKED], values[PROCS])
    _note("request_differs", unnamed & asked & (procs > 0), lines, intake)
    possible = np.isfinite(procs)
    size = np.ceil(np.clip(np.where(possible, procs, 0), 0, _MOST_PROCS)).astype(np.int64)
    most = zeros
    if header.has_multi_processor_nodes and by_cores:
        intake.cores_per_node = header.procs / header.nodes
    elif header.has_multi_processor_nodes:
        _note("procs_as_nodes", unnamed & possible, lines, intake)
        most = np.where((size * header.nodes % header.procs != 0) & possible & (hosts == 0), size, 0)
        size = header.nodes_for(size)
    return np.where(hosts > 0, hosts, np.where(possible, size, -1)), most


def whole_jobs(records: Iterable[SwfRow], tally: FindingsTally) -> Iterator[SwfRow]:
    """Yield lines of whole jobs, then parts of jobs without such a line; skip the remaining parts as steps."""
    parts_of_jobs = JobParts()
    yield from parts_of_jobs.hold_back_parts(records, tally)
    yield from parts_of_jobs.finish(tally)


def rows(lines: Iterable[tuple[int, str]], tally: FindingsTally, header: SwfHeader) -> Iterator[SwfRow]:
    """Yield each job's fields, as written and as numbers; the caller uses or rejects each row.

    Comments go into the ``header``. A line with no job is skipped here.
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
            tally.set_aside("malformed")
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


def ran(values: Any) -> Any:  # noqa: ANN401 - one job's numbers, or columns
    """Return whether a job ever used a node; if the run time is missing, a completed job did."""
    run_s, status = values[RUN], values[STATUS]
    held = (run_s != UNKNOWN) | ((status == COMPLETED) & (values[PROCS] > 0))
    return ((run_s == 0) & (status != CANCELLED)) | ((run_s != 0) & held)


def unusable(values: Sequence[float]) -> str:
    """Return the reason to skip a job because of its times, or an empty text."""
    submit_s, run_s = values[SUBMIT], values[RUN]
    if not (abs(submit_s) < LARGEST_S and abs(run_s) < LARGEST_S):  # also false for NaN
        return "bad_time"
    if not ran(values):
        return "no_usage"
    if run_s < 0:
        return "bad_time" if run_s == UNKNOWN else "bad_value"
    return ""


def processors(values: Sequence[float]) -> tuple[int, bool]:
    """Return a job's number of processors, 0 if impossible, and whether it is only the requested number."""
    requested = values[PROCS] <= 0
    procs = values[PROCS_ASKED if requested else PROCS]
    return math.ceil(procs) if 0 < procs <= MOST_NODES else 0, requested  # 0 also for NaN


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
