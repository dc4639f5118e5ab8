"""From jobs to a schedule, its figures, its idle nodes and its files: the functions behind ``bftrain schedule``.

docs/how-to/schedule.md describes the columns of the tables. The same inputs lead to the same bytes, except for measured
times (:data:`MEASURED`) in ``summary.json``, which its ``figures_sha256`` excludes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from itertools import takewhile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import parts, summaries
from bftrain.errors import BadInput
from bftrain.files import whole_file
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain.version import __version__
from bftrain_datasets.importing.findings import HAZARDS, ordered
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import BUSY, IDLE, EventLog
from bftrain_datasets.log.provenance import LogFinding, LogProvenance
from bftrain_datasets.readers import swf
from bftrain_datasets.result_tables import Table
from bftrain_datasets.scheduling.jobs import JobWorkload, SubmittedJobs
from bftrain_datasets.scheduling.queue_policies import QueuePolicy
from bftrain_datasets.scheduling.schedule_engine import JobSchedule, ScheduleEnd, ScheduleEngine, Watch
from bftrain_datasets.scheduling.schedule_settings import (
    LAST_SUBMIT,
    OLDEST_FIRST,
    WHOLE_NODES,
    PolicyOptions,
    ScheduleSettings,
)
from bftrain_datasets.scheduling.virtual_schedule import NO_CAMPAIGN

FORMAT: Final = "bftrain schedule 1"
LOG_FILE: Final = "idle.npz"
SCHEDULE_FILE: Final = "schedule.swf"
MEASURED: Final = frozenset({"wall_s", "jobs_per_s"})  # figures that differ between runs
MADE_BY: Final = "derived: schedule"  # prefix in the provenance of logs

DONE: Final = "done"
RUNNING: Final = "running"
WAITING: Final = "waiting"
NOT_ARRIVED: Final = "not_arrived"
REFUSED: Final = "refused"
STATES: Final = (DONE, RUNNING, WAITING, NOT_ARRIVED, REFUSED)

LEAST_S: Final = 10.0  # lower bound of a campaign's least_s, the divisor of its stretch
BOUNDED_S: Final = 10.0  # lower bound of run times in bounded slowdowns
ROUNDING: Final = 1e-9  # relative tolerance; the two sides of a comparison are sums of different numbers
_LATE_S: Final = 1e-6  # smaller differences are rounding
_EXACT: Final = 2.0**53  # smaller whole numbers are exact
_NAME_DIGITS: Final = 4  # minimum number of digits in node names
_CAMPAIGN_COLUMNS: Final = (
    "jobs", "created_s", "end_s", "flow_s", "work", "longest_s", "least_s", "stretch", "virtual_end_s", "rivals",
    "previous_work", "bound_s", "stretch_bound",
)  # fmt: skip


def place(schedule: JobSchedule, per_node: int = 1) -> tuple[EventLog, list[str]]:
    """Assign the first free nodes to every job at its start.

    Return the log of idle nodes, in seconds since the first submission, and the node set of each job, "" if it never
    ran. With shared nodes, processors are assigned, ``per_node`` on each node, and a node is idle while all its
    processors are free.
    """
    count = schedule.nodes // per_node
    digits = max(_NAME_DIGITS, len(str(count)))
    names = tuple(f"n{number:0{digits}d}" for number in range(1, count + 1))
    busy = np.zeros(schedule.nodes, dtype=np.bool_)  # nodes, or the processors of shared nodes
    reported = np.ones(count, dtype=np.bool_)  # whether each node was last reported busy; all are busy before the log
    held: dict[int, NDArray[np.int64]] = {}
    node_sets = [""] * len(schedule.jobs)
    times: list[float] = []
    changes: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    for time_s, (stopped, started) in _moments(schedule):
        for job in stopped:
            busy[held.pop(job)] = False
        for job in started:
            given = held[job] = np.flatnonzero(~busy)[: schedule.jobs.size[job]]
            busy[given] = True
            node_sets[job] = _node_set(given if per_node == 1 else np.unique(given // per_node), digits)
        now = busy if per_node == 1 else np.any(busy.reshape(-1, per_node), axis=1)
        changed = np.flatnonzero(now != reported)
        reported[changed] = now[changed]
        if changed.size or not times:
            times.append(time_s)
            changes.append((changed, np.where(now[changed], BUSY, IDLE).astype(np.int8)))
    all_nodes, states = (np.concatenate(columns) for columns in zip(*changes, strict=True))
    log = EventLog(
        node_names=names,
        times=np.array(times),
        offsets=np.cumsum([0, *(each.size for each, _ in changes)]),
        nodes=all_nodes.astype(np.int32),
        states=states,
        end_s=schedule.end_s,
    )
    return log, node_sets


def _moments(schedule: JobSchedule) -> Iterator[tuple[float, tuple[list[int], list[int]]]]:
    """Yield at each time the jobs that stop and the jobs that start, beginning at time 0.

    Jobs of zero length are omitted, and so are all events after the schedule stops.
    """
    found: defaultdict[float, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []), {0.0: ([], [])})
    for job, start_s in enumerate(schedule.start_s):
        if start_s < math.inf and schedule.jobs.run_s[job] > 0:
            found[schedule.stop_s(job)][0].append(job)
            found[start_s][1].append(job)
    return takewhile(lambda moment: moment[0] <= max(schedule.end_s, 0.0), sorted(found.items()))


def _node_set(nodes: NDArray[np.int64], digits: int) -> str:
    breaks = np.flatnonzero(nodes[1:] - nodes[:-1] > 1)
    firsts = [int(nodes[0]), *nodes[breaks + 1].tolist()]
    lasts = [*nodes[breaks].tolist(), int(nodes[-1])]
    parts = [
        f"{first + 1:0{digits}d}" if first == last else f"{first + 1:0{digits}d}-{last + 1:0{digits}d}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return f"n{parts[0]}" if len(parts) == 1 and "-" not in parts[0] else f"n[{','.join(parts)}]"


class ScheduleSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a figure over many jobs or campaigns; ``None`` without values."""

    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ScheduleSpread:
        """Return the statistics of the finite values."""
        values = values[np.isfinite(values)]
        if values.size == 0:
            return cls(mean=None, p50=None, p95=None, max=None)
        p50, p95 = np.percentile(values, (50, 95)).tolist()
        return cls(mean=math.fsum(values.tolist()) / values.size, p50=p50, p95=p95, max=float(values.max()))


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures in ``summary.json``; hours are node-hours, or processor-hours with shared nodes.

    ``capacity`` is the number of nodes or processors (``unit``). ``load`` is the jobs' work over the capacity until the
    last submission. ``overran`` counts jobs that exceeded their estimate, ``worst_delay_s`` is the longest delay of a
    promised start. ``nearest_to_bound`` is the largest ratio of a campaign's flow time to its bound.
    """

    policy: str
    estimates: str
    ended: str
    complete: bool
    nodes: int
    capacity: int
    unit: str
    simulated_s: float
    jobs: int
    done: int
    running: int
    waiting: int
    not_arrived: int
    refused: int
    makespan_s: float | None
    load: float | None
    utilisation: float | None
    busy_h: float
    free_h: float
    wait_s: ScheduleSpread
    slowdown: ScheduleSpread
    bounded_slowdown: ScheduleSpread
    overtook: int
    overran: int
    promised: int
    promises_broken: int
    worst_delay_s: float
    most_waiting: int
    campaigns: int
    campaigns_done: int
    stretch: ScheduleSpread
    beyond_bound: int
    nearest_to_bound: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """One entry per job, in submission order; NaN for events that did not happen."""

    state: list[str]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    bounded_slowdown: NDArray[np.float64]
    promised_s: NDArray[np.float64]


def job_figures(schedule: JobSchedule) -> JobFigures:
    """Return the figures of the jobs."""
    jobs = schedule.jobs
    run_s, submit_s = np.array(jobs.run_s), np.array(jobs.submit_s)
    start_s = np.array(schedule.start_s)
    start_s[np.isinf(start_s)] = np.nan
    end_s = start_s + run_s
    end_s[end_s > schedule.end_s] = np.nan
    promised_s = np.array(schedule.promised_s)
    promised_s[np.isinf(promised_s)] = np.nan
    wait_s = start_s - submit_s
    # Relative times, to keep precision in differences
    response_s = np.where(np.isfinite(end_s), wait_s + run_s, np.nan)
    slowdown = np.divide(response_s, run_s, out=np.full(len(jobs), np.nan), where=run_s > 0)
    return JobFigures(
        state=[_state(schedule, job, end_s[job]) for job in range(len(jobs))],
        start_s=start_s,
        end_s=end_s,
        wait_s=wait_s,
        slowdown=slowdown,
        bounded_slowdown=np.maximum(1.0, response_s / np.maximum(run_s, BOUNDED_S)),
        promised_s=promised_s,
    )


def _state(schedule: JobSchedule, job: int, end_s: float) -> str:
    if schedule.jobs.size[job] > schedule.nodes:
        return REFUSED
    if not math.isinf(schedule.start_s[job]):
        return RUNNING if math.isnan(end_s) else DONE
    return NOT_ARRIVED if math.isinf(schedule.first_estimate_s[job]) else WAITING


def held_s(schedule: JobSchedule) -> float:
    """Return the node-seconds used by jobs, or processor-seconds with shared nodes."""
    jobs = schedule.jobs
    return math.fsum(
        jobs.size[job] * (min(schedule.stop_s(job), schedule.end_s) - start_s)
        for job, start_s in enumerate(schedule.start_s)
        if start_s < math.inf
    )


def summarise(
    schedule: JobSchedule,
    jobs: JobFigures,
    campaigns: CampaignFigures,
    workload: JobWorkload,
    settings: ScheduleSettings,
) -> ScheduleSummary:
    """Return the summary of a schedule."""
    by_state = {state: jobs.state.count(state) for state in STATES}
    busy = held_s(schedule)
    whole = schedule.nodes * schedule.end_s
    delay_s = jobs.start_s - jobs.promised_s
    late = delay_s > _LATE_S
    all_done = schedule.ended is ScheduleEnd.ALL_DONE
    possible = schedule.nodes * schedule.jobs.submit_s[-1]  # node-seconds until the last submission
    pairs = zip(schedule.jobs.size, schedule.jobs.run_s, strict=True)
    offered = math.fsum(size * run_s for size, run_s in pairs if size <= schedule.nodes)
    ratio = campaigns.flow_s[campaigns.done] / np.maximum(campaigns.bound_s[campaigns.done], _LATE_S)
    return ScheduleSummary(
        policy=settings.policy,
        estimates=settings.estimates,
        ended=str(schedule.ended),
        complete=schedule.ended in {ScheduleEnd.ALL_DONE, ScheduleEnd.UNTIL},
        nodes=workload.nodes,
        capacity=schedule.nodes,
        unit="node" if settings.sharing == WHOLE_NODES else "processor",
        simulated_s=schedule.end_s,
        jobs=len(schedule.jobs),
        **by_state,
        makespan_s=float(np.nanmax(jobs.end_s)) if all_done and by_state[DONE] else None,
        load=offered / possible if possible else None,
        utilisation=busy / whole if whole else None,
        busy_h=busy / 3600,
        free_h=(whole - busy) / 3600,
        wait_s=ScheduleSpread.of(jobs.wait_s),
        slowdown=ScheduleSpread.of(jobs.slowdown),
        bounded_slowdown=ScheduleSpread.of(jobs.bounded_slowdown),
        overtook=sum(schedule.overtook),
        overran=sum(1 for times in schedule.prolonged if times),
        promised=int(np.isfinite(jobs.promised_s).sum()),
        promises_broken=int(late.sum()),
        worst_delay_s=float(delay_s[late].max(initial=0.0)),
        most_waiting=schedule.most_waiting,
        campaigns=int((campaigns.jobs > 0).sum()),
        campaigns_done=int(campaigns.done.sum()),
        stretch=ScheduleSpread.of(campaigns.stretch[campaigns.done]),
        beyond_bound=int((campaigns.done & ~campaigns.within).sum()),
        nearest_to_bound=float(ratio.max()) if ratio.size else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFigures:
    """One entry per campaign, in creation order; NaN for events that did not happen.

    ``work`` and ``previous_work`` are node-seconds (processor-seconds with shared nodes), all ``_s`` are seconds.
    ``created_s`` and both end times count from the first submission. ``done`` campaigns have no unfinished jobs; only
    they have a ``stretch`` and a ``bound_s``.
    """

    user: NDArray[np.int64]
    created_s: NDArray[np.float64]
    jobs: NDArray[np.int64]
    work: NDArray[np.float64]
    longest_s: NDArray[np.float64]
    least_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    virtual_end_s: NDArray[np.float64]
    rivals: NDArray[np.float64]
    previous_work: NDArray[np.float64]
    bound_s: NDArray[np.float64]
    stretch: NDArray[np.float64]
    stretch_bound: NDArray[np.float64]

    @property
    def done(self) -> NDArray[np.bool_]:
        """Whether all jobs of each campaign have finished."""
        return np.isfinite(self.end_s)

    @property
    def flow_s(self) -> NDArray[np.float64]:
        """Time from creation until the last job finishes, in seconds."""
        return self.end_s - self.created_s

    @property
    def within(self) -> NDArray[np.bool_]:
        """Whether each campaign finished within its bound; false for unfinished campaigns."""
        return self.flow_s <= self.bound_s * (1 + ROUNDING)


def figures(schedule: JobSchedule) -> CampaignFigures:
    """Return the campaign figures. Jobs larger than the machine belong to no campaign.

    The bound is OStrich's (docs/how-to/schedule.md has the formula): from its last submission on, a campaign waits for
    its user's earlier work and its own work, each multiplied by the number of rivals; for one running job; and for its
    own longest job.
    """
    campaigns, count = schedule.campaigns, len(schedule.campaigns)
    taken = np.isfinite(schedule.first_estimate_s)  # submitted jobs, except those larger than the machine
    run_s, of = np.array(schedule.jobs.run_s)[taken], np.array(campaigns.of, dtype=np.int64)
    number, user = of[taken], np.array(campaigns.user, dtype=np.int64)
    arrived = np.bincount(number, minlength=count)
    stop_s = np.array(schedule.start_s)[taken] + run_s
    end_s = _largest(number, np.where(stop_s <= schedule.end_s, stop_s, np.inf), count)
    complete = (arrived == np.bincount(of[of != NO_CAMPAIGN], minlength=count)) & (arrived > 0)
    end_s = np.where(complete & np.isfinite(end_s), end_s, np.nan)  # NaN if a job has not finished or arrived
    created_s = np.array(campaigns.created_s, dtype=np.float64)
    work = np.bincount(number, np.array(schedule.jobs.size, dtype=np.float64)[taken] * run_s, minlength=count)
    longest_s = _largest(number, run_s, count)
    virtual_end_s = campaigns.virtual.times_of(campaigns.virtual.tag)
    rivals = campaigns.virtual.most_shares(created_s, np.nan_to_num(virtual_end_s, nan=schedule.end_s))
    rivals = rivals / np.array(schedule.jobs.shares)[user]
    previous = np.maximum(np.array(campaigns.previous), 0.0)
    last_submit_s = np.maximum(_largest(number, np.array(schedule.jobs.submit_s)[taken], count), created_s)
    waited_for = rivals * (previous + np.maximum(np.array(campaigns.planned), work)) / schedule.nodes
    bound_s = last_submit_s - created_s + waited_for + float(run_s.max(initial=0.0)) + longest_s
    bound_s[np.isnan(end_s)] = np.nan
    least_s = np.maximum(np.maximum(work / schedule.nodes, longest_s), LEAST_S)
    virtual_end_s[arrived == 0] = np.nan
    return CampaignFigures(
        user=user,
        created_s=created_s,
        jobs=arrived,
        work=work.astype(np.float64),
        longest_s=longest_s,
        least_s=least_s,
        end_s=end_s,
        virtual_end_s=virtual_end_s,
        rivals=rivals,
        previous_work=previous,
        bound_s=bound_s,
        stretch=np.maximum(1.0, (end_s - created_s) / least_s),
        stretch_bound=np.maximum(1.0, bound_s / least_s),
    )


def _largest(number: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return the largest value of each campaign, 0 without values."""
    largest = np.full(count, -np.inf)
    np.maximum.at(largest, number, values)
    return np.where(largest == -np.inf, 0.0, largest)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleResult:
    """Input, outcome, and ``wall_s``, the seconds that the simulation took.

    ``log`` is the derived log of idle nodes; ``node_sets`` are the nodes of each job.
    """

    settings: ScheduleSettings
    workload: JobWorkload
    schedule: JobSchedule
    jobs: JobFigures
    campaigns: CampaignFigures
    node_sets: list[str]
    log: EventLog
    summary: ScheduleSummary
    wall_s: float

    @property
    def complete(self) -> bool:
        """Whether the simulation reached its planned end."""
        return self.summary.complete


