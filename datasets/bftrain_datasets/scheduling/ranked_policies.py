"""Policies that rank jobs by other criteria than submission, and backfill in that order: fair share, OStrich."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice
from typing import Final

import numpy as np

from bftrain_datasets.scheduling.cluster import NEVER, SimulatedCluster
from bftrain_datasets.scheduling.queue_policies import FreeNodesProfile, fitting
from bftrain_datasets.scheduling.schedule_settings import OLDEST_FIRST, PUBLISHED, PolicyOptions
from bftrain_datasets.scheduling.virtual_schedule import UserCampaigns


class BackfillTimes:
    """Times and depth of backfilling: whenever jobs may start, or at multiples of an interval after a change.

    ``wake_s`` is the next such time, if one is needed.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.wake_s = NEVER
        self.window_s = options.backfill_window_s or NEVER  # starts further ahead are not planned
        self._depth, self._interval_s = options.backfill_depth, options.backfill_interval_s

    def depth(self, now_s: float) -> int:
        """Return how many jobs may be examined now after those that fit."""
        if self._interval_s and (due_s := math.ceil(now_s / self._interval_s) * self._interval_s) > now_s:
            self.wake_s = due_s
            return 0
        return self._depth

    def backfilled(self, now_s: float, jobs: int) -> None:
        """Record how many jobs were backfilled: after some, the next interval may have space for others."""
        if self._interval_s:
            self.wake_s = now_s + self._interval_s if jobs else NEVER


def in_order(ranked: Iterable[int], cluster: SimulatedCluster, times: BackfillTimes) -> list[int]:
    """Return the jobs that start, by rank: as many as fit, then up to a depth more that delay none before them.

    Each examined job, including the first that does not fit, is planned at its earliest time given those
    before it, and starts if that is now. So no job is delayed by an examined one of lower rank.
    """
    size, jobs, depth = cluster.size, iter(ranked), times.depth(cluster.now_s)
    started, free, blocked = fitting(jobs, cluster.free, size)
    if blocked is None or free == 0 or depth == 0:
        return started
    looked_at = [blocked, *islice(jobs, depth - 1)]
    last = max((place for place, job in enumerate(looked_at) if size[job] <= free), default=0)
    if last == 0:
        return started  # none of them can start now, so their plans have no effect
    further = _planned(looked_at[: last + 1], started, free, cluster, times.window_s)
    times.backfilled(cluster.now_s, len(further))
    return started + further


def _planned(
    looked_at: Iterable[int], started: Iterable[int], free: int, cluster: SimulatedCluster, window_s: float
) -> list[int]:
    now_s, size, planned_s = cluster.now_s, cluster.size, cluster.planned_s
    ends = sorted([*cluster.running, *((now_s + planned_s[job], job) for job in started)])
    profile = FreeNodesProfile.of(now_s, free, ends, size)
    further = []
    for job in looked_at:
        begin_s = profile.earliest(size[job], planned_s[job])
        if begin_s > now_s + window_s:
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
        self._nodes = [0] * users  # nodes held now
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
        """Change the number of nodes that a user holds, from now on."""
        self.of(user, now_s)
        self._nodes[user] += nodes


_DECAY_EVERY_S: Final = 300.0
_STEPS_OF_RANK: Final = 100_000
_LN_2: Final = 0.693  # the value in Slurm


class PublishedUsage:
    """Usage as computed by Slurm's multifactor plugin and the published simulator of OStrich.

    At each event, at the next time to backfill, and every 5 minutes from then on, the node-time since the last update
    is added to the usage, and the sum decays by that time.
    """

    def __init__(self, options: PolicyOptions) -> None:
        shares = np.array(options.shares)
        self._shares = shares / shares.sum()
        self._kept = 1.0 - _LN_2 / options.half_life_s if options.half_life_s else 1.0  # fraction after a second
        self._interval_s = options.backfill_interval_s
        self._used, self._nodes, self._at_s = np.zeros(shares.size), np.zeros(shares.size), 0.0

    def hold(self, user: int, nodes: int, now_s: float) -> None:
        """Change the number of nodes that a user holds, from now on."""
        self.advance(now_s)
        self._nodes[user] += nodes

    def ranks(self, now_s: float) -> list[int]:
        """Return the rank of each user, the smallest first: steps of ``2 ** -(part of all usage / share)``."""
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


