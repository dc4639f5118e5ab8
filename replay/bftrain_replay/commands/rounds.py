"""``bftrain rounds``: time shared in rounds of a fixed length, on a cluster or on a log's idle nodes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain import text_formats
from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.interruption import unterminated
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import (
    config_option,
    option_of,
    options_of,
    overwrite_option,
    settings_of_kind,
    shares_option,
    topology_option,
    with_options,
)
from bftrain.cli.value_completion import complete_parts
from bftrain.errors import BadValue, UsageError
from bftrain_datasets.commands.logfiles import FILE, FOLDER, InputFile, kinds_option
from bftrain_replay.commands.progress import AN_HOUR_S, watched
from bftrain_replay.commands.run_folder import RunFolder, check_cluster_alone, load_log_with_kinds
from bftrain_replay.commands.shared_options import cluster_option, tables_option
from bftrain_replay.commands.side_by_side import counts, spreads_table
from bftrain_replay.rounds.round_settings import RoundSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.rounds.round_result import RoundResult
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.run.task_figures import TaskPercentiles

_OTHERS: Final = ("running", "waiting", "not_arrived")


@click.command(
    cls=DocumentedCommand,
    example="bftrain rounds --cluster v100=36,k80=4 --tasks tasks.toml --policy las\n"
    "bftrain rounds log.npz --tasks tasks.toml --set gang=max",
    epilog="DIR gets summary.json, config.toml, report.html and the tables tasks, rounds, over_time and users; "
    "docs/how-to/rounds.md explains them. Ctrl-C stops early and keeps the results.",
)
@click.argument("log", type=InputFile(), required=False)
@heading("Inputs")
@click.option("--tasks", "task_file", type=FILE, required=True, help="Task file, .toml or .csv.")
@cluster_option
@kinds_option
@heading("Result")
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, help="Folder for the result.")
@tables_option
@overwrite_option
@heading("Settings")
@partial(config_option, made_by="an earlier run")
@with_options(options_of(RoundSettings), policy=complete_parts("rounds", "sharing"))
@shares_option
@topology_option
@prints_results
def command(config: Path | None, out: Output, **given: Any) -> None:  # noqa: ANN401 - the options' own types
    """Share the time of nodes in rounds among the tasks of a file, on a cluster or on the idle nodes of LOG."""
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.rounds.round_result import ROUNDS, run_of

    own = ("log", "cluster", "kinds", "task_file", "folder", "tables", "overwrite")
    asked = SimpleNamespace(**{name: given.pop(name) for name in own})
    settings = settings_of_kind(config, given, RoundSettings)
    with unterminated(), RunFolder.of(ROUNDS, asked.folder, asked.tables, overwrite=asked.overwrite) as place:
        source, origin = _source(asked)
        result = _simulate(source, load_tasks(asked.task_file), settings, out)
        run, complete = run_of(result, origin), result.ended != "interrupted"
        place.write(run, complete=complete)
    for text in _warnings(result):
        out.warn(text)
    out.result(run.summary if out.json else None, lambda: _words(result, origin))
    place.end(out, complete=complete, broken=result.own_metrics.broken)


def _source(asked: SimpleNamespace) -> tuple[Mapping[str, int] | EventLog, InputSource]:
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.simulation.fixed_cluster import FixedCluster

    tasks = str(asked.task_file)
    if asked.cluster is not None:
        check_cluster_alone(asked.log, asked.kinds)
        text = FixedCluster(nodes=asked.cluster, until_s=None).text
        return asked.cluster, InputSource(tasks=tasks, options=("--cluster", text))
    if asked.log is None:
        raise UsageError("is missing", where="LOG", fix="name a log, or nodes such as --cluster v100=36,k80=4")
    kinds = () if asked.kinds is None else ("--kinds", str(asked.kinds))
    return load_log_with_kinds(asked.log, asked.kinds), InputSource(log=str(asked.log), tasks=tasks, options=kinds)


def _simulate(
    source: Mapping[str, int] | EventLog, specs: Sequence[TaskSpec], settings: RoundSettings, out: Output
) -> RoundResult:
    """Simulate with progress; Ctrl-C or SIGTERM stop early, a second Ctrl-C immediately.

    Progress is in hours if the run has a fixed end, otherwise in finished tasks.
    """
    from bftrain_datasets.log.edits import chosen_window
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.rounds.simulation import simulate

    try:
        ends_s = [settings.until_s] if settings.until_s is not None else []
        if isinstance(source, EventLog):
            begin_s, end_s = chosen_window(source, settings.window or ":")
            ends_s.append(end_s - begin_s)
        if ends_s and not settings.measure:
            with watched(out, min(ends_s), counted="tasks done", done="hours simulated") as go_on:
                return simulate(source, specs, settings, watch=partial(go_on, settings.policy))
        goal = settings.measured(len(specs))[1] + 1
        with watched(out, goal, unit=1.0, counted="hours simulated", done="tasks done") as go_on:

            def watch(simulated_s: float, done: int) -> bool:
                return go_on(settings.policy, done, int(simulated_s // AN_HOUR_S))

            return simulate(source, specs, settings, watch=watch)
    except BadValue as error:
        setting = (error.where or "").removeprefix("RoundSettings.")
        raise BadValue(error.what, where=option_of(setting), fix=error.fix) from error


def _warnings(result: RoundResult) -> Iterator[str]:
    from bftrain_replay.run.input_warnings import odd_shares

    summary, settings, gangs = result.summary, result.settings, result.engine.gangs
    yield from odd_shares(settings.entities, settings.prices, gangs.specs, gangs.kinds)
    spread = sum(spec.spread is not None for spec in gangs.specs)
    if spread and not result.engine.knows_hosts:
        unknown = "which have no effect, as the hosts of the nodes are unknown"
        yield f"{text_formats.counted(spread, 'task')} with speeds by hosts, {unknown}"
    resources = sum(spec.resources is not None for spec in gangs.specs)
    if resources and not settings.resources_of_nodes:
        of_tasks = f"{text_formats.counted(resources, 'task')} with speeds by CPU cores or memory"
        yield f"{of_tasks}, and no limit is set: --set cpus=CORES, --set memory-gb=GB"
    if settings.resources_of_nodes and not resources:
        yield "CPU cores and memory have no effect: no task states how its speed depends on them (resources)"
    yield from result.remarks
    yield from result.own_metrics.notes
    if summary.ended == "overload":
        days = summary.simulated_s / 86_400
        yield (
            f"overload: after {days:,.1f} days {summary.waiting:,} tasks wait, more work than all nodes do in "
            "--set max-backlog; the queue grows without bound; the run stops here"
        )
    if summary.ended == "stalled":
        yield f"stalled: {summary.waiting:,} tasks wait, none runs, and no event can change that; the run stops here"
    if summary.measured_finished < summary.measured:
        left = summary.measured - summary.measured_finished
        yield f"{left:,} of {summary.measured:,} measured tasks are not done: the means cover only the other tasks"


def _words(result: RoundResult, source: InputSource) -> RenderableType:
    from rich.console import Group

    from bftrain_replay.simulation.fixed_cluster import FixedCluster

    settings, figures = result.settings, result.task_figures
    where = f"{source.tasks} on {source.log or FixedCluster(nodes=result.nodes, until_s=None).text}"
    title = f"{where}: {settings.policy} in rounds of {text_formats.duration(settings.round_s)}"
    seconds, ratio = (5, 1, 1, 1), (2, 2, 2, 2)  # enough digits of the mean to compare with published values

    def row(name: str, spread: TaskPercentiles, digits: tuple[int, ...]) -> tuple[str, ...]:
        figures = (spread.mean, spread.p50, spread.p95, spread.max)
        return name, *(f"{value:,.{count}f}" for value, count in zip(figures, digits, strict=True))

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
    from bftrain_replay.run.summary_figures import FIGURE_OF

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
