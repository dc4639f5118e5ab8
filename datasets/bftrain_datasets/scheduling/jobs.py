"""JobTable: the rows of an SWF log as a main scheduler would have been given them, in columns."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES, natural_order
from bftrain_datasets.importing.findings import FindingsTally, RowCounts
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.provenance import LogFinding, ProvenanceSource
from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.schedule_settings import WHOLE_NODES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings

UNLIMITED: Final = math.inf  # the limit of a job that has none
NO_USER: Final = "-1"  # the user of a job that names none
_ROUNDING: Final = 1e-9  # of a quotient that should be whole


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """One place a job, in order of submission. Times are seconds since ``begin_s``, which is seconds UTC.

    ``size`` counts what is scheduled: whole nodes, or processors where nodes are shared; ``procs`` counts processors.
    ``user`` is a place in ``users``, who are sorted and have a part in ``shares`` each. ``fields`` are the 18 fields
    of the row as written.
    """

    begin_s: float
    submit_s: Sequence[float]
    run_s: Sequence[float]
    limit_s: Sequence[float]
    size: Sequence[int]
    procs: Sequence[int]
    user: Sequence[int]
    users: tuple[str, ...]
    shares: tuple[float, ...]
    fields: Sequence[Sequence[str]]

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.submit_s)

    def name(self, job: int) -> str:
        """Give the job's number in the log."""
        return self.fields[job][swf.JOB]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWorkload:
    """Jobs, the machine they were meant for, and where they come from.

    What is scheduled are its nodes, or where they are shared its processors, ``per_node`` of them on each node.
    ``header_begin_s`` is what the log says its times count from; ``unknown_shares`` are users that the file of
    shares tells, and no job.
    """

    jobs: JobTable
    nodes: int
    cores_per_node: float
    per_node: int
    header_begin_s: float
    rows: RowCounts
    findings: tuple[LogFinding, ...]
    source: ProvenanceSource
    unknown_shares: tuple[str, ...] = ()

    @property
    def capacity(self) -> int:
        """How many nodes, or processors of shared nodes, there are."""
        return self.nodes * self.per_node


@dataclass(slots=True)
class _Rows:
    """Rows of the log that tell of a job, in the order of the log."""

    submit_s: array[float] = field(default_factory=lambda: array("d"))  # UTC
    run_s: array[float] = field(default_factory=lambda: array("d"))
    limit_s: array[float] = field(default_factory=lambda: array("d"))
    procs: array[int] = field(default_factory=lambda: array("q"))
    fields: list[list[str]] = field(default_factory=list)


def read_workload(
    path: Path | None,
    settings: ScheduleSettings,
    shares: dict[str, float],
    *,
    tell: Callable[[int], object] | None = None,
) -> JobWorkload:
    """Read the jobs of an SWF log; ``None`` is standard input. Each row is used or set aside for a reason.

    ``tell`` is called with the number of bytes that have been read since it was called last.
    """
    tally, header, taken = FindingsTally(), swf.SwfHeader(), _Rows()
    window = time_formats.window(settings.window) if settings.window else (None, None)
    with RawFile(path, tally, tell) as file:
        tally.file = file.name
        if not swf.recognises(file.head):
            fix = "give a log of the Parallel Workloads Archive, or one in its form: 18 numbers a line"
            raise BadInput("not in the Standard Workload Format", where=file.name, fix=fix)
        for number, (parts, values) in enumerate(swf.rows(file, tally, header), start=1):
            _take(parts, values, header, window, tally, taken)
            if number == settings.first:
                break
        source = file.source()
    rows = tally.rows()
    if not taken.fields:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.aside.items())) or "there are none"
        raise BadInput(f"no row tells of a job that ran: {reasons}", where=source.name)
    nodes, cores = _machine(settings, header, source.name)
    per_node = _per_node(settings, cores, source.name)
    jobs = _sorted(taken, settings, cores / per_node, shares, tally)
    if min(jobs.size) > nodes * per_node:
        what = f"every job is larger than the machine, which has {nodes:,} nodes"
        raise BadInput(what, where=source.name, fix="say with --nodes how many there are")
    return JobWorkload(
        jobs=jobs,
        nodes=nodes,
        cores_per_node=cores,
        per_node=per_node,
        header_begin_s=float(header.begin_s),
        rows=rows,
        findings=tally.findings(),
        source=source,
        unknown_shares=tuple(name for name in shares if name not in jobs.users),
    )


