"""The import of files into a checked log."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain import registry
from bftrain.errors import BadInput, BftrainError, BrokenPlugin, raised
from bftrain.node_units import NODE, in_words_of
from bftrain.nodesets import expand
from bftrain.registry import RegisteredPart
from bftrain.short_repr import ShortRepr
from bftrain_datasets.importing.findings import HAZARDS, RowCounts, is_doubt, ordered
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.node_counts import log_from_counts
from bftrain_datasets.importing.occupancy import log_from_jobs
from bftrain_datasets.importing.raw_file import STDIN, RawFile
from bftrain_datasets.importing.text_columns import names_slurm_jobs
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.edits import close_short_gaps, mark_down, places_of
from bftrain_datasets.log.eventlog import BUSY, EventLog
from bftrain_datasets.log.idle_doubts import (
    CENSORED_END,
    CUT_OFF,
    NODE_FAILED,
    ROWS_ASIDE,
    always_idle,
    doubtful_times,
    idle_after_failures,
    late_starts,
)
from bftrain_datasets.log.measures import down_node_s
from bftrain_datasets.log.provenance import LogFinding, LogProvenance, ProvenanceSource


@runtime_checkable
class LogReader(Protocol):
    """Reads one format of scheduler records. Any module with these attributes qualifies.

    Two attributes are optional: ``tells_units`` are the units other than nodes in the records; ``beside_others`` is
    true if the files may be imported together with files of another format.
    """

    @property
    def name(self) -> str:
        """The format's name in options."""
        ...

    @property
    def about(self) -> str:
        """One line on the scheduler and the kind of records."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Return whether a file that starts with ``head`` has this format."""
        ...

    def read(self, file: RawFile, intake: RecordIntake) -> None:
        """Pass every row of the file to the intake."""
        ...


ZIP: Final = b"PK\x03\x04"


def reader_for(head: bytes, where: str, wanted: str | None, columns: Sequence[str] | None = None) -> LogReader:
    """Return the reader called ``wanted``; otherwise the first reader that recognises the head of the file.

    ``columns`` of a headerless file determine the format as a last resort. Raises ``BadInput`` if no reader fits.
    """
    if wanted is not None:
        reader: LogReader = registry.load("reader", wanted)
        return reader
    if not head.strip():
        raise BadInput("the file is empty", where=where, fix="import a file with records")
    if head.startswith(ZIP):
        what, fix = "not a scheduler's records: this may be a log already", "try bftrain inspect"
        raise BadInput(what, where=where, fix=fix)
    found = reader_recognising(head)
    if found is not None:
        return found
    if columns:
        named: LogReader = registry.load("reader", _format_of(columns))
        return named
    near = registry.load("reader", "jobs").why_not(head) if b"\0" not in head else None
    if near is not None:
        raise BadInput(near[0], where=where, fix=near[1])
    what = "a binary file of unknown format" if b"\0" in head else "no reader recognises its beginning"
    known = ", ".join(name for name, part in registry.parts("reader").items() if not part.problem)
    raise BadInput(what, where=where, fix=f"set the format by --format, one of: {known}")


def reader_recognising(head: bytes) -> LogReader | None:
    """Return the first reader that recognises the head of a file, or ``None``."""
    parts = registry.parts("reader").values()
    return next((part.load() for part in parts if not part.problem and _recognises(part, head)), None)


def _format_of(columns: Sequence[str]) -> str:
    """Return the format of files with these columns and no header."""
    plain = {name.lower() for name in columns}
    if "state" in plain and "nodelist" in plain and not plain & {"start", "end", "jobid"}:
        return "sinfo"
    return "sacct" if names_slurm_jobs(columns) else "jobs"


def _recognises(part: RegisteredPart, head: bytes) -> bool:
    """Return whether a reader recognises ``head``. A broken plug-in counts as no; bftrain doctor reports it."""
    try:
        return bool(part.load().recognises(head))
    except Exception:
        if part.origin == "bftrain":
            raise
        return False


SUSPICIONS: Final = frozenset({"suspected_downtime", "always_idle", "relative_times"})


