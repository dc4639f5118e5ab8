"""``bftrain sweep``: many replays that differ in a few options, and one table of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.narrow_table import NarrowTable
from bftrain.cli.output import Output, prints_results
from bftrain.cli.overwrite_option import overwrite_option
from bftrain.errors import Interrupted, PartlyFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from bftrain_replay.sweeping.executors import PassExecutor
    from bftrain_replay.sweeping.run_outcomes import OutcomeFile
    from bftrain_replay.sweeping.sweep import PreparedSweep, SweepResult
    from bftrain_replay.sweeping.sweep_table import PointRow

SLURM: Final = "slurm"
_SLURM_JOBS: Final = 8
_MOST_ROWS: Final = 50  # of the table on a terminal; the file has all
_MOST_REASONS: Final = 5
# Columns of the table whose columns are printed, and how they are called and written there
_PRINTED: Final = {
    "harvested": ("harvested", "samples"),
    "coverage": ("coverage", "share"),
    "efficiency": ("efficiency U", "share"),
    "baseline_efficiency": ("baseline U", "share"),
    "ceiling_efficiency": ("U without costs", "share"),
    "makespan_s": ("all done after", "duration"),
}
_PRINTED_OF_TIMES: Final = ("completion_s_mean", "completion_s_p95", "makespan_s", "coverage")

_folder = click.Path(path_type=Path, file_okay=False)


@click.command(
    cls=DocumentedCommand,
    example="bftrain sweep sweep.toml -o sweep --jobs 8",
    epilog="DIR gets the table, sweep.json, a page with plots, and points.jsonl, which holds what is done. "
    "docs/sweeps.md describes SPEC.toml. Ctrl-C keeps what is done; the same command goes on.",
)
@click.argument("spec", metavar="SPEC.toml", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@heading("Result")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=_folder,
    required=True,
    help="Folder for the result.",
)
@click.option("--retry-failed", is_flag=True, help="Try again what failed before.")
@click.option("--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Form of the table [csv].")
@overwrite_option
@click.option("--svg", "svg", metavar="DIR", type=_folder, help="Write the plots as SVG there too.")
@click.option("--png", "png", metavar="DIR", type=_folder, help="Write the plots as PNG there too.")
@click.option("--dry-run", is_flag=True, help="Say what there is to do, and do nothing.")
@heading("Workers")
@click.option("--jobs", type=click.IntRange(min=1), help="How many workers [one for each processor; slurm: 8].")
@click.option("--dask", metavar="ADDRESS|slurm", default="", help="Use this Dask cluster, or one made of Slurm's jobs.")
@click.option(
    "--dask-option",
    "dask_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="With slurm: an option of dask_jobqueue.SLURMCluster, such as queue=main.",
)
@prints_results
def command(  # noqa: PLR0913 - one argument for each option
    spec: Path,
    folder: Path,
    *,
    jobs: int | None,
    dask: str,
    dask_options: tuple[str, ...],
    retry_failed: bool,
    tables: str,
    overwrite: bool,
    svg: Path | None,
    png: Path | None,
    dry_run: bool,
    out: Output,
) -> None:
    """Replay every combination of options that SPEC.toml asks for, side by side."""
    from bftrain.cli.interruption import unterminated
    from bftrain_replay import replay_folder
    from bftrain_replay.sweeping.run_outcomes import OutcomeFile, known_in
    from bftrain_replay.sweeping.sweep import PreparedSweep, result_folder

    replay_folder.check_tables(tables)
    executor = _executor(folder, jobs, dask, dask_options)
    sweep = PreparedSweep.of(spec)
    if dry_run:
        known = known_in(folder)
        _show(sweep.swept(known), out, to_do=len(sweep.open(known, retry_failed=retry_failed)))
        return
    with unterminated(), result_folder(sweep, folder, overwrite=overwrite) as result, OutcomeFile(folder) as outcomes:
        _run(sweep, outcomes, executor, out, retry_failed=retry_failed)
        done = sweep.swept(outcomes.known)
        written = done.complete or not result.holds_finished
        if written:
            result.replace(lambda draft: done.write_files(draft, tables))
        _draw(done, {"svg": svg, "png": png})
    _show(done, out)
    if written:
        out.say(f"result: {folder}")
    _leave(done, folder)


def _executor(folder: Path, jobs: int | None, dask: str, options: tuple[str, ...]) -> PassExecutor:
    """Choose who does the work."""
    from bftrain_replay.sweeping.executors.dask_client import ClusterAddress, DaskExecutor
    from bftrain_replay.sweeping.executors.local_processes import LocalExecutor, usable_cpus
    from bftrain_replay.sweeping.executors.slurm_jobs import SlurmJobs, option
    from bftrain_replay.sweeping.sweep import PRINTS

    if options and dask != SLURM:
        raise UsageError("is for --dask slurm", where="--dask-option")
    if dask == SLURM:
        return DaskExecutor(SlurmJobs(jobs or _SLURM_JOBS, map(option, options), folder))
    if dask:
        if jobs:
            raise UsageError("is not ours to choose with a Dask cluster that runs already", where="--jobs")
        return DaskExecutor(ClusterAddress(dask))
    return LocalExecutor(jobs or usable_cpus(), folder / PRINTS)


def _run(
    sweep: PreparedSweep, outcomes: OutcomeFile, executor: PassExecutor, out: Output, *, retry_failed: bool
) -> None:
    """Do what is to be done and show how far it is; Ctrl-C or SIGTERM end it early."""
    from bftrain.cli.interruption import interruption
    from bftrain_replay.commands.sweep_progress import progress

    with interruption() as interrupted, progress(out) as shown:
        sweep.run(outcomes, executor, retry_failed=retry_failed, watch=shown.tell, stopping=interrupted)


def _draw(done: SweepResult, wanted: Mapping[str, Path | None]) -> None:
    """Write the plots as files."""
    from bftrain_replay import replay_folder
    from bftrain_replay.sweeping.sweep_page import write_figures

    for form, folder in wanted.items():
        if folder is not None:
            replay_folder.prepare(folder)
            write_figures(done, folder, form)


def _show(done: SweepResult, out: Output, to_do: int | None = None) -> None:
    """Print the table, and how many replays are to be done if that is asked."""
    for words, passes in done.warnings.items():
        out.warn(f"{words} ({passes:,} replays)" if passes > 1 else words)
    reasons: dict[str, PointRow] = {row.error: row for row in reversed(done.failed)}
    for reason, row in list(reversed(reasons.items()))[:_MOST_REASONS]:
        out.warn(f"failed: {row.point.words}: {reason}")
    if len(reasons) > _MOST_REASONS:
        out.warn(f"{len(reasons) - _MOST_REASONS:,} more reasons are in the table")
    more = {} if to_do is None else {"to_do": to_do}
    data = {**done.summary(), **more, "rows": _records(done)} if out.json else None
    out.result(data, lambda: _words(done, to_do))


def _records(done: SweepResult) -> list[dict[str, Any]]:
    return [{column.name: row.cells.get(column.name) for column in done.columns} for row in done.rows]


def _words(done: SweepResult, to_do: int | None) -> RenderableType:
    """Lay the most important columns out."""
    from bftrain_replay.sweeping.sweep_table import PointState
    from bftrain_replay.sweeping.table_metrics import metric_of

    swept = list(done.sweep.spec.swept)
    wanted = done.sweep.spec.plot or _usual(done)  # what is to be drawn is what is asked about
    columns = [name for name in wanted if any(row.cells.get(name) is not None for row in done.rows)]
    with_states = any(row.state is not PointState.DONE for row in done.rows)
    rows = [
        [
            *(_plain(row.point.options[name]) for name in swept),
            *(_marked(name, row) for name in columns),
            *([str(row.state)] if with_states else []),
        ]
        for row in done.rows[:_MOST_ROWS]
    ]
    columns = [
        *swept,
        *(_PRINTED[name][0] if name in _PRINTED else metric_of(name).title for name in columns),
        *(["status"] if with_states else []),
    ]
    title = f"{done.sweep.spec.title}: {len(done.rows):,} points"
    if len(rows) < len(done.rows):
        title += f", the first {len(rows)} of them"
    if to_do is not None:
        title += f"; {to_do:,} of {len(done.sweep.plan.passes):,} replays are still to be done"
    left = (*range(len(swept)), *((len(columns) - 1,) if with_states else ()))
    return NarrowTable(title, columns, rows, naming=len(swept), left=left)


def _usual(done: SweepResult) -> tuple[str, ...]:
    """Name the columns that tell most: of idle nodes the harvest, else when tasks were done."""
    if all(row.point.in_rounds or row.point.cluster for row in done.rows):
        return _PRINTED_OF_TIMES
    return tuple(_PRINTED)


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _marked(name: str, row: PointRow) -> str:
    """Return a figure in words, marked where it only says that there were too few tasks."""
    from bftrain_replay.results.headline import RAN_OUT
    from bftrain_replay.sweeping.table_metrics import metric_of, tasks_ran_out

    text = _figure(name, row.cells.get(name))
    return f"{text} ({RAN_OUT})" if tasks_ran_out(metric_of(name), row) else text


def _figure(name: str, value: object) -> str:
    from bftrain import text_formats
    from bftrain_replay.sweeping.table_metrics import metric_of

    if not isinstance(value, (int, float)):
        return text_formats.UNKNOWN
    if name not in _PRINTED:
        return metric_of(name).said(value)
    match _PRINTED[name][1]:
        case "share":
            return text_formats.percent(value)
        case "samples":
            return text_formats.large(value)
        case _:
            return text_formats.duration(value)


def _leave(done: SweepResult, folder: Path) -> None:
    """End as interrupted if points are open, and as partly failed if some failed."""
    from bftrain_replay.sweeping.sweep_table import PointState

    if not done.complete:
        still = sum(row.state is PointState.OPEN for row in done.rows)
        kept = f"{len(done.rows) - still:,} of {len(done.rows):,} points are done and kept in {folder}"
        raise Interrupted(f"interrupted; {kept}; the same command goes on")
    if done.failed:
        raise PartlyFailed(
            f"{len(done.failed):,} of {len(done.rows):,} points failed",
            where=str(folder),
            fix="the table says why; --retry-failed tries them again",
        )
