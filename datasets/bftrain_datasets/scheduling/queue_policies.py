"""Policies that consider jobs in order of submission: first come, first served, EASY and conservative backfilling."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final

from bftrain_datasets.scheduling.cluster import NEVER, SimulatedCluster


class FreeNodesProfile:
    """``free[i]`` nodes are free from ``times[i]`` to ``times[i + 1]``; after the last time all are.

    An infeasible plan makes ``free`` negative, which :meth:`least` returns.
    """

    __slots__ = ("free", "times")

    def __init__(self, now_s: float, nodes: int) -> None:
        self.times = [now_s]
        self.free = [nodes]

    @classmethod
    def of(cls, now_s: float, free: int, running: Iterable[tuple[float, int]], size: Sequence[int]) -> FreeNodesProfile:
        """Return the profile of running jobs, given by their ends in order; ``free`` nodes are free now."""
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
        """Return the first time from which ``size`` nodes are free for ``length_s``; in the end all nodes are."""
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

    def sooner(self, size: int, length_s: float, begin_s: float, at: int) -> float | None:
        """Return a time before the planned ``begin_s``, or ``None``; the search starts at index ``at``.

        The planned job holds its nodes from ``begin_s`` on anyway, so only the time before matters.
        """
        times, free = self.times, self.free
        while times[at] < begin_s:
            if free[at] < size:
                at += 1
                continue
            end_s = min(times[at] + length_s, begin_s)
            after = at + 1
            while times[after] < end_s:
                if free[after] < size:
                    break
                after += 1
            else:
                return times[at]
            at = after
        return None

    def least(self, begin_s: float, end_s: float) -> int:
        """Return the smallest number of free nodes from ``begin_s`` to ``end_s``."""
        first = max(0, bisect_right(self.times, begin_s) - 1)
        last = max(first + 1, bisect_left(self.times, end_s))
        return min(self.free[first:last])

    def forget(self, now_s: float) -> None:
        """Drop the past."""
        first = bisect_right(self.times, now_s) - 1
        if first > 0:
            del self.times[:first], self.free[:first]
        self.times[0] = now_s

    def take(self, begin_s: float, end_s: float, size: int) -> None:
        """Reserve ``size`` nodes; a negative number cancels a reservation."""
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
    """Return the first jobs that fit together, the nodes that they leave free, and the next job if any."""
    started: list[int] = []
    for job in jobs:
        if size[job] > free:
            return started, free, job
        free -= size[job]
        started.append(job)
    return started, free, None


class FirstComePolicy:
    """Starts jobs in order of submission, as long as they fit."""

    name: Final = "fcfs"

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs at the head of the queue that fit together."""
        return fitting(cluster.waiting, cluster.free, cluster.size)[0]


class EasyBackfill:
    """First come, first served with a reservation for the head of the queue, and for no other job.

    ``promises`` holds for each job that was head the start promised at that time.
    """

    name: Final = "easy"

    def __init__(self) -> None:
        self.promises: dict[int, float] = {}

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs that start: from the head of the queue, then those that fit beside its reservation."""
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
        return started + _beside(candidates, cluster, free, shadow_s, extra)


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

    If no job ended and no plan changed, jobs that did not fit before do not fit now, because there are no more nodes
    and the reservation is no later. Then only new jobs are candidates.
    """
    if cluster.ended or cluster.overran or started:
        return cluster.waiting[started + 1 :]
    new = cluster.submitted
    return new[1:] if new and new[0] == cluster.waiting[0] else new


def _beside(candidates: Iterable[int], cluster: SimulatedCluster, free: int, shadow_s: float, extra: int) -> list[int]:
    """Return the candidates that end before the reservation begins, or need none of its nodes."""
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


class ConservativeBackfill:
    """Keeps a plan of all waiting jobs, and starts each at its planned time.

    When a job ends early, the others move up one by one, the first submitted first; none moves back. When a job exceeds
    its estimate, not all promises can be kept: the plan is rebuilt in the order of the promises.
    ``promises`` holds the first promised start of each job.
    """

    name: Final = "conservative"

    def __init__(self) -> None:
        self.promises: dict[int, float] = {}
        self._begin_s: dict[int, float] = {}  # planned start of each waiting job
        self._profile: FreeNodesProfile | None = None

    @property
    def wake_s(self) -> float:
        """The next planned start, whether or not anything happens then."""
        return min(self._begin_s.values(), default=NEVER)

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the jobs whose planned start has come."""
        profile = self._profile = self._profile or FreeNodesProfile(cluster.now_s, cluster.nodes)
        now_s, size = cluster.now_s, cluster.size
        profile.forget(now_s)
        conflict = False  # whether jobs that exceed their estimates hold promised nodes
        for job in cluster.overran:
            end_s = cluster.planned_end_s(job)
            profile.take(now_s, end_s, size[job])
            conflict = conflict or profile.least(now_s, end_s) < 0
        if conflict:
            # Plan all jobs again, in the order of their planned starts
            profile = self._profile = FreeNodesProfile.of(now_s, cluster.free, cluster.running, size)
            for job in sorted(self._begin_s, key=lambda job: (self._begin_s[job], job)):
                self._plan(profile, cluster, job)
        else:
            early = [job for job in cluster.ended if cluster.planned_end_s(job) > now_s]
            for job in early:
                profile.take(now_s, cluster.planned_end_s(job), -size[job])
            if early:
                self._move_up(profile, cluster)
        for job in cluster.submitted:
            self.promises[job] = self._plan(profile, cluster, job)
        started = [job for job in cluster.waiting if self._begin_s[job] <= cluster.now_s]
        for job in started:
            del self._begin_s[job]
        return started

    def _move_up(self, profile: FreeNodesProfile, cluster: SimulatedCluster) -> None:
        """Move each job to its earliest start while all others keep theirs."""
        now_s, size, planned_s, begins = cluster.now_s, cluster.size, cluster.planned_s, self._begin_s
        most = list(accumulate(profile.free, max))
        for job in cluster.waiting[: len(cluster.waiting) - len(cluster.submitted)]:
            begin_s, needed = begins[job], size[job]
            if begin_s <= now_s:
                continue
            place = bisect_left(most, needed)  # earlier entries are too small for this job at any time
            sooner_s = profile.sooner(needed, planned_s[job], begin_s, place)
            if sooner_s is None:
                continue
            profile.take(begin_s, begin_s + planned_s[job], -needed)
            profile.take(sooner_s, sooner_s + planned_s[job], needed)
            begins[job] = sooner_s
            most = list(accumulate(profile.free, max))

    def _plan(self, profile: FreeNodesProfile, cluster: SimulatedCluster, job: int) -> float:
        begin_s = profile.earliest(cluster.size[job], cluster.planned_s[job])
        profile.take(begin_s, begin_s + cluster.planned_s[job], cluster.size[job])
        self._begin_s[job] = begin_s
        return begin_s
