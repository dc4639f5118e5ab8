"""Queue policies of a simulated main scheduler, and the cluster as they see it.

The policies are FCFS, EASY backfilling, fair share, and OStrich. OStrich groups the jobs that a user
submits together into campaigns, and ranks these by their end in a virtual fair schedule (``virtual_schedule``).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, Protocol, runtime_checkable

import numpy as np

from bftrain_datasets.scheduling.jobs import SubmittedJobs
from bftrain_datasets.scheduling.schedule_settings import OLDEST_FIRST, PUBLISHED, PolicyOptions
from bftrain_datasets.scheduling.virtual_schedule import UserCampaigns

NEVER: Final = math.inf


class SimulatedCluster:
    """The machine, its queue and its running jobs at ``now_s`` (seconds since the first submission).

    Jobs are numbered by submission; ``size``, ``submit_s`` and ``user`` are indexed by job. Policies cannot see real
    run times: ``planned_s`` is the current estimate, which rises when a job exceeds it. ``running`` lists ``(planned
    end, job)`` pairs, earliest first; ``start_s`` is each job's start, infinite before it. ``submitted``, ``ended``
    and ``overran`` list the changes since the last policy call.
    """

    def __init__(self, jobs: SubmittedJobs, nodes: int, campaigns: UserCampaigns) -> None:
        self.now_s = 0.0
        self.nodes = nodes
        self.free = nodes
        self.size: Sequence[int] = jobs.size
        self.submit_s: Sequence[float] = jobs.submit_s
        self.user: Sequence[int] = jobs.user
        self.planned_s = [0.0] * len(jobs)
        self.start_s = [NEVER] * len(jobs)
        self.waiting: list[int] = []
        self.running: list[tuple[float, int]] = []
        self.submitted: list[int] = []
        self.ended: list[int] = []
        self.overran: list[int] = []
        self.campaigns = campaigns

    def planned_end_s(self, job: int) -> float:
        """Return the planned end time of a running job, or of a job that finished since the last policy call."""
        return self.start_s[job] + self.planned_s[job]

    # The engine calls the methods below.

    def submit(self, job: int, planned_s: float) -> None:
        """Add a job to the queue."""
        self.planned_s[job] = planned_s
        self.waiting.append(job)
        self.submitted.append(job)

    def start(self, job: int) -> None:
        """Move a job from the queue to the machine."""
        del self.waiting[bisect_left(self.waiting, job)]
        self.start_s[job] = self.now_s
        self.free -= self.size[job]
        insort(self.running, (self.planned_end_s(job), job))

    def end(self, job: int) -> None:
        """Remove a finished job and free its nodes."""
        del self.running[bisect_left(self.running, (self.planned_end_s(job), job))]
        self.free += self.size[job]
        self.ended.append(job)

    def prolong(self, job: int, planned_s: float) -> None:
        """Set a longer estimate for a running job."""
        del self.running[bisect_left(self.running, (self.planned_end_s(job), job))]
        self.planned_s[job] = planned_s
        insort(self.running, (self.planned_end_s(job), job))
        self.overran.append(job)

    def clear_changes(self) -> None:
        """Clear the changes already seen by the policy."""
        self.submitted.clear()
        self.ended.clear()
        self.overran.clear()


@runtime_checkable
class QueuePolicy(Protocol):
    """Chooses the waiting jobs to start, in a simulated main scheduler. Created by a factory.

    An attribute ``wake_s`` requests a call at this time even without changes, if jobs wait. A policy that promises
    starts has ``promises``, the first promise by job.
    """

    @property
    def name(self) -> str:
        """The policy's name in settings."""
        ...

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the waiting jobs to start now; their total size must not exceed the free nodes."""
        ...


class FreeNodesProfile:
    """The number of free nodes over time: ``free[i]`` from ``times[i]`` to ``times[i + 1]``.

    All nodes are free after the last time.
    """

    __slots__ = ("free", "times")

    def __init__(self, now_s: float, nodes: int) -> None:
        self.times = [now_s]
        self.free = [nodes]

    @classmethod
    def of(cls, now_s: float, free: int, running: Iterable[tuple[float, int]], size: Sequence[int]) -> FreeNodesProfile:
        """Return the profile of the running jobs, sorted by planned end; ``free`` nodes are free now."""
        made = cls(now_s, free)
        times, steps = made.times, made.free
        for end_s, job in running:
            free += size[job]
            if end_s > times[-1]:
                times.append(end_s)
                steps.append(free)
            else:
                steps[-1] = free
        return made

    def earliest(self, size: int, length_s: float) -> float:
        """Return the first time when ``size`` nodes are free for ``length_s``; eventually all nodes are free."""
        times, free = self.times, self.free
        count = len(times)
        at = 0
        while True:
            while free[at] < size:
                at += 1
            end_s = times[at] + length_s
            after = at + 1
            while after < count and times[after] < end_s:
                if free[after] < size:
                    break
                after += 1
            else:
                return times[at]
            at = after

    def take(self, begin_s: float, end_s: float, size: int) -> None:
        """Reserve ``size`` nodes."""
        if end_s <= begin_s:
            return
        times, free = self.times, self.free
        first = bisect_left(times, begin_s)
        if first == len(times) or times[first] != begin_s:  # insert a step
            times.insert(first, begin_s)
            free.insert(first, free[first - 1])
        last = bisect_left(times, end_s, first)
        if last == len(times) or times[last] != end_s:
            times.insert(last, end_s)
            free.insert(last, free[last - 1])
        for place in range(first, last):
            free[place] -= size
        for place in (last, first):
            if place and free[place] == free[place - 1]:  # remove a step without change
                del times[place], free[place]


def fitting(jobs: Iterable[int], free: int, size: Sequence[int]) -> tuple[list[int], int, int | None]:
    """Return the first jobs that fit together, the remaining free nodes, and the next job if any."""
    started: list[int] = []
    for job in jobs:
        if size[job] > free:
            return started, free, job
        free -= size[job]
        started.append(job)
    return started, free, None


class FirstComePolicy:
    """Starts jobs in submission order while they fit."""

    name: Final = "fcfs"

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs at the head of the queue that fit together."""
        return fitting(cluster.waiting, cluster.free, cluster.size)[0]


