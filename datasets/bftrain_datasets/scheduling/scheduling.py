"""From an SWF log to a schedule and the idle nodes that it leaves: what ``bftrain schedule`` does."""

from __future__ import annotations

import math
from inspect import signature
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Unpack

import msgspec

from bftrain import registry
from bftrain.errors import BadInput
from bftrain.exception_text import described
from bftrain.parts import python_file
from bftrain_datasets.importing.findings import ordered
from bftrain_datasets.importing.hazard_kinds import HAZARDS
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.provenance import LogFinding, LogProvenance
from bftrain_datasets.scheduling.campaign_figures import figures as campaign_figures
from bftrain_datasets.scheduling.job_placement import place
from bftrain_datasets.scheduling.jobs import read_workload
from bftrain_datasets.scheduling.policy_options import PolicyOptions
from bftrain_datasets.scheduling.queue_policy import QueuePolicy
from bftrain_datasets.scheduling.runtime_estimates import estimator
from bftrain_datasets.scheduling.schedule_engine import ScheduleEngine
from bftrain_datasets.scheduling.schedule_figures import job_figures, summarise
from bftrain_datasets.scheduling.schedule_result import ScheduleResult
from bftrain_datasets.scheduling.schedule_settings import LAST_SUBMIT, ScheduleOptions, ScheduleSettings
from bftrain_datasets.scheduling.user_shares import load_shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_datasets.scheduling.job_placement import PlacedJobs
    from bftrain_datasets.scheduling.jobs import JobTable, JobWorkload
    from bftrain_datasets.scheduling.schedule_engine import JobSchedule, Watch

STDIN = "-"


def read(path: Path | str, settings: ScheduleSettings, *, tell: Callable[[int], object] | None = None) -> JobWorkload:
    """Read the jobs of an SWF log, ``-`` for standard input, for a machine as the settings have it."""
    shares = load_shares(Path(settings.shares)) if settings.shares else {}
    return read_workload(None if str(path) == STDIN else Path(path), settings, shares, tell=tell)


def find_policy(name: str, options: PolicyOptions) -> QueuePolicy:
    """Make the policy of this name: a registered one, or your own out of ``path/to/file.py:name``.

    What makes one is a function or class that takes the options, or nothing.
    """
    where = f"policy '{name}'"
    file, attribute = python_file.parts(name)
    make = registry.load("queue_policy", name) if file is None else python_file.load(file, attribute, where)
    try:
        made = make(options) if not callable(make) or signature(make).parameters else make()
    except Exception as error:
        raise BadInput(f"cannot be made: {described(error)}", where=where) from error
    if not isinstance(made, QueuePolicy):
        fix = "define a class with name and starts(cluster), which docs/schedule.md describes"
        raise BadInput(f"what makes it gives a {type(made).__name__}, and no policy", where=where, fix=fix)
    return made


def simulate(workload: JobWorkload, settings: ScheduleSettings, *, watch: Watch | None = None) -> ScheduleResult:
    """Schedule the jobs. ``watch`` is called with the progress, and ends it by returning False."""
    begin_s = perf_counter()
    jobs = workload.jobs
    options = PolicyOptions(
        backfill_depth=settings.backfill_depth, half_life_s=settings.half_life_s, shares=jobs.shares
    )
    policy = find_policy(settings.policy, options)
    engine = ScheduleEngine(
        jobs, workload.capacity, policy, estimator(settings.estimates, jobs), settings.campaign_gap_s
    )
    schedule = engine.run(until_s(settings, jobs), settings.max_backlog_s, watch)
    wall_s = perf_counter() - begin_s
    places = place(schedule, settings.placement, workload.per_node)
    jobs_found, campaigns_found = job_figures(schedule), campaign_figures(schedule)
    return ScheduleResult(
        settings=settings,
        workload=workload,
        schedule=schedule,
        jobs=jobs_found,
        campaigns=campaigns_found,
        places=places,
        log=places.log(jobs.begin_s, _story(places, workload, schedule, settings)),
        summary=summarise(schedule, jobs_found, campaigns_found, workload, settings),
        wall_s=wall_s,
    )


def schedule(
    log: Path | str, settings: ScheduleSettings | None = None, **options: Unpack[ScheduleOptions]
) -> ScheduleResult:
    """Reschedule an SWF log, as ``bftrain schedule`` does; ``options`` are settings by name.

    >>> from bftrain import schedule
    >>> schedule("jobs.swf", policy="fcfs").summary.jobs
    3
    """
    settings = msgspec.structs.replace(settings or ScheduleSettings(), **options)
    return simulate(read(log, settings), settings)


def until_s(settings: ScheduleSettings, jobs: JobTable) -> float:
    """Give when the simulation ends at the latest, in seconds since the first submission."""
    if not settings.until:
        return math.inf
    if settings.until == LAST_SUBMIT:
        return jobs.submit_s[-1]
    try:
        at_s = time_formats.RecordClock().seconds(settings.until)
    except ValueError as error:
        fix = f"write seconds UTC, an ISO time, or {LAST_SUBMIT}"
        raise BadInput(f"{settings.until!r} is no time: {error}", where="--until", fix=fix) from error
    if at_s <= jobs.begin_s:
        what = f"{settings.until!r} is not after the first submission, {time_formats.time_text(jobs.begin_s)}"
        raise BadInput(what, where="--until", fix="name a later time")
    return at_s - jobs.begin_s


def _story(
    places: PlacedJobs, workload: JobWorkload, schedule: JobSchedule, settings: ScheduleSettings
) -> LogProvenance:
    """Tell that the log is derived, from what, and how."""
    default = ScheduleSettings()
    names = settings.__struct_fields__
    options = {name: getattr(settings, name) for name in names if getattr(settings, name) != getattr(default, name)}
    return LogProvenance(
        made_by=f"derived: schedule, {settings.policy} with estimates {settings.estimates}",
        options={"policy": settings.policy, "estimates": settings.estimates, **options},
        sources=(workload.source,),
        counts=workload.rows.to_dict(),
        findings=ordered((*workload.findings, *_findings(schedule, places))),
    )


def _findings(schedule: JobSchedule, places: PlacedJobs) -> list[LogFinding]:
    """Count what is doubtful about a derived log."""
    jobs = schedule.jobs
    found = [_finding("derived", len(places.node_names), 0.0)]
    if schedule.refused:
        node_s = sum(jobs.size[job] * jobs.run_s[job] for job in schedule.refused)
        found.append(_finding("refused_jobs", len(schedule.refused), node_s, f"job {jobs.name(schedule.refused[0])}"))
    last_s = min(jobs.submit_s[-1], schedule.end_s)
    drained = places.idle_node_s(last_s)
    if drained > 0:
        found.append(_finding("drained", 1, drained, f"at {time_formats.time_text(last_s + jobs.begin_s)}"))
    return found


def _finding(name: str, count: int, node_s: float, first: str = "") -> LogFinding:
    return LogFinding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done)
