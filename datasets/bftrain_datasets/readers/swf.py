"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a job, and perhaps its hosts."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, Protocol

from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.text_cells import first_lines
from bftrain_datasets.log.time_formats import LARGEST_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "swf"
about: Final = "Standard Workload Format, with host lists in field 19, or with --counts"

FIELDS: Final = 18
JOB, SUBMIT, WAIT, RUN, PROCS = 0, 1, 2, 3, 4
PROCS_ASKED, LIMIT, STATUS, USER, QUEUE = 7, 8, 10, 11, 14
UNKNOWN: Final = -1
PARTIAL: Final = frozenset({2, 3, 4})  # parts of a job that was swapped out; the job has a line of its own
CANCELLED: Final = 5
COMPLETED: Final = 1
COMMENT: Final = ";"

_HEADING: Final = re.compile(r";+\s*(\w+)\s*:\s*(-?\d{1,18})?")
_KNOWN_HEADINGS: Final = frozenset({"Version", "Computer", "UnixStartTime", "MaxNodes", "MaxProcs", "MaxJobs"})
_HEADINGS_NEEDED: Final = 2


class SwfCounts(Protocol):
    """Where rows are counted: an intake, or its tally alone."""

    def row(self, line: int) -> None:
        """Begin a row."""
        ...

    def set_aside(self, reason: str) -> None:
        """Leave the row unused."""
        ...

    def note(self, name: str) -> None:
        """Count something about the row."""
        ...


class SwfHeader:
    """What the comments say: when time begins, and how large the machine is."""

    def __init__(self) -> None:
        self.begin_s = 0
        self.nodes = 0
        self.procs = 0

    def take(self, line: str) -> None:
        """Read a comment."""
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
        """How many nodes there are, as far as it is said; a machine without MaxNodes has one processor a node."""
        return self.nodes or self.procs or None

    def epoch(self, submit_s: float) -> float:
        """Seconds UTC of a time of submission. Some logs give the begin and yet count from 1970: that is plain."""
        return submit_s if submit_s > self.begin_s / 2 or self.begin_s <= 0 else self.begin_s + submit_s

    def nodes_for(self, procs: int) -> int:
        """Whole nodes that so many processors fill."""
        return -(-procs * self.nodes // self.procs) if self.several_a_node else procs

    @property
    def several_a_node(self) -> bool:
        """Whether a node has more than one processor."""
        return 0 < self.nodes < self.procs


def recognises(head: bytes) -> bool:
    """Say whether there is a line of 18 numbers, or a header of ours that fills all we see."""
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
    header = SwfHeader()
    for parts, values in rows(file, intake, header):
        _take_job(parts, values, header, intake)
    intake.capacity = header.capacity or intake.capacity


def rows(file: RawFile, books: SwfCounts, header: SwfHeader) -> Iterator[tuple[list[str], list[float]]]:
    """Give the fields of every job, as written and as numbers; the caller settles the row of each in the ``books``.

    Comments go into the ``header``; a line that is no job is set aside here.
    """
    for number, line in file.lines():
        text = line.strip()
        if not text:
            continue
        if text.startswith(COMMENT):
            header.take(text)
            continue
        books.row(number)
        parts = text.split(None, FIELDS)
        values = _numbers(parts)
        if values is None:
            books.set_aside("malformed")
            continue
        if "\t" in text or any("." in part for part in parts[SUBMIT : PROCS + 1]):
            books.note("odd_layout")
        yield parts, values


def _numbers(parts: Sequence[str]) -> list[float] | None:
    """Read the 18 fields, if they are numbers."""
    if len(parts) < FIELDS:
        return None
    try:
        return [float(part) for part in parts[:FIELDS]]
    except ValueError:
        return None


def _take_job(parts: Sequence[str], values: Sequence[float], header: SwfHeader, intake: RecordIntake) -> None:
    if values[STATUS] in PARTIAL:
        intake.set_aside("step")
        return
    times = values[SUBMIT], values[WAIT], values[RUN]
    if not all(abs(each) < LARGEST_S for each in times):  # NaN and infinities too
        intake.set_aside("bad_time")
        return
    submit_s, wait_s, run_s = times
    if not ran(values):
        intake.job(parts[JOB], None, None, "")
        return
    if wait_s < 0:
        intake.note("no_wait")
    start_s = header.epoch(submit_s) + max(0.0, wait_s)
    nodes, queue = _hosts(parts, values)
    intake.job(
        parts[JOB],
        start_s,
        None if run_s == UNKNOWN else start_s + run_s,
        nodes,
        count=_size(nodes, values, header, intake),
        queue=queue,
        expand=_different,
    )


def ran(values: Sequence[float]) -> bool:
    """Whether the job ever held a node: one without a run time did if it is said to have completed."""
    run_s, status = values[RUN], values[STATUS]
    if run_s == 0:
        return status != CANCELLED
    return run_s != UNKNOWN or (status == COMPLETED and values[PROCS] > 0)


def _hosts(parts: Sequence[str], values: Sequence[float]) -> tuple[str, str]:
    """Give the hosts as written, and the queue: its number, or the word after the hosts if it has none.

    Hosts stand in braces, one for each processor; or they are a node set, which a comma or a bracket gives away.
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


def _different(nodes: str) -> list[str]:
    """Names of the hosts, once each: that a host comes once for each processor is no oddity of the row."""
    return list(dict.fromkeys(expand_set(nodes)))


def _size(nodes: str, values: Sequence[float], header: SwfHeader, intake: RecordIntake) -> int:
    """How many nodes the job held. Only where hosts are not wanted is anything assumed for it, and counted."""
    if not intake.options.counts:
        return 0
    if nodes:
        try:
            return len(_different(nodes))
        except ValueError:
            pass  # then the number of processors is all there is
    procs = values[PROCS]
    if procs <= 0:
        procs = values[PROCS_ASKED]
        if procs > 0:
            intake.note("requested_size")
    if not math.isfinite(procs):
        return -1  # no machine has that; the intake says so
    if header.several_a_node:
        intake.note("procs_as_nodes")
    return header.nodes_for(max(0, math.ceil(procs)))
