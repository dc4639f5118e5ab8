"""``bftrain reproduce``: the figures of published systems, run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output, prints_results, table
from bftrain.errors import Interrupted, PartlyFailed, UnknownName, UsageError
from bftrain.text_formats import counted
from bftrain_replay.commands.sweep import executor_of, progress, worker_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from bftrain_replay.reproducing.experiment import Experiment, Request
    from bftrain_replay.reproducing.running import Reproduction
    from bftrain_replay.sweeping.run_point import PassExecutor

_ADVICE: Final = "name another folder"
_folder = click.Path(path_type=Path, file_okay=False)
_traces = click.Path(path_type=Path, file_okay=False, exists=True)


@click.command(
    cls=DocumentedCommand,
    example="bftrain reproduce gavel las -o gavel --quick\nbftrain reproduce gavel -o gavel --jobs 16",
    epilog="Without NAME the experiments and their figures are listed; without FIGURE all figures run. DIR gets "
    "values.csv (ours beside the published values), report.html, and pictures/ with each plot as SVG and PNG. "
    "Ctrl-C keeps finished runs; the same command continues. docs/reproduce.md explains differences above 5 %.",
)
@click.argument("name", metavar="[NAME", required=False)
@click.argument("figures", metavar="[FIGURE ...]]", nargs=-1)
@click.option("-o", "--output", "folder", metavar="DIR", type=_folder, help="Folder for the result; required to run.")
@click.option("--quick", is_flag=True, help="Run a few points of each figure only, in less than two minutes.")
@click.option("--traces", metavar="DIR", type=_traces, help="Read the published input files from this folder.")
@click.option("--seeds", metavar="LIST", help="Seeds of the job streams, such as 0,1 [the published ones].")
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
    """Run the experiment NAME again, and compare its figures with the published ones."""
    from bftrain_replay.reproducing.experiment import Request
    from bftrain_replay.reproducing.experiments import EXPERIMENTS
    from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache

    if name is None:
        every = EXPERIMENTS.values()
        data = [{"name": e.name, "title": e.title, "source": e.source, "figures": dict(e.figures)} for e in every]
        out.result(data, lambda: _listing(EXPERIMENTS.values()))
        return
    if name not in EXPERIMENTS:
        raise UnknownName.among("experiment", name, EXPERIMENTS)
    experiment = EXPERIMENTS[name]
    for figure in figures:
        if figure not in experiment.figures:
            raise UnknownName.among("figure", figure, experiment.figures, where=f"experiment '{name}'")
    if folder is None:
        raise UsageError("is missing", where="-o DIR", fix=f"bftrain reproduce {name} -o {name}")
    if experiment.needs and traces is None:
        raise UsageError("is missing", where="--traces DIR", fix=f"name {experiment.needs}")
    request = Request(
        folder=folder.absolute() / "inputs",
        figures=figures or tuple(experiment.figures),
        seeds=_seeds(seeds),
        traces=traces.absolute() if traces else None,
        quick=quick,
    )
    cached = CachedExecutor(executor_of(folder, jobs, dask, dask_options), OutcomeCache.of_user(), keeps=not dask)
    _reproduce(experiment, request, folder, cached, out)


def _reproduce(experiment: Experiment, request: Request, folder: Path, executor: PassExecutor, out: Output) -> None:
    from bftrain.cli.interruption import interruption, unterminated
    from bftrain.files import prepare_folder
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.reproducing import page, running
    from bftrain_replay.sweeping.sweep_runs import OutcomeFile
    from bftrain_replay.sweeping.sweep_table import PointState

    continues = page.is_of(folder, experiment)
    with unterminated(), ResultFolder(folder, page.KIND, goes_on=continues, advice=_ADVICE) as result:
        prepare_folder(request.folder)
        figures = experiment.prepare(request)
        sweep = running.sweep_of(experiment.title, figures)
        with OutcomeFile(folder) as outcomes, interruption() as interrupted, progress(out) as shown:
            done = running.run(sweep, figures, outcomes, executor, watch=shown.tell, stopping=interrupted)
        written = not done.count(PointState.OPEN) or not result.holds_finished
        if written:
            result.replace(lambda draft: page.write(draft, experiment, done))
            if page.can_draw():
                prepare_folder(folder / "pictures")
                page.write_pictures(folder / "pictures", experiment, done)
    out.result(page.summary(experiment, done) if out.json else None, lambda: _words(experiment, done))
    if written:
        out.say(f"result: {folder}")
    _leave(done, folder)


def _seeds(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise UsageError(f"is {text!r}", where="--seeds", fix="write different whole numbers, such as 0,1,2")
    return tuple(map(int, parts))


def _listing(experiments: Iterable[Experiment]) -> RenderableType:
    from rich.console import Group

    titles = ((f"{each.name}: {each.title} ({each.source})", each) for each in experiments)
    return Group(*(table(title, ("figure", ""), list(each.figures.items()), left=(0, 1)) for title, each in titles))


def _words(experiment: Experiment, done: Reproduction) -> RenderableType:
    from rich.console import Group

    from bftrain_replay.reproducing import page

    rows = page.tables(experiment, done)
    shown = (figure for figure in done.figures if rows[figure.name])
    left = (0, 5, 6)
    return Group(
        *(
            table(
                f"{figure.title} ({figure.y})",
                ("", figure.x, *page.HEADINGS[2:]),
                list(page.text_rows(figure, rows[figure.name])),
                left=left,
            )
            for figure in shown
        )
    )


def _leave(done: Reproduction, folder: Path) -> None:
    from bftrain_replay.sweeping.sweep_table import PointState

    still, failed, count = done.count(PointState.OPEN), done.count(PointState.FAILED), len(done.rows)
    if still:
        kept = f"{count - still:,} of {counted(count, 'run')} are finished and kept in {folder}"
        raise Interrupted(f"interrupted; {kept}; the same command continues")
    if failed:
        what = f"{failed:,} of {counted(count, 'run')} failed: {next(iter(done.failures))}"
        raise PartlyFailed(what, where=str(folder), fix="the same command tries them again")
