"""``bftrain reproduce``: the figures of published systems, run again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import NarrowTable, Output, prints_results, table
from bftrain.errors import UnknownName, UsageError
from bftrain_replay.commands.sweep import executor_of, finish, sweep_watch, worker_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from bftrain_replay.reproducing.experiment import Experiment, Request
    from bftrain_replay.reproducing.results import Reproduction
    from bftrain_replay.sweeping.sweep import PreparedSweep
    from bftrain_replay.sweeping.sweep_passes import OutcomeFile, PassExecutor
    from bftrain_replay.sweeping.sweep_table import PointRow

    Executors = Mapping[bool, PassExecutor]  # True: points whose run times are measured; False: all others

_MOST_SEED: Final = 2**32 - 1
_MOST_ROWS: Final = 50  # maximum printed rows of a figure without published values
_folder = click.Path(path_type=Path, file_okay=False)
_traces = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(
    cls=DocumentedCommand,
    example="bftrain reproduce gavel las -o gavel --quick\nbftrain reproduce gavel -o gavel --jobs 16",
    epilog="Without NAME the experiments and their figures are listed; without FIGURE all figures run. DIR gets "
    "values.csv (measured and published values), report.html, and pictures/ with each plot as SVG and PNG. "
    "Ctrl-C keeps finished runs; the same command continues. docs/how-to/reproduce.md explains differences above 5 %.",
)
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("figures", metavar="[FIGURE]...", nargs=-1)
@click.option("-o", "--output", "folder", metavar="DIR", type=_folder, help="Folder for the result; required to run.")
@click.option("--quick", is_flag=True, help="Run a few points of each figure (under 2 minutes).")
@click.option("--traces", metavar="DIR", type=_traces, help="Read the published input files from this folder.")
@click.option("--seeds", metavar="LIST", help="Job-stream seeds, such as 0,1 (default: the published seeds).")
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
    seeds: str | None,
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
        seeds=_seeds(seeds),
        traces=traces.absolute() if traces else None,
        quick=quick,
    )
    _check_options(experiment, request)
    cached = CachedExecutor(executor_of(folder, jobs, dask, dask_options), OutcomeCache.of_user(), keeps=not dask)
    executors: Executors = {False: cached, True: LocalExecutor(1, folder / PRINTS)}
    _reproduce(experiment, request, folder, executors, out)


def _list(experiments: Iterable[Experiment], out: Output) -> None:
    from rich.console import Group

    data, tables = [], []
    for experiment in experiments:
        figures = {name: figure.title for name, figure in experiment.figures.items()}
        about = {"name": experiment.name, "title": experiment.title, "source": experiment.source}
        data.append({**about, "figures": figures})
        title = f"{experiment.name}: {experiment.title} ({experiment.source})"
        tables.append(table(title, ("figure", ""), list(figures.items()), left=(0, 1)))
    out.result(data, lambda: Group(*tables))


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        seeds = tuple(map(int, text.split(",")))
    except ValueError:
        seeds = (-1,)
    if len({*seeds}) < len(seeds) or not 0 <= min(seeds) <= max(seeds) <= _MOST_SEED:
        fix = f"write different whole numbers up to {_MOST_SEED}, such as 0,1,2"
        raise UsageError(f"is {text[:_MOST_ROWS]!r}", where="--seeds", fix=fix)
    return seeds


def _check_options(experiment: Experiment, request: Request) -> None:
    given = {"--seeds": (request.seeds, experiment.takes_seeds), "--traces": (request.traces, experiment.traces)}
    for option, (value, has_effect) in given.items():
        if value and not has_effect:
            raise UsageError(f"has no effect on '{experiment.name}'", where=option, fix="omit it")
    if not request.traces and any(experiment.figures[name].needs_traces for name in request.figures):
        raise UsageError("is missing", where="--traces DIR", fix=f"name {experiment.traces}")


def _reproduce(experiment: Experiment, request: Request, folder: Path, executors: Executors, out: Output) -> None:
    from bftrain.cli.interruption import unterminated
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.drawing import vega
    from bftrain_replay.reproducing import page
    from bftrain_replay.sweeping.sweep_passes import OutcomeFile
    from bftrain_replay.sweeping.sweep_table import PointState

    continues = page.continues(folder, experiment, request)
    page.check_pictures(folder, request)
    with ResultFolder(folder, page.KIND, continues=continues, advice="name another folder") as result:
        with OutcomeFile(folder) as outcomes:
            done = _run(experiment, request, outcomes, executors, out)
        written = not done.count(PointState.OPEN) or not result.holds_finished
        if written:
            with unterminated():
                result.replace(lambda draft: page.write(draft, done))
                if vega.available():
                    page.write_pictures(folder, done)
                else:
                    out.warn(f"no report.html and no pictures: {vega.lacking()}")
    out.result(page.summary(done) if out.json else None, lambda: _printed(done))
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
    from bftrain_replay.commands.progress import shown_progress, watched
    from bftrain_replay.reproducing.results import Reproduction, run_all

    # Scheduling keeps nothing, so Ctrl-C ends it as usual
    scheduled = watched(out, 100.0, unit=1.0, counted="jobs", done="% scheduled", interruptible=False)
    with scheduled as tell, on_sigterm(signal.default_int_handler):
        figures = experiment.prepare(replace(request, tell=tell))
    with unterminated(), interruption() as interrupted:

        def run(sweep: PreparedSweep, timed: bool) -> Sequence[PointRow]:  # noqa: FBT001 - a callback
            with shown_progress(out) as shown:
                watch = sweep_watch(shown)
                sweep.run(outcomes, executors[timed], retry_failed=True, watch=watch, stopping=interrupted)
            return sweep.swept(outcomes.known).rows

        return Reproduction(experiment, request, figures, run_all(experiment.title, figures, run))


def _printed(done: Reproduction) -> RenderableType:
    """Return a table per figure: the values with a published counterpart, otherwise all values, unless too many."""
    from rich.console import Group

    from bftrain_replay.reproducing import page

    parts: list[RenderableType] = []
    for figure, values in page.figures_with_values(done):
        shown, title = [value for value in values if value.published is not None], f"{figure.title}: {figure.y}"
        if not shown and len(values) > _MOST_ROWS:
            parts.append(f"{title}: {len(values):,} values in {page.TABLE}\n")
            continue
        values_table = page.table_of(figure, shown or values)
        cells, names = [[*map(page.text_of, row)] for row in values_table.rows], values_table.headings
        left = (0, *(number for number, name in enumerate(names) if name in {"seeds", "source"}))
        parts.append(NarrowTable(title, names, cells, naming=2, left=left))
    return Group(*parts)
