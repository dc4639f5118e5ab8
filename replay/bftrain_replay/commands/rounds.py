"""``bftrain replay --round``: time shared in rounds of a fixed length, on a cluster or on a log's idle nodes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain import text_formats
from bftrain.cli.interruption import interruption, unterminated
from bftrain.cli.output import table
from bftrain.cli.settings import option_of, settings_of_kind
from bftrain.errors import BadValue, Interrupted, UsageError
from bftrain_replay.commands.replay_run import leave_if_broken, what_remains
from bftrain_replay.commands.side_by_side import FigureRow, ReplayCell, spreads_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType
    from rich.progress import Progress

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.commands.replay_request import ReplayRequest
    from bftrain_replay.metrics.percentiles import TaskPercentiles
    from bftrain_replay.rounds.round_folder import RoundSource
    from bftrain_replay.rounds.round_result import RoundResult
    from bftrain_replay.rounds.round_settings import RoundSettings

# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test.
# Those that every replay has too, such as --seed, are not among them
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "round_s": (float, "Share time in rounds of so many seconds; the options that follow are for rounds."),
    "policy": (str, "fifo, las, srtf, a sharing policy such as max-min, a plug-in's, or FILE.py:NAME [fifo]."),
    "finish": (
        click.Choice(("moment", "boundary")),
        "When a task that is done leaves: then, or at the round's end [moment].",
    ),
    "kind_order": (
        click.Choice(("priority", "drawn")),
        "Shares: all kinds at once, or one by one in an order drawn [priority].",
    ),
    "overtaking": (click.Choice(("yes", "no")), "Whether those behind a task that does not fit may run [yes]."),
    "shares_interval_s": (float, "Seconds between two computations of shares at least [0]."),
    "gang": (click.Choice(("min", "max")), "Which of its sizes an elastic task has [such tasks are refused]."),
    "measure": (str, "A..B: means over these tasks only, counted from 0 as they come; it ends when they are done."),
    "max_backlog_s": (float, "More waiting work than all nodes do in so many seconds ends it [2592000]."),
}
# options of every replay that count here
SHARED: Final = ("window", "nodes", "start_cost_s", "cost_factor", "seed", "admission", "metrics")
_KEY: Final = "round_s"
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSources:
    """The inputs as they were named: a log or a cluster, kinds of the log's nodes, tasks."""

    log: Path | None
    cluster: Mapping[str, int] | None
    kinds: Path | None
    tasks: Path | None


def wanted(config: Path | None, given: Mapping[str, object]) -> bool:
    """Say whether rounds are asked for, on the command line or in a configuration file.

    What is for rounds only is refused without them.
    """
    if given[_KEY] is not None:
        return True
    if config is not None:
        from bftrain.config import parsed, read

        if _KEY in parsed(read(config), str(config)):
            return True
    for name in OPTIONS:
        if given[name] is not None:
            raise UsageError("goes with --round", where=option_of(name), fix="say how long a round is, or leave it out")
    return False


def replay_in_rounds(sources: RoundSources, asked: ReplayRequest, given: Mapping[str, object], out: Output) -> None:
    """Share the time of nodes in rounds among the tasks of a file; write and show what came of it."""
    from bftrain.result_folder import ResultFolder
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.rounds import round_folder
    from bftrain_replay.rounds.round_settings import RoundSettings

    if sources.tasks is None:
        fix = "bftrain replay --cluster NODES --tasks TASKS --round SECONDS"
        raise UsageError("is missing", where="--tasks", fix=fix)
    settings = settings_of_kind(asked.config, _for_rounds(given), RoundSettings)
    folder, written = asked.folder, False
    round_folder.check_tables(asked.tables)
    place = nullcontext() if folder is None else ResultFolder(folder, round_folder.KIND, overwrite=asked.overwrite)
    with place as target, unterminated():
        source, origin = _source(sources)
        result = _simulate(source, load_tasks(sources.tasks), settings, out)
        if target is not None and (result.ended != "interrupted" or not target.holds_finished):
            target.replace(lambda draft: _write(result, draft, origin, asked.tables))
            written = True
    for text in _warnings(result):
        out.warn(text)
    out.result(round_folder.summary(result, origin) if out.json else None, lambda: _words(result, origin))
    if written:
        out.say(f"result: {folder}")
    if result.ended == "interrupted":
        remains = f"; {what_remains(folder, written=written)}" if folder is not None else ""
        raise Interrupted(f"interrupted{remains}")
    leave_if_broken(result.broken_metrics)