def _take(
    parts: list[str],
    values: list[float],
    header: swf.SwfHeader,
    window: tuple[float | None, float | None],
    tally: FindingsTally,
    taken: _Rows,
) -> None:
    """Judge one row."""
    submit_s, run_s, limit_s, procs = values[swf.SUBMIT], values[swf.RUN], values[swf.LIMIT], values[swf.PROCS]
    reason = _why_not(values, submit_s, run_s)
    if reason:
        tally.set_aside(reason)
        return
    asked = procs <= 0
    procs = values[swf.PROCS_ASKED] if asked else procs
    if not 0 < procs <= MOST_NODES:  # NaN too
        tally.set_aside("bad_count")
        return
    at_s = header.epoch(submit_s)
    begin_s, end_s = window
    if (begin_s is not None and at_s < begin_s) or (end_s is not None and at_s >= end_s):
        tally.set_aside("outside_window")
        return
    if asked:
        tally.note("requested_size")
    if not 0 < limit_s < time_formats.LARGEST_S:  # NaN too
        tally.note("no_limit")
        limit_s = UNLIMITED
    elif run_s > limit_s:
        tally.note("over_limit")
    tally.use()
    taken.submit_s.append(at_s)
    taken.run_s.append(run_s)
    taken.limit_s.append(limit_s)
    taken.procs.append(math.ceil(procs))
    taken.fields.append(parts[: swf.FIELDS])


def _why_not(values: list[float], submit_s: float, run_s: float) -> str:
    """Say why the row tells of no job that ran; nothing if it does."""
    if values[swf.STATUS] in swf.PARTIAL:
        return "step"
    if not (abs(submit_s) < time_formats.LARGEST_S and abs(run_s) < time_formats.LARGEST_S):  # NaN too
        return "bad_time"
    if not swf.ran(values):
        return "never_started"
    if run_s < 0:
        return "no_end" if run_s == swf.UNKNOWN else "backwards"
    return ""


def _machine(settings: ScheduleSettings, header: swf.SwfHeader, where: str) -> tuple[int, float]:
    """Give how many nodes the machine has, and how many processors each."""
    cores = float(settings.cores_per_node) if settings.cores_per_node else None
    if settings.nodes:
        if cores is None:
            cores = header.procs / header.nodes if header.several_a_node else 1.0
        nodes = settings.nodes
    elif cores and header.procs:
        nodes = math.ceil(header.procs / cores)
    elif header.capacity:
        nodes = header.capacity
        cores = cores or (header.procs / header.nodes if header.several_a_node else 1.0)
    else:
        raise BadInput("the log does not say how large the machine is", where=where, fix="say it with --nodes N")
    if nodes > MOST_NODES:
        what = f"a machine of {nodes:,} nodes is beyond the limit of {MOST_NODES:,}"
        raise BadInput(what, where=where, fix="say with --nodes how many there are")
    return nodes, cores


def _per_node(settings: ScheduleSettings, cores: float, where: str) -> int:
    """Give how many parts of a node are handed out separately."""
    if settings.sharing == WHOLE_NODES:
        return 1
    if cores != int(cores):
        what = f"a node has {cores:g} processors on average, and to be shared it must have a whole number of them"
        raise BadInput(what, where=where, fix="say with --cores-per-node how many, and with --nodes how many nodes")
    return int(cores)


def _sorted(
    taken: _Rows, settings: ScheduleSettings, procs_each: float, shares: dict[str, float], tally: FindingsTally
) -> JobTable:
    """Put the jobs in order of submission; of two submitted at once the one that comes first in the log is first."""
    order = sorted(range(len(taken.fields)), key=taken.submit_s.__getitem__)
    late = sum(1 for before, after in pairwise(order) if after < before)
    if late:
        tally.note("unsorted", count=late, where="")
    begin_s = taken.submit_s[order[0]]
    fields = [taken.fields[row] for row in order]
    users = sorted({parts[swf.USER] for parts in fields}, key=natural_order)
    places = {name: place for place, name in enumerate(users)}
    if users == [NO_USER]:
        tally.note("no_users", count=len(fields), where="")
    procs = [taken.procs[row] for row in order]
    return JobTable(
        begin_s=begin_s,
        submit_s=_scaled([taken.submit_s[row] - begin_s for row in order], settings.time_factor),
        run_s=[taken.run_s[row] for row in order],
        limit_s=[taken.limit_s[row] for row in order],
        size=[math.ceil(each / procs_each - _ROUNDING) for each in procs],
        procs=procs,
        user=[places[parts[swf.USER]] for parts in fields],
        users=tuple(users),
        shares=tuple(shares.get(name, 1.0) for name in users),
        fields=fields,
    )


def _scaled(times_s: list[float], factor: float) -> list[float]:
    """Multiply times, and give whole seconds, as the format has them; by 1 they stay what they are."""
    return times_s if factor == 1 else [float(round(time_s * factor)) for time_s in times_s]
