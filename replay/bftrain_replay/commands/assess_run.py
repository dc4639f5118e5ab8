"""Runs ``bftrain assess``: reads the log or records, replays, writes the folder, and prints the figures."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from bftrain import text_formats
from bftrain.cli.output import show, table
from bftrain.cli.settings import settings_of_kind
from bftrain.errors import BadInput, UsageError
from bftrain.node_units import NODE, words_of
from bftrain.result_folder import ResultFolder
from bftrain.taskfiles.files import load_tasks
from bftrain_datasets.commands.records import read_records, refusal, report, row_totals
from bftrain_datasets.log.edits import with_kinds
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import holds_log, load_log
from bftrain_replay.assessing import assess_page, figure_text
from bftrain_replay.assessing.assessment import AssessmentInputs, NodePrices, assess_log
from bftrain_replay.assessing.handback import BatchJobs, jobs_of
from bftrain_replay.assessing.replayed_sample import EVENTS, ReplayedHarvest, ReplayedSample, replay_sample
from bftrain_replay.assessing.what_if import LEAD, NOTICE, TASKS, models_of
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.sensitivity import SideReplays
from bftrain_replay.run.harvest_by_block import interval
from bftrain_replay.run.variations import COSTS, PROGRESS
from bftrain_replay.simulation.replay_settings import ReplaySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_replay.assessing.assessment import LogAssessment


# Options that the printed command omits
_NOT_NEEDED = frozenset({"--overwrite", "-q", "--quiet", "-v", "--verbose", "--json"})


def run(asked: SimpleNamespace, options: ImportOptions, out: Output) -> None:
    """Assess, write the folder, and print the figures; ``asked`` has the options that are not import ``options``."""
    given = {name: getattr(asked, name) for name in ("max_tasks", "progress", "cost_factor", "topology")}
    settings = settings_of_kind(asked.config, given, ReplaySettings)
    prices, models = _prices(asked), models_of(asked.profiles)
    files, log_file = asked.files, _log_file(asked, options)

    def replayed(sample: ReplayedSample, tasks: Sequence[TaskSpec]) -> ReplayedHarvest:
        with watched(out, max(window.end_s - window.begin_s for window in sample.windows)) as watch:
            return replay_sample(sample, tasks, settings, watch)

    with (
        tempfile.TemporaryDirectory(prefix="bftrain-") as scratch,
        ResultFolder(asked.folder, assess_page.KIND, overwrite=asked.overwrite) as result,
    ):
        log = load_log(log_file) if log_file else _imported(asked, options, out)
        if asked.kinds is not None:
            log = with_kinds(log, asked.kinds)
        inputs = AssessmentInputs(
            log=log,
            log_file=log_file if log_file and asked.kinds is None else Path(scratch) / "log.npz",
            settings=settings,
            name=f"{files[0]} and {len(files) - 1} more" if files[1:] else str(files[0]),
            command=shlex.join(["bftrain", *(word for word in sys.argv[1:] if word not in _NOT_NEEDED)]),
            tasks=None if asked.task_file is None else load_tasks(asked.task_file),
            task_file=asked.task_file,
            task_name=str(asked.task_file or ""),
            timezone=options.timezone or "",
            prices=prices,
            handback_delay_s=asked.handback_delay_s,
            jobs=_jobs(asked, log, None if log_file else options, out),
            most_events=EVENTS if asked.events is None else asked.events,
        )
        others = None if asked.quick else SideReplays(out, cached=not asked.no_cache).run
        found = assess_log(inputs, Path(scratch), replayed, models, others)
        result.replace(lambda draft: assess_page.write(found, draft, static=asked.static))
    out.result(found.to_dict(), lambda: in_words(found))
    out.say(f"page: {asked.folder / assess_page.PAGE}")
    out.say(f"next: {next_step(found, files, is_log=log_file is not None)}")


def _prices(asked: SimpleNamespace) -> NodePrices:
    if asked.node_watts is None and (asked.price_kwh is not None or asked.co2 is not None):
        option, fix = "--co2" if asked.price_kwh is None else "--price-kwh", "add --node-watts idle=..,busy=.."
        raise UsageError("needs the power of a node", where=option, fix=fix)
    return NodePrices(
        kwh_price=asked.price_kwh,
        co2_g_per_kwh=asked.co2,
        node_hour_price=asked.node_hour_price,
        currency=asked.currency,
        **(asked.node_watts or {}),
    )


def _log_file(asked: SimpleNamespace, options: ImportOptions) -> Path | None:
    """Return the log among the files, or ``None`` for records; raise if other files or import options accompany it."""
    log = next(filter(holds_log, asked.files), None)
    if log is not None and asked.files[1:]:
        raise UsageError(f"{log} is a log", where="FILES", fix="assess it alone")
    if log is not None and (asked.strict or options.to_dict().keys() - {"timezone"}):
        raise UsageError(f"{log} is a log: import options go with records", where="FILES", fix="assess the records")
    return log


def _imported(asked: SimpleNamespace, options: ImportOptions, out: Output) -> EventLog:
    made = read_records(asked.files, options, out)
    if out.level >= 0 or asked.strict:
        show(report(made.doubts, made.log.unit), err=True)
        out.say(row_totals(made))
    if asked.strict and made.doubts:
        raise refusal(made)
    return made.log


def _jobs(asked: SimpleNamespace, log: EventLog, options: ImportOptions | None, out: Output) -> BatchJobs | None:
    """Return the jobs that a handback delay affects, from ``--records`` or the records imported with ``options``."""
    paths = asked.records or (asked.files if options else ())
    wanted = asked.handback_delay_s is not None or asked.records
    if not paths or not wanted or log.unit != NODE:  # records name the nodes of jobs, not their GPUs or cores
        return None
    with out.progress() as bars:
        bar = bars.add_task("reading jobs, kB", total=sum(path.stat().st_size for path in paths) / 1000)
        try:
            own = None if asked.records else options
            return jobs_of(paths, log, own, tell=lambda count: bars.advance(bar, count / 1000))
        except BadInput:  # records of node states without jobs
            if asked.records:
                raise
            return None


def next_step(found: LogAssessment, files: Sequence[Path], *, is_log: bool) -> str:
    """Return the most useful next command: settle doubts, find a reason, state prices, or check a site."""
    names = shlex.join(map(str, files))
    if found.sure.median < figure_text.SURE_BELOW * found.harvest.median:
        return f"settle the doubtful idle time: bftrain import {names} --dry-run"
    if not found.harvest.median > 0.0:
        return f"see why nothing is harvested: bftrain {'inspect' if is_log else 'import'} {names}"
    if not any(figure_text.worth_rows(found)):
        return f"add its value: bftrain assess {names} --node-watts idle=150,busy=500 --price-kwh 0.20"
    return "try it: bftrain live --example slurm > site.toml; bftrain live check --config site.toml"


_CAUSES: Final = 3
_GROUPS: Final = 1
_IF: Final = {
    "Tasks that compete": (TASKS,),
    "Starts and rescales cost": (COSTS,),
    "Progress kept": (PROGRESS, NOTICE),
    "Leaving on notice of": (LEAD,),
}
_MIXES: Final = 3


def in_words(found: LogAssessment) -> RenderableType:
    """Return the assessment in 24 lines or fewer."""
    log, words = found.log, words_of(found.log.unit)
    heading = f"{Path(log.name).name}: {text_formats.counted(log.nodes, 'node')}, {text_formats.duration(log.span_s)}"
    rows = [(words(name), *others) for name, *others in _rows(found)]
    figures = table("", (words("node-hours a week"), "", "of idle"), rows, left=(0,), compact=True)
    worth = "; ".join(
        f"{name} {interval(figure)}{f' {unit}' if unit else ''}" for name, figure, unit in figure_text.worth_rows(found)
    )
    more = [Text(words(f"A week: {worth}."))] if worth else []
    if found.handback is not None:
        more.append(Text(words(figure_text.batch_jobs(found.handback))))
    return Group(
        Text(words(heading)),
        Text(words(f"{figure_text.headline(found)}.")),
        Text(words(f"{figure_text.certainty(found)}.")),
        figures,
        *more,
        *_if(found),
        *_mixes(found),
    )


def _rows(found: LogAssessment) -> Iterator[tuple[str, str, str]]:
    yield "idle", interval(found.idle), ""
    for name, node_h, share in list(figure_text.causes(found))[:_CAUSES]:
        yield (
            f"  less: {name[:1].lower()}{name[1:]}",
            interval(node_h),
            text_formats.percent(share.median if share else None),
        )
    share = found.harvest_share
    yield "harvest", interval(found.harvest), text_formats.percent(share.median if share else None)
    for each in sorted(found.groups, key=lambda each: -each.harvest.median)[:_GROUPS]:
        yield f"  on {each.name}, {each.nodes:,} nodes", interval(each.harvest), ""


def _if(found: LogAssessment) -> Iterator[RenderableType]:
    """Yield a line for each kind of assumption with its results."""
    for words, kinds in _IF.items():
        labels = [
            f"{row.label}: {text_formats.count(row.harvest.median)}{' (assumed)' if row.assumed else ''}"
            for row in found.what_ifs
            if row.what in kinds
        ]
        if labels:
            yield Text(f"{words} {', '.join(labels)}")


def _mixes(found: LogAssessment) -> Iterator[RenderableType]:
    """Yield a line on the tasks with the most work."""
    labels = [
        f"{figure_text.mix_name(row, found.mixes)}: {text_formats.count(row.work.median)}"
        for row in found.mixes[:_MIXES]
    ]
    if labels:
        yield Text(f"Most work per week, in hours on a single node: {', '.join(labels)}")