def _write(result: RoundResult, folder: Path, origin: RoundSource, tables: str) -> None:
    from bftrain_replay.rounds import round_folder, round_page

    round_folder.write(result, folder, origin, form=tables)
    round_page.write(folder)


def _for_rounds(given: Mapping[str, object]) -> dict[str, object]:
    """Give the options that count, and refuse those that mean nothing in rounds."""
    known = {*OPTIONS, *SHARED, "until_s", "shares"}
    for parameter in click.get_current_context().command.params:
        name = parameter.name or ""
        if name in given and name not in known and given[name] not in (None, "", False):
            where = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else name
            raise UsageError("means nothing in rounds", where=where, fix="leave it out, or replay without --round")
    return {name: value for name, value in given.items() if name in known}


def _source(sources: RoundSources) -> tuple[Mapping[str, int] | EventLog, RoundSource]:
    """Give the nodes, and how they were named."""
    from bftrain_replay.rounds.round_folder import RoundSource

    log, cluster, kinds, tasks = sources.log, sources.cluster, sources.kinds, str(sources.tasks)
    if cluster is not None:
        if log is not None:
            raise UsageError("a cluster takes the place of a log", where="--cluster", fix="leave LOG or --cluster out")
        if kinds is not None:
            raise UsageError("a cluster names its kinds itself", where="--kinds", fix="leave it out")
        return cluster, RoundSource(cluster=_text(cluster), tasks=tasks)
    if log is None:
        raise UsageError("is missing", where="LOG", fix="name a log, or nodes such as --cluster v100=36,k80=4")
    from bftrain_datasets.log.kind_files import with_kinds
    from bftrain_datasets.log.log_files import load_log

    events = load_log(log) if kinds is None else with_kinds(load_log(log), kinds)
    return events, RoundSource(log=str(log), log_sha256=events.sha256, kinds=str(kinds or ""), tasks=tasks)


def _text(cluster: Mapping[str, int]) -> str:
    return ",".join(f"{kind}={count}" if kind else str(count) for kind, count in cluster.items())


def _simulate(
    source: Mapping[str, int] | EventLog, specs: Sequence[TaskSpec], settings: RoundSettings, out: Output
) -> RoundResult:
    """Simulate and show how far it is; Ctrl-C or SIGTERM end it early, a second Ctrl-C at once."""
    from bftrain_replay.rounds.simulation import simulate

    with interruption() as interrupted, out.progress() as bars:
        try:
            tell = _progress(source, len(specs), settings, bars, out)

            def watch(simulated_s: float, done: int) -> bool:
                tell(simulated_s, done)
                return not interrupted()

            return simulate(source, specs, settings, watch=watch)
        except BadValue as error:
            setting = (error.where or "").removeprefix("RoundSettings.")
            raise BadValue(error.what, where=option_of(setting), fix=error.fix) from error


