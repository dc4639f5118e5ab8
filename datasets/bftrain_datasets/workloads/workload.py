"""Import of tasks from a file of jobs: Gavel's traces, SWF logs, tables of jobs, and Microsoft's Philly trace.

A Gavel line has tab-separated fields. The newest form has 10: type, command, directory, argument for the steps, whether
data is required, steps, gang, weight, SLO, arrival. The form with 9 lacks the directory. The older forms with 7 and 6
finish with steps, arrival and gang. Jobs of an SWF log become rigid tasks.

A table has the arrival, run time and number of GPUs of each job. In Philly's job log (JSON), a job's gang is the number
of GPUs of its first attempt. Its duration is the time from the first attempt's start until the last attempt's end, as
in the notebook published with the trace and in other readers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BadInput, UnknownName
from bftrain.short_repr import ShortRepr
from bftrain.text_formats import counted
from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.findings import HAZARDS, FindingsTally, RowCounts, SkippedRow, is_doubt
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import first_lines, unquoted
from bftrain_datasets.job_tables.tables import content_of
from bftrain_datasets.log.provenance import LogFinding, ProvenanceSource
from bftrain_datasets.log.time_formats import LARGEST_S, SMALLEST_EPOCH_S, RecordClock
from bftrain_datasets.readers import swf
from bftrain_datasets.workloads.job import TrainingJob, WorkloadOptions, duration_of, gang_of, jobs_of, number_of, short
from bftrain_datasets.workloads.speed_table import USUAL_KIND, SpeedTable, TaskSizing, load_speed_table


@dataclass(frozen=True, slots=True)
class _Layout:
    """Indices of the fields; some layouts have no weight and SLO."""

    steps: int
    gang: int
    arrival: int
    weight: int | None = None
    slo: int | None = None


_LAYOUTS: Final = {
    10: _Layout(steps=5, gang=6, weight=7, slo=8, arrival=9),
    9: _Layout(steps=4, gang=5, weight=6, slo=7, arrival=8),
    7: _Layout(steps=4, arrival=5, gang=6),
    6: _Layout(steps=3, arrival=4, gang=5),
}


def is_gavel(head: bytes) -> bool:
    """Return whether any of the first lines has the fields of a job."""
    return any(map(_is_job, first_lines(head)))


def read_gavel(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    del options  # a trace needs no options
    rows, numbers = ((line, text) for line, text in file.lines() if text.strip()), count()
    yield from jobs_of(tally, rows, lambda text: _gavel_job(text.split("\t"), next(numbers)))


def _is_job(line: str) -> bool:
    try:
        return bool(_gavel_job(line.split("\t"), 0))
    except SkippedRow:
        return False


def _gavel_job(fields: Sequence[str], number: int) -> TrainingJob:
    layout = _LAYOUTS.get(len(fields))
    model = fields[0].strip()
    if layout is None or not model or not model.isprintable():
        raise SkippedRow("malformed")
    submit_s = number_of(fields[layout.arrival], reason="bad_time", at_least=0.0)
    if submit_s >= LARGEST_S:
        raise SkippedRow("bad_time")
    weight = 1.0 if layout.weight is None else number_of(fields[layout.weight], at_least=0.0)
    slack = -1.0 if layout.slo is None else number_of(fields[layout.slo])
    gang, steps = gang_of(fields[layout.gang]), number_of(fields[layout.steps], at_least=0.0)
    if steps == 0:
        raise SkippedRow("no_usage")
    return TrainingJob(
        name=f"{short(model)}-{number}",
        submit_s=submit_s,
        gang=gang,
        steps=steps,
        model=model,
        weight=weight,
        slack=slack if slack > 0 else None,
    )


def read_swf(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    header = swf.SwfHeader()
    several = False
    try:
        for parts, values in swf.rows(file.lines(), tally, header):
            try:
                job = _swf_job(parts, values, header, tally, options)
            except SkippedRow as why:
                tally.set_aside(why.reason)
            else:
                several = several or (header.has_multi_processor_nodes and options.per_node is None)
                yield job
    finally:  # runs even if the reader stops early
        if several:
            tally.note("procs_as_nodes", where="")


def _swf_job(
    parts: Sequence[str], values: Sequence[float], header: swf.SwfHeader, tally: FindingsTally, options: WorkloadOptions
) -> TrainingJob:
    if values[swf.STATUS] in swf.PARTIAL:
        raise SkippedRow("other_record")
    if reason := swf.unusable(values):
        raise SkippedRow(reason)
    duration_s = duration_of(values[swf.RUN])
    gang, requested = swf.processors(values)
    if not gang:
        raise SkippedRow("bad_value")
    if requested:
        tally.note("request_differs")
    user = parts[swf.USER]
    return TrainingJob(
        name=f"job-{parts[swf.JOB]}",
        submit_s=header.epoch(values[swf.SUBMIT]),
        gang=gang,
        nodes=header.nodes_for(gang) if options.per_node is None else None,
        duration_s=duration_s,
        user="" if user.startswith("-") else user,
    )


# Required fields and their names; the first match is used
_COLUMNS: Final = {
    "submit": ("arrival_s", "submitted_time", "submit_time", "submission_time", "arrival_time", "timestamp"),
    "duration": ("duration_s", "duration", "run_time", "runtime"),
    "gpus": ("gpus", "num_gpus", "num_gpu", "gpu_num"),
}
_BLOX_HEADER: Final = ("job_id", "arrival_s", "duration_s", "gpus")
_REMEDY: Final = "use a header such as job_id,arrival_s,duration_s,gpus; docs/how-to/workloads.md lists the known names"
_OPTIONAL: Final = {
    "id": ("job_id", "jobid", "id"),
    # Some tables have only a virtual cluster as the owner of a job
    "user": ("user", "user_id", "vc", "cluster"),
}


def _places(header: Sequence[str]) -> dict[str, int] | None:
    """Return the index of each column, or None if a required one is missing."""
    names = [cell.strip().lower() for cell in header]
    found = {
        key: next((names.index(known) for known in known_names if known in names), None)
        for key, known_names in (_COLUMNS | _OPTIONAL).items()
    }
    if any(found[key] is None for key in _COLUMNS):
        return None
    return {key: place for key, place in found.items() if place is not None}


def _header_of(head: bytes) -> list[str]:
    """Return the cells of the first line."""
    return next((unquoted(line) for line in first_lines(head) if line.strip()), [])


def is_blox(head: bytes) -> bool:
    """Return whether this is the header of Blox's job lists."""
    return tuple(cell.strip() for cell in _header_of(head)) == _BLOX_HEADER