def suspicions(log: EventLog, quiet: Sequence[tuple[float, float]], downtime_after_s: float) -> Iterator[LogFinding]:
    """Yield suspected downtime, nodes never used by a job, and times that count from zero.

    ``quiet`` are the periods without any job.
    """

    def suspicion(name: str, count: int, node_s: float, first: str, more: str = "") -> LogFinding:
        return LogFinding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done + more)

    long = [(begin_s, end_s) for begin_s, end_s in quiet if end_s - begin_s > downtime_after_s]
    if long:  # short pauses can be part of a longer one
        long_s, all_s = (math.fsum(end_s - begin_s for begin_s, end_s in spans) for spans in (long, quiet))
        hours = (
            f"; {long_s / 3600:,.1f} h in pauses longer than {downtime_after_s:,.0f} s, or {all_s / 3600:,.1f} h with"
            " shorter ones"
        )
        first = f"at {time_formats.time_text(long[0][0])}"
        yield suspicion("suspected_downtime", len(long), long_s * len(log.node_names), first, hours)
    whole = np.flatnonzero(always_idle(log))
    if whole.size and log.span_s > 0:
        name = log.node_names[int(whole[0])]
        yield suspicion("always_idle", int(whole.size), whole.size * log.span_s, f"node {name}")
    if log.start_s < time_formats.SMALLEST_EPOCH_S:
        yield suspicion("relative_times", len(log), 0.0, f"at {time_formats.time_text(log.start_s)}")


def all_idle(log: EventLog, longer_than_s: float) -> list[tuple[float, float]]:
    """Return periods longer than ``longer_than_s`` with idle nodes and no busy node."""
    quiet = (log.count_of(BUSY) == 0) & (log.pool_sizes() > 0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8)))
    bounds = np.append(log.times, log.end_s)
    spans = zip(bounds[edges[::2]].tolist(), bounds[edges[1::2]].tolist(), strict=True)
    return [(begin_s, end_s) for begin_s, end_s in spans if end_s - begin_s > longer_than_s]


