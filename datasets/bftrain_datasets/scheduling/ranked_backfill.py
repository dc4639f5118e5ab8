"""Backfilling in any order: what policies do that rank jobs by something else than their submission."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bftrain_datasets.scheduling.free_nodes_profile import FreeNodesProfile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bftrain_datasets.scheduling.cluster import SimulatedCluster


def in_order(ranked: Iterable[int], cluster: SimulatedCluster, depth: int) -> list[int]:
    """Return the jobs that start, by rank: as many as fit, then up to ``depth`` more that delay none before them.

    Each of these ``depth`` jobs, the first that does not fit included, is planned at its earliest time beside those
    before it, and starts if that is now. So no job is delayed by one of lower rank that was looked at after it.
    """
    free, size = cluster.free, cluster.size
    jobs = iter(ranked)
    started: list[int] = []
    blocked = None
    for job in jobs:
        if size[job] > free:
            blocked = job
            break
        free -= size[job]
        started.append(job)
    if blocked is None or free == 0 or depth == 0:
        return started
    looked_at = [blocked, *islice(jobs, depth - 1)]
    last = max((place for place, job in enumerate(looked_at) if size[job] <= free), default=0)
    if last == 0:
        return started  # none of them can start now, so what is planned for them does not matter
    return started + _planned(looked_at[: last + 1], started, free, cluster)


def _planned(looked_at: Iterable[int], started: Iterable[int], free: int, cluster: SimulatedCluster) -> list[int]:
    now_s, size, planned_s = cluster.now_s, cluster.size, cluster.planned_s
    ends = sorted([*cluster.running, *((now_s + planned_s[job], job) for job in started)])
    profile = FreeNodesProfile.of(now_s, free, ends, size)
    further = []
    for job in looked_at:
        begin_s = profile.earliest(size[job], planned_s[job])
        profile.take(begin_s, begin_s + planned_s[job], size[job])
        if begin_s <= now_s:
            further.append(job)
            free -= size[job]
            if free == 0:
                break
    return further