def find_policy(name: str, options: PolicyOptions) -> QueuePolicy:
    """Return the policy of this name: a registered one, or one from ``path/to/file.py:name``.

    Its factory is a function or class with the options as argument, or without arguments.
    """
    factory = parts.load_part("queue_policy", name)

    def make() -> object:
        if not callable(factory):
            raise TypeError("not a class or function")
        return factory(options) if signature(factory).parameters else factory()

    fix = "define a class with name and starts(cluster), which docs/how-to/schedule.md describes"
    policy: QueuePolicy = parts.policy_of(make, QueuePolicy, f"queue policy '{name}'", fix)
    return policy


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
    schedule = engine.run(_until_s(settings, jobs), settings.max_backlog_s, watch)
    wall_s = perf_counter() - begin_s
    placed, node_sets = place(schedule, workload.per_node)
    jobs_found, campaigns_found = job_figures(schedule), figures(schedule)
    default = ScheduleSettings()
    names = [name for name in settings.__struct_fields__ if getattr(settings, name) != getattr(default, name)]
    story = LogProvenance(
        made_by=f"{MADE_BY}, {settings.policy} with estimates {settings.estimates}",
        options={name: getattr(settings, name) for name in dict.fromkeys(("policy", "estimates", *names))},
        sources=(workload.source,),
        counts=workload.rows.to_dict(),
        findings=ordered((*workload.findings, *_findings(schedule, placed))),
    )
    return ScheduleResult(
        settings=settings,
        workload=workload,
        schedule=schedule,
        jobs=jobs_found,
        campaigns=campaigns_found,
        node_sets=node_sets,
        log=replace(placed, times=placed.times + jobs.begin_s, end_s=placed.end_s + jobs.begin_s, provenance=story),
        summary=summarise(schedule, jobs_found, campaigns_found, workload, settings),
        wall_s=wall_s,
    )