def _progress(
    source: Mapping[str, int] | EventLog, count: int, settings: RoundSettings, bars: Progress, out: Output
) -> Callable[[float, int], None]:
    """Tell by hours of what has an end of its own, and by tasks where the last of them is the end."""
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_datasets.log.log_slice import chosen_window
    from bftrain_replay.commands.replay_progress import ReplayProgress

    ends_s = [settings.until_s] if settings.until_s is not None else []
    if isinstance(source, EventLog):
        begin_s, end_s = chosen_window(source, settings.window or "..")
        ends_s.append(end_s - begin_s)
    if ends_s and not settings.measure:
        by_hours = ReplayProgress(bars, out, min(ends_s), counted="tasks done", done="hours simulated")
        return lambda simulated_s, done: by_hours.tell(settings.policy, simulated_s, done)
    goal = settings.measured(count)[1] + 1
    by_tasks = ReplayProgress(bars, out, goal, unit=1.0, counted="hours simulated", done="tasks done")
    return lambda simulated_s, done: by_tasks.tell(settings.policy, done, int(simulated_s // _HOUR_S))


def _warnings(result: RoundResult) -> Iterator[str]:
    from bftrain.parts.metrics import notes_on_broken
    from bftrain_replay.results.input_warnings import odd_settings

    summary, settings, gangs = result.summary, result.settings, result.engine.gangs
    yield from odd_settings(settings, gangs.specs, gangs.kinds)
    yield from result.remarks
    yield from notes_on_broken(result.broken_metrics)
    if summary.ended == "overload":
        days = summary.simulated_s / 86_400
        yield (
            f"overload: after {days:,.1f} days {summary.waiting:,} tasks wait, more work than all nodes do in "
            "--max-backlog; the queue grows without bound, and the run ends here"
        )
    if summary.ended == "stalled":
        yield f"stalled: {summary.waiting:,} tasks wait, none runs, and nothing will change that; the run ends here"
    if summary.measured_finished < summary.measured:
        left = summary.measured - summary.measured_finished
        yield f"{left:,} of {summary.measured:,} measured tasks are not done: the means are of the others only"


def _words(result: RoundResult, origin: RoundSource) -> RenderableType:
    """Lay the figures out."""
    from rich.console import Group

    settings, figures = result.settings, result.task_figures
    where = f"{origin.tasks} on {origin.log or origin.cluster}"
    title = f"{where}: {settings.policy} in rounds of {text_formats.duration(settings.round_s)}"
    seconds, ratio = (5, 1, 1, 1), (2, 2, 2, 2)  # a mean to so many digits that published ones can be compared
    spreads = (
        ("completion, s", figures.completion_s, seconds),
        ("responsiveness, s", result.summary.responsiveness_s, seconds),
        ("first start after, s", figures.response_s, seconds),
        ("waited in all, s", figures.waited_s, seconds),
        ("slowdown", figures.slowdown, ratio),
        ("rho", figures.rho, ratio),
    )
    rows = [_spread(name, found, digits) for name, found, digits in spreads if found is not None]
    return Group(table(title, ("", ""), _rows(result)), spreads_table(rows))


def _rows(result: RoundResult) -> Iterator[tuple[str, str]]:
    from bftrain import text_formats

    summary, figures = result.summary, result.task_figures
    yield "ended", summary.ended.replace("_", " ")
    others = ("running", "waiting", "not_arrived")
    more = "".join(
        f", {getattr(summary, name):,} {name.replace('_', ' ')}" for name in others if getattr(summary, name)
    )
    yield "tasks done", f"{summary.tasks_finished:,} of {summary.tasks:,}{more}"
    if result.settings.measure:
        yield "measured", f"{summary.measured_finished:,} of {summary.measured:,}, tasks {result.settings.measure}"
    yield "time simulated", f"{text_formats.duration(summary.simulated_s)}, {summary.rounds:,} rounds"
    if summary.makespan_s is not None:
        yield "makespan", text_formats.duration(summary.makespan_s)
    yield "node-time used", text_formats.percent(summary.coverage)
    for kind, each in summary.kinds.items() if len(summary.kinds) > 1 else ():
        yield f"  of {kind}", text_formats.percent(each.coverage)
    yield (
        "preemptions",
        f"{summary.preemptions:,}" + (f", {summary.taken:,} by nodes that left" if summary.taken else ""),
    )
    if summary.moves:
        yield "moves to another kind", f"{summary.moves:,}"
    if figures.deadlines:
        yield "deadlines missed", f"{figures.deadlines_missed:,} of {figures.deadlines:,}"
    if result.settings.prices:
        yield "cost", f"{summary.cost:,.2f}"
    for name, value in summary.metrics.items():
        yield name, text_formats.UNKNOWN if value is None else f"{value:,.4g}"


def _spread(name: str, spread: TaskPercentiles, digits: tuple[int, ...]) -> FigureRow:
    figures = (spread.mean, spread.p50, spread.p95, spread.max)
    return FigureRow(name, [ReplayCell(f"{value:,.{count}f}") for value, count in zip(figures, digits, strict=True)])
