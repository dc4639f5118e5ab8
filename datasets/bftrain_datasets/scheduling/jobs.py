"""JobTable: the rows of an SWF log as a main scheduler would have been given them, and its estimates of run times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES, natural_order
from bftrain_datasets.importing.findings import FindingsTally, RowCounts
from bftrain_datasets.importing.import_options import ImportOptions, listed
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables.workload_rows import TableWorkload
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.provenance import LogFinding, ProvenanceSource
from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.schedule_settings import ACTUAL, LAST_TWO, WHOLE_NODES, ScheduleSettings

UNLIMITED: Final = math.inf  # the limit of a job that has none
NO_USER: Final = "-1"  # the user of a job that names none
_ROUNDING: Final = 1e-9  # of a quotient that should be whole

_Row = tuple[float, int, float, float, int, list[str]]  # submission (UTC), place, run time, limit, processors, fields


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
    tally, header = FindingsTally(), swf.SwfHeader()
    with RawFile(path, tally, tell) as file:
        tally.file = file.name
        found = _rows(_records(file, settings, header, tally), settings, header, tally)
        source = file.source()
    rows = tally.rows()
    if not found:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.aside.items())) or "there are none"
        raise BadInput(f"no row tells of a job that ran: {reasons}", where=source.name)
    nodes, cores, per_node = _machine(settings, header, source.name)
    jobs = _sorted(found, settings, cores / per_node, shares, tally)
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


def _records(
    file: RawFile, settings: ScheduleSettings, header: swf.SwfHeader, tally: FindingsTally
) -> Iterator[tuple[list[str], list[float]]]:
    """Give the fields of every job: of an SWF log, or of a table that tells submission, run time and size."""
    named = ImportOptions(map=listed(settings.map), preset=settings.preset or None)
    if swf.recognises(file.head) and not (named.map or named.preset):
        return swf.rows(file.lines(), tally, header)
    try:
        shared = settings.sharing != WHOLE_NODES
        table = TableWorkload(file, tally, named, shared=shared, cores_per_node=settings.cores_per_node)
    except BadInput as error:
        if (error.where or "").startswith("--"):
            raise
        what = f"not in the Standard Workload Format, nor a table of jobs that can be scheduled: {error.what}"
        raise BadInput(what, where=file.name, fix=error.fix) from error
    header.nodes = table.nodes
    return table.rows()


def _rows(
    records: Iterator[tuple[list[str], list[float]]],
    settings: ScheduleSettings,
    header: swf.SwfHeader,
    tally: FindingsTally,
) -> list[_Row]:
    window = time_formats.window(settings.window) if settings.window else (None, None)
    found: list[_Row] = []
    for parts, values in swf.whole_jobs(islice(records, settings.first), tally):
        run_s, limit_s, asked = values[swf.RUN], values[swf.LIMIT], values[swf.PROCS] <= 0
        procs, at_s = values[swf.PROCS_ASKED if asked else swf.PROCS], header.epoch(values[swf.SUBMIT])
        reason = _why_not(values, procs, at_s, window)
        if reason:
            tally.set_aside(reason)
        else:
            if asked:
                tally.note("requested_size")
            if not 0 < limit_s < time_formats.LARGEST_S:  # NaN too
                tally.note("no_limit")
                limit_s = UNLIMITED
            elif run_s > limit_s:
                tally.note("over_limit")
            tally.use()
            if run_s < settings.least_run_s:
                run_s = settings.least_run_s
                parts[swf.RUN] = f"{run_s:.15g}"
            found.append((at_s, tally.line, run_s, limit_s, math.ceil(procs), parts[: swf.FIELDS]))
    return found


def _why_not(values: list[float], procs: float, at_s: float, window: tuple[float | None, float | None]) -> str:
    submit_s, run_s = values[swf.SUBMIT], values[swf.RUN]
    if not (abs(submit_s) < time_formats.LARGEST_S and abs(run_s) < time_formats.LARGEST_S):  # NaN too
        return "bad_time"
    if not swf.ran(values):
        return "never_started"
    if run_s < 0:
        return "no_end" if run_s == swf.UNKNOWN else "backwards"
    if not 0 < procs <= MOST_NODES:  # NaN too
        return "bad_count"
    begin_s, end_s = window
    outside = (begin_s is not None and at_s < begin_s) or (end_s is not None and at_s >= end_s)
    return "outside_window" if outside else ""


def _machine(settings: ScheduleSettings, header: swf.SwfHeader, where: str) -> tuple[int, float, int]:
    """Give how many nodes the machine has, how many processors each, and how many parts of one are handed out."""
    several = header.procs / header.nodes if header.several_a_node else 1.0
    cores = float(settings.cores_per_node or several)
    if settings.nodes:
        nodes = settings.nodes
    elif settings.cores_per_node and header.procs:
        nodes = math.ceil(header.procs / cores)
    elif header.capacity:
        nodes = header.capacity
    else:
        raise BadInput("the log does not say how large the machine is", where=where, fix="say it with --nodes N")
    if nodes > MOST_NODES:
        what = f"a machine of {nodes:,} nodes is beyond the limit of {MOST_NODES:,}"
        raise BadInput(what, where=where, fix="say with --nodes how many there are")
    if settings.sharing == WHOLE_NODES:
        return nodes, cores, 1
    if cores != int(cores):
        what = f"a node has {cores:g} processors on average, and to be shared it must have a whole number of them"
        raise BadInput(what, where=where, fix="say with --cores-per-node how many, and with --nodes how many nodes")
    return nodes, cores, int(cores)


def _sorted(
    rows: list[_Row], settings: ScheduleSettings, procs_each: float, shares: dict[str, float], tally: FindingsTally
) -> JobTable:
    """Put the jobs in order of submission; of two submitted at once the one that comes first in the log is first."""
    rows.sort()  # by time, then by place in the log
    late = sum(1 for before, after in pairwise(rows) if after[1] < before[1])
    if late:
        tally.note("unsorted", count=late, where="")
    begin_s, factor = rows[0][0], settings.time_factor
    submit_s = [row[0] - begin_s for row in rows]
    if factor != 1:  # whole seconds, as the format has them
        submit_s = [float(round(time_s * factor)) for time_s in submit_s]
    _, _, run_s, limit_s, procs, fields = zip(*rows, strict=True)
    users = sorted({parts[swf.USER] for parts in fields}, key=natural_order)
    places = {name: place for place, name in enumerate(users)}
    if users == [NO_USER]:
        tally.note("no_users", count=len(fields), where="")
    return JobTable(
        begin_s=begin_s,
        submit_s=submit_s,
        run_s=list(run_s),
        limit_s=list(limit_s),
        size=[math.ceil(each / procs_each - _ROUNDING) for each in procs],
        procs=list(procs),
        user=[places[parts[swf.USER]] for parts in fields],
        users=tuple(users),
        shares=tuple(shares.get(name, 1.0) for name in users),
        fields=list(fields),
    )


# How much longer a job is believed to run each time it outlives what was believed. These are the steps that D. Tsafrir,
# Y. Etsion and D. Feitelson take in "Backfilling using system-generated predictions" (2007).
STEPS_S: Final = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0)
LEAST_S: Final = 1.0  # a job that takes no time needs its nodes all the same


class RuntimeEstimator:
    """What a main scheduler believes of run times: says how long a job will run, and again whenever it has run longer.

    No job is ever ended here for running long: it did run as long as the log says. But a policy plans with estimates:

    - ``limit``: the time that a user asked for; where none was asked for, the run time itself.
    - ``actual``: the run time itself, what a scheduler could do that knew it.
    - ``last2``: the mean of the run times of the two jobs of the same user that ended last, and never more than the
      limit; until two have ended it is the limit.
    """

    def __init__(self, kind: str, jobs: JobTable) -> None:
        self._jobs = jobs
        self._learns = kind == LAST_TWO
        self._last: dict[int, tuple[float, ...]] = {}  # run times of each user's last two jobs
        self._known_s = [
            (run_s or LEAST_S) if kind == ACTUAL or limit_s == UNLIMITED else limit_s
            for run_s, limit_s in zip(jobs.run_s, jobs.limit_s, strict=True)
        ]

    def at_submission(self, job: int) -> float:
        """Return the seconds that the job is believed to run."""
        last = self._last.get(self._jobs.user[job], ())
        if len(last) < 2:  # noqa: PLR2004 - the two
            return self._known_s[job]
        return min(max(sum(last) / 2, LEAST_S), self._jobs.limit_s[job])

    def ended(self, job: int) -> None:
        """Learn from a job that ended."""
        if self._learns:
            user = self._jobs.user[job]
            self._last[user] = (*self._last.get(user, ())[-1:], self._jobs.run_s[job])

    def longer(self, job: int, times: int, ran_s: float) -> float:
        """Return a larger estimate than ``ran_s`` for a job that outlives its estimate for so many ``times``."""
        raised_s, limit_s = ran_s + STEPS_S[min(times, len(STEPS_S)) - 1], self._jobs.limit_s[job]
        return min(raised_s, limit_s) if self._learns and limit_s > ran_s else raised_s
