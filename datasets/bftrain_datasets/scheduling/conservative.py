"""Conservative backfilling: every job is promised a start when it is submitted, and no job may delay it.

A. Mu'alem and D. Feitelson, "Utilization, predictability, workloads, and user runtime estimates in scheduling the IBM
SP2 with backfilling" (2001).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from bftrain_datasets.scheduling.cluster import NEVER
from bftrain_datasets.scheduling.free_nodes_profile import FreeNodesProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bftrain_datasets.scheduling.cluster import SimulatedCluster
    from bftrain_datasets.scheduling.policy_options import PolicyOptions


class ConservativeBackfill:
    """Keeps a plan of all waiting jobs, and starts each when the plan says so.

    When a job ends early, the others move up one by one, the first submitted first; none moves back. When a job runs
    longer than was believed, promises cannot all be kept: the plan is rebuilt in the order of the promises.
    ``promises`` holds the first one that each job was given.
    """

    name: Final = "conservative"

    def __init__(self) -> None:
        self.promises: dict[int, float] = {}
        self._begin_s: dict[int, float] = {}  # of each waiting job, as planned now
        self._profile: FreeNodesProfile | None = None

    @property
    def wake_s(self) -> float:
        """When the next job is to start, whether or not anything happens then."""
        return min(self._begin_s.values(), default=NEVER)

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give the jobs whose time has come."""
        profile = self._profile = self._profile or FreeNodesProfile(cluster.now_s, cluster.nodes)
        profile.forget(cluster.now_s)
        if self._overran(profile, cluster):
            profile = self._profile = self._replan(cluster)
        elif self._left_early(profile, cluster):
            self._move_up(profile, cluster)
        for job in cluster.submitted:
            self.promises[job] = self._plan(profile, cluster, job)
        started = [job for job in cluster.waiting if self._begin_s[job] <= cluster.now_s]
        for job in started:
            del self._begin_s[job]
        return started

    def _left_early(self, profile: FreeNodesProfile, cluster: SimulatedCluster) -> bool:
        """Give back what ended jobs were believed to need still; say whether that is anything."""
        found = False
        for job in cluster.ended:
            end_s = cluster.planned_end_s(job)
            if end_s > cluster.now_s:
                profile.give(cluster.now_s, end_s, cluster.size[job])
                found = True
        return found

    def _overran(self, profile: FreeNodesProfile, cluster: SimulatedCluster) -> bool:
        """Plan for jobs that run longer than was believed; say whether that takes nodes that were promised."""
        conflict = False
        for job in cluster.overran:
            end_s = cluster.planned_end_s(job)
            profile.take(cluster.now_s, end_s, cluster.size[job])
            conflict = conflict or profile.least(cluster.now_s, end_s) < 0
        return conflict

    def _replan(self, cluster: SimulatedCluster) -> FreeNodesProfile:
        """Plan all jobs again, in the order in which they were to start."""
        profile = FreeNodesProfile.of(cluster.now_s, cluster.free, cluster.running, cluster.size)
        for job in sorted(self._begin_s, key=lambda job: (self._begin_s[job], job)):
            self._plan(profile, cluster, job)
        return profile

    def _move_up(self, profile: FreeNodesProfile, cluster: SimulatedCluster) -> None:
        """Let each job start as early as it can while all others stay where they are."""
        now_s, size, planned_s, begins = cluster.now_s, cluster.size, cluster.planned_s, self._begin_s
        most = _most_so_far(profile.free)
        for job in cluster.waiting[: len(cluster.waiting) - len(cluster.submitted)]:
            begin_s, needed = begins[job], size[job]
            if begin_s <= now_s:
                continue
            place = bisect_left(most, needed)  # before it there is too little for this job at any time
            sooner_s = profile.sooner(needed, planned_s[job], begin_s, place)
            if sooner_s is None:
                continue
            profile.give(begin_s, begin_s + planned_s[job], needed)
            profile.take(sooner_s, sooner_s + planned_s[job], needed)
            begins[job] = sooner_s
            most = _most_so_far(profile.free)

    def _plan(self, profile: FreeNodesProfile, cluster: SimulatedCluster, job: int) -> float:
        """Plan a job at the earliest time, and give that."""
        begin_s = profile.earliest(cluster.size[job], cluster.planned_s[job])
        profile.take(begin_s, begin_s + cluster.planned_s[job], cluster.size[job])
        self._begin_s[job] = begin_s
        return begin_s


def _most_so_far(free: Iterable[int]) -> list[int]:
    return list(accumulate(free, max))


def make(options: PolicyOptions) -> ConservativeBackfill:  # noqa: ARG001 - what all policies are made from
    """Make the policy."""
    return ConservativeBackfill()
