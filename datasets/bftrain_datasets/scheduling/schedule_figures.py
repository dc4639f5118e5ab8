"""Figures: how a schedule served its jobs, and what it left of the machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from bftrain_datasets.scheduling.schedule_engine import ScheduleEnd
from bftrain_datasets.scheduling.schedule_settings import WHOLE_NODES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_datasets.scheduling.campaign_figures import CampaignFigures
    from bftrain_datasets.scheduling.jobs import JobWorkload
    from bftrain_datasets.scheduling.schedule_engine import JobSchedule
    from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings

BOUNDED_S: Final = 10.0  # in bounded slowdowns no job is taken to run for less
DONE: Final = "done"
RUNNING: Final = "running"
WAITING: Final = "waiting"
NOT_ARRIVED: Final = "not_arrived"
REFUSED: Final = "refused"
STATES: Final = (DONE, RUNNING, WAITING, NOT_ARRIVED, REFUSED)


class ScheduleSpread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over many jobs or campaigns; ``None`` where there are none."""

    mean: float | None
    p50: float | None
    p95: float | None
    max: float | None

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ScheduleSpread:
        """Summarise these."""
        if values.size == 0:
            return cls(mean=None, p50=None, p95=None, max=None)
        p50, p95 = np.percentile(values, (50, 95)).tolist()
        return cls(mean=math.fsum(values.tolist()) / values.size, p50=p50, p95=p95, max=float(values.max()))


class ScheduleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that ``bftrain schedule`` prints; docs/schedule.md explains each."""

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
    """One place a job, in order of submission; NaN where something did not happen."""

    state: list[str]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    bounded_slowdown: NDArray[np.float64]
    promised_s: NDArray[np.float64]


def job_figures(schedule: JobSchedule) -> JobFigures:
    """Compute those of the jobs."""
    jobs = schedule.jobs
    run_s, submit_s = np.array(jobs.run_s), np.array(jobs.submit_s)
    start_s = np.array(schedule.start_s)
    start_s[np.isinf(start_s)] = np.nan
    end_s = start_s + run_s
    end_s[end_s > schedule.end_s] = np.nan
    promised_s = np.array(schedule.promised_s)
    promised_s[np.isinf(promised_s)] = np.nan
    wait_s = start_s - submit_s
    # Without the time of day in it: so no digits are lost in a difference
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
    """Give the node-seconds, or processor-seconds of shared nodes, that jobs held."""
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
    """Sum a schedule up."""
    counted = {state: jobs.state.count(state) for state in STATES}
    busy = held_s(schedule)
    whole = schedule.nodes * schedule.end_s
    delay_s = jobs.start_s - jobs.promised_s
    late = delay_s > _LATE_S
    all_done = schedule.ended is ScheduleEnd.ALL_DONE
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
        load=_load(schedule),
        utilisation=busy / whole if whole else None,
        busy_h=busy / 3600,
        free_h=(whole - busy) / 3600,
        wait_s=ScheduleSpread.of(jobs.wait_s[np.isfinite(jobs.wait_s)]),
        slowdown=ScheduleSpread.of(jobs.slowdown[np.isfinite(jobs.slowdown)]),
        bounded_slowdown=ScheduleSpread.of(jobs.bounded_slowdown[np.isfinite(jobs.bounded_slowdown)]),
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


_LATE_S: Final = 1e-6  # less is rounding, not time


def _load(schedule: JobSchedule) -> float | None:
    """Give the work that was offered over what the machine can do until the last submission."""
    jobs = schedule.jobs
    whole = schedule.nodes * jobs.submit_s[-1]
    offered = math.fsum(
        size * run_s for size, run_s in zip(jobs.size, jobs.run_s, strict=True) if size <= schedule.nodes
    )
    return offered / whole if whole else None