class EasyBackfill:
    """First come, first served, with a reservation only for the head of the queue.

    ``promises`` maps each job that had to wait at the head to the start time promised first.
    """

    name: Final = "easy"

    def __init__(self) -> None:
        self.promises: dict[int, float] = {}

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs to start: from the head of the queue, then jobs that fit around its reservation."""
        size, planned_s = cluster.size, cluster.planned_s
        started, free, head = fitting(cluster.waiting, cluster.free, size)
        if head is None:
            return started
        candidates = _candidates(cluster, len(started)) if free else ()
        if not candidates and head in self.promises:
            return started
        ends = cluster.running
        if started:
            ends = sorted([*ends, *((cluster.now_s + planned_s[job], job) for job in started)])
        shadow_s, extra = reservation(size[head], free, ends, size)
        self.promises.setdefault(head, shadow_s)
        return started + _backfillable(candidates, cluster, free, shadow_s, extra)


def reservation(size: int, free: int, ends: Iterable[tuple[float, int]], sizes: Sequence[int]) -> tuple[float, int]:
    """Return when ``size`` nodes will be free, and the surplus at that time."""
    at_s = 0.0
    for end_s, job in ends:
        if free >= size and end_s > at_s:
            break
        free += sizes[job]
        at_s = end_s
    return at_s, free - size


def _candidates(cluster: SimulatedCluster, started: int) -> Sequence[int]:
    """Return the jobs after the head that may fit now.

    If no job finished and no plan changed, earlier candidates still do not fit: no nodes were freed, and the
    reservation is no later. Then only new jobs are candidates.
    """
    if cluster.ended or cluster.overran or started:
        return cluster.waiting[started + 1 :]
    new = cluster.submitted
    return new[1:] if new and new[0] == cluster.waiting[0] else new


def _backfillable(
    candidates: Iterable[int], cluster: SimulatedCluster, free: int, shadow_s: float, extra: int
) -> list[int]:
    """Return the candidates that finish before the reservation starts, or do not need its nodes."""
    size, planned_s, now_s = cluster.size, cluster.planned_s, cluster.now_s
    started = []
    for job in candidates:
        needed = size[job]
        if needed > free:
            continue
        if now_s + planned_s[job] > shadow_s:
            if needed > extra:
                continue
            extra -= needed
        free -= needed
        started.append(job)
        if free == 0:
            break
    return started


class BackfillingPolicy:
    """Starts waiting jobs in the order of a subclass, and backfills a limited number of them in this order.

    ``backfill_depth`` jobs are examined, from the first that does not fit: whenever jobs may start, or with
    ``backfill_interval_s`` only at its multiples after a change. ``wake_s`` is the next such time, if needed. Each job
    is planned at its earliest time given the jobs before it, and starts if this time is now. So it delays no examined
    job of higher rank, unless that job's time is more than ``backfill_window_s`` ahead.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.wake_s = NEVER
        self._window_s = options.backfill_window_s or NEVER
        self._depth, self._interval_s = options.backfill_depth, options.backfill_interval_s
        self._waiting: dict[int, list[int]] = {}  # user or campaign -> its waiting jobs, sorted

    def _started(self, ranked: Iterable[int], cluster: SimulatedCluster, group_of: Sequence[int]) -> list[int]:
        """Return the jobs to start, and remove them from ``_waiting``; ``group_of`` is the key of each job there."""
        started = self._in_order(ranked, cluster)
        for job in started:
            jobs = self._waiting[group_of[job]]
            jobs.remove(job)
            if not jobs:
                del self._waiting[group_of[job]]
        return started

    def _in_order(self, ranked: Iterable[int], cluster: SimulatedCluster) -> list[int]:
        size, jobs, now_s, depth = cluster.size, iter(ranked), cluster.now_s, self._depth
        if self._interval_s and (due_s := math.ceil(now_s / self._interval_s) * self._interval_s) > now_s:
            self.wake_s, depth = due_s, 0
        started, free, blocked = fitting(jobs, cluster.free, size)
        if blocked is None or free == 0 or depth == 0:
            return started
        examined = [blocked, *islice(jobs, depth - 1)]
        last = max((place for place, job in enumerate(examined) if size[job] <= free), default=0)
        if last == 0:
            return started  # no candidate can start now, so the plans have no effect
        further = self._planned(examined[: last + 1], started, free, cluster)
        if self._interval_s:  # a backfill is followed by another one
            self.wake_s = now_s + self._interval_s if further else NEVER
        return started + further

    def _planned(
        self, examined: Iterable[int], started: Iterable[int], free: int, cluster: SimulatedCluster
    ) -> list[int]:
        """Return the examined jobs whose planned time is now."""
        now_s, size, planned_s = cluster.now_s, cluster.size, cluster.planned_s
        ends = sorted([*cluster.running, *((now_s + planned_s[job], job) for job in started)])
        profile = FreeNodesProfile.of(now_s, free, ends, size)
        further = []
        for job in examined:
            begin_s = profile.earliest(size[job], planned_s[job])
            if begin_s > now_s + self._window_s:
                continue
            profile.take(begin_s, begin_s + planned_s[job], size[job])
            if begin_s <= now_s:
                further.append(job)
                free -= size[job]
                if free == 0:
                    break
        return further