def _until_s(settings: ScheduleSettings, jobs: SubmittedJobs) -> float:
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


def _findings(schedule: JobSchedule, placed: EventLog) -> list[LogFinding]:
    jobs = schedule.jobs
    found = [_finding("derived", len(placed.node_names), 0.0)]
    if schedule.refused:
        node_s = sum(jobs.size[job] * jobs.run_s[job] for job in schedule.refused)
        found.append(_finding("does_not_fit", len(schedule.refused), node_s, f"job {jobs.name(schedule.refused[0])}"))
    last_s = min(jobs.submit_s[-1], schedule.end_s)
    drained = placed.select(window=(last_s, None)).idle_node_s
    if drained > 0:
        found.append(_finding("drained", 1, drained, f"at {time_formats.time_text(last_s + jobs.begin_s)}"))
    return found


def _finding(name: str, count: int, node_s: float, first: str = "") -> LogFinding:
    return LogFinding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done)


def jobs_table(result: ScheduleResult) -> Table:
    """Return one row per job, in submission order."""
    schedule, jobs, figures = result.schedule, result.workload.jobs, result.jobs
    of = np.array(schedule.campaigns.of)
    # The last stretch is for jobs with no campaign
    stretch = np.append(result.campaigns.stretch, np.nan)[of]
    return {
        "job": [fields[swf.JOB] for fields in jobs.fields],
        "user": [jobs.users[user] for user in jobs.user],
        "queue": [fields[swf.QUEUE] for fields in jobs.fields],
        "state": figures.state,
        "submit_s": list(jobs.submit_s),
        "start_s": _cells(figures.start_s),
        "end_s": _cells(figures.end_s),
        "wait_s": _cells(figures.wait_s),
        "run_s": list(jobs.run_s),
        "limit_s": _cells(np.array(jobs.limit_s)),
        "planned_s": _cells(np.array(schedule.first_estimate_s)),
        "procs": list(jobs.procs),
        "size": list(jobs.size),
        "slowdown": _cells(figures.slowdown),
        "bounded_slowdown": _cells(figures.bounded_slowdown),
        "campaign": [None if number == NO_CAMPAIGN else number + 1 for number in schedule.campaigns.of],
        "stretch": _cells(stretch),
        "promised_s": _cells(figures.promised_s),
        "overtook": list(schedule.overtook),
        "overran": list(schedule.prolonged),
        "node_set": result.node_sets,
    }


