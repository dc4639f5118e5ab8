"""Clock of the simulated machine: jobs arrive, finish and exceed their estimates, and a policy starts them."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

from bftrain.errors import BftrainError, BrokenPlugin, raised
from bftrain_datasets.scheduling.jobs import SubmittedJobs
from bftrain_datasets.scheduling.queue_policies import NEVER, QueuePolicy, SimulatedCluster
from bftrain_datasets.scheduling.virtual_schedule import UserCampaigns

# Receives the progress: seconds since the first submission, and the number of finished jobs. Return False to stop.
Watch = Callable[[float, int], bool]

STEPS_PER_REPORT: Final = 256  # steps between reports of progress
OUR_OWN: Final = "bftrain_datasets."  # module prefix of built-in policies
# Increments of an estimate each time a job exceeds it, from D. Tsafrir, Y. Etsion and D. Feitelson, "Backfilling using
# system-generated predictions" (2007).
STEPS_S: Final = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0)


class ScheduleEnd(StrEnum):
    """The reason why a simulation stopped."""

    ALL_DONE = "all_done"
    UNTIL = "until"
    OVERLOAD = "overload"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSchedule:
    """The outcome of the jobs. Times are seconds since the first submission, infinite if the event did not happen.

    ``nodes`` counts processors if nodes are shared. ``first_estimate_s`` is each job's estimated run time at
    submission, ``prolonged`` the number of times it exceeded its estimate. ``promised_s`` is the first promised start,
    ``overtook`` whether it started before an earlier submitted job. ``refused`` lists jobs larger than the machine,
    ``most_waiting`` is the longest queue.
    """

    jobs: SubmittedJobs
    nodes: int
    end_s: float
    ended: ScheduleEnd
    start_s: Sequence[float]
    first_estimate_s: Sequence[float]
    prolonged: Sequence[int]
    promised_s: Sequence[float]
    overtook: Sequence[bool]
    refused: tuple[int, ...]
    campaigns: UserCampaigns
    most_waiting: int

    def stop_s(self, job: int) -> float:
        """Return the end time of a job, in the future if it still runs."""
        return self.start_s[job] + self.jobs.run_s[job]


class ScheduleEngine:
    """One simulation run."""

    def __init__(
        self,
        jobs: SubmittedJobs,
        nodes: int,
        policy: QueuePolicy,
        known_run_s: Sequence[float],
        gap_s: float,
        *,
        whole_seconds: bool = False,
    ) -> None:
        self._jobs = jobs
        self._policy = policy
        self._known_run_s = known_run_s
        self._campaigns = UserCampaigns(jobs, nodes, gap_s, whole_seconds=whole_seconds)
        self._cluster = SimulatedCluster(jobs, nodes, self._campaigns)
        self._refused = tuple(job for job, size in enumerate(jobs.size) if size > nodes)
        self._next = 0  # next job to arrive
        self._ends: list[tuple[float, int]] = []
        self._overruns: list[tuple[float, int]] = []
        self._prolonged = array("i", [0]) * len(jobs)
        self._first_estimate_s = array("d", [NEVER]) * len(jobs)
        self._overtook = bytearray(len(jobs))
        self._backlog = 0.0  # waiting node-seconds
        self._done = self._most_waiting = 0

    def run(self, until_s: float, max_backlog_s: float, watch: Watch | None = None) -> JobSchedule:
        """Run until all jobs are done, ``until_s`` is reached, or the backlog exceeds ``max_backlog_s``."""
        cluster = self._cluster
        most_backlog = max_backlog_s * cluster.nodes
        ended, moments = ScheduleEnd.ALL_DONE, 0
        while (now_s := self._next_s()) < NEVER:
            if now_s > until_s:
                ended = ScheduleEnd.UNTIL
                break
            if moments % STEPS_PER_REPORT == 0 and watch is not None and not watch(now_s, self._done):
                ended = ScheduleEnd.INTERRUPTED
                break
            moments += 1
            self._campaigns.virtual.advance(now_s, cluster.nodes - cluster.free)
            cluster.now_s = now_s
            self._process_changes(now_s)
            self._call_policy()
            if self._backlog > most_backlog:
                ended = ScheduleEnd.OVERLOAD
                break
        if ended is ScheduleEnd.ALL_DONE and cluster.waiting:
            raise self._fault(f"leaves job {self._jobs.name(cluster.waiting[0])} waiting on an empty machine")
        end_s = until_s if ended is ScheduleEnd.UNTIL else cluster.now_s
        self._campaigns.virtual.advance(end_s, cluster.nodes - cluster.free)
        promises: dict[int, float] = getattr(self._policy, "promises", {})
        return JobSchedule(
            jobs=self._jobs,
            nodes=cluster.nodes,
            end_s=end_s,
            ended=ended,
            start_s=cluster.start_s,
            first_estimate_s=self._first_estimate_s,
            prolonged=self._prolonged,
            promised_s=[promises.get(job, math.inf) for job in range(len(self._jobs))],
            overtook=[bool(each) for each in self._overtook],
            refused=self._refused,
            campaigns=self._campaigns,
            most_waiting=self._most_waiting,
        )

    def _next_s(self) -> float:
        wake_s: float = getattr(self._policy, "wake_s", NEVER) if self._cluster.waiting else NEVER
        return min(
            wake_s if wake_s > self._cluster.now_s else NEVER,  # the policy was called now
            self._jobs.submit_s[self._next] if self._next < len(self._jobs) else NEVER,
            self._ends[0][0] if self._ends else NEVER,
            self._overruns[0][0] if self._overruns else NEVER,
        )

    def _process_changes(self, now_s: float) -> None:
        """Process all changes at this time: first finished jobs, then exceeded estimates, then arrivals."""
        cluster, jobs = self._cluster, self._jobs
        while self._ends and self._ends[0][0] <= now_s:
            _, job = heappop(self._ends)
            cluster.end(job)
            self._campaigns.ended(job, cluster.planned_s[job])
            self._done += 1
        while self._overruns and self._overruns[0][0] <= now_s:
            self._prolong(heappop(self._overruns)[1])
        while self._next < len(jobs) and jobs.submit_s[self._next] <= now_s:
            job = self._next
            self._next += 1
            if jobs.size[job] > cluster.nodes:
                continue
            planned_s = self._first_estimate_s[job] = self._known_run_s[job]
            cluster.submit(job, planned_s)
            self._campaigns.submitted(job, planned_s)
            self._backlog += jobs.size[job] * jobs.run_s[job]

    def _prolong(self, job: int) -> None:
        cluster = self._cluster
        self._prolonged[job] += 1
        before_s = cluster.planned_s[job]
        ran_s = cluster.now_s - cluster.start_s[job]
        longer_s = max(before_s, ran_s) + STEPS_S[min(self._prolonged[job], len(STEPS_S)) - 1]
        cluster.prolong(job, longer_s)
        self._campaigns.prolonged(job, longer_s - before_s)
        self._watch_estimate(job)

    def _watch_estimate(self, job: int) -> None:
        end_s = self._cluster.planned_end_s(job)
        if end_s < self._cluster.start_s[job] + self._jobs.run_s[job]:
            heappush(self._overruns, (end_s, job))

    def _call_policy(self) -> None:
        cluster, jobs = self._cluster, self._jobs
        try:
            started = list(self._policy.starts(cluster))
        except Exception as error:
            if type(self._policy).__module__.startswith(OUR_OWN):
                raise  # an internal error
            raise self._fault(raised(error)) from error
        cluster.clear_changes()
        for job in started:
            place = bisect_left(cluster.waiting, job)
            if place == len(cluster.waiting) or cluster.waiting[place] != job:
                raise self._fault(f"starts job number {job}, which is not waiting")
            if cluster.size[job] > cluster.free:
                what = f"starts job {jobs.name(job)} on {cluster.size[job]} nodes where {cluster.free} are free"
                raise self._fault(what)
            cluster.start(job)
            heappush(self._ends, (cluster.now_s + jobs.run_s[job], job))
            self._watch_estimate(job)
            self._backlog -= jobs.size[job] * jobs.run_s[job]
        waiting = cluster.waiting
        if waiting:
            for job in started:
                self._overtook[job] = waiting[0] < job
            self._most_waiting = max(self._most_waiting, len(waiting))

    def _fault(self, what: str) -> BftrainError:
        where = f"policy '{self._policy.name}', {self._cluster.now_s:g} s after the first submission"
        return BrokenPlugin(what, where=where, fix="repair the policy")
