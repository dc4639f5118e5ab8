"""Import of tasks from a file of jobs, in any known format."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BadInput, BadValue, UnknownName
from bftrain.short_repr import ShortRepr
from bftrain.text_formats import counted
from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.findings import HAZARDS, FindingsTally, RowCounts, is_doubt
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.log.provenance import LogFinding, ProvenanceSource
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S
from bftrain_datasets.readers import swf as log_format
from bftrain_datasets.workloads import job_formats
from bftrain_datasets.workloads.job import TrainingJob, UnusableJob, WorkloadOptions
from bftrain_datasets.workloads.speed_table import USUAL_KIND, SpeedTable, TaskSizing, load_speed_table


class JobFormat(NamedTuple):
    """A format: its name, a test of the first bytes, and a job reader."""

    name: str
    recognises: Callable[[bytes], bool]
    read: Callable[[RawFile, FindingsTally, WorkloadOptions], Generator[TrainingJob]]


# Blox precedes Philly, because Philly tables may have any columns
_READERS: Final = (
    JobFormat("gavel", job_formats.is_gavel, job_formats.read_gavel),
    JobFormat("blox", job_formats.is_blox, job_formats.read_arrivals),
    JobFormat("philly", job_formats.is_philly, job_formats.read_philly),
    JobFormat("swf", log_format.recognises, job_formats.read_swf),
)
FORMATS: Final = tuple(reader.name for reader in _READERS)
PICKLE: Final = b"\x80"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingWorkload(ShortRepr):
    """Tasks in submission order, and the outcome of every row.

    ``begin_s`` was subtracted from the submission times: seconds UTC, or on the file's own clock. With speeds,
    ``node_kind`` is their kind; several ``kinds`` are possible, and the first applies to nodes without kinds.
    ``reference`` is the kind for deadlines.
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
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rows.aside.items())) or "there are none"
        first = next((f"; first at {each.first}" for each in tally.findings() if each.name in rows.aside), "")
        raise BadInput(
            f"no row becomes a task: {reasons}{first}", where=source.name, fix="see docs/how-to/workloads.md"
        )
    begin_s = _begin(tasks, options.begin_s, source.name)
    tasks = _in_order(tasks, begin_s, tally)
    findings = tally.findings()
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


def recognised(head: bytes) -> str | None:
    """Return the format of a file that starts with ``head``, or ``None``."""
    return next((reader.name for reader in _READERS if reader.recognises(head)), None)


def _reader(head: bytes, where: str, wanted: str | None) -> JobFormat:
    known = {reader.name: reader for reader in _READERS}
    if wanted is not None and wanted not in known:
        raise UnknownName.among("format of jobs", wanted, known)
    name = wanted or recognised(head)
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
        needless = {"--speeds": table, "--elastic": options.elastic, "--by-hosts": options.by_hosts}
        for option, given in (*needless.items(), ("--kinds", options.kinds), ("--node-kind", options.node_kind)):
            if given:
                what = f"{option} needs jobs with models, but this format ({name}) has only durations"
                raise BadInput(what, where=where, fix=f"omit {option}")
    kinds: tuple[str, ...] = ()
    reference = None
    if table:
        one = options.node_kind
        kinds = table.all_kinds(options.kinds, by_hosts=options.by_hosts) if one is None else (table.kind(one),)
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
            _check_window(job, *window)
            tasks.append(_task(job, sizing, names))
        except UnusableJob as why:
            tally.set_aside(why.reason)
        else:
            names.add(job.name)
            tally.use()
    return tasks


def _check_window(job: TrainingJob, begin_s: float | None, end_s: float | None) -> None:
    if (begin_s is not None and job.submit_s < begin_s) or (end_s is not None and job.submit_s >= end_s):
        raise UnusableJob("not_selected")


def _task(job: TrainingJob, sizing: TaskSizing, names: set[str]) -> TaskSpec:
    if job.name in names:
        raise UnusableJob("duplicate")
    sized = sizing.size(job)
    try:
        return TaskSpec(
            name=job.name,
            curve=sized.curve,
            curves=sized.curves,
            min_nodes=sized.min_nodes,
            max_nodes=sized.max_nodes,
            work_samples=sized.work,
            submit_s=job.submit_s,
            weight=job.weight,
            deadline_s=None if job.slack is None else job.submit_s + job.slack * sized.ideal_s,
            user=job.user,
            spread=sized.spread if sized.max_nodes > 1 else None,
        )
    except BadValue as error:
        raise UnusableJob("malformed") from error


def _begin(tasks: list[TaskSpec], wanted: float | None, where: str) -> float:
    """Return the time origin; a calendar time requires jobs with calendar times."""
    first = min(task.submit_s for task in tasks)
    if wanted is None:
        return first
    if first < SMALLEST_EPOCH_S <= wanted:
        what = "its times count from zero, not from 1970"
        raise BadInput(what, where=where, fix="omit --log, or set --begin in seconds of its own clock")
    return wanted


def _in_order(tasks: list[TaskSpec], begin_s: float, tally: FindingsTally) -> list[TaskSpec]:
    order = sorted(tasks, key=lambda task: task.submit_s)  # stable: ties keep the file order
    late = sum(after.submit_s < before.submit_s for before, after in pairwise(tasks))
    if late:
        tally.note("unsorted", count=late, where="")
    return [
        msgspec.structs.replace(
            task,
            submit_s=task.submit_s - begin_s,
            deadline_s=None if task.deadline_s is None else task.deadline_s - begin_s,
        )
        for task in order
    ]
