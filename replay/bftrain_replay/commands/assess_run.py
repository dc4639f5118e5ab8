"""An assessment as its command runs it: the log or records, the tasks, the replays, and the folder."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

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
from bftrain_replay.assessing import assess_page
from bftrain_replay.assessing.assessment import AssessmentInputs, assess_log
from bftrain_replay.assessing.figure_text import (
    SURE_BELOW,
    batch_jobs,
    causes,
    certainty,
    headline,
    mix_name,
    worth_rows,
)
from bftrain_replay.assessing.handback import BatchJobs, jobs_of
from bftrain_replay.assessing.replayed_sample import EVENTS, ReplayedHarvest, ReplayedSample, replay_sample
from bftrain_replay.assessing.what_if import LEAD, NOTICE, TASKS, models_of
from bftrain_replay.assessing.worth import NodePrices
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.sensitivity import SideReplays
from bftrain_replay.run.harvest_by_block import interval
from bftrain_replay.run.variations import COSTS, PROGRESS
from bftrain_replay.simulation.replay_settings import ReplaySettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.importing.import_options import ImportOptions
    from bftrain_replay.assessing.assessment import LogAssessment


# Omitted from the command to repeat it
_NOT_NEEDED = frozenset({"--overwrite", "-q", "--quiet", "-v", "--verbose", "--json"})


@dataclass(frozen=True, kw_only=True)
class AssessRequest:
    """The request; ``None``: the option was not given."""

    files: tuple[Path, ...]
    options: ImportOptions
    strict: bool
    folder: Path
    kinds: Path | None
    task_file: Path | None
    config: Path | None
    events: int | None
    quick: bool
    no_cache: bool
    overwrite: bool
    static: bool
    max_tasks: int | None
    progress: str | None
    cost_factor: float | None
    node_watts: Mapping[str, float] | None
    price_kwh: float | None
    co2: float | None
    node_hour_price: float | None
    currency: str
    handback_delay_s: float | None
    records: tuple[Path, ...]
    profiles: tuple[Path, ...]
    topology: str | None = None

    def run(self, out: Output) -> None:
        """Replay, compute all figures, write the folder, and print them."""
        settings, prices, models = self._settings, self._prices, models_of(self.profiles)
        with (
            tempfile.TemporaryDirectory(prefix="bftrain-") as scratch,
            ResultFolder(self.folder, assess_page.KIND, overwrite=self.overwrite) as result,
        ):
            log, log_file = self._log(Path(scratch), out)
            jobs = self._jobs(log, out)
            inputs = AssessmentInputs(
                name=f"{self.files[0]} and {len(self.files) - 1} more" if self.files[1:] else str(self.files[0]),
                command=shlex.join(["bftrain", *(word for word in sys.argv[1:] if word not in _NOT_NEEDED)]),
                tasks=str(self.task_file or ""),
                timezone=self.options.timezone or "",
                prices=prices,
                handback_delay_s=self.handback_delay_s,
                jobs=jobs,
            )
            found = assess_log(
                log,
                log_file,
                None if self.task_file is None else (tuple(load_tasks(self.task_file)), self.task_file),
                settings,
                inputs,
                most_events=EVENTS if self.events is None else self.events,
                replay=lambda sample, tasks: _replayed(sample, tasks, settings, out),
                models=models,
                run=None if self.quick else SideReplays(out, cached=not self.no_cache).run,
                scratch=Path(scratch),
            )
            result.replace(lambda draft: assess_page.write(found, draft, static=self.static))
        out.result(found.to_dict(), lambda: in_words(found))
        out.say(f"page: {self.folder / assess_page.PAGE}")
        out.say(f"next: {next_step(found, self.files, is_log=self._log_file is not None)}")

    @property
    def _settings(self) -> ReplaySettings:
        given = {name: getattr(self, name) for name in ("max_tasks", "progress", "cost_factor", "topology")}
        return settings_of_kind(self.config, given, ReplaySettings)

    @property
    def _prices(self) -> NodePrices:
        if self.node_watts is None and (self.price_kwh is not None or self.co2 is not None):
            option, fix = "--co2" if self.price_kwh is None else "--price-kwh", "add --node-watts idle=..,busy=.."
            raise UsageError("needs the power of a node", where=option, fix=fix)
        return NodePrices(
            kwh_price=self.price_kwh,
            co2_g_per_kwh=self.co2,
            node_hour_price=self.node_hour_price,
            currency=self.currency,
            **(self.node_watts or {}),
        )

    @cached_property
    def _log_file(self) -> Path | None:
        """The log, or ``None`` for records."""
        log = next(filter(holds_log, self.files), None)
        if log is not None and self.files[1:]:
            raise UsageError(f"{log} is a log", where="FILES", fix="assess it alone")
        if log is not None and (self.strict or self.options.to_dict().keys() - {"timezone"}):
            raise UsageError(f"{log} is a log: import options go with records", where="FILES", fix="assess the records")
        return log

    def _log(self, scratch: Path, out: Output) -> tuple[EventLog, Path]:
        """Load the log, or import records; return it and its file for workers."""
        log_file = self._log_file
        if log_file is not None:
            log = load_log(log_file)
        else:
            made = read_records(self.files, self.options, out)
            if out.level >= 0 or self.strict:
                show(report(made.doubts, made.log.unit), err=True)
                out.say(row_totals(made))
            if self.strict and made.doubts:
                raise refusal(made)
            log, log_file = made.log, scratch / "log.npz"
        if self.kinds is not None:
            log, log_file = with_kinds(log, self.kinds), scratch / "log.npz"
        return log, log_file

    def _jobs(self, log: EventLog, out: Output) -> BatchJobs | None:
        """Read the jobs behind a delay, if records contain any; a log imported in this call supplies its own."""
        paths = self.records or (() if self._log_file else self.files)
        wanted = self.handback_delay_s is not None or self.records
        if not paths or not wanted or log.unit != NODE:  # jobs are known by their nodes, not by GPUs or cores of these
            return None
        options = None if self.records else self.options
        with out.progress() as bars:
            bar = bars.add_task("reading jobs, kB", total=sum(path.stat().st_size for path in paths) / 1000)
            try:
                return jobs_of(paths, log, options, tell=lambda count: bars.advance(bar, count / 1000))
            except BadInput:  # records of node states without jobs
                if self.records:
                    raise
                return None


def _replayed(
    sample: ReplayedSample, tasks: Sequence[TaskSpec], settings: ReplaySettings, out: Output
) -> ReplayedHarvest:
    with watched(out, max(window.end_s - window.begin_s for window in sample.windows)) as watch:
        return replay_sample(sample, tasks, settings, watch)


def next_step(found: LogAssessment, files: Sequence[Path], *, is_log: bool) -> str:
    """Return the command that helps most: settle doubts, state prices, or check a site for a live run."""
    names = shlex.join(map(str, files))
    if found.sure.median < SURE_BELOW * found.harvest.median:
        return f"settle the doubtful idle time: bftrain import {names} --dry-run"
    if not found.harvest.median > 0.0:
        return f"see the reason: bftrain {'inspect' if is_log else 'import'} {names}"
    if not any(worth_rows(found)):
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
    from rich.console import Group
    from rich.text import Text

    log, words = found.log, words_of(found.log.unit)
    heading = f"{Path(log.name).name}: {text_formats.counted(log.nodes, 'node')}, {text_formats.duration(log.span_s)}"
    rows = [(words(name), *others) for name, *others in _rows(found)]
    figures = table("", (words("node-hours a week"), "", "of idle"), rows, left=(0,), compact=True)
    worth = "; ".join(
        f"{name} {interval(figure)}{f' {unit}' if unit else ''}" for name, figure, unit in worth_rows(found)
    )
    more = [Text(words(f"A week: {worth}."))] if worth else []
    if found.handback is not None:
        more.append(Text(words(batch_jobs(found.handback))))
    return Group(
        Text(words(heading)),
        Text(words(f"{headline(found)}.")),
        Text(words(f"{certainty(found)}.")),
        figures,
        *more,
        *_if(found),
        *_mixes(found),
    )


def _rows(found: LogAssessment) -> Iterator[tuple[str, str, str]]:
    yield "idle", interval(found.idle), ""
    for name, node_h, share in list(causes(found))[:_CAUSES]:
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
    """Yield a line for each other assumption with its result."""
    from rich.text import Text

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
    from rich.text import Text

    labels = [f"{mix_name(row, found.mixes)}: {text_formats.count(row.work.median)}" for row in found.mixes[:_MIXES]]
    if labels:
        yield Text(f"Most work per week, in hours on a single node: {', '.join(labels)}")
