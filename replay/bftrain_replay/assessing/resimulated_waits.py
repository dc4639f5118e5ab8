"""Re-simulated waits: the batch queue scheduled again, with the log's submissions, with and without a delay of nodes.

Both runs know submissions, sizes and run times of the jobs. In the second each job holds its nodes for the delay before
it runs: every node that it gets counts as held by a task, so waits are overestimated. Unlike the fixed order of jobs on
their nodes (:mod:`bftrain_replay.assessing.handback`) the policy chooses again when and where jobs start.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.jobs import UNLIMITED, RuntimeEstimator, SubmittedJobs
from bftrain_datasets.scheduling.schedule_engine import ScheduleEngine, Watch
from bftrain_datasets.scheduling.schedule_settings import PolicyOptions, ScheduleSettings
from bftrain_datasets.scheduling.scheduling import find_policy
from bftrain_replay.assessing.batch_jobs import BatchJobs
from bftrain_replay.results.harvest_by_block import Floats

_PERCENTILES: Final = (50, 90, 99)
_SHARED: Final = 0.01  # of the node-time of jobs: less is rounding of starts and ends


class ResimulatedWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of jobs by a ``policy``, from submission until they run: without the delay, with it, and the difference.

    Some jobs start sooner with the delay, since others are packed differently: ``later`` is the share that starts
    later, ``extra_s`` has percentiles of the difference over all jobs.
    """

    policy: str
    jobs: int
    wait_mean_s: float
    delayed_wait_mean_s: float
    extra_mean_s: float
    extra_s: dict[int, float]
    later: float


def resimulate(
    jobs: BatchJobs, nodes: int, delay_s: float, policy: str, watch: Watch | None = None
) -> ResimulatedWaits | None:
    """Schedule jobs without an :func:`obstacle` twice on so many nodes; nothing once ``watch`` returns false."""
    chosen = _submitted(jobs)
    chosen = chosen[np.argsort(jobs.submit_s[chosen], kind="stable")]
    waits = [_waits(_table(jobs, chosen, hold_s), nodes, policy, watch) for hold_s in (0.0, delay_s)]
    if waits[0] is None or waits[1] is None:
        return None
    extra = waits[1] + delay_s - waits[0]
    return ResimulatedWaits(
        policy=policy,
        jobs=extra.size,
        wait_mean_s=float(waits[0].mean()),
        delayed_wait_mean_s=float(waits[1].mean()) + delay_s,
        extra_mean_s=float(extra.mean()),
        extra_s={each: float(np.percentile(extra, each)) for each in _PERCENTILES},
        later=float((extra > 0.0).mean()),
    )


def obstacle(jobs: BatchJobs | None, nodes: int) -> str:
    """Return why jobs cannot be scheduled again; an empty text if they can."""
    if jobs is None:
        return "no record of jobs is known"
    if not _submitted(jobs).size:
        return "these records do not tell when jobs were submitted"
    shared = shared_share(jobs, nodes)
    if shared > _SHARED:
        return f"jobs share nodes for {100 * shared:.0f} % of their node-time, and only whole nodes are scheduled here"
    return ""


def _submitted(jobs: BatchJobs) -> np.typing.NDArray[np.int64]:
    return np.flatnonzero(~np.isnan(jobs.submit_s) & (jobs.sizes > 0))


def shared_share(jobs: BatchJobs, nodes: int) -> float:
    """Return the share of the jobs' node-time in which another job held the node too."""
    ended, shared_s = np.full(nodes, -np.inf), 0.0
    offsets = jobs.offsets.tolist()
    for job, (start_s, end_s) in enumerate(zip(jobs.start_s.tolist(), jobs.end_s.tolist(), strict=True)):
        own = jobs.nodes[offsets[job] : offsets[job + 1]]
        shared_s += float(np.maximum(np.minimum(ended[own], end_s) - start_s, 0.0).sum())
        ended[own] = np.maximum(ended[own], end_s)
    held_s = float(((jobs.end_s - jobs.start_s) * jobs.sizes).sum())
    return shared_s / held_s if held_s else 0.0


def _table(jobs: BatchJobs, chosen: np.typing.NDArray[np.int64], hold_s: float) -> SubmittedJobs:
    """Return the jobs in the scheduler's form; jobs without a known user share one."""
    user = np.where(jobs.user[chosen] < 0, len(jobs.users), jobs.user[chosen])
    begin_s = float(jobs.submit_s[chosen[0]])
    sizes = jobs.sizes[chosen].tolist()
    return SubmittedJobs(
        begin_s=begin_s,
        submit_s=(jobs.submit_s[chosen] - begin_s).tolist(),
        run_s=(jobs.end_s[chosen] - jobs.start_s[chosen] + hold_s).tolist(),
        limit_s=[UNLIMITED] * chosen.size,
        size=sizes,
        procs=sizes,
        user=user.tolist(),
        users=(*jobs.users, ""),
        shares=(1.0,) * (len(jobs.users) + 1),
        fields=[[str(job)] * swf.FIELDS for job in chosen.tolist()],
    )


def _waits(table: SubmittedJobs, nodes: int, policy: str, watch: Watch | None) -> Floats | None:
    settings = ScheduleSettings()
    engine = ScheduleEngine(
        table,
        nodes,
        find_policy(policy, PolicyOptions(shares=table.shares)),
        RuntimeEstimator(settings.estimates, table),
        settings.campaign_gap_s,
    )
    found = engine.run(math.inf, math.inf, watch)
    waits: Floats = np.array(found.start_s) - np.array(table.submit_s)
    return waits if np.isfinite(waits).all() else None
