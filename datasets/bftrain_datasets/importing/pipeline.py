"""The way from files to a checked log."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bftrain import registry
from bftrain.errors import BadInput, BftrainError, BrokenPlugin
from bftrain.exception_text import raised
from bftrain.short_repr import ShortRepr
from bftrain_datasets.importing import log_warnings
from bftrain_datasets.importing.findings import RowCounts, is_doubt, ordered
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.node_counts import log_from_counts
from bftrain_datasets.importing.occupancy import log_from_jobs
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.recognise_format import reader_for
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.edits import close_short_gaps, mark_down
from bftrain_datasets.log.idle_doubts import CENSORED_END, doubtful_times
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance, ProvenanceSource, tellable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bftrain_datasets.log.eventlog import EventLog

STDIN: Final = "-"


@dataclass(frozen=True, slots=True, repr=False)
class Imported(ShortRepr):
    """A log, the books of the rows, and what was found; the findings are in the log's provenance too."""

    log: EventLog
    format: str
    rows: RowCounts
    findings: tuple[LogFinding, ...]

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        _, figures = self.log.shown()
        return f"log imported from {self.format}", {**figures, "findings": f"{len(self.findings):,}"}

    @property
    def doubts(self) -> tuple[LogFinding, ...]:
        """Those that may make the log wrong."""
        return tuple(each for each in self.findings if is_doubt(each))


class NoUsableRecords(BadInput):
    """No log can be made of the records. ``format``, ``rows`` and ``findings`` describe what was in them."""

    format = ""
    rows = RowCounts(read=0, used=0, aside={})
    findings: tuple[LogFinding, ...] = ()

    @classmethod
    def out_of(cls, error: BadInput, name: str, intake: RecordIntake) -> NoUsableRecords:
        """Say the same as this error, and what was counted until then."""
        made = cls(error.what, where=error.where, fix=error.fix)
        made.format, made.rows, made.findings = name, intake.tally.rows(), intake.tally.findings()
        return made


def import_files(
    paths: Sequence[Path], options: ImportOptions, *, tell: Callable[[int], object] | None = None
) -> Imported:
    """Read files of one format into one log; the path ``-`` is standard input.

    ``tell`` is called with the number of bytes that have been read since it was called last.
    """
    if not paths:
        raise BadInput("no file to read", fix="name at least one, or - for standard input")
    intake = RecordIntake(options)
    sources: list[ProvenanceSource] = []
    name = ""
    for path in paths:
        name, source = _read(path, intake, tell, name)
        sources.append(source)
    intake.close()
    _note_clock(intake)
    _note_unseen(intake)
    try:
        log = _build(intake)
    except BadInput as error:
        raise NoUsableRecords.out_of(error, name, intake) from error
    log = _edited(log, intake)
    found = log_warnings.suspicions(log, options.downtime_after_s)
    findings = ordered((*intake.tally.findings(), *found))
    names = {each.name for each in findings}
    doubtful = doubtful_times(
        log,
        censored=CENSORED_END in names,
        by_counts="which_unknown" in names,
        downtime=log_warnings.all_idle(log, options.downtime_after_s),
    )
    rows = intake.tally.rows()
    log = _with_story(log, name, options, tuple(sources), rows, findings, (*doubtful, *intake.doubtful))
    return Imported(log, name, rows, findings)


def import_logs(*paths: Path | str, options: ImportOptions | None = None) -> Imported:
    """Read the records of a scheduler, files of one format, into one log, as ``bftrain import`` does.

    >>> from bftrain import import_logs
    >>> imported = import_logs("sacct.txt")
    >>> imported.rows.used, imported.log.node_names
    (3, ('n1', 'n2', 'n3', 'n4'))
    """
    return import_files([Path(path) for path in paths], options or ImportOptions())


def check_log(log: EventLog, downtime_after_s: float) -> Imported:
    """Give what was found when this log was imported, and what looks wrong in it now."""
    found = {each.name: each for each in log_warnings.suspicions(log, downtime_after_s)}
    known = (each for each in log.provenance.findings if each.name not in log_warnings.KINDS)
    rows = RowCounts.from_dict(log.provenance.counts)
    return Imported(log, log.provenance.made_by, rows, ordered((*known, *found.values())))