def campaigns_table(result: ScheduleResult) -> Table:
    """Return one row per campaign with arrived jobs, in creation order."""
    figures, jobs = result.campaigns, result.workload.jobs
    seen = np.flatnonzero(figures.jobs > 0)
    done = figures.done
    within = [bool(each) if ended else None for each, ended in zip(figures.within, done, strict=True)]
    columns = {name: _cells(getattr(figures, name)[seen]) for name in _CAMPAIGN_COLUMNS}
    users = [jobs.users[user] for user in figures.user[seen].tolist()]
    return {
        "campaign": (seen + 1).tolist(),
        "user": users,
        **columns,
        "within": [within[number] for number in seen.tolist()],
    }


def utilisation_table(result: ScheduleResult) -> Table:
    """Return the state after each time with job arrivals, starts or ends, one row per time."""
    schedule, jobs, figures = result.schedule, result.workload.jobs, result.jobs
    size = np.array(jobs.size)
    arrived = np.isfinite(schedule.first_estimate_s)
    started, ended = np.isfinite(figures.start_s), np.isfinite(figures.end_s)
    one = np.ones(len(jobs), dtype=np.int64)
    none = np.zeros(len(jobs), dtype=np.int64)
    parts = (
        (np.array(jobs.submit_s)[arrived], none[arrived], none[arrived], one[arrived], size[arrived]),
        (figures.start_s[started], size[started], one[started], -one[started], -size[started]),
        (figures.end_s[ended], -size[ended], -one[ended], none[ended], none[ended]),
    )
    times, *changes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(times, kind="stable")
    last = np.append(np.diff(times[order]) > 0, np.ones(min(times.size, 1), dtype=np.bool_))
    busy, running, waiting, wanted = (np.cumsum(each[order])[last] for each in changes)
    return {
        "time_s": times[order][last].tolist(),
        "busy": busy.tolist(),
        "free": (schedule.nodes - busy).tolist(),
        "running": running.tolist(),
        "waiting": waiting.tolist(),
        "wanted": wanted.tolist(),
    }


