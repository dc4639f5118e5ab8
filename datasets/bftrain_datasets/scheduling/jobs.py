"""The jobs of an SWF log or a table as submitted to a main scheduler, and its machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES, natural_order
from bftrain_datasets.importing.findings import FindingsTally, RowCounts
from bftrain_datasets.importing.import_options import ImportOptions, listed
from bftrain_datasets.importing.raw_file import STDIN, RawFile
from bftrain_datasets.job_tables.table_reading import JobTableReader, read_table
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.provenance import LogFinding, ProvenanceSource
from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.schedule_settings import ACTUAL, WHOLE_NODES, ScheduleSettings, load_shares

UNLIMITED: Final = math.inf  # the job has no limit
LEAST_S: Final = 1.0  # the estimate of a job of zero length, which still needs its nodes
NO_USER: Final = "-1"  # the job has no user
_ROUNDING: Final = 1e-9  # tolerance of a quotient that should be whole

_Row = tuple[float, int, float, float, int, list[str]]  # submission (UTC), index, run time, limit, processors, fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJobs:
    """One entry per job, in submission order. Times are seconds since ``begin_s``, itself in seconds UTC.

    ``size`` counts scheduled units: whole nodes, or processors of shared nodes; ``procs`` counts processors. ``user``
    is an index in the sorted ``users``, with one share each in ``shares``. ``fields`` are the 18 fields of an
    SWF row.
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
        """Return the job's number in the log."""
        return self.fields[job][swf.JOB]

    def known_run_s(self, kind: str) -> list[float]:
        """Return each job's estimated run time at submission: the requested time or, if missing, the run time itself.

        The kind ``actual`` returns the run times, as if the scheduler knew them. Jobs are never killed for exceeding an
        estimate, but a policy plans with estimates.
        """
        return [
            (run_s or LEAST_S) if kind == ACTUAL or limit_s == UNLIMITED else limit_s
            for run_s, limit_s in zip(self.run_s, self.limit_s, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWorkload:
    """Jobs, their machine, and their source.

    A node has ``cores_per_node`` processors on average. The scheduled units are nodes, or processors of shared nodes,
    ``per_node`` on each node. ``header_begin_s`` is the origin of times according to the log; ``unknown_shares`` are
    users in the shares file without jobs.
    """

    jobs: SubmittedJobs
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
        """The number of nodes, or of processors if nodes are shared."""
        return self.nodes * self.per_node


def read_workload(
    path: Path | str, settings: ScheduleSettings, *, tell: Callable[[int], object] | None = None
) -> JobWorkload:
    """Return the jobs of an SWF log or a table; ``-`` is standard input. Each row is used, or skipped for a reason.

    ``tell`` is called with the number of bytes read since its last call. Raises ``BadInput`` if no job is usable.
    """
    shares = load_shares(Path(settings.shares)) if settings.shares else {}
    tally, header = FindingsTally(), swf.SwfHeader()
    with RawFile(None if str(path) == STDIN else Path(path), tally, tell) as file:
        tally.file = file.name
        found = _rows(_records(file, settings, header, tally), settings, header, tally)
        source = file.source()
    rows = tally.rows()
    if not found:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.aside.items())) or "there are no rows"
        raise BadInput(f"no row describes a job that ran: {reasons}", where=source.name)
    nodes, cores, per_node = _machine(settings, header, source.name)
    jobs = _sorted(found, settings, cores / per_node, shares, tally)
    if min(jobs.size) > nodes * per_node:
        what = f"every job is larger than the machine of {nodes:,} nodes"
        raise BadInput(what, where=source.name, fix="set the number by --nodes")
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
) -> Iterator[swf.SwfRow]:
    """Yield the fields of every job: of an SWF log, or of a table with submission, run time and size."""
    options = ImportOptions(map=listed(settings.map), preset=settings.preset or None)
    if swf.recognises(file.head) and not (options.map or options.preset):
        return swf.rows(file.lines(), tally, header)
    shared = settings.sharing != WHOLE_NODES
    try:
        clock = time_formats.RecordClock(where=lambda: tally.where)
        table = read_table(file, tally, options, clock, to_schedule="cores" if shared else "count")
    except BadInput as error:
        if (error.where or "").startswith("--"):
            raise
        what = f"not in the Standard Workload Format, nor a table of schedulable jobs: {error.what}"
        raise BadInput(what, where=file.name, fix=error.fix) from error
    if shared and settings.cores_per_node is None:
        raise BadInput("the number of cores per node is unknown", where=file.name, fix="--set cores-per-node=N")
    known = table.map.public_set
    if known is not None:
        header.nodes = known.nodes or 0
    return _table_rows(table, tally, None if shared else settings.cores_per_node or 1)


