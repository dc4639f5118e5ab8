"""What a queue policy is, and all that it may know of the simulated machine when it is asked which jobs start."""

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
    """The machine, its queue, and what runs, at ``now_s`` (seconds since the first submission).

    Jobs are numbers, in order of submission; ``size``, ``submit_s`` and ``user`` tell more of each. Run times are not
    among it: ``planned_s`` is how long a job that was submitted is believed to run, which is raised when it is
    exceeded. ``running`` holds ``(planned end, job)``, the earliest first; ``start_s`` tells when a running job began.
    ``submitted``, ``ended`` and ``overran`` hold what happened since the policy was asked last.
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
        """Give when a running job, or one that ended since the policy was asked last, is or was believed to end."""
        return self.start_s[job] + self.planned_s[job]

    # What follows is for the engine.

    def submit(self, job: int, planned_s: float) -> None:
        """Add a job to the queue."""
        self.planned_s[job] = planned_s
        self.waiting.append(job)
        self.submitted.append(job)

    def start(self, job: int) -> None:
        """Take a job from the queue and run it."""
        del self.waiting[bisect_left(self.waiting, job)]
        self.start_s[job] = self.now_s
        self.free -= self.size[job]
        insort(self.running, (self.planned_end_s(job), job))

    def end(self, job: int) -> None:
        """Take back the nodes of a running job."""
        del self.running[bisect_left(self.running, (self.planned_end_s(job), job))]
        self.free += self.size[job]
        self.ended.append(job)

    def prolong(self, job: int, planned_s: float) -> None:
        """Believe that a running job will run longer."""
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
    """Says which waiting jobs start, in a main scheduler that is simulated. It is made by a factory.

    One that wants to be asked at some time though nothing happens then has an attribute ``wake_s``; one that promises
    starts has ``promises``, the first promise by job.
    """

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give the waiting jobs that start now; together they need no more nodes than are free."""
        ...