class FairSharePolicy:
    """Ranks users by usage over share, and a user's jobs by submission; backfills in that order."""

    name: Final = "fairshare"

    def __init__(self, options: PolicyOptions) -> None:
        self._options = options
        self._times = BackfillTimes(options)
        self._usage: UserUsage | PublishedUsage = UserUsage(len(options.shares), options.half_life_s)
        if options.decay == PUBLISHED:
            self._usage = PublishedUsage(options)
        self._waiting: dict[int, list[int]] = {}  # by user, in order of submission

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
        started = in_order(self.ranked(now_s), cluster, self._times)
        for job in started:
            jobs = self._waiting[user[job]]
            del jobs[bisect_left(jobs, job)]
            if not jobs:
                del self._waiting[user[job]]
            self._usage.hold(user[job], size[job], now_s)
        return started

    @property
    def wake_s(self) -> float:
        """The latest time of the next call."""
        return self._times.wake_s

    def ranked(self, now_s: float) -> Iterator[int]:
        """Yield all waiting jobs by rank; ties go to the job that waited longest."""
        if isinstance(self._usage, PublishedUsage):
            rank = self._usage.ranks(now_s)
            jobs = ((rank[user], job) for user, waiting in self._waiting.items() for job in waiting)
            return (job for _, job in sorted(jobs))
        usage, shares = self._usage, self._options.shares
        ranks = sorted((usage.of(user, now_s) / shares[user], jobs[0], user) for user, jobs in self._waiting.items())
        return chain.from_iterable(self._waiting[user] for _, _, user in ranks)


PRECISION: Final = 1e6  # of virtual ends, relative: smaller differences are rounding
MERGED: Final = 256  # jobs


class OStrichPolicy:
    """Ranks campaigns by their virtual end, and the jobs of one by their estimate; backfills in that order."""

    name: str = "ostrich"
    by_estimate: bool = True  # order of the jobs of a campaign; else by submission

    def __init__(self, options: PolicyOptions) -> None:
        self._times = BackfillTimes(options)
        self._oldest_first = options.done_campaigns == OLDEST_FIRST
        self._jobs: dict[int, list[int]] = {}  # campaign -> its waiting jobs, by estimate
        self._campaigns: dict[int, list[int]] = {}  # user -> their campaigns with waiting jobs

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs that start."""
        campaigns = cluster.campaigns
        for job in cluster.submitted:
            number = campaigns.of[job]
            waiting = self._jobs.setdefault(number, [])
            if not waiting:
                insort(self._campaigns.setdefault(campaigns.user[number], []), number)
            insort(waiting, job, key=lambda each: (cluster.planned_s[each] if self.by_estimate else 0.0, each))
        if not cluster.free or not self._jobs:
            return ()
        started = in_order(self.ranked(campaigns), cluster, self._times)
        for job in started:
            self._drop(job, campaigns)
        return started

    @property
    def wake_s(self) -> float:
        """The latest time of the next call."""
        return self._times.wake_s

    def ranked(self, campaigns: UserCampaigns) -> Iterator[int]:
        """Yield all waiting jobs by rank.

        The campaigns of one user are sorted already: each ends virtually after those before it. So users are merged
        lazily, as far as a pass examines jobs; beyond ``MERGED`` jobs all the others are sorted at once.
        """
        tag, created_s = campaigns.virtual.tag, campaigns.created_s
        least = campaigns.virtual.level if self._oldest_first else 0.0  # virtually ended campaigns rank as ending now
        heads = [
            (round(max(tag[numbers[0]], least) * PRECISION), created_s[numbers[0]], user, numbers[0], 0)
            for user, numbers in self._campaigns.items()
        ]
        heapify(heads)
        given = 0
        while heads and given < MERGED:
            _, _, user, number, place = heads[0]
            jobs = self._jobs[number]
            given += len(jobs)
            yield from jobs
            numbers, place = self._campaigns[user], place + 1
            if place < len(numbers):
                number = numbers[place]
                end = round(max(tag[number], least) * PRECISION)
                heapreplace(heads, (end, created_s[number], user, number, place))
            else:
                heappop(heads)
        if not heads:
            return
        others = list(chain.from_iterable(self._campaigns[user][place:] for _, _, user, _, place in heads))
        yield from chain.from_iterable(map(self._jobs.__getitem__, campaigns.ordered(others, PRECISION, least)))

    def _drop(self, job: int, campaigns: UserCampaigns) -> None:
        number = campaigns.of[job]
        waiting = self._jobs[number]
        waiting.remove(job)
        if waiting:
            return
        del self._jobs[number]
        user = campaigns.user[number]
        numbers = self._campaigns[user]
        del numbers[bisect_left(numbers, number)]
        if not numbers:
            del self._campaigns[user]


class FifoOStrichPolicy(OStrichPolicy):
    """Ranks campaigns like ``ostrich``, and the jobs of one by their submission."""

    name = "ostrich-fifo"
    by_estimate = False