def _table_rows(table: JobTableReader, tally: FindingsTally, per_node: int | None) -> Iterator[swf.SwfRow]:
    """Yield every job of a table as the 18 fields of an SWF row, as texts and as numbers.

    The number of processors is the node count times ``per_node``, or without ``per_node`` the table's cores.
    """
    for batch, jobs in table.batches():
        submit, limit = table.times(batch, "submit"), table.spans(batch, "limit")
        with np.errstate(invalid="ignore"):
            run, wait = jobs.end - jobs.start, np.maximum(jobs.start - submit, 0.0)
        ended = np.isfinite(run) & np.isfinite(submit)
        fields = np.full((swf.FIELDS, len(jobs)), float(swf.UNKNOWN))
        fields[swf.SUBMIT] = submit
        fields[swf.WAIT], fields[swf.RUN] = (np.where(ended, column, swf.UNKNOWN) for column in (wait, run))
        fields[swf.PROCS] = table.counts(batch, "cores") if per_node is None else jobs.count * per_node
        fields[swf.LIMIT] = np.where(np.isfinite(limit), limit, swf.UNKNOWN)
        fields[swf.STATUS] = np.where(np.isfinite(jobs.start), swf.COMPLETED, swf.CANCELLED)
        texts = {swf.USER: jobs.user, swf.QUEUE: jobs.queue}
        words = {field: column.cells() for field, column in texts.items() if column is not None}
        names = table.names(batch)
        for row, numbers in enumerate(fields.T.tolist()):
            tally.row(int(jobs.lines[row]))
            if jobs.reason is not None and jobs.reason[row] >= 0:
                tally.set_aside(jobs.reasons[jobs.reason[row]])
                continue
            parts = [f"{number:.15g}" for number in numbers]
            parts[swf.JOB] = _word(names[row]) if names[row] else str(int(jobs.lines[row]))
            for field, cells in words.items():
                parts[field] = _word(cells[row])
            yield parts, numbers
    known = table.map.public_set
    tally.note_clock(table.clock, zone_is_known=known is not None and known.zone is not None)


def _word(text: str) -> str:
    """Return a text without blanks, which separate fields."""
    return "_".join(text.split()) or NO_USER


def _rows(
    records: Iterator[swf.SwfRow], settings: ScheduleSettings, header: swf.SwfHeader, tally: FindingsTally
) -> list[_Row]:
    begin_s, end_s = time_formats.window(settings.window) if settings.window else (None, None)
    found: list[_Row] = []
    for parts, values in swf.whole_jobs(islice(records, settings.first), tally):
        run_s, limit_s, at_s = values[swf.RUN], values[swf.LIMIT], header.epoch(values[swf.SUBMIT])
        procs, requested = swf.processors(values)
        outside = (begin_s is not None and at_s < begin_s) or (end_s is not None and at_s >= end_s)
        reason = swf.unusable(values) or ("" if procs else "bad_value") or ("not_selected" if outside else "")
        if reason:
            tally.set_aside(reason)
            continue
        if requested:
            tally.note("request_differs")
        if not 0 < limit_s < time_formats.LARGEST_S:  # also false for NaN
            tally.note("request_differs")
            limit_s = UNLIMITED
        elif run_s > limit_s:
            tally.note("request_differs")
        tally.use()
        if run_s < settings.least_run_s:
            run_s = settings.least_run_s
            parts[swf.RUN] = f"{run_s:.15g}"
        found.append((at_s, tally.line, run_s, limit_s, procs, parts[: swf.FIELDS]))
    return found


def _machine(settings: ScheduleSettings, header: swf.SwfHeader, where: str) -> tuple[int, float, int]:
    """Return the number of nodes, the average processors per node, and the schedulable units per node."""
    several = header.procs / header.nodes if header.has_multi_processor_nodes else 1.0
    cores = float(settings.cores_per_node or several)
    if settings.nodes:
        nodes = settings.nodes
    elif settings.cores_per_node and header.procs:
        nodes = math.ceil(header.procs / cores)
    elif header.capacity:
        nodes = header.capacity
    else:
        raise BadInput("the log does not contain the machine's size", where=where, fix="set it by --nodes N")
    if nodes > MOST_NODES:
        what = f"a machine of {nodes:,} nodes is beyond the limit of {MOST_NODES:,}"
        raise BadInput(what, where=where, fix="set the number by --nodes")
    if settings.sharing == WHOLE_NODES:
        return nodes, cores, 1
    if cores != int(cores):
        what = f"a node has {cores:g} processors on average, but sharing requires a whole number"
        raise BadInput(what, where=where, fix="set the numbers by --set cores-per-node=N and --nodes")
    return nodes, cores, int(cores)


def _sorted(
    rows: list[_Row], settings: ScheduleSettings, procs_each: float, shares: dict[str, float], tally: FindingsTally
) -> SubmittedJobs:
    """Return the jobs sorted by submission; ties keep the log order."""
    rows.sort()  # sorted by time, then by index in the log
    late = sum(1 for before, after in pairwise(rows) if after[1] < before[1])
    if late:
        tally.note("notation", count=late, where="")
    begin_s, factor = rows[0][0], settings.time_factor
    submit_s = [row[0] - begin_s for row in rows]
    if factor != 1:  # whole seconds, as in the format
        submit_s = [float(round(time_s * factor)) for time_s in submit_s]
    _, _, run_s, limit_s, procs, fields = zip(*rows, strict=True)
    users = sorted({parts[swf.USER] for parts in fields}, key=natural_order)
    places = {name: place for place, name in enumerate(users)}
    if users == [NO_USER]:
        tally.note("missing_field", count=len(fields), where="")
    return SubmittedJobs(
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
