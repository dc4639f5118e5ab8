"""Fair share: the user who used least of late comes first."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from bftrain_datasets.scheduling.ranked_backfill import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bftrain_datasets.scheduling.cluster import SimulatedCluster
    from bftrain_datasets.scheduling.policy_options import PolicyOptions


class UserUsage:
    """Node-seconds that each user used, of which every ``half_life_s`` half is forgotten; 0 forgets nothing."""

    def __init__(self, users: int, half_life_s: float) -> None:
        self._rate = math.log(2) / half_life_s if half_life_s > 0 else 0.0
        self._used = [0.0] * users
        self._nodes = [0] * users  # held now
        self._at_s = [0.0] * users

    def of(self, user: int, now_s: float) -> float:
        """Give what a user used, as it counts now."""
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
        """Say that a user holds so many nodes more, or fewer, from now on."""
        self.of(user, now_s)
        self._nodes[user] += nodes


class FairSharePolicy:
    """Ranks users by what they used over their share, and a user's jobs by submission; backfills in that order."""

    name: Final = "fairshare"

    def __init__(self, options: PolicyOptions) -> None:
        self._depth = options.backfill_depth
        self._shares = options.shares
        self._usage = UserUsage(len(options.shares), options.half_life_s)
        self._waiting: dict[int, list[int]] = {}  # by user, in order of submission

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give who starts."""
        now_s, user, size = cluster.now_s, cluster.user, cluster.size
        for job in cluster.ended:
            self._usage.hold(user[job], -size[job], now_s)
        for job in cluster.submitted:
            self._waiting.setdefault(user[job], []).append(job)
        if not cluster.free:
            return ()
        started = in_order(self.ranked(now_s), cluster, self._depth)
        for job in started:
            jobs = self._waiting[user[job]]
            del jobs[bisect_left(jobs, job)]
            if not jobs:
                del self._waiting[user[job]]
            self._usage.hold(user[job], size[job], now_s)
        return started

    def ranked(self, now_s: float) -> Iterator[int]:
        """Return all waiting jobs by rank; at the same usage the one that waited longest comes first."""
        ranks = sorted(
            (self._usage.of(user, now_s) / self._shares[user], jobs[0], user) for user, jobs in self._waiting.items()
        )
        for _, _, user in ranks:
            yield from self._waiting[user]


def make(options: PolicyOptions) -> FairSharePolicy:
    """Make the policy."""
    return FairSharePolicy(options)