class UserUsage:
    """Node-seconds used by each user, halved every ``half_life_s``; 0 for no decay."""

    def __init__(self, users: int, half_life_s: float) -> None:
        self._rate = math.log(2) / half_life_s if half_life_s > 0 else 0.0
        self._used = [0.0] * users
        self._nodes = [0] * users  # nodes currently allocated
        self._at_s = [0.0] * users

    def of(self, user: int, now_s: float) -> float:
        """Return a user's decayed usage at ``now_s``."""
        past_s = now_s - self._at_s[user]
        if past_s > 0:
            if self._rate:
                left = math.exp(-self._rate * past_s)
                self._used[user] = self._used[user] * left + self._nodes[user] * (1 - left) / self._rate
            else:
                self._used[user] += self._nodes[user] * past_s
            self._at_s[user] = now_s
        return self._used[user]

    def hold(self, user: int, nodes: int, now_s: float) -> None:
        """Change a user's number of allocated nodes at ``now_s``."""
        self.of(user, now_s)
        self._nodes[user] += nodes


_DECAY_EVERY_S: Final = 300.0
_STEPS_OF_RANK: Final = 100_000  # ranks are rounded to this resolution
_LN_2: Final = 0.693  # the value used in Slurm


class PublishedUsage:
    """Usage as computed by Slurm's multifactor plugin and the published simulator of OStrich.

    At each event, at each backfill, and at least every 5 minutes, the node-time since the last update is added to
    the usage, and the sum decays by that time.
    """

    def __init__(self, options: PolicyOptions) -> None:
        shares = np.array(options.shares)
        self._shares = shares / shares.sum()
        self._kept = 1.0 - _LN_2 / options.half_life_s if options.half_life_s else 1.0  # fraction kept after one second
        self._interval_s = options.backfill_interval_s
        self._used, self._nodes, self._at_s = np.zeros(shares.size), np.zeros(shares.size), 0.0

    def hold(self, user: int, nodes: int, now_s: float) -> None:
        """Change a user's number of allocated nodes at ``now_s``."""
        self.advance(now_s)
        self._nodes[user] += nodes

    def ranks(self, now_s: float) -> list[int]:
        """Return the rank of each user (the smallest first): ``-(2 ** -(part of all usage / share))`` in steps."""
        self.advance(now_s)
        total = float(self._used.sum())
        parts = self._used / total if total else np.zeros_like(self._used)
        found: list[int] = (-np.floor(_STEPS_OF_RANK * 2.0 ** -(parts / self._shares)).astype(np.int64)).tolist()
        return found

    def advance(self, to_s: float) -> None:
        """Advance time to an event."""
        backfill_s = math.ceil(self._at_s / self._interval_s) * self._interval_s if self._interval_s else NEVER
        while self._at_s < to_s:
            next_s = min(to_s, self._at_s + _DECAY_EVERY_S, backfill_s if backfill_s > self._at_s else NEVER)
            step_s = next_s - self._at_s
            self._used = (self._used + self._nodes * step_s) * self._kept**step_s
            self._at_s = next_s


