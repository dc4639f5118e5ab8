"""EASY backfilling: jobs that do not delay the first waiting job may overtake.

D. Lifka, "The ANL/IBM SP scheduling system" (1995).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bftrain_datasets.scheduling.cluster import SimulatedCluster
    from bftrain_datasets.scheduling.policy_options import PolicyOptions


class EasyBackfill:
    """First come, first served with a reservation for the head of the queue, and for no other job.

    ``promises`` holds for each job that was head the start it was promised when it became it.
    """

    name: Final = "easy"

    def __init__(self) -> None:
        self.promises: dict[int, float] = {}

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs that start: from the head of the queue, then those that fit beside its reservation."""
        free, size, planned_s = cluster.free, cluster.size, cluster.planned_s
        started: list[int] = []
        for job in cluster.waiting:
            if size[job] > free:
                break
            free -= size[job]
            started.append(job)
        if len(started) == len(cluster.waiting):
            return started
        head = cluster.waiting[len(started)]
        candidates = _candidates(cluster, len(started)) if free else ()
        if not candidates and head in self.promises:
            return started
        ends = cluster.running
        if started:
            ends = sorted([*ends, *((cluster.now_s + planned_s[job], job) for job in started)])
        shadow_s, extra = reservation(size[head], free, ends, size)
        self.promises.setdefault(head, shadow_s)
        return started + _beside(candidates, cluster, free, shadow_s, extra)


def reservation(size: int, free: int, ends: Iterable[tuple[float, int]], sizes: Sequence[int]) -> tuple[float, int]:
    """Give when ``size`` nodes will be free, and how many more than these will be then."""
    at_s = 0.0
    for end_s, job in ends:
        if free >= size and end_s > at_s:
            break
        free += sizes[job]
        at_s = end_s
    return at_s, free - size


def _candidates(cluster: SimulatedCluster, started: int) -> Sequence[int]:
    """Give the jobs after the head that may fit now.

    Where nothing ended and no plan changed, those that did not fit before do not fit now: nodes are no more, and the
    reservation is no later. Then it is the new ones only.
    """
    if cluster.ended or cluster.overran or started:
        return cluster.waiting[started + 1 :]
    new = cluster.submitted
    return new[1:] if new and new[0] == cluster.waiting[0] else new


def _beside(candidates: Iterable[int], cluster: SimulatedCluster, free: int, shadow_s: float, extra: int) -> list[int]:
    """Give those that end before the reservation begins, or need none of its nodes."""
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


def make(options: PolicyOptions) -> EasyBackfill:  # noqa: ARG001 - what all policies are made from
    """Make the policy."""
    return EasyBackfill()
