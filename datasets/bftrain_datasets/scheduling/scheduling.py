"""From an SWF log to a schedule and its idle nodes: the function behind ``bftrain schedule``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import Final

from bftrain import parts, registry
from bftrain.errors import BadInput, described
from bftrain_datasets.importing.findings import HAZARDS, ordered
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.provenance import LogFinding, LogProvenance
from bftrain_datasets.scheduling import schedule_figures
from bftrain_datasets.scheduling.job_placement import PlacedJobs, place
from bftrain_datasets.scheduling.jobs import JobWorkload, SubmittedJobs, read_workload
from bftrain_datasets.scheduling.queue_policies import QueuePolicy
from bftrain_datasets.scheduling.schedule_engine import JobSchedule, ScheduleEngine, Watch
from bftrain_datasets.scheduling.schedule_settings import (
    LAST_SUBMIT,
    OLDEST_FIRST,
    PolicyOptions,
    ScheduleSettings,
    load_shares,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleResult:
    """Input, outcome and ``wall_s``, the seconds that the simulation took.

    ``log`` is the derived log of idle nodes.
    """

    settings: ScheduleSettings
    workload: JobWorkload
    schedule: JobSchedule
    jobs: schedule_figures.JobFigures
    campaigns: schedule_figures.CampaignFigures
    places: PlacedJobs
    log: EventLog
    summary: schedule_figures.ScheduleSummary
    wall_s: float

    @property
    def complete(self) -> bool:
        """Whether the simulation reached its planned end."""
        return self.summary.complete


STDIN = "-"


MADE_BY: Final = "derived: schedule"  # prefix in the provenance of logs


def read(path: Path | str, settings: ScheduleSettings, *, tell: Callable[[int], object] | None = None) -> JobWorkload:
    """Return the jobs of an SWF log, ``-`` for standard input, for a machine given by the settings."""
    shares = load_shares(Path(settings.shares)) if settings.shares else {}
    return read_workload(None if str(path) == STDIN else Path(path), settings, shares, tell=tell)


def find_policy(name: str, options: PolicyOptions) -> QueuePolicy:
    """Return the policy of this name: a registered one, or one from ``path/to/file.py:name``.

    Its factory is a function or class with the options as argument, or without arguments.
    """
    where = f"policy '{name}'"
    file, attribute = parts.split_name(name)
    make = registry.load("queue_policy", name) if file is None else parts.load_from_file(file, attribute, where)
    try:
        made = make(options) if not callable(make) or signature(make).parameters else make()
    except Exception as error:
        raise BadInput(f"cannot be created: {described(error)}", where=where) from error
    if not isinstance(made, QueuePolicy):
        fix = "define a class with name and starts(cluster), which docs/how-to/schedule.md describes"
        raise BadInput(f"returned a {type(made).__name__}, not a policy", where=where, fix=fix)
    return made


def simulate(workload: JobWorkload, settings: ScheduleSettings, *, watch: Watch | None = None) -> ScheduleResult:
    """Schedule the jobs. ``watch`` is called with the progress, and stops the run by returning False."""
    begin_s = perf_counter()
    jobs = workload.jobs
    chosen = {field: getattr(settings, field) for field in PolicyOptions.__dataclass_fields__ if field != "shares"}
    policy = find_policy(settings.policy, PolicyOptions(shares=jobs.shares, **chosen))
    engine = ScheduleEngine(
        jobs,
        workload.capacity,
        policy,
        jobs.known_run_s(settings.estimates),
        settings.campaign_gap_s,
        whole_seconds=settings.done_campaigns == OLDEST_FIRST,
    )
    schedule = engine.run(until_s(settings, jobs), settings.max_backlog_s, watch)
    wall_s = perf_counter() - begin_s
    places = place(schedule, workload.per_node)
    jobs_found, campaigns_found = schedule_figures.job_figures(schedule), schedule_figures.figures(schedule)
    default = ScheduleSettings()
    names = [name for name in settings.__struct_fields__ if getattr(settings, name) != getattr(default, name)]
    story = LogProvenance(
        made_by=f"{MADE_BY}, {settings.policy} with estimates {settings.estimates}",
        options={name: getattr(settings, name) for name in dict.fromkeys(("policy", "estimates", *names))},
        sources=(workload.source,),
        counts=workload.rows.to_dict(),
        findings=ordered((*workload.findings, *_findings(schedule, places))),
    )
    return ScheduleResult(
        settings=settings,
        workload=workload,
        schedule=schedule,
        jobs=jobs_found,
        campaigns=campaigns_found,
        places=places,
        log=places.log(jobs.begin_s, story),
        summary=schedule_figures.summarise(schedule, jobs_found, campaigns_found, workload, settings),
        wall_s=wall_s,
    )


def until_s(settings: ScheduleSettings, jobs: SubmittedJobs) -> float:
    """Return the simulation's latest end time, in seconds since the first submission."""
    if not settings.until:
        return math.inf
    if settings.until == LAST_SUBMIT:
        return jobs.submit_s[-1]
    try:
        at_s = time_formats.RecordClock().seconds(settings.until)
    except ValueError as error:
        fix = f"write seconds UTC, an ISO time, or {LAST_SUBMIT}"
        raise BadInput(f"{settings.until!r} is not a time: {error}", where="--until", fix=fix) from error
    if at_s <= jobs.begin_s:
        what = f"{settings.until!r} is not after the first submission, {time_formats.time_text(jobs.begin_s)}"
        raise BadInput(what, where="--until", fix="use a later time")
    return at_s - jobs.begin_s


def _findings(schedule: JobSchedule, places: PlacedJobs) -> list[LogFinding]:
    jobs = schedule.jobs
    found = [_finding("derived", len(places.node_names), 0.0)]
    if schedule.refused:
        node_s = sum(jobs.size[job] * jobs.run_s[job] for job in schedule.refused)
        found.append(_finding("does_not_fit", len(schedule.refused), node_s, f"job {jobs.name(schedule.refused[0])}"))
    last_s = min(jobs.submit_s[-1], schedule.end_s)
    drained = places.idle_node_s(last_s)
    if drained > 0:
        found.append(_finding("drained", 1, drained, f"at {time_formats.time_text(last_s + jobs.begin_s)}"))
    return found


def _finding(name: str, count: int, node_s: float, first: str = "") -> LogFinding:
    return LogFinding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done)
