"""``bftrain reproduce``: the figures of published systems, run again."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import NarrowTable, Output, prints_results, table
from bftrain.errors import UnknownName, UsageError
from bftrain_replay.commands.sweep import executor_of, finish, progress, worker_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType

    from bftrain_replay.reproducing.experiment import Experiment, Figure, Request
    from bftrain_replay.reproducing.page import ReproducedFigures
    from bftrain_replay.reproducing.running import Reproduction
    from bftrain_replay.sweeping.run_point import PassExecutor
    from bftrain_replay.sweeping.sweep_runs import OutcomeFile

_ADVICE: Final = "name another folder"
_MOST_SEED: Final = 2**32 - 1
_MOST_ROWS: Final = 50  # of a printed figure without published values
_folder = click.Path(path_type=Path, file_okay=False)
_traces = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(
    cls=DocumentedCommand,
    example="bftrain reproduce gavel las -o gavel --quick\nbftrain reproduce gavel -o gavel --jobs 16",
    epilog="Without NAME the experiments and their figures are listed; without FIGURE all figures run. DIR gets "
    "values.csv (ours and the published values), report.html, and pictures/ with each plot as SVG and PNG. "
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
    from bftrain_replay.forked_pass import usable_cpus
    from bftrain_replay.reproducing.experiment import Request
    from bftrain_replay.reproducing.experiments import EXPERIMENTS
    from bftrain_replay.sweeping.local_executor import LocalExecutor
    from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
    from bftrain_replay.sweeping.sweep import PRINTS

    if name is None:
        data = [
            {
                "name": experiment.name,
                "title": experiment.title,
                "source": experiment.source,
                "figures": {figure: maker.title for figure, maker in experiment.figures.items()},
            }
            for experiment in EXPERIMENTS.values()
        ]
        out.result(data, lambda: _listing(EXPERIMENTS.values()))
        return
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    wanted = _wanted(experiment, figures, quick=quick)
    if folder is None:
        raise UsageError("is missing", where="-o DIR", fix=f"bftrain reproduce {name} -o {name}")
    _check_options(experiment, wanted, traces, seeds)
    request = Request(
        folder=folder.absolute() / "inputs",
        figures=wanted,
        seeds=_seeds(seeds),
        traces=traces.absolute() if traces else None,
        quick=quick,
        jobs=jobs or usable_cpus(),
    )
    cached = CachedExecutor(executor_of(folder, jobs, dask, dask_options), OutcomeCache.of_user(), keeps=not dask)
    one_by_one = LocalExecutor(1, folder / PRINTS)
    _reproduce(experiment, request, folder, lambda timed: one_by_one if timed else cached, out)


def _wanted(experiment: Experiment, figures: tuple[str, ...], *, quick: bool) -> tuple[str, ...]:
    """Return the wanted figures, each once; raise for unknown figures and figures without a quick form."""
    for figure in figures:
        if figure not in experiment.figures:
            raise UnknownName.among("figure", figure, experiment.figures, where=f"experiment '{experiment.name}'")
        if quick and not experiment.figures[figure].quick:
            raise UsageError(f"is not possible for the figure '{figure}'", where="--quick", fix="leave it out")
    every = [name for name, maker in experiment.figures.items() if maker.quick or not quick]
    return tuple(dict.fromkeys(figures or every))


def _check_options(experiment: Experiment, wanted: tuple[str, ...], traces: Path | None, seeds: str | None) -> None:
    if seeds is not None and not experiment.takes_seeds:
        raise UsageError(f"has no effect on '{experiment.name}'", where="--seeds", fix="leave it out")
    if traces is not None and not experiment.traces_help:
        raise UsageError(f"has no effect on '{experiment.name}'", where="--traces", fix="leave it out")
    if traces is None and experiment.traces_help and not experiment.without_traces.issuperset(wanted):
        raise UsageError("is missing", where="--traces DIR", fix=f"name {experiment.traces_help}")


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    whole = all(part.isascii() and part.isdecimal() and len(part) <= len(str(_MOST_SEED)) for part in parts)
    seeds = tuple(map(int, parts)) if whole else ()
    if not whole or len({*seeds}) < len(seeds) or max(seeds) > _MOST_SEED:
        shown = text if len(text) <= _MOST_ROWS else f"{text[:_MOST_ROWS]}..."
        fix = f"write different whole numbers up to {_MOST_SEED}, such as 0,1,2"
        raise UsageError(f"is {shown!r}", where="--seeds", fix=fix)
    return seeds


def _reproduce(
    experiment: Experiment, request: Request, folder: Path, executor: Callable[[bool], PassExecutor], out: Output
) -> None:
    from msgspec.structs import replace

    from bftrain.cli.interruption import on_sigterm, unterminated
    from bftrain.files import prepare_folder
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.commands.replay_run import ReplayProgress
    from bftrain_replay.drawing import vega
    from bftrain_replay.reproducing import page
    from bftrain_replay.sweeping.sweep_runs import OutcomeFile
    from bftrain_replay.sweeping.sweep_table import PointState

    goes_on = page.continues(folder, experiment, request)
    with ResultFolder(folder, page.KIND, goes_on=goes_on, advice=_ADVICE) as result:
        shown = ReplayProgress(out, 100.0, unit=1.0, counted="jobs", done="% scheduled")
        with on_sigterm(signal.default_int_handler), ExitStack() as stack:
            stack.callback(shown.stop)
            figures = experiment.prepare(replace(request, tell=shown.tell))
        with unterminated():
            with OutcomeFile(folder) as outcomes:
                done = _run(experiment, figures, outcomes, executor, out)
            reproduced = page.ReproducedFigures.of(experiment, request, done)
            written = not done.count(PointState.OPEN) or not result.holds_finished
            if written:
                result.replace(lambda draft: page.write(draft, reproduced))
                if vega.available():
                    prepare_folder(folder / "pictures")
                    page.write_pictures(folder / "pictures", reproduced)
                else:
                    out.warn(f"no report.html and no pictures: {vega.lacking()}")
    out.result(page.summary(reproduced) if out.json else None, lambda: _printed(reproduced))
    if written:
        out.say(f"result: {folder}")
    left, failed = done.count(PointState.OPEN), done.count(PointState.FAILED)
    reason = next(iter(done.failures), "")
    finish("run", len(done.rows), left, failed, folder, fix=f"{reason}; the same command tries them again")


def _run(
    experiment: Experiment,
    figures: tuple[Figure, ...],
    outcomes: OutcomeFile,
    executor: Callable[[bool], PassExecutor],
    out: Output,
) -> Reproduction:
    """Run the open points, until all are done or interrupted; failed points are tried again."""
    from bftrain.cli.interruption import interruption
    from bftrain_replay.reproducing import running

    rows = {}
    with interruption() as interrupted:
        for sweep in running.sweeps_of(experiment.title, figures):
            with progress(out) as shown:
                sweep.prepared.run(
                    outcomes, executor(sweep.timed), retry_failed=True, watch=shown.tell, stopping=interrupted
                )
            rows.update(sweep.rows(outcomes.known))
    return running.Reproduction(figures, rows)


def _listing(experiments: Iterable[Experiment]) -> RenderableType:
    from rich.console import Group

    return Group(
        *(
            table(
                f"{experiment.name}: {experiment.title} ({experiment.source})",
                ("figure", ""),
                [(name, maker.title) for name, maker in experiment.figures.items()],
                left=(0, 1),
            )
            for experiment in experiments
        )
    )


def _printed(reproduced: ReproducedFigures) -> RenderableType:
    """Return a table of each figure: the rows with a published value, else our values by x, unless they are many."""
    from rich.console import Group

    from bftrain_replay.reproducing import page

    parts: list[RenderableType] = []
    for figure, rows in reproduced.with_values:
        title, compared = f"{figure.title}: {figure.y}", [row for row in rows if row.published is not None]
        if compared:
            headings, cells = page.text_table(figure, compared)
            left = (0, *(number for number, name in enumerate(headings) if name in {"seeds", "source"}))
            parts.append(NarrowTable(title, headings, cells, naming=2, left=left))
            continue
        headings, cells = page.table_by_line(figure, rows)
        if len(cells) <= _MOST_ROWS:
            parts.append(NarrowTable(title, headings, cells))
        else:
            parts.append(f"{title}: {len(rows):,} values in {page.TABLE}\n")
    return Group(*parts)