@dataclass(frozen=True, slots=True, repr=False)
class Imported(ShortRepr):
    """A log, its row counts, and its findings, which the log's provenance also contains."""

    log: EventLog
    format: str
    rows: RowCounts
    findings: tuple[LogFinding, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of the short representation."""
        _, figures = self.log.shown()
        return f"log imported from {self.format}", {**figures, "findings": f"{len(self.findings):,}"}

    @property
    def doubts(self) -> tuple[LogFinding, ...]:
        """The findings that may make the log wrong."""
        return tuple(each for each in self.findings if is_doubt(each))


class NoUsableRecords(BadInput):
    """Raised if no log can be built. ``format``, ``rows`` and ``findings`` describe the records."""

    format = ""
    rows = RowCounts(read=0, used=0, aside={})
    findings: tuple[LogFinding, ...] = ()

    @classmethod
    def out_of(cls, error: BadInput, name: str, intake: RecordIntake) -> NoUsableRecords:
        """Return this error with the counts so far."""
        made = cls(error.what, where=error.where, fix=error.fix)
        made.format, made.rows, made.findings = name, intake.rows(), intake.findings()
        return made


def import_files(
    paths: Sequence[Path],
    options: ImportOptions,
    *,
    tell: Callable[[int], object] | None = None,
    keep: Callable[[RecordIntake], object] | None = None,
) -> Imported:
    """Import files in the same format into a log; the path ``-`` is standard input.

    ``tell`` receives the number of bytes read since its last call. ``keep`` receives the intake after all files are
    read.
    """
    _check_paths(paths)
    intake = RecordIntake(options)
    for node in (node for node_set, _ in options.node_units_of for node in expand(node_set)):
        intake.name_node(node)  # it exists even if no job uses it
    sources, name = list[ProvenanceSource](), ""
    for path in paths:
        name, source = _read(path, intake, tell, name)
        sources.append(source)
    intake.close()
    if keep is not None:
        keep(intake)
    intake.note_clock(intake.clock, zone_is_known=intake.options.timezone is not None)
    unseen = [name for name in options.preemptible if name not in intake.preemptible_seen]
    if unseen:
        intake.note("preemption", count=len(unseen), where=f"--preemptible {','.join(unseen)}")
    try:
        log = _build(intake)
    except BadInput as error:
        raise NoUsableRecords.out_of(error, name, intake) from error
    if options.unit != NODE:
        log = log.with_provenance(replace(log.provenance, unit=options.unit))
    log = _edited(log, intake)
    late = _late_nodes(log, intake)
    _doubt_failed_nodes(log, intake)
    quiet = all_idle(log, 0.0)
    findings = ordered((*intake.findings(), *suspicions(log, quiet, options.downtime_after_s)))
    doubtful = doubtful_times(
        log,
        censored=intake.has(CENSORED_END),
        by_counts=intake.has("which_unknown"),
        downtime=[(begin_s, end_s) for begin_s, end_s in quiet if end_s - begin_s > options.downtime_after_s],
        late=late,
    )
    rows = intake.rows()
    _doubt_missing_rows(log, intake)
    provenance = LogProvenance(
        made_by=f"reader {name}",
        options=intake.options.to_dict(),
        sources=tuple(sources),
        counts={**rows.to_dict(), **log.provenance.counts},
        findings=findings,
        doubtful=(*doubtful, *intake.doubtful, *intake.doubtful_stays.curves(log)),
        steps=log.provenance.steps,
        unit=options.unit,
        partitions=log.provenance.partitions,
    )
    log = log.with_provenance(provenance)
    return Imported(log, name, rows, findings)


def _check_paths(paths: Sequence[Path]) -> None:
    if not paths:
        raise BadInput("no file to read", fix="name a file, or - for standard input")
    if [str(path) for path in paths].count(STDIN) > 1:
        raise BadInput("named more than once, and it can be read only once", where="stdin", fix="name - once")


def import_logs(*paths: Path | str, options: ImportOptions | None = None) -> Imported:
    """Import a scheduler's records in the files ``paths`` (of one format) into a log, like ``bftrain import``.

    ``options`` are those of the command (default: recognise the format, and skip no partition). Raises
    :class:`bftrain.errors.BadInput` for unreadable records and ``OSError`` for an unreadable file.

    >>> from bftrain import import_logs
    >>> imported = import_logs("sacct.txt")
    >>> imported.rows.used, imported.log.node_names
    (3, ('n1', 'n2', 'n3', 'n4'))
    """
    return import_files([Path(path) for path in paths], options or ImportOptions())


def check_log(log: EventLog, downtime_after_s: float) -> Imported:
    """Return the findings of this log's import, and current suspicions."""
    found = {each.name: each for each in suspicions(log, all_idle(log, 0.0), downtime_after_s)}
    known = (each for each in log.provenance.findings if each.name not in SUSPICIONS)
    rows = RowCounts.from_dict(log.provenance.counts)
    return Imported(log, log.provenance.made_by, rows, ordered((*known, *found.values())))


def _read(
    path: Path, intake: RecordIntake, tell: Callable[[int], object] | None, before: str
) -> tuple[str, ProvenanceSource]:
    """Read one file; return its format and provenance. Raises ``BadInput`` if the format differs from ``before``."""
    with RawFile(None if str(path) == STDIN else path, intake, tell) as file:
        intake.begin_file(file.name)
        options, where = intake.options, file.where
        wanted = options.format or ("jobs" if options.map or options.preset else None)
        reader = reader_for(file.head, where, wanted, options.columns)
        beside = bool(getattr(reader, "beside_others", False))
        if before and not beside and reader.name != before:
            fix = "import one format at a time"
            raise BadInput(f"this file has the format {reader.name}, the previous files {before}", where=where, fix=fix)
        _check_unit(reader, options.unit, where)
        try:
            reader.read(file, intake)
            intake.settle()
        except (BftrainError, OSError):
            raise
        except Exception as error:
            if reader.name in registry.BUILT_IN["reader"]:
                raise  # an internal error of bftrain, not an error in the file
            what = raised(error)
            raise BrokenPlugin(what, where=f"reader '{reader.name}', {where}", fix="repair the reader") from error
        return before if beside else reader.name, file.source()


def _check_unit(reader: LogReader, unit: str, where: str) -> None:
    """Raise ``BadInput`` if GPUs or cores are requested and the records lack them."""
    if unit in (NODE, *_units_of(reader)) or getattr(reader, "beside_others", False):
        return
    parts = registry.parts("reader")
    able = [name for name, part in parts.items() if not part.problem and unit in _units_of(part.load())]
    what = f"bftrain reads no {in_words_of(unit, 'nodes')} of jobs out of {reader.name}"
    fix = f"--unit {unit} works with {', '.join(able)}"
    others = "".join(f"--unit {each} also works with {reader.name}; " for each in _units_of(reader))
    raise BadInput(what, where=where, fix=others + fix)


def _units_of(reader: LogReader) -> tuple[str, ...]:
    """Return the units other than nodes that a reader supports."""
    return tuple(getattr(reader, "tells_units", ()))


def _build(intake: RecordIntake) -> EventLog:
    if intake.count_times:
        return log_from_counts(intake)
    if intake.has_states:
        log = intake.states.build(end_s=intake.last_s)
        window = intake.within_window(log.start_s, log.end_s)
        return log if window == (log.start_s, log.end_s) else log.select(window=window)
    if intake.options.counts:
        return log_from_counts(intake)
    return log_from_jobs(intake)


def _late_nodes(log: EventLog, intake: RecordIntake) -> NDArray[np.float64]:
    """Return the first job starts on nodes that may have joined the machine then, and note their number."""
    if intake.has_states or intake.count_times or intake.options.counts:  # these records list the nodes
        return np.empty(0)
    late = late_starts(log)
    if late.size:
        node_s = float((late - log.start_s).sum())
        intake.note("late_nodes", count=late.size, node_s=node_s, where=f"until {time_formats.time_text(late.max())}")
    return late


def _doubt_failed_nodes(log: EventLog, intake: RecordIntake) -> None:
    """Note and doubt the idle time after node failures. A censored end already covers the log's end."""
    if not any(nodes.size for nodes, _ in intake.failed_nodes):
        return
    nodes, at_s = map(np.concatenate, zip(*intake.failed_nodes, strict=True))
    for begin_s, end_s, count in idle_after_failures(log, nodes, at_s):
        where = f"at {time_formats.time_text(begin_s)}"
        intake.note(NODE_FAILED, node_s=(end_s - begin_s) * count, where=where)
        if end_s < log.end_s or not intake.has(CENSORED_END):
            intake.doubtful_stays.add(NODE_FAILED, begin_s, end_s, count)


def _doubt_missing_rows(log: EventLog, intake: RecordIntake) -> None:
    """Add the doubt of missing rows.

    Malformed rows may be jobs of the mean size at any time. If a file is cut off and its jobs are in no order, every
    node is doubtful all the time; records sorted by time lack only the latest jobs.
    """
    lost, jobs = intake.aside["malformed"], len(intake.stays)
    if lost and jobs and log.span_s > 0:
        busy_s = len(log.node_names) * log.span_s - log.idle_node_s - down_node_s(log)
        nodes = math.ceil(lost * busy_s / jobs / log.span_s)
        intake.doubtful_stays.add(ROWS_ASIDE, -math.inf, math.inf, nodes)
    if intake.is_cut_off and intake.is_unsorted:
        intake.doubtful_stays.add(CUT_OFF, -math.inf, math.inf, len(log.node_names))


def _edited(log: EventLog, intake: RecordIntake) -> EventLog:
    """Return the log with the downtime from records and options, and without short gaps."""
    options = intake.options
    for nodes, low_s, high_s in options.down_nodes:
        names = [log.node_names[place] for place in places_of(log, nodes, where="--down").tolist()]
        start_s, why = log.start_s if low_s is None else low_s, f"--down {low_s} {high_s}"
        intake.outages.add(names, start_s, high_s, why=why)
    log = intake.outages.mark(log, intake)
    windows = [
        (-math.inf if begin_s is None else begin_s, math.inf if end_s is None else end_s)
        for begin_s, end_s in options.down
    ]
    if options.down_suspected:
        windows += all_idle(log, options.downtime_after_s)
    if windows:
        node_s = log.idle_node_s
        log = mark_down(log, windows)
        intake.note("node_down", count=len(windows), node_s=node_s - log.idle_node_s, where="")
    if options.min_gap_s:
        log, count, node_s = close_short_gaps(log, options.min_gap_s)
        if count:
            intake.note("short_gaps", count=count, node_s=node_s, where="")
    return log
