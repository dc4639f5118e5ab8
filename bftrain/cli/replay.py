"""``bftrain replay``: what a log's idle nodes would have given to a set of tasks, and what it would have cost."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import decides, settings_of_kind, with_options
from bftrain.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from rich.console import RenderableType

    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.origins import Source
    from bftrain_replay.study import Study

_REDRAW_S = 0.1
_AN_HOUR_S = 3600.0


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

_existing_file = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    epilog="DIR gets summary.json, config.toml, report.html and the tables decisions, tasks and allocations; "
    "docs/semantics.md says what is counted and how. Ctrl-C ends it early and keeps what is done by then."
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
@with_options(OPTIONS)
@decides
@prints_results
def command(
    log: Path,
    task_file: Path,
    folder: Path,
    baseline: str,
    tables: str,
    config: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Replay LOG against tasks: what would have been harvested, lost, and possible."""
    from bftrain_datasets.files import load_log
    from bftrain_datasets.taskfiles import load_tasks
    from bftrain_replay import outputs
    from bftrain_replay.origins import Source
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import check_parts

    settings = settings_of_kind(config, given, ReplaySettings)
    if baseline == settings.solver:
        raise UsageError(f"--baseline {baseline} is the solver itself", fix="name another solver, such as equal-share")
    check_parts(settings, baseline)
    outputs.check_tables(tables)
    events, tasks = load_log(log), load_tasks(task_file)
    outputs.prepare(folder)
    source = Source(log=str(log), tasks=str(task_file), baseline=baseline)
    study = replay(events, tasks, settings, baseline, out)
    outputs.write(study, folder, source, tables=tables)
    show(study, source, out, title=f"{log} with {task_file}")
    out.say(f"result: {folder}")
    leave_if_interrupted(study, folder)


def replay(log: EventLog, tasks: Sequence[TaskSpec], settings: Settings, baseline: str, out: Output) -> Study:
    """Replay with a progress bar; Ctrl-C ends it early, a second one at once."""
    from bftrain_replay.study import study

    with _interruption() as interrupted, out.progress() as bars:
        total_h = max(log.span_s / _AN_HOUR_S, 1.0)
        shown: dict[str, Any] = {}
        drawn_s = 0.0

        def watch(name: str, simulated_s: float, _decisions: int) -> bool:
            nonlocal drawn_s
            now_s = time.monotonic()
            if name not in shown or now_s - drawn_s > _REDRAW_S:
                if name not in shown:
                    for done in shown.values():
                        bars.update(done, completed=total_h)
                    shown[name] = bars.add_task(f"{name}, hours replayed", total=total_h)
                bars.update(shown[name], completed=simulated_s / _AN_HOUR_S)
                drawn_s = now_s
            return not interrupted()

        done = study(log, tasks, settings, baseline=baseline, watch=watch)
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


def leave_if_interrupted(study: Study, folder: Path) -> None:
    """End as interrupted if it was."""
    if not study.complete:
        raise Interrupted(f'interrupted; the result in {folder} covers a part and says "complete": false')


@contextmanager
def _interruption() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether Ctrl-C was pressed; the second time it interrupts as usual."""
    pressed = False

    def press(_number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
