"""Figures of a schedule: the service to jobs and campaigns, and the machine's idle rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.scheduling.jobs import JobWorkload
from bftrain_datasets.scheduling.schedule_engine import JobSchedule, ScheduleEnd
from bftrain_datasets.scheduling.schedule_settings import WHOLE_NODES, ScheduleSettings
from bftrain_datasets.scheduling.virtual_schedule import NO_CAMPAIGN

_LATE_S: Final = 1e-6  # smaller differences are rounding
LEAST_S: Final = 10.0  # lower bound of a campaign's own time
ROUNDING: Final = 1e-9  # relative tolerance; the two sides of a comparison are sums of different numbers
BOUNDED_S: Final = 10.0  # lower bound of run times in bounded slowdowns
DONE: Final = "done"
RUNNING: Final = "running"
WAITING: Final = "waiting"
NOT_ARRIVED: Final = "not_arrived"
REFUSED: Final = "refused"
STATES: Final = (DONE, RUNNING, WAITING, NOT_ARRIVED, REFUSED)


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
    """The figures that ``bftrain schedule`` prints; docs/how-to/schedule.md explains each."""

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
    return NOT_ARRIVED if math.isinf(schedule.first_planned_s[job]) else WAITING


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
    counted = {state: jobs.state.count(state) for state in STATES}
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
        **counted,
        makespan_s=float(np.nanmax(jobs.end_s)) if all_done and counted[DONE] else None,
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

    The bound is OStrich's (docs/how-to/schedule.md has the proof): a campaign waits for its user's remaining work and
    its own work, each multiplied by the number of rivals; for one running job; and for its own longest job.
    """
    campaigns, count = schedule.campaigns, len(schedule.campaigns)
    taken = np.isfinite(schedule.first_planned_s)  # submitted jobs, except those larger than the machine
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
