"""``bftrain replay``: what a log's idle nodes would have given to a set of tasks, and what it would have cost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import decides, settings_of_kind, with_options
from bftrain.errors import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from rich.console import RenderableType

    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.answers import Answers
    from bftrain_replay.origins import Source
    from bftrain_replay.study import Study


class _Latency(click.ParamType["float | str"]):
    """Seconds, or the word ``measured``."""

    name = "SECONDS|measured"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        """Leave the word as it is."""
        if value == "measured":
            return "measured"
        try:
            return float(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number of seconds nor 'measured'", param, ctx)


# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "semantics": (click.Choice(("realistic", "published")), "By which rules tasks advance [realistic]."),
    "events": (click.Choice(("all", "chosen")), "Published rules: events of all nodes, or of the chosen ones [all]."),
    "window": (str, "Replay A..B only, seconds UTC or ISO times; either may be left out."),
    "nodes": (str, "Nodes to replay: a set such as nid[0001-0100], or a slice such as 0:1024 in the log's own order."),
    "skip_events": (int, "Leave out so many events at the begin [0]."),
    "decision_latency_s": (_Latency(), "Seconds until new sizes take effect; measured: the solver's own time [0]."),
    "min_interval_s": (float, "Seconds between decisions at least; nodes are given back at once all the same [0]."),
    "start_cost_s": (float, "Seconds that every start from zero takes [what the tasks say]."),
    "checkpoint_interval_s": (float, "Seconds between commits; preemption takes the work since [shrink_cost_s]."),
    "seed": (int, "Where whatever is random comes from [0]."),
}

UNFINISHED: Final = "unfinished.jsonl"  # the answers of a replay that runs or was interrupted

_existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    epilog="DIR gets summary.json, config.toml, report.html and the tables decisions, tasks and allocations; "
    "docs/results.md explains them. Ctrl-C ends it early, keeps what is done by then, and --resume goes on."
)
@click.argument("log", type=_existing_file)
@click.option("--tasks", "task_file", type=_existing_file, required=True, help="Task file, .toml or .csv.")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the result.",
)
@click.option("--baseline", default="", metavar="SOLVER", help="Replay with this solver too, such as equal-share.")
@click.option("--tables", type=click.Choice(("csv", "parquet")), default="csv", help="Form of the three tables [csv].")
@click.option("--resume", is_flag=True, help="Go on with what was interrupted in DIR; all else must be as it was.")
@with_options(OPTIONS)
@decides
@prints_results
def command(
    log: Path,
    task_file: Path,
    folder: Path,
    *,
    baseline: str,
    tables: str,
    resume: bool,
    config: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Replay LOG against tasks: what would have been harvested, lost, and possible."""
    from bftrain_datasets.files import load_log
    from bftrain_datasets.taskfiles import load_tasks
    from bftrain_replay import outputs
    from bftrain_replay.answers import Answers, origin_of
    from bftrain_replay.origins import Source
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import check_parts

    settings = settings_of_kind(config, given, ReplaySettings)
    check_parts(settings, baseline)
    outputs.check_tables(tables)
    events, specs = load_log(log), load_tasks(task_file)
    outputs.prepare(folder)
    source = Source(log=str(log), tasks=str(task_file), baseline=baseline)
    unfinished = folder / UNFINISHED
    if resume and not unfinished.exists():
        out.say(f"nothing was interrupted in {folder}: beginning at the begin")
    with _unterminated(), Answers(unfinished, origin_of(events, specs, settings, baseline), resume=resume) as answers:
        study = replay(events, specs, settings, baseline, out, answers)
        outputs.write(study, folder, source, tables=tables)
        if study.complete:
            answers.discard()
    show(study, source, out, title=f"{log} with {task_file}")
    out.say(f"result: {folder}")
    leave_if_interrupted(study, folder, "; the same command with --resume goes on")


def replay(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    settings: Settings,
    baseline: str,
    out: Output,
    answers: Answers | None = None,
) -> Study:
    """Replay and show how far it is; Ctrl-C or SIGTERM end it early, a second Ctrl-C at once."""
    from bftrain.cli.replay_progress import ReplayProgress
    from bftrain_replay.study import study

    with _interruption() as interrupted, out.progress() as bars:
        progress = ReplayProgress(bars, out, log.span_s)

        def watch(name: str, simulated_s: float, decisions: int) -> bool:
            progress.tell(name, simulated_s, decisions)
            return not interrupted()

        done = study(log, tasks, settings, baseline=baseline, watch=watch, answers=answers)
    for warning in done.result.warnings:
        out.warn(warning)
    for time_s, note in done.result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")
    return done


def show(study: Study, source: Source, out: Output, *, title: str, **more: object) -> None:
    """Print the figures side by side, or as JSON with ``more`` added."""
    from bftrain_replay import outputs

    data = {**outputs.summary(study, source), **more} if out.json else None
    out.result(data, lambda: compared(study, title))


def compared(study: Study, title: str) -> RenderableType:
    """Lay the figures of all replays out side by side."""
    from bftrain_replay import comparison

    return table(title, ("", *comparison.columns(study)), comparison.rows(study, measured=True))


def leave_if_interrupted(study: Study, folder: Path, advice: str = "") -> None:
    """End as interrupted if it was."""
    if not study.complete:
        raise Interrupted(f'interrupted; the result in {folder} covers a part and says "complete": false{advice}')


@contextmanager
def _unterminated() -> Iterator[None]:
    """Ignore SIGTERM but where it is listened to: it may come again while the part that is done is being written."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether Ctrl-C was pressed; the second time it interrupts as usual.

    SIGTERM asks for the same, as a batch system sends it when a job's time is up.
    """
    pressed = False

    def press(number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, press) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
