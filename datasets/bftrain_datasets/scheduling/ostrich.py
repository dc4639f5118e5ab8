"""OStrichPolicy: campaigns in the order in which they would end if all users had their fair part of the machine.

J. Emeras, V. Pinheiro, K. Rzadca and D. Trystram, "OStrich: fair scheduling for multiple submissions" (2013).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heapreplace
from itertools import chain
from typing import TYPE_CHECKING, Final

from bftrain_datasets.scheduling.ranked_backfill import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bftrain_datasets.scheduling.campaigns import UserCampaigns
    from bftrain_datasets.scheduling.cluster import SimulatedCluster
    from bftrain_datasets.scheduling.policy_options import PolicyOptions

PRECISION: Final = 1e6  # of a virtual end: what differs by less than a part of so many was meant to be the same
MERGED: Final = 256  # jobs


class OStrichPolicy:
    """Ranks campaigns by their virtual end, and the jobs of one by their estimate; backfills in that order."""

    name: Final = "ostrich"

    def __init__(self, options: PolicyOptions) -> None:
        self._depth = options.backfill_depth
        self._jobs: dict[int, list[int]] = {}  # campaign -> its waiting jobs, by estimate
        self._campaigns: dict[int, list[int]] = {}  # user -> those of their campaigns that have some

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give who starts."""
        campaigns = cluster.campaigns
        for job in cluster.submitted:
            self._add(job, cluster.planned_s, campaigns)
        if not cluster.free or not self._jobs:
            return ()
        started = in_order(self.ranked(campaigns), cluster, self._depth)
        for job in started:
            self._drop(job, campaigns)
        return started

    def ranked(self, campaigns: UserCampaigns) -> Iterator[int]:
        """Give all waiting jobs, the first in rank first.

        The campaigns of one user are in order already: each ends virtually after those before it. So users are merged,
        as far as a pass looks; a policy that looks further has all the others sorted at once.
        """
        tag, created_s = campaigns.virtual.tag, campaigns.created_s
        heads = [
            (round(tag[numbers[0]] * PRECISION), created_s[numbers[0]], user, numbers[0], 0)
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
                heapreplace(heads, (round(tag[number] * PRECISION), created_s[number], user, number, place))
            else:
                heappop(heads)
        if not heads:
            return
        others = list(chain.from_iterable(self._campaigns[user][place:] for _, _, user, _, place in heads))
        yield from chain.from_iterable(map(self._jobs.__getitem__, campaigns.ordered(others, PRECISION)))

    def _add(self, job: int, planned_s: Sequence[float], campaigns: UserCampaigns) -> None:
        number = campaigns.of[job]
        waiting = self._jobs.setdefault(number, [])
        if not waiting:
            insort(self._campaigns.setdefault(campaigns.user[number], []), number)
        insort(waiting, job, key=lambda each: (planned_s[each], each))

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


def make(options: PolicyOptions) -> OStrichPolicy:
    """Make the policy."""
    return OStrichPolicy(options)
