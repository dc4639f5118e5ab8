"""``bftrain replay --round``: time shared in rounds of a fixed length, on a cluster or on a log's idle nodes."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click
from click import Choice

from bftrain import text_formats
from bftrain.cli.interruption import unterminated
from bftrain.cli.output import table
from bftrain.cli.settings import DurationType, option_of, settings_of_kind
from bftrain.errors import BadValue, Interrupted, UsageError
from bftrain_replay.commands.replay_run import exit_if_broken, kept_files_text, watched
from bftrain_replay.commands.side_by_side import FigureRow, ReplayCell, counts, spreads_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.commands.replay_run import ReplayRequest
    from bftrain_replay.metrics.task_figures import TaskPercentiles
    from bftrain_replay.rounds.round_folder import RoundSource
    from bftrain_replay.rounds.round_result import RoundResult
    from bftrain_replay.rounds.round_settings import RoundSettings

# setting: its type, and what its option says; like bftrain.cli.settings.OPTIONS, and held to the settings by a test.
# Those that every replay has too, such as --seed, are not among them
OPTIONS: Final[Mapping[str, tuple[Any, str]]] = {
    "round_s": (DurationType(), "Share time in rounds of so many seconds; the options that follow are for rounds."),
    "policy": (str, "fifo, las, tiresias=7200, a sharing policy such as max-min, FILE.py:NAME... [fifo]."),
    "finish": (
        Choice(("moment", "boundary")),
        "When a task that is done leaves: then, or at the round's end [moment].",
    ),
    "like": (
        Choice(("gavel", "gavel-ideal")),
        "Shares: the conventions of this simulator; ideal: without rounds [none].",
    ),
    "kind_order": (
        Choice(("priority", "listed", "drawn")),
        "Shares: all kinds at once, or one by one as they are listed or drawn [priority].",
    ),
    "overtaking": (Choice(("yes", "no")), "Whether those behind a task that does not fit may run [yes]."),
    "shares_interval_s": (DurationType(), "Seconds between two computations of shares at least [0]."),
    "pairs": (str, "FILE: a throughput table with the speeds of pairs, for policies that let two tasks share nodes."),
    "phases": (str, "FILE: model,from,nodes,rate: speeds of models from a share of their work on [speeds stay]."),
    "per_host": (
        str,
        "NODES or KIND=NODES,..: nodes of one host of a cluster, for tasks with speeds by hosts [unknown].",
    ),
    "cpus": (str, "CORES or KIND=CORES,..: CPU cores that a host has for each node, such as a GPU [not limited]."),
    "memory_gb": (str, "GB or KIND=GB,..: the same of memory [not limited]."),
    "gang": (Choice(("min", "max")), "Which of its sizes an elastic task has [such tasks are refused]."),
    "measure": (str, "A..B: means over these tasks only, counted from 0 as they come; it ends when they are done."),
    "max_backlog_s": (DurationType(), "More waiting work than all nodes do in so many seconds ends it [30 days]."),
}
# options of every replay that count here
SHARED: Final = (
    *("window", "nodes", "start_cost_s", "cost_factor", "seed", "admission", "placement", "metrics"),
    *("speed_error", "profiled", "learning"),
)
_KEY: Final = "round_s"
_HOUR_S: Final = 3600.0
_OTHERS: Final = ("running", "waiting", "not_arrived")


def wanted(config: Path | None, given: Mapping[str, object]) -> bool:
    """Return whether rounds are requested, on the command line or in a configuration file.

    Options for rounds only are refused without them.
    """
    if given[_KEY] is not None:
        return True
    if config is not None:
        from bftrain.config import read_toml

        if _KEY in read_toml(config):
            return True
    for name in OPTIONS:
        if given[name] is not None:
            raise UsageError("goes with --round", where=option_of(name), fix="say how long a round is, or leave it out")
    return False


def replay_in_rounds(asked: ReplayRequest, given: Mapping[str, object], out: Output) -> None:
    """Share the time of nodes in rounds among the tasks of a file; write and print the result."""
    from bftrain.result_folder import ResultFolder
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.rounds import round_folder, round_page
    from bftrain_replay.rounds.round_settings import RoundSettings

    if asked.task_file is None:
        fix = "bftrain replay --cluster NODES --tasks TASKS --round SECONDS"
        raise UsageError("is missing", where="--tasks", fix=fix)
    settings = settings_of_kind(asked.config, _for_rounds(given), RoundSettings)
    folder, written = asked.folder, False
    place = nullcontext() if folder is None else ResultFolder(folder, round_folder.KIND, overwrite=asked.overwrite)
    with place as target, unterminated():
        source, origin = _source(asked)
        result = _simulate(source, load_tasks(asked.task_file), settings, out)

        def write(draft: Path) -> None:
            round_folder.write(result, draft, origin, form=asked.tables)
            round_page.write(draft)

        if target is not None and (result.ended != "interrupted" or not target.holds_finished):
            target.replace(write)
            written = True
    for text in _warnings(result):
        out.warn(text)
    out.result(round_folder.summary(result, origin) if out.json else None, lambda: _words(result, origin))
    if written:
        out.say(f"result: {folder}")
    if result.ended == "interrupted":
        remains = f"; {kept_files_text(folder, written=written)}" if folder is not None else ""
        raise Interrupted(f"interrupted{remains}")
    exit_if_broken(result.broken_metrics)


def _for_rounds(given: Mapping[str, object]) -> dict[str, object]:
    """Return the options that apply to rounds, and raise for those that do not."""
    known = {*OPTIONS, *SHARED, "until_s", "shares", "topology"}
    for parameter in click.get_current_context().command.params:
        name = parameter.name or ""
        if name in given and name not in known and given[name] not in (None, "", False):
            where = max(parameter.opts, key=len) if isinstance(parameter, click.Option) else name
            raise UsageError("means nothing in rounds", where=where, fix="leave it out, or replay without --round")
    return {name: value for name, value in given.items() if name in known}


def _source(asked: ReplayRequest) -> tuple[Mapping[str, int] | EventLog, RoundSource]:
    from bftrain_replay.rounds.round_folder import RoundSource
    from bftrain_replay.simulation.fixed_cluster import FixedCluster

    tasks = str(asked.task_file)
    if asked.cluster is not None:
        asked.check_cluster_alone()
        return asked.cluster, RoundSource(cluster=FixedCluster(nodes=asked.cluster, until_s=None).text, tasks=tasks)
    if asked.log is None:
        raise UsageError("is missing", where="LOG", fix="name a log, or nodes such as --cluster v100=36,k80=4")
    events = asked.load_log(asked.log)
    kinds = str(asked.kinds or "")
    return events, RoundSource(log=str(asked.log), log_sha256=events.sha256, kinds=kinds, tasks=tasks)


def _simulate(
    source: Mapping[str, int] | EventLog, specs: Sequence[TaskSpec], settings: RoundSettings, out: Output
) -> RoundResult:
    """Simulate with progress; Ctrl-C or SIGTERM end it early, a second Ctrl-C at once.

    Progress is in hours if the run has a fixed end, otherwise in finished tasks.
    """
    from bftrain_datasets.log.edits import chosen_window
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.rounds.simulation import simulate

    try:
        ends_s = [settings.until_s] if settings.until_s is not None else []
        if isinstance(source, EventLog):
            begin_s, end_s = chosen_window(source, settings.window or "..")
            ends_s.append(end_s - begin_s)
        if ends_s and not settings.measure:
            with watched(out, min(ends_s), counted="tasks done", done="hours simulated") as go_on:
                return simulate(source, specs, settings, watch=partial(go_on, settings.policy))
        goal = settings.measured(len(specs))[1] + 1
        with watched(out, goal, unit=1.0, counted="hours simulated", done="tasks done") as go_on:

            def watch(simulated_s: float, done: int) -> bool:
                return go_on(settings.policy, done, int(simulated_s // _HOUR_S))

            return simulate(source, specs, settings, watch=watch)
    except BadValue as error:
        setting = (error.where or "").removeprefix("RoundSettings.")
        raise BadValue(error.what, where=option_of(setting), fix=error.fix) from error


def _warnings(result: RoundResult) -> Iterator[str]:
    from bftrain_replay.results.input_warnings import odd_settings

    summary, settings, gangs = result.summary, result.settings, result.engine.gangs
    yield from odd_settings(settings, gangs.specs, gangs.kinds)
    spread = sum(spec.spread is not None for spec in gangs.specs)
    if spread and not result.engine.knows_hosts:
        unknown = "which nodes lie together is not known: they count for nothing"
        yield f"{text_formats.counted(spread, 'task')} with speeds by hosts, and {unknown}"
    resources = sum(spec.resources is not None for spec in gangs.specs)
    if resources and not settings.resources_of_nodes:
        of_tasks = f"{text_formats.counted(resources, 'task')} with speeds by CPU cores or memory"
        yield f"{of_tasks}, and neither --cpus nor --memory-gb limits them"
    if settings.resources_of_nodes and not resources:
        yield "CPU cores and memory count for nothing: no task says how its speed depends on them (resources)"
    yield from result.remarks
    yield from result.metric_notes
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
    from rich.console import Group

    settings, figures = result.settings, result.task_figures
    where = f"{origin.tasks} on {origin.log or origin.cluster}"
    title = f"{where}: {settings.policy} in rounds of {text_formats.duration(settings.round_s)}"
    seconds, ratio = (5, 1, 1, 1), (2, 2, 2, 2)  # a mean to so many digits that published ones can be compared

    def row(name: str, spread: TaskPercentiles, digits: tuple[int, ...]) -> FigureRow:
        figures = (spread.mean, spread.p50, spread.p95, spread.max)
        cells = [ReplayCell(f"{value:,.{count}f}") for value, count in zip(figures, digits, strict=True)]
        return FigureRow(name, cells)

    spreads = (
        ("completion, s", figures.completion_s, seconds),
        ("responsiveness, s", result.summary.responsiveness_s, seconds),
        ("first start after, s", figures.response_s, seconds),
        ("waited in all, s", figures.waited_s, seconds),
        ("slowdown", figures.slowdown, ratio),
        ("rho", figures.rho, ratio),
    )
    rows = [row(name, found, digits) for name, found, digits in spreads if found is not None]
    return Group(table(title, ("", ""), _rows(result)), spreads_table(rows))


def _rows(result: RoundResult) -> Iterator[tuple[str, str]]:
    from bftrain_replay.results.summary_figures import FIGURE_OF

    def label(name: str) -> str:
        return FIGURE_OF[name].label

    summary, figures = result.summary, result.task_figures
    yield "ended", summary.ended.replace("_", " ")
    yield "tasks done", f"{summary.tasks_finished:,} of {summary.tasks:,}{counts(summary, *_OTHERS)}"
    if result.settings.measure:
        yield "measured", f"{summary.measured_finished:,} of {summary.measured:,}, tasks {result.settings.measure}"
    yield label("simulated_s"), f"{text_formats.duration(summary.simulated_s)}, {summary.rounds:,} rounds"
    if summary.makespan_s is not None:
        yield label("makespan_s"), text_formats.duration(summary.makespan_s)
    yield FIGURE_OF["coverage"].cluster_label, text_formats.percent(summary.coverage)
    for kind, each in summary.kinds.items() if len(summary.kinds) > 1 else ():
        yield f"  of {kind}", text_formats.percent(each.coverage)
    taken = f", {summary.taken:,} by nodes that left" if summary.taken else ""
    yield label("preemptions"), f"{summary.preemptions:,}{taken}"
    if summary.moves:
        yield label("moves"), f"{summary.moves:,}"
    if summary.lost_spread_samples:
        done = summary.harvested + summary.lost_spread_samples
        yield FIGURE_OF["lost.spread"].label, text_formats.percent(summary.lost_spread_samples / done)
    if figures.deadlines:
        yield label("deadlines_missed"), f"{figures.deadlines_missed:,} of {figures.deadlines:,}"
    if result.settings.prices:
        yield label("cost"), f"{summary.cost:,.2f}"
    for name, value in summary.metrics.items():
        yield name, text_formats.UNKNOWN if value is None else f"{value:,.4g}"
