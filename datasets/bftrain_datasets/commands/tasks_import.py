"""``bftrain generate from-trace``: convert jobs of other systems to tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import Output, prints_results
from bftrain.text_formats import counted
from bftrain_datasets.commands.logfiles import FILE, kinds_of, task_output
from bftrain_datasets.commands.records import findings_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bftrain_datasets.published.tasks import PublishedTasks
    from bftrain_datasets.workloads.job import WorkloadOptions
    from bftrain_datasets.workloads.workload import TrainingWorkload

PUBLISHED: Final = "published"
FORMATS: Final = ("gavel", "philly", "blox", "swf", PUBLISHED)
STDIN: Final = "-"
_PAIR: Final = 2  # files of the published replayer's tasks
_WORTH_A_BAR: Final = 1 << 18  # bytes from which a file gets a progress bar
_RARE: Final = ("by_hosts", "reference", "first", "per_node", "begin")


@click.command(
    cls=DocumentedCommand,
    example="bftrain generate from-trace gavel.trace --speeds table.json -o tasks.toml\n"
    "bftrain generate from-trace jobs.swf -o tasks.toml --nodes 64",
    epilog="docs/how-to/workloads.md describes all fields. Two files are tasks of BFTrainer's published replayer: "
    "JBND (Tcup, Tcdw, Jmin, Jmax, Pmax) and JNPS (Ns, Ps).",
    renamed={"--kind": "--kinds", "--node-kind": "--kinds"},
)
@rare(*_RARE)
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
)
@heading("Jobs")
@task_output
@click.option("--format", "form", type=click.Choice(FORMATS), default=None, help="The format, if not recognised.")
@heading("Speeds")
@click.option("--speeds", type=FILE, default=None, help="Gavel's throughput table: steps/s by kind, model and gang.")
@click.option("--kinds", default=None, metavar="KIND,..", help="Node kinds in the table to use [all].")
@click.option(
    "--by-hosts", is_flag=True, help="Keep the speeds on several hosts, in kinds such as v100_unconsolidated."
)
@click.option("--reference", default=None, help="Kind for the ideal duration of deadlines [v100].")
@click.option("--elastic", is_flag=True, help="All sizes in the table, not only the requested gang.")
@heading("Which jobs, and when")
@click.option("--per-node", type=click.IntRange(min=1), default=None, help="GPUs or processors per node [1].")
@click.option("--nodes", type=click.IntRange(min=1), default=None, help="Skip jobs that need more nodes than this.")
@click.option("--window", default=None, metavar="A:B", help="Only jobs that arrive in A:B (times as in the file).")
@click.option("--first", type=click.IntRange(min=1), default=None, help="Only the first jobs of the file.")
@click.option("--log", type=FILE, default=None, help="The log that the tasks are for: submit_s counts from its start.")
@click.option("--begin", default=None, metavar="TIME", help="Origin of submit_s: seconds or ISO [first job].")
@click.option("--timezone", default=None, help="Zone of times that have none, such as America/Los_Angeles [UTC].")
@click.option("--strict", is_flag=True, help="Reject files with doubtful rows.")
@prints_results
def command(
    *,
    files: tuple[Path, ...],
    path: Path,
    form: str | None,
    log: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - options of a workload
) -> None:
    """Convert jobs of another system to tasks: Gavel, Philly, Blox, SWF, or the published replayer.

    Formats are recognised by content, compressed or not; - is standard input. Unusable rows are skipped
    and counted by reason. submit_s counts from the first job, unless an option changes it.
    """
    from bftrain.taskfiles.files import check_task_name

    check_task_name(path)
    form = form or (PUBLISHED if len(files) == _PAIR else None)
    wanted = _PAIR if form == PUBLISHED else 1
    if len(files) != wanted:
        many = "a pair of files, JBND and JNPS" if wanted == _PAIR else "one file"
        raise click.UsageError(f"{form or 'an import'} takes {many}, not {len(files)}")
    used = next((name for name, value in given.items() if value not in {None, False}), None)
    if form == PUBLISHED and used:
        option = f"{'--set ' if used in _RARE else '--'}{used.replace('_', '-')}"
        raise click.UsageError(f"{option} cannot be used with tasks of the published replayer")
    if given["begin"] is not None and log is not None:
        raise click.UsageError("--log and --set begin contradict each other: both set the origin of submit_s")
    if form == PUBLISHED:
        _published(files, path, log, out)
    else:
        _workload(files[0], path, _options(given, form, log), out)


def _options(given: Mapping[str, Any], form: str | None, log: Path | None) -> WorkloadOptions:
    from datetime import UTC

    from bftrain_datasets.log import time_formats
    from bftrain_datasets.log.log_files import load_log
    from bftrain_datasets.workloads.job import WorkloadOptions

    plain = dict(given)
    timezone, begin, window, kinds = (plain.pop(name) for name in ("timezone", "begin", "window", "kinds"))
    zone = time_formats.zone(timezone) if timezone else UTC
    begin_s = load_log(log).start_s if log else None
    if begin is not None:
        try:
            begin_s = time_formats.RecordClock(zone).seconds(begin)
        except (ValueError, OverflowError) as error:
            raise click.UsageError(f"--set begin: {begin!r} is not a time; use seconds or an ISO time") from error
    if window is not None:
        plain["window"] = time_formats.window(window, zone=zone)
    return WorkloadOptions(format=form, zone=zone, begin_s=begin_s, kinds=kinds_of(kinds), **plain)


def _workload(file: Path, path: Path, options: WorkloadOptions, out: Output) -> None:
    found = _read(file, options, out)
    for warning in _warnings(found):
        out.warn(warning)
    figures = {
        "node_kind": found.node_kind,
        "kinds": found.kinds,
        "reference": found.reference,
        "rows": found.rows,
        "findings": findings_data(found.findings),
    }
    _save(found, found.format, path, figures, list(_import_lines(found, options)), out)


def _save(
    found: TrainingWorkload | PublishedTasks,
    form: str,
    path: Path,
    figures: Mapping[str, object],
    words: Sequence[str],
    out: Output,
) -> None:
    """Write the tasks with ``words`` as comments; print ``words``, or as JSON ``figures`` and those of all formats."""
    from bftrain.taskfiles.files import MADE_BY, save_tasks

    save_tasks(found.tasks, path, note="\n".join((f"{MADE_BY} generate from-trace", *words)))
    moments = [task.submit_s for task in found.tasks]
    if early := sum(moment < 0 for moment in moments):
        out.warn(f"{counted(early, 'task')} submitted before the origin of submit_s")
    result = {
        "file": str(path),
        "tasks": len(found.tasks),
        "format": form,
        "begin_s": found.begin_s,
        "first_submit_s": min(moments),
        "last_submit_s": max(moments),
        **figures,
        "sources": found.sources,
    }
    out.result(result, lambda: f"{path}: {counted(len(found.tasks), 'task')}\n" + "\n".join(words))


def _read(file: Path, options: WorkloadOptions, out: Output) -> TrainingWorkload:
    """Read the jobs, with a progress bar for large files."""
    from bftrain_datasets.workloads.workload import import_workload

    if str(file) == STDIN:
        return import_workload(None, options)
    size = file.stat().st_size
    if size < _WORTH_A_BAR:
        return import_workload(file, options)
    with out.progress() as bars:
        bar = bars.add_task("reading, kB", total=size / 1000)
        return import_workload(file, options, tell=lambda count: bars.advance(bar, count / 1000))


def _import_lines(found: TrainingWorkload, options: WorkloadOptions) -> Iterator[str]:
    """Yield lines on the source of the tasks and the meaning of their fields."""
    from bftrain_datasets.log.time_formats import time_text

    for source in found.sources:
        yield f"from {source.name}, sha256 {source.sha256}"
    yield f"format {found.format}; submit_s counts from {time_text(found.begin_s)}"
    sizes = "all sizes in the table" if options.elastic else "the requested gang only"
    if found.kinds:
        yield f"speeds in steps/s on {', '.join(found.kinds)}, {sizes}; work in steps"
        yield "on nodes without kinds, a job has its speed on the first of these kinds that can run it"
    elif found.node_kind:
        yield f"speeds in steps/s on {found.node_kind}, {sizes}; work in steps"
    else:
        yield "only durations are known: speed 1 on the requested nodes, work in seconds"
    if any(task.deadline_s is not None for task in found.tasks):
        yield f"deadlines are multiples of the duration on {found.reference}"
    aside = sum(found.rows.aside.values())
    yield f"{counted(found.rows.read, 'row')} read = {counted(found.rows.used, 'task')} + {aside:,} skipped"


def _warnings(found: TrainingWorkload) -> Iterator[str]:
    from bftrain_datasets.importing.findings import HAZARDS, is_doubt

    for finding in found.findings:
        hazard = HAZARDS[finding.name]
        if is_doubt(finding) or hazard.aside:
            option = f"; change it with {hazard.option}" if hazard.option else ""
            first = f", first at {finding.first}" if finding.first else ""
            yield f"{finding.count:,} {finding.name}{first}: {hazard.says}; {finding.done}{option}"


def _published(files: Sequence[Path], path: Path, log: Path | None, out: Output) -> None:
    from bftrain_datasets.log.log_files import load_log
    from bftrain_datasets.published.tasks import import_tasks

    found = import_tasks(files[0], files[1], begin_s=load_log(log).start_s if log else None)
    figures = {"profiles": found.profiles, "rounded": found.rounded}
    _save(found, PUBLISHED, path, figures, list(_published_words(found)), out)


def _published_words(found: PublishedTasks) -> Iterator[str]:
    """Yield lines on the source of the tasks, and on their profiles."""
    from bftrain.text_formats import moment

    for source in found.sources:
        yield f"from {source.name}, sha256 {source.sha256}"
    yield f"submit_s counts from {moment(found.begin_s)}"
    if found.rounded:
        changed = sum(found.profiles.values())
        yield f"speeds of {changed:,} tasks equal profiles within {100 * found.rounded:.3f} %"
