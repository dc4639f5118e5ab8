"""``bftrain sweep``: many replays with different options, and one table of results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import NarrowTable, Output, prints_results
from bftrain.cli.settings import overwrite_option
from bftrain.errors import BadConfig, Interrupted, PartlyFailed, UsageError
from bftrain.text_formats import counted
from bftrain_datasets.commands.logfiles import FILE, FOLDER
from bftrain_replay.commands.shared_options import no_cache_option, worker_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import RenderableType

    from bftrain.cli.output import Output
    from bftrain_replay.commands.progress import ShownProgress
    from bftrain_replay.sweeping.sweep import SweepResult, SweepStatus
    from bftrain_replay.sweeping.sweep_passes import PassExecutor
    from bftrain_replay.sweeping.sweep_table import PointRow

_SLURM_JOBS: Final = 8
_MOST_ROWS: Final = 50  # rows on a terminal; the file has all
_MOST_REASONS: Final = 5
# Printed columns without ``plot``: of replays on logs, and of rounds and replays on clusters
_PRINTED: Final = ("harvested", "coverage", "efficiency", "baseline_efficiency", "ceiling_efficiency", "makespan_s")
_PRINTED_OF_TIMES: Final = ("completion_s_mean", "completion_s_p95", "makespan_s", "coverage")


def sweep_watch(shown: ShownProgress) -> Callable[[SweepStatus], None]:
    """Return a function that shows the progress of a sweep."""

    def watch(status: SweepStatus) -> None:
        failed = f", {status.failed:,} failed" if status.failed else ""
        replays = f"{status.passes_over:,} of {status.passes:,} replays{failed}"
        done = status.passes_over + sum(status.at_work.values())
        shown.tell("", done, status.passes, lambda _: replays, lambda _: f"{replays}, {len(status.at_work)} at work")

    return watch


@click.command(
    cls=DocumentedCommand,
    example="bftrain sweep sweep.toml --dry-run -o sweep\nbftrain sweep sweep.toml -o sweep --jobs 8",
    epilog="DIR gets the table, sweep.json, a page with plots, and points.jsonl with the finished replays. "
    "docs/how-to/sweeps.md describes SPEC.toml. Ctrl-C keeps finished replays; the same command continues.",
)
@click.argument("spec", metavar="SPEC.toml", type=FILE)
@heading("Result")
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, required=True, help="Folder for the result.")
@click.option("--retry-failed", is_flag=True, help="Try failed points again.")
@click.option("--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Format of the table [csv].")
@overwrite_option
@click.option("--svg", "svg", metavar="DIR", type=FOLDER, help="Also write the plots as SVG there.")
@click.option("--png", "png", metavar="DIR", type=FOLDER, help="Also write the plots as PNG there.")
@no_cache_option
@click.option("--dry-run", is_flag=True, help="Print the number of points and replays, and exit.")
@heading("Workers")
@worker_options
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
    no_cache: bool,
    dry_run: bool,
    out: Output,
) -> None:
    """Replay every combination of the options in SPEC.toml, in parallel."""
    from bftrain.cli.interruption import interruption, unterminated
    from bftrain_replay.commands.progress import ShownProgress
    from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
    from bftrain_replay.sweeping.sweep import PreparedSweep, result_folder
    from bftrain_replay.sweeping.sweep_passes import OutcomeFile, known_in
    from bftrain_replay.sweeping.sweep_table import PointState

    cache = OutcomeCache.of_user(wanted=not no_cache)
    executor = CachedExecutor(executor_of(folder, jobs, dask, dask_options), cache, keeps=not dask)
    sweep = PreparedSweep.of(spec)
    if dry_run:
        known = known_in(folder)
        still = sweep.open(known, retry_failed=retry_failed)
        _show(sweep.swept(known), out, to_do=len(still) - (cache.count(still) if cache else 0))
        return
    with unterminated(), result_folder(sweep, folder, overwrite=overwrite) as result, OutcomeFile(folder) as outcomes:
        before = sweep.plan.passes.keys() & outcomes.known.keys()
        with interruption() as interrupted, ShownProgress(out) as shown:
            watch = sweep_watch(shown)
            sweep.run(outcomes, executor, retry_failed=retry_failed, watch=watch, stopping=interrupted)
        done = sweep.swept(outcomes.known)
        written = done.complete or not result.holds_finished
        if written:
            result.replace(lambda draft: done.write_files(draft, tables))
        _write_plots(done, {"svg": svg, "png": png})
    earlier = before | executor.taken
    points = sum(earlier.issuperset(need.all) for need in sweep.plan.needs)
    if earlier:
        taken = f"; {len(executor.taken):,} of these from {cache.folder}" if cache and executor.taken else ""
        replays = f"{len(earlier):,} of {len(sweep.plan.passes):,} replays"
        out.say(f"computed before: {points:,} of {len(sweep.points):,} points ({replays}{taken})")
    if cache and cache.remark:
        out.warn(cache.remark)
    _show(done, out, computed_before=points)
    if written:
        out.say(f"result: {folder}")
    left = sum(row.state is PointState.OPEN for row in done.rows)
    fix = "the table shows the reasons; --retry-failed retries these points"
    finish("point", len(done.rows), left, len(done.failed), folder, fix)


def _write_plots(done: SweepResult, folders: Mapping[str, Path | None]) -> None:
    """Write the plots in each requested form to its folder."""
    from bftrain.files import prepare_folder
    from bftrain_replay.drawing import vega
    from bftrain_replay.sweeping.sweep_page import charts

    for form, folder in folders.items():
        if folder is not None:
            prepare_folder(folder)
            vega.write(charts(done), folder, form)


def executor_of(folder: Path, jobs: int | None, dask: str, options: tuple[str, ...]) -> PassExecutor:
    """Return what runs the passes: processes here, or the workers of a Dask cluster."""
    from bftrain_replay.study.forked_pass import usable_cpus
    from bftrain_replay.sweeping.dask_executor import SLURM, DaskExecutor
    from bftrain_replay.sweeping.local_executor import LocalExecutor
    from bftrain_replay.sweeping.sweep import PRINTS

    if options and dask != SLURM:
        raise UsageError("is for --dask slurm", where="--dask-option")
    if dask and dask != SLURM and jobs:
        raise UsageError("has no effect with an existing Dask cluster", where="--jobs")
    if dask:
        return DaskExecutor(dask, jobs or _SLURM_JOBS, dict(map(_dask_option, options)), folder)
    return LocalExecutor(jobs or usable_cpus(), folder / PRINTS)


def _dask_option(text: str) -> tuple[str, object]:
    """Parse ``NAME=VALUE``; values other than numbers, booleans and lists are text."""
    from bftrain import toml_io

    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{text!r} is not NAME=VALUE", where="--dask-option", fix="for example job_extra=x")
    try:
        found = toml_io.parse(f"value = {value}", text)["value"]
    except BadConfig:
        return name, value
    return name, found if isinstance(found, int | float | list) else value


def _show(done: SweepResult, out: Output, **counts: int) -> None:
    """Print the table; ``counts`` go to its JSON, and ``to_do``, the remaining replays, also above the table."""
    for text in (*done.first_warnings(), *done.notes):
        out.warn(text)
    reasons: dict[str, PointRow] = {row.error: row for row in reversed(done.failed)}
    for reason, row in list(reversed(reasons.items()))[:_MOST_REASONS]:
        out.warn(f"failed: {row.point.words}: {reason}")
    if len(reasons) > _MOST_REASONS:
        out.warn(f"further reasons, in the table: {len(reasons) - _MOST_REASONS:,}")
    data = None
    if out.json:
        rows = [{column.name: row.cells.get(column.name) for column in done.columns} for row in done.rows]
        data = {**done.summary(), **counts, "rows": rows}
    out.result(data, lambda: _words(done, counts.get("to_do")))


def _words(done: SweepResult, to_do: int | None) -> RenderableType:
    """Return the points with their main columns: ``plot``, by default harvest or completion times."""
    from bftrain.node_units import words_of
    from bftrain.text_formats import plain
    from bftrain_replay.sweeping.sweep_table import PointState, metric_of, metrics_of, text_of

    swept = list(done.spec.swept)
    of_times = all(row.point.in_rounds or row.point.cluster for row in done.rows)
    usual = (metric.column for metric in metrics_of((), done.rows))
    wanted = done.spec.plot or (_PRINTED_OF_TIMES if of_times else dict.fromkeys((*_PRINTED, *usual)))
    names = [name for name in wanted if any(row.cells.get(name) is not None for row in done.rows)]
    metrics = list(map(metric_of, names))
    with_states = any(row.state is not PointState.DONE for row in done.rows)
    rows = []
    for row in done.rows[:_MOST_ROWS]:
        options = (plain(row.point.options[name]) for name in swept)
        rows.append(
            [*options, *(text_of(metric, row) for metric in metrics), *([str(row.state)] if with_states else [])]
        )
    words = words_of(done.unit)
    columns = [*swept, *(words(metric.short_title) for metric in metrics), *(["status"] if with_states else [])]
    title = f"{done.spec.title}: {counted(len(done.rows), 'point')}"
    if len(rows) < len(done.rows):
        title += f", the first {len(rows)} of them"
    if to_do is not None:
        title += f"; {to_do:,} of {len(done.sweep.plan.passes):,} replays are still to be done"
    left = (*range(len(swept)), *((len(columns) - 1,) if with_states else ()))
    return NarrowTable(title, columns, rows, naming=len(swept), left=left)


def finish(noun: str, count: int, left: int, failed: int, folder: Path, fix: str) -> None:
    """Raise if some of ``count`` runs are ``left`` after an interruption, or have ``failed``; ``fix`` is for these."""
    if left:
        kept = f"{count - left:,} of {counted(count, noun)} are done and kept in {folder}"
        raise Interrupted(f"interrupted; {kept}; the same command continues")
    if failed:
        raise PartlyFailed(f"{failed:,} of {counted(count, noun)} failed", where=str(folder), fix=fix)