def _read(
    path: Path, intake: RecordIntake, tell: Callable[[int], object] | None, before: str
) -> tuple[str, ProvenanceSource]:
    """Read one file; give its format, which must be that of those ``before``, and what it is."""
    piped = str(path) == STDIN
    where = "stdin" if piped else str(path)
    intake.begin_file("stdin" if piped else tellable(path.name))  # without folders: they go into the log's story
    with RawFile(None if piped else path, intake.tally, tell) as file:
        reader = reader_for(file.head, where, intake.options.format)
        if before and reader.name != before:
            fix = "import one format at a time"
            raise BadInput(f"this is {reader.name}, and the files before are {before}", where=where, fix=fix)
        try:
            reader.read(file, intake)
        except (BftrainError, OSError):
            raise
        except Exception as error:
            if reader.name in registry.BUILT_IN["reader"]:
                raise  # a fault of ours
            what = raised(error)
            raise BrokenPlugin(what, where=f"reader '{reader.name}', {where}", fix="repair the reader") from error
        return reader.name, file.source()


def _note_clock(intake: RecordIntake) -> None:
    clock, note = intake.clock, intake.tally.note
    if clock.without_zone and intake.options.timezone is None:
        note("local_times", count=clock.without_zone, where=clock.first["without_zone"])
    if clock.twice:
        note("twice_times", count=clock.twice, where=clock.first["twice"])
    if clock.in_ms:
        note("epoch_ms", count=clock.in_ms, where=clock.first["in_ms"])


def _note_unseen(intake: RecordIntake) -> None:
    unseen = [name for name in intake.options.preemptible if name not in intake.preemptible_seen]
    if unseen:
        intake.tally.note("unknown_partitions", count=len(unseen), where=f"--preemptible {','.join(unseen)}")


def _build(intake: RecordIntake) -> EventLog:
    """Build a log from the jobs, the states or the counts that the reader found."""
    if intake.count_times:
        return log_from_counts(intake)
    if intake.has_states:
        return _from_states(intake)
    if intake.options.counts:
        return log_from_counts(intake)
    return log_from_jobs(intake)


def _from_states(intake: RecordIntake) -> EventLog:
    begin_s, end_s = intake.options.window
    log = intake.states.build(end_s=intake.last_s)
    low = log.start_s if begin_s is None else max(begin_s, log.start_s)
    high = log.end_s if end_s is None else min(end_s, log.end_s)
    if low > high:
        raise BadInput(
            (
                f"the records go from {time_formats.time_text(log.start_s)} to "
                f"{time_formats.time_text(log.end_s)}, all outside of --window"
            ),
            where=intake.file_names[0],
        )
    return log if (low, high) == (log.start_s, log.end_s) else log.select(window=(low, high))


def _edited(log: EventLog, intake: RecordIntake) -> EventLog:
    """Declare downtime and close short gaps, as the options ask for."""
    options = intake.options
    log = intake.outages.mark(log, intake.tally)
    windows = [
        (-math.inf if begin_s is None else begin_s, math.inf if end_s is None else end_s)
        for begin_s, end_s in options.down
    ]
    if options.down_suspected:
        windows += log_warnings.all_idle(log, options.downtime_after_s)
    if windows:
        node_s = log.idle_node_s
        log = mark_down(log, windows)
        intake.tally.note("marked_down", count=len(windows), node_s=node_s - log.idle_node_s, where="")
    if options.min_gap_s:
        log, count, node_s = close_short_gaps(log, options.min_gap_s)
        if count:
            intake.tally.note("short_gaps", count=count, node_s=node_s, where="")
    return log


def _with_story(
    log: EventLog,
    reader: str,
    options: ImportOptions,
    sources: tuple[ProvenanceSource, ...],
    rows: RowCounts,
    findings: tuple[LogFinding, ...],
    doubtful: tuple[DoubtfulTime, ...],
) -> EventLog:
    provenance = LogProvenance(
        made_by=f"reader {reader}",
        options=options.to_dict(),
        sources=sources,
        counts={**rows.to_dict(), **log.provenance.counts},
        findings=findings,
        doubtful=doubtful,
        steps=log.provenance.steps,
    )
    return replace(log, provenance=provenance)
