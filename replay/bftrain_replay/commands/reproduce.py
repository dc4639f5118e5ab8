"""``bftrain reproduce``: the figures of published systems, run again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import NarrowTable, Output, prints_results, table
from bftrain.errors import UnknownName, UsageError
from bftrain_datasets.commands.logfiles import FOLDER
from bftrain_replay.commands.shared_options import worker_options
from bftrain_replay.commands.sweep import executor_of, finish, sweep_watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from bftrain_replay.reproducing.experiment import Experiment, Request
    from bftrain_replay.reproducing.results import Reproduction
    from bftrain_replay.sweeping.sweep import PreparedSweep
    from bftrain_replay.sweeping.sweep_passes import OutcomeFile, PassExecutor
    from bftrain_replay.sweeping.sweep_table import PointRow

    Executors = Mapping[bool, PassExecutor]  # True: points whose run times are measured; False: all others

_SEED: Final = click.IntRange(0, 2**32 - 1)
_MOST_ROWS: Final = 50  # maximum printed rows of a figure without published values
_traces = click.Path(path_type=Path, file_okay=False, exists=True)


def _seeds(_context: click.Context, option: click.Parameter, text: str | None) -> tuple[int, ...]:
    return () if text is None else tuple(dict.fromkeys(_SEED(part, option) for part in text.split(",")))


@click.command(
    cls=DocumentedCommand,
    example="bftrain reproduce gavel las -o gavel --quick\nbftrain reproduce gavel -o gavel --jobs 16",
    epilog="Without NAME the experiments and their figures are listed; without FIGURE all figures run. DIR gets "
    "values.csv (measured and published values), report.html, and each plot as SVG and PNG. "
    "Ctrl-C keeps finished runs; the same command continues. docs/how-to/reproduce.md explains differences above 5 %.",
)
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("figures", metavar="[FIGURE]...", nargs=-1)
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, help="Folder for the result; required to run.")
@click.option("--quick", is_flag=True, help="Run a few points of each figure (under 2 minutes).")
@click.option("--traces", metavar="DIR", type=_traces, help="Read the published input files from this folder.")
@click.option("--seeds", metavar="LIST", callback=_seeds, help="Job-stream seeds, such as 0,1 [the published seeds].")
@heading("Workers")
@worker_options
@prints_results
def command(  # noqa: PLR0913 - one argument for each option
    name: str | None,
    figures: tuple[str, ...],
    *,
    folder: Path | None,
    quick: bool,
    traces: Path | None,
    seeds: tuple[int, ...],
    jobs: int | None,
    dask: str,
    dask_options: tuple[str, ...],
    out: Output,
) -> None:
    """Reproduce the published figures of NAME."""
    from bftrain_replay.reproducing import EXPERIMENTS
    from bftrain_replay.reproducing.experiment import Request
    from bftrain_replay.sweeping.local_executor import LocalExecutor
    from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
    from bftrain_replay.sweeping.sweep import PRINTS

    if name is None:
        _list(EXPERIMENTS.values(), out)
        return
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    for figure in figures:
        if figure not in experiment.figures:
            raise UnknownName.among("figure", figure, experiment.figures, where=f"experiment '{name}'")
    if folder is None:
        raise UsageError("is missing", where="-o DIR", fix=f"bftrain reproduce {name} -o {name}")
    request = Request(
        folder=folder.absolute() / "inputs",
        figures=tuple(dict.fromkeys(figures or experiment.figures)),
        seeds=seeds,
        traces=traces.absolute() if traces else None,
        quick=quick,
    )
    for option, value, has_effect in (
        ("--seeds", seeds, any(len(figure.seeds) > 1 for figure in experiment.figures.values())),
        ("--traces", traces, experiment.traces),
    ):
        if value and not has_effect:
            raise UsageError(f"has no effect on '{name}'", where=option, fix="omit it")
    cached = CachedExecutor(executor_of(folder, jobs, dask, dask_options), OutcomeCache.of_user(), keeps=not dask)
    executors: Executors = {False: cached, True: LocalExecutor(1, folder / PRINTS)}
    _reproduce(experiment, request, folder, executors, out)


def _list(experiments: Iterable[Experiment], out: Output) -> None:
    data, rows = [], list[tuple[str, ...]]()
    for one in experiments:
        figures = {name: figure.title for name, figure in one.figures.items()}
        data.append({"name": one.name, "title": one.title, "source": one.source, "figures": figures})
        rows += [(one.name, "", f"{one.title} ({one.source})"), *(("", *figure) for figure in figures.items())]
    out.result(data, lambda: table("Experiments", ("name", "figure", ""), rows, left=(0, 1, 2)))


def _reproduce(experiment: Experiment, request: Request, folder: Path, executors: Executors, out: Output) -> None:
    from bftrain.cli.interruption import unterminated
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.drawing import vega
    from bftrain_replay.reproducing import results
    from bftrain_replay.sweeping.sweep_passes import OutcomeFile
    from bftrain_replay.sweeping.sweep_table import PointState

    kind, continues = results.result_kind(experiment), results.continues(folder, experiment, request)
    with ResultFolder(folder, kind, continues=continues, advice="name another folder") as result:
        with OutcomeFile(folder) as outcomes:
            done = _run(experiment, request, outcomes, executors, out)
        written = not done.count(PointState.OPEN) or not result.holds_finished
        if written:
            with unterminated():
                result.replace(lambda draft: results.write(draft, done))
    if written and not vega.available():
        out.warn(f"no report.html and no pictures: {vega.lacking()}")
    out.result(results.summary(done) if out.json else None, lambda: _printed(done))
    if written:
        out.say(f"result: {folder}")
    left, failed = done.count(PointState.OPEN), done.count(PointState.FAILED)
    fix = f"{done.failure}; the same command tries them again"
    finish("run", len(done.runs), left, failed, folder, fix=fix)


def _run(
    experiment: Experiment, request: Request, outcomes: OutcomeFile, executors: Executors, out: Output
) -> Reproduction:
    """Run the open points, until all are done or interrupted; failed points are tried again."""
    from msgspec.structs import replace

    from bftrain.cli.interruption import interruption, on_sigterm, unterminated
    from bftrain_replay.commands.progress import ShownProgress, watched
    from bftrain_replay.reproducing.results import Reproduction, run_all

    # Scheduling keeps nothing, so Ctrl-C ends it as usual
    scheduled = watched(out, 100.0, unit=1.0, counted="jobs", done="% scheduled", interruptible=False)
    with scheduled as tell, on_sigterm(signal.default_int_handler):
        figures = experiment.prepare(replace(request, tell=tell))
    with unterminated(), interruption() as interrupted:

        def run(sweep: PreparedSweep, timed: bool) -> Sequence[PointRow]:  # noqa: FBT001 - a callback
            with ShownProgress(out) as shown:  # estimates the end of one sweep
                watch = sweep_watch(shown)
                sweep.run(outcomes, executors[timed], retry_failed=True, watch=watch, stopping=interrupted)
            return sweep.swept(outcomes.known).rows

        return Reproduction(experiment, request, figures, run_all(experiment.title, figures, run))


def _printed(done: Reproduction) -> RenderableType:
    """Return a table per figure: the values with a published counterpart, otherwise all values, unless too many."""
    from rich.console import Group

    from bftrain_replay.reproducing import results

    parts: list[RenderableType] = []
    for figure, values in results.figures_with_values(done):
        shown, title = [value for value in values if value.published is not None], f"{figure.title}: {figure.y}"
        if not shown and len(values) > _MOST_ROWS:
            parts.append(f"{title}: {len(values):,} values in {results.TABLE}.csv\n")
            continue
        values_table = results.table_of(figure, shown or values)
        cells = [[getattr(cell, "text", str(cell)) for cell in row] for row in values_table.rows]
        names = values_table.headings
        left = (0, *(number for number, name in enumerate(names) if name in {"seeds", "source"}))
        parts.append(NarrowTable(title, names, cells, naming=2, left=left))
    return Group(*parts)
