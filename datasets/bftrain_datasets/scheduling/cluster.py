"""The protocol of queue policies, and the simulated machine that they see when they choose jobs to start."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from bftrain_datasets.scheduling.jobs import JobTable
    from bftrain_datasets.scheduling.virtual_schedule import UserCampaigns

NEVER: Final = math.inf


class SimulatedCluster:
    """The machine, its queue, and its running jobs, at ``now_s`` (seconds since the first submission).

    Jobs are numbers, in order of submission, with their ``size``, ``submit_s`` and ``user``. Real run times are not
    visible: ``planned_s`` is the estimated run time of a submitted job, which is raised when it is
    exceeded. ``running`` holds ``(planned end, job)``, the earliest first; ``start_s`` is the start of a running job.
    ``submitted``, ``ended`` and ``overran`` are the changes since the policy was called last.
    """

    __slots__ = (
        "campaigns",
        "ended",
        "free",
        "nodes",
        "now_s",
        "overran",
        "planned_s",
        "running",
        "size",
        "start_s",
        "submit_s",
        "submitted",
        "user",
        "waiting",
    )

    def __init__(self, jobs: JobTable, nodes: int, campaigns: UserCampaigns) -> None:
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
        """Return the planned end of a job that runs or ended since the policy was called last."""
        return self.start_s[job] + self.planned_s[job]

    # The methods below are for the engine.

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
        """End a running job and free its nodes."""
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
        """Clear the changes that the policy has seen."""
        self.submitted.clear()
        self.ended.clear()
        self.overran.clear()


@runtime_checkable
class QueuePolicy(Protocol):
    """Chooses the waiting jobs that start, in a simulated main scheduler. Created by a factory.

    An attribute ``wake_s`` is a time at which the policy wants to be called even without changes; a policy that
    promises starts has ``promises``, the first promise by job.
    """

    @property
    def name(self) -> str:
        """The name under which settings refer to it."""
        ...

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Return the waiting jobs that start now; their total size must not exceed the free nodes."""
        ...