def _cells(values: NDArray[np.float64]) -> list[float | None]:
    """Return numbers, with ``None`` for infinite ones and NaN."""
    return [value if finite else None for value, finite in zip(values.tolist(), np.isfinite(values), strict=True)]


def _swf_lines(result: ScheduleResult) -> Iterator[str]:
    workload, schedule, summary = result.workload, result.schedule, result.summary
    jobs = workload.jobs
    started = [job for job, start_s in enumerate(schedule.start_s) if start_s < math.inf]
    yield "; Version: 2.2"
    yield f"; UnixStartTime: {_number(workload.header_begin_s)}"
    yield f"; MaxNodes: {workload.nodes}"
    yield f"; MaxProcs: {math.ceil(workload.nodes * workload.cores_per_node)}"
    yield f"; MaxJobs: {len(started)}"
    yield f"; MaxRecords: {len(started)}"
    yield f"; Note: derived: bftrain {__version__} simulated the main scheduler ({summary.policy})"
    yield f"; Note: from {workload.source.name}, SHA-256 {workload.source.sha256}"
    if len(started) < len(jobs):
        yield f"; Note: without {counted(len(jobs) - len(started), 'job')} that did not start"
    first_s = float(jobs.fields[0][swf.SUBMIT])
    for job in started:
        fields = list(jobs.fields[job])
        fields[swf.SUBMIT] = _number(first_s + jobs.submit_s[job])
        fields[swf.WAIT] = _number(schedule.start_s[job] - jobs.submit_s[job])
        fields[swf.PROCS] = str(jobs.procs[job])
        for place, number in ((swf.JOB, job + 1), (swf.USER, jobs.user[job] + 1), (swf.QUEUE, swf.UNKNOWN)):
            if not fields[place].removeprefix("-").replace(".", "", 1).isdecimal():  # the format has only numbers
                fields[place] = str(number)
        yield " ".join(fields)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < _EXACT else repr(value)