class FairSharePolicy(BackfillingPolicy):
    """Ranks users by usage over share, and a user's jobs by submission."""

    name: Final = "fairshare"

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._shares = options.shares
        self._usage: UserUsage | PublishedUsage = UserUsage(len(options.shares), options.half_life_s)
        if options.decay == PUBLISHED:
            self._usage = PublishedUsage(options)

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs that start."""
        now_s, user, size = cluster.now_s, cluster.user, cluster.size
        if isinstance(self._usage, PublishedUsage):
            self._usage.advance(now_s)
        for job in cluster.ended:
            self._usage.hold(user[job], -size[job], now_s)
        for job in cluster.submitted:
            self._waiting.setdefault(user[job], []).append(job)
        if not cluster.free:
            return ()
        started = self._started(self._ranked(now_s), cluster, user)
        for job in started:
            self._usage.hold(user[job], size[job], now_s)
        return started

    def _ranked(self, now_s: float) -> Iterator[int]:
        """Yield all waiting jobs by rank; ties go to the job that waited longest."""
        if isinstance(self._usage, PublishedUsage):
            rank = self._usage.ranks(now_s)
            jobs = ((rank[user], job) for user, waiting in self._waiting.items() for job in waiting)
            return (job for _, job in sorted(jobs))
        usage, shares = self._usage, self._shares
        ranks = sorted((usage.of(user, now_s) / shares[user], jobs[0], user) for user, jobs in self._waiting.items())
        return chain.from_iterable(self._waiting[user] for _, _, user in ranks)


class OStrichPolicy(BackfillingPolicy):
    """Ranks campaigns by their end in the virtual schedule, and their jobs by estimate."""

    name: str = "ostrich"
    by_estimate: bool = True  # rank the jobs of a campaign by estimate, otherwise by submission

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._oldest_first = options.done_campaigns == OLDEST_FIRST

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs that start."""
        campaigns = cluster.campaigns
        for job in cluster.submitted:
            waiting = self._waiting.setdefault(campaigns.of[job], [])
            insort(waiting, job, key=lambda each: (cluster.planned_s[each] if self.by_estimate else 0.0, each))
        if not cluster.free or not self._waiting:
            return ()
        # With oldest-first, campaigns that have finished in the virtual schedule rank as if they finished now
        order = campaigns.ordered(self._waiting, campaigns.virtual.level if self._oldest_first else 0.0)
        return self._started(chain.from_iterable(map(self._waiting.__getitem__, order)), cluster, campaigns.of)


class FifoOStrichPolicy(OStrichPolicy):
    """Ranks campaigns like ``ostrich``, and the jobs in a campaign by submission."""

    name = "ostrich-fifo"
    by_estimate = False