def read_arrivals(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    clock = RecordClock(options.zone, lambda: tally.where)
    rows = ((line, unquoted(text)) for line, text in file.lines() if text.strip())
    line, header = next(rows, (0, []))
    found, numbers = _places(header), count()
    if line and found is None:
        names = {cell.strip().lower() for cell in header}
        lacking = next(key for key, known in _COLUMNS.items() if names.isdisjoint(known))
        what = f"no column for {lacking}: {' or '.join(_COLUMNS[lacking])}"
        raise BadInput(what, where=f"{file.name}:{line}", fix=_REMEDY)
    try:
        yield from jobs_of(tally, rows, lambda cells: _arrival(cells, found or {}, len(header), next(numbers), clock))
    finally:  # runs even if the reader stops early
        tally.note_clock(clock)


def _arrival(cells: Sequence[str], found: dict[str, int], width: int, number: int, clock: RecordClock) -> TrainingJob:
    if len(cells) != width:
        raise SkippedRow("malformed")
    row = {key: cells[place].strip() for key, place in found.items()}
    if not row["duration"]:
        raise SkippedRow("bad_time")
    submit_s = _moment(row["submit"], clock)
    name = row.get("id") or str(number)
    return TrainingJob(
        name=f"job-{name}" if name.isdecimal() else name,
        submit_s=submit_s,
        gang=gang_of(row["gpus"]),
        duration_s=duration_of(number_of(row["duration"])),
        user=row.get("user", ""),
    )


LARGEST_BYTES: Final = 1 << 30
_KEYS: Final = (b'"attempts"', b'"submitted_time"')
_UNTOLD: Final = frozenset({"", "None"})


class _Host(msgspec.Struct):
    gpus: list[str]


class _Attempt(msgspec.Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Host] = []


class _Entry(msgspec.Struct):
    submitted_time: str
    jobid: str
    attempts: list[_Attempt]
    user: str = ""
    vc: str = ""


def is_philly(head: bytes) -> bool:
    """Return whether this is Philly's job log, or a table with arrivals."""
    if head.lstrip()[:1] in {b"[", b"{"}:
        return all(key in head for key in _KEYS)
    return _places(_header_of(head)) is not None


def read_philly(file: RawFile, tally: FindingsTally, options: WorkloadOptions) -> Generator[TrainingJob]:
    """Yield every job; the caller uses or rejects each row."""
    if file.head.lstrip()[:1] not in {b"[", b"{"}:
        yield from read_arrivals(file, tally, options)
        return
    clock, decoder = RecordClock(options.zone, lambda: tally.where), msgspec.json.Decoder(_Entry)
    try:
        yield from jobs_of(tally, _entries(file), lambda entry: _philly_job(decoder, entry, clock, tally))
    finally:  # runs even if the reader stops early
        tally.note_clock(clock)


def _entries(file: RawFile) -> Iterator[tuple[int, bytes]]:
    """Yield each entry as written, with its line: the entries of a list, or one per line."""
    content = content_of(file, LARGEST_BYTES)
    try:
        if content.lstrip()[:1] == b"[":
            entries = msgspec.json.Decoder(list[msgspec.Raw]).decode(content)
        else:
            entries = msgspec.json.Decoder(msgspec.Raw).decode_lines(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}", where=file.name, fix="fetch the file again: maybe truncated") from error
    line, place = 1, 0
    for entry in entries:
        written = bytes(entry)
        found = content.index(written, place)
        line += content.count(b"\n", place, found)
        yield line, written
        line += written.count(b"\n")
        place = found + len(written)


def _philly_job(
    decoder: msgspec.json.Decoder[_Entry], entry: bytes, clock: RecordClock, tally: FindingsTally
) -> TrainingJob:
    try:
        job = decoder.decode(entry)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SkippedRow("malformed") from error
    if not job.attempts:
        raise SkippedRow("no_usage")
    begin_s = _moment(job.attempts[0].start_time, clock)
    end_s = _moment(job.attempts[-1].end_time, clock)
    submit_s = _moment(job.submitted_time, clock)
    gpus = [sum(len(host.gpus) for host in attempt.detail) for attempt in job.attempts]
    made = TrainingJob(
        name=job.jobid,
        submit_s=submit_s,
        gang=gang_of(str(gpus[0])),
        duration_s=duration_of(end_s - begin_s),
        user=job.user or job.vc,
    )
    if len(set(gpus)) > 1:
        tally.note("request_differs")  # a later attempt used a different number
    return made


def _moment(text: str | None, clock: RecordClock) -> float:
    if text is None or text in _UNTOLD:
        raise SkippedRow("bad_time")
    try:
        return clock.seconds(text)
    except (ValueError, OverflowError) as error:
        raise SkippedRow("bad_time") from error


class JobFormat(NamedTuple):
    """A format: its name, a test of the first bytes, and a job reader."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[RawFile, FindingsTally, WorkloadOptions], Generator[TrainingJob]]


# Blox precedes Philly, because Philly tables may have any columns
_READERS: Final = (
    JobFormat("gavel", is_gavel, read_gavel),
    JobFormat("blox", is_blox, read_arrivals),
    JobFormat("philly", is_philly, read_philly),
    JobFormat("swf", swf.recognises, read_swf),
)
PICKLE: Final = b"\x80"
SKIPPED: Final = "row skipped"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingWorkload(ShortRepr):
    """Tasks in submission order, and the outcome of every row.

    ``begin_s`` was subtracted from the submission times: seconds UTC, or on the file's own clock. With speeds,
    ``node_kind`` is their kind, or ``kinds`` are several kinds; on nodes without kinds, a task has its speed on the
    first that can run it. ``reference`` is the kind for deadlines.
    """

    tasks: tuple[TaskSpec, ...]
    format: str
    begin_s: float
    rows: RowCounts
    findings: tuple[LogFinding, ...]
    sources: tuple[ProvenanceSource, ...]
    node_kind: str | None
    reference: str | None
    kinds: tuple[str, ...] = ()

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of the short representation."""
        return f"tasks imported from {self.format}", {
            "tasks": f"{len(self.tasks):,}",
            "skipped": f"{sum(self.rows.aside.values()):,}",
            "findings": f"{len(self.findings):,}",
        }


def import_workload(
    path: Path | str | None, options: WorkloadOptions | None = None, *, tell: Callable[[int], object] | None = None
) -> TrainingWorkload:
    """Import the jobs in a file as tasks, like ``bftrain generate from-trace``; ``None`` is standard input.

    ``path`` is the job file, ``options`` are those of the command. ``tell`` is called with the number of bytes read
    since its last call. Raises :class:`bftrain.errors.BadInput` for a file without usable jobs, and ``OSError`` for an
    unreadable one.

    >>> from bftrain import import_workload
    >>> [task.name for task in import_workload("jobs.swf").tasks]
    ['job-1', 'job-2', 'job-3']
    """
    path, options = None if path is None else Path(path), options or WorkloadOptions()
    tally = FindingsTally()
    table = load_speed_table(Path(options.speeds)) if options.speeds else None
    with RawFile(path, tally, tell) as file:
        tally.file = file.name
        where = file.name if path is None else str(path)
        reader = _reader(file.head, where, options.format)
        sizing, kinds, reference = _sizing(reader.name, table, options, where)
        with closing(reader.read(file, tally, options)) as jobs:
            tasks = _tasks(islice(jobs, options.first), sizing, tally, options.window)
        source = file.source()
    rows = tally.rows()
    if not tasks:
        reasons = "; ".join(f"{HAZARDS[name].says} ({count:,})" for name, count in sorted(rows.aside.items()))
        first = next((f"; first at {each.first}" for each in tally.findings() if each.name in rows.aside), "")
        raise BadInput(
            f"no row becomes a task: {reasons or 'it has no rows'}{first}",
            where=source.name,
            fix="see docs/how-to/workloads.md",
        )
    begin_s = _begin(tasks, options.begin_s, source.name)
    tasks = _in_order(tasks, begin_s, tally)
    # No nodes count as idle because of a row that is skipped
    findings = tuple(
        msgspec.structs.replace(each, done=SKIPPED) if HAZARDS[each.name].aside else each for each in tally.findings()
    )
    doubt = next((each for each in findings if is_doubt(each)), None)
    if options.strict and doubt is not None:
        what = f"--strict: {counted(doubt.count, 'time')} {doubt.name}: {HAZARDS[doubt.name].says}"
        raise BadInput(what, where=doubt.first or source.name, fix="correct the rows, or omit --strict")
    return TrainingWorkload(
        tasks=tuple(tasks),
        format=reader.name,
        begin_s=begin_s,
        rows=rows,
        findings=findings,
        sources=(source, *((table.source,) if table else ())),
        node_kind=kinds[0] if len(kinds) == 1 else None,
        kinds=kinds if len(kinds) > 1 else (),
        reference=reference,
    )


def _reader(head: bytes, where: str, wanted: str | None) -> JobFormat:
    known = {reader.name: reader for reader in _READERS}
    if wanted is not None and wanted not in known:
        raise UnknownName.among("format of jobs", wanted, known)
    name = wanted or next((reader.name for reader in _READERS if reader.recognises(head)), None)
    if name is not None:
        return known[name]
    if not head.strip():
        raise BadInput("the file is empty", where=where, fix="import a file of jobs")
    if head.startswith(PICKLE):
        what, fix = "a pickled table", "tasks of the published replayer need two files: pass JBND and JNPS"
    else:
        what, fix = "no reader recognises its beginning", f"set the format by --format, one of: {', '.join(known)}"
    raise BadInput(what, where=where, fix=fix)


def _sizing(
    name: str, table: SpeedTable | None, options: WorkloadOptions, where: str
) -> tuple[TaskSizing, tuple[str, ...], str | None]:
    """Return the sizing, its node kinds, and the reference kind."""
    if name == "gavel" and table is None:
        fix = "pass Gavel's throughput table by --speeds, such as simulation_throughputs.json"
        raise BadInput("it has the steps of jobs, but no speeds", where=where, fix=fix)
    if name != "gavel":
        needless = {"--speeds": table, "--elastic": options.elastic, "--set by-hosts": options.by_hosts}
        for option, given in (*needless.items(), ("--kinds", options.kinds)):
            if given:
                what = f"{option} needs jobs with models, but this format ({name}) has only durations"
                raise BadInput(what, where=where, fix=f"omit {option}")
    kinds: tuple[str, ...] = ()
    reference = None
    if table:
        kinds = table.all_kinds(options.kinds, by_hosts=options.by_hosts)
        usual = USUAL_KIND if USUAL_KIND in table.rates else kinds[0]
        reference = table.kind(options.reference or usual)
    sizing = TaskSizing(
        rates={kind: table.rates[kind] for kind in kinds} if table else {},
        reference=table.rates[reference] if table and reference else {},
        elastic=options.elastic,
        per_node=options.per_node or 1,
        nodes=options.nodes,
        spread=(lambda model: table.spread(model, kinds)) if table and options.by_hosts else lambda _: None,
    )
    return sizing, kinds, reference


def _tasks(
    jobs: Iterable[TrainingJob], sizing: TaskSizing, tally: FindingsTally, window: tuple[float | None, float | None]
) -> list[TaskSpec]:
    """Return a task for every usable job; times are still on the file's clock."""
    tasks: list[TaskSpec] = []
    names: set[str] = set()
    for job in jobs:
        try:
            _check_job(job, names, *window)
            tasks.append(sizing.task(job))
        except SkippedRow as why:
            tally.set_aside(why.reason)
        else:
            names.add(job.name)
            tally.use()
    return tasks


def _check_job(job: TrainingJob, names: set[str], begin_s: float | None, end_s: float | None) -> None:
    """Raise ``SkippedRow`` for a job that arrives outside the window, or has the name of another job."""
    if (begin_s is not None and job.submit_s < begin_s) or (end_s is not None and job.submit_s >= end_s):
        raise SkippedRow("not_selected")
    if job.name in names:
        raise SkippedRow("duplicate")


def _begin(tasks: list[TaskSpec], wanted: float | None, where: str) -> float:
    """Return the time origin; a calendar time requires jobs with calendar times."""
    first = min(task.submit_s for task in tasks)
    if wanted is None:
        return first
    if first < SMALLEST_EPOCH_S <= wanted:
        what = "its times count from zero, not from 1970"
        raise BadInput(what, where=where, fix="omit --log, or use --set begin=SECONDS of the log's clock")
    return wanted


def _in_order(tasks: list[TaskSpec], begin_s: float, tally: FindingsTally) -> list[TaskSpec]:
    order = sorted(tasks, key=lambda task: task.submit_s)  # stable: ties keep the file order
    late = sum(after.submit_s < before.submit_s for before, after in pairwise(tasks))
    if late:
        tally.note("notation", count=late, where="")
    return [
        msgspec.structs.replace(
            task,
            submit_s=task.submit_s - begin_s,
            deadline_s=None if task.deadline_s is None else task.deadline_s - begin_s,
        )
        for task in order
    ]