TABLES: Final[Mapping[str, Callable[[ScheduleResult], Table]]] = {
    "jobs": jobs_table,
    "campaigns": campaigns_table,
    "utilisation": utilisation_table,
}


def write_swf(result: ScheduleResult, folder: Path) -> None:
    """Write the schedule as an SWF log into ``folder``."""
    with whole_file(folder / SCHEDULE_FILE) as file:
        file.writelines(f"{line}\n".encode() for line in _swf_lines(result))


def summary(result: ScheduleResult, name: str = "") -> dict[str, Any]:
    """Return the content of ``summary.json``: the figures, then inputs and settings."""
    workload, log = result.workload, result.log
    data: dict[str, Any] = {
        "format": FORMAT,
        **wire.plain(result.summary),
        "begin_s": workload.jobs.begin_s,
        "cores_per_node": workload.cores_per_node,
        "refused_jobs": [workload.jobs.name(job) for job in result.schedule.refused],
        "wall_s": result.wall_s,
        "jobs_per_s": result.summary.done / result.wall_s if result.wall_s > 0 else None,
        "inputs": {"log": {**wire.plain(workload.source), "name": name or workload.source.name}},
        "rows": wire.plain(workload.rows),
        "idle_log": {
            "file": LOG_FILE,
            "sha256": log.sha256,
            "nodes": len(log.node_names),
            "events": len(log),
            "start_s": log.start_s,
            "end_s": log.end_s,
            "idle_share": log.idle_share,
            "idle_node_h": log.idle_node_s / 3600,
        },
        "findings": wire.plain(log.provenance.findings),
        "settings": wire.plain(result.settings),
        "versions": summaries.versions(),
    }
    return summaries.with_sum(data, MEASURED)
