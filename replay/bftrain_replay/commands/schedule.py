"""``bftrain schedule``: a main scheduler simulated on an archive's log, and the idle nodes that it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from bftrain import text_formats
from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.interruption import unterminated
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import options_of, overwrite_option, settings_of_kind, with_options
from bftrain.cli.value_completion import complete_parts
from bftrain_datasets.commands.logfiles import FILE, FOLDER
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.run_folder import RunFolder
from bftrain_replay.commands.shared_options import tables_option
from bftrain_replay.commands.side_by_side import counts, spreads_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from bftrain_datasets.scheduling.scheduling import ScheduleResult, ScheduleSummary

_MOST_NAMED: Final = 5  # jobs or users in a warning


@click.command(
    cls=DocumentedCommand,
    example="bftrain schedule archive.swf -o schedule\n"
    "bftrain schedule archive.swf --policy easy --window 0:604800 -o week",
    epilog="DIR gets idle.npz (the derived log), schedule.swf, summary.json, config.toml and the tables jobs, "
    "campaigns and utilisation; docs/how-to/schedule.md explains them. Ctrl-C stops early and "
    "keeps the results.",
)
@click.argument("log", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True))
@heading("Result")
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, required=True, help="Folder for the result.")
@tables_option
@overwrite_option
@heading("Simulation")
@with_options(options_of(ScheduleSettings), policy=complete_parts("queue_policy"))
@click.option("--config", type=FILE, help="TOML file with these settings; command-line options take precedence.")
@prints_results
def command(
    log: Path,
    folder: Path,
    *,
    tables: str,
    overwrite: bool,
    config: Path | None,
    out: Output,
    **given: Any,  # noqa: ANN401 - the settings' own types
) -> None:
    """Schedule LOG, an SWF file or a table of jobs, again: waits of jobs, and the remaining idle nodes.

    The idle nodes become a log for bftrain replay, labelled as derived. - is standard input.
    """
    from bftrain_datasets.scheduling import scheduling
    from bftrain_datasets.scheduling.jobs import read_workload
    from bftrain_replay.schedule_run import SCHEDULE, run_of_schedule

    settings = settings_of_kind(config, given, ScheduleSettings)
    with RunFolder.of(SCHEDULE, folder, tables, overwrite=overwrite) as place:
        with out.progress() as bars:
            size = log.stat().st_size if log.is_file() else None
            bar = bars.add_task("bytes read", total=size)
            workload = read_workload(log, settings, tell=lambda count: bars.advance(bar, count))
        span_s = workload.jobs.submit_s[-1]
        with unterminated():
            with watched(out, span_s, counted="jobs", done="hours scheduled") as go_on:
                result = scheduling.simulate(
                    workload, settings, watch=lambda at_s, jobs: go_on(settings.policy, min(at_s, span_s), jobs)
                )
            run, complete = run_of_schedule(result, str(log)), result.summary.ended != "interrupted"
            place.write(run, complete=complete)
    for text in _warnings(result):
        out.warn(text)
    out.result(run.summary if out.json else None, lambda: _words(result, str(log)))
    place.end(out, complete=complete)


def _warnings(result: ScheduleResult) -> Iterator[str]:
    jobs, schedule, summary = result.workload.jobs, result.schedule, result.summary
    for job in schedule.refused[:_MOST_NAMED]:
        yield f"job {jobs.name(job)} wants {jobs.size[job]:,} {summary.unit}s of {schedule.nodes:,}: rejected"
    if len(schedule.refused) > _MOST_NAMED:
        yield f"{len(schedule.refused):,} jobs in all are larger than the machine; --nodes N sets its size"
    if summary.ended == "overload":
        yield (
            f"overload: after {summary.simulated_s / 86_400:,.1f} days {summary.waiting:,} jobs wait, more than the "
            "machine does in --set max-backlog; the queue grows without bound; the schedule stops here"
        )
    aside = result.workload.rows.aside
    if aside:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(aside.items()))
        yield f"rows skipped: {counts}; docs/reference/readers.md explains each"
    if any(each.name == "missing_field" for each in result.workload.findings):
        yield "no job names its user: shares and campaigns take all for one user's"
    unknown = result.workload.unknown_shares
    if unknown:
        yield f"--shares names users that no job has: {', '.join(unknown[:_MOST_NAMED])}"


def _words(result: ScheduleResult, name: str) -> RenderableType:
    from rich.console import Group

    summary, log = result.summary, result.log
    nodes = text_formats.counted(summary.nodes, "node")
    title = f"{name}: {summary.policy}, estimates {summary.estimates}, {nodes}"
    idle_h, share = text_formats.count(log.idle_node_s / 3600), text_formats.percent(log.idle_share)
    idle = f"{idle_h} node-hours, {share} of the node-time"
    return Group(
        table(title, ("", ""), _rows(summary)),
        spreads_table(list(_spreads(summary))),
        f"idle: {idle}; derived, not recorded",
    )


def _rows(summary: ScheduleSummary) -> Iterator[tuple[str, str]]:
    yield "ended", summary.ended.replace("_", " ")
    others = counts(summary, "running", "waiting", "not_arrived", "refused")
    yield "jobs done", f"{summary.done:,} of {summary.jobs:,}{others}"
    yield "time simulated", text_formats.duration(summary.simulated_s)
    yield "load offered", text_formats.percent(summary.load)
    yield "utilisation", text_formats.percent(summary.utilisation)
    yield "overtook another", f"{summary.overtook:,}"
    yield "outlived their estimate", f"{summary.overran:,}"
    if summary.promised:
        yield "promised starts", f"{summary.promised:,}"
        yield "started later", f"{summary.promises_broken:,}, at most {text_formats.duration(summary.worst_delay_s)}"
    yield "campaigns beyond their bound", f"{summary.beyond_bound:,} of {summary.campaigns_done:,}"


def _spreads(summary: ScheduleSummary) -> Iterator[tuple[str, ...]]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:,.2f}"

    for name, spread, written in (
        ("wait", summary.wait_s, text_formats.duration),
        ("slowdown", summary.slowdown, number),
        ("bounded slowdown", summary.bounded_slowdown, number),
        ("stretch of campaigns", summary.stretch, number),
    ):
        yield name, *map(written, (spread.mean, spread.p50, spread.p95, spread.max))
