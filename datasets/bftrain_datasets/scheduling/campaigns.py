"""UserCampaigns: what one user submits at one go. How they fare in the virtual fair schedule, and in the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.scheduling.virtual_schedule import UserVirtualSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.scheduling.jobs import JobTable

NO_CAMPAIGN: Final = -1


class UserCampaigns:
    """Numbers campaigns in the order of their creation, and keeps the virtual schedule up to date.

    A job joins the last campaign of its user if it is submitted less than ``gap_s`` after the first job of that one.
    One that is larger than the machine joins none. ``of`` gives the campaign of each job, or ``NO_CAMPAIGN``; ``user``
    and ``created_s`` tell of each campaign. ``previous`` is the
    virtual work that the user had left when it was created, and ``planned`` the most work that it was ever believed to
    have, node-seconds. The last two grow as the simulation goes on.
    """

    def __init__(self, jobs: JobTable, nodes: int, gap_s: float) -> None:
        self.of: list[int] = []
        self.user: list[int] = []
        self.created_s: list[float] = []
        last: dict[int, int] = {}  # by user
        for submit_s, user, size in zip(jobs.submit_s, jobs.user, jobs.size, strict=True):
            if size > nodes:
                self.of.append(NO_CAMPAIGN)
                continue
            number = last.get(user, -1)
            if number < 0 or submit_s >= self.created_s[number] + gap_s:
                number = last[user] = len(self.created_s)
                self.created_s.append(submit_s)
                self.user.append(user)
            self.of.append(number)
        self._rank = np.empty(len(self.user), dtype=np.int64)  # by creation, then user, then number
        self._rank[np.lexsort((self.user, self.created_s))] = np.arange(len(self.user))
        self.previous = [-1.0] * len(self.user)
        self.planned = [0.0] * len(self.user)
        self.virtual = UserVirtualSchedule(jobs.shares, len(self.user))
        self._work = [0.0] * len(self.user)
        self._open = [0] * len(self.user)  # jobs that were submitted and have not ended
        self._jobs = jobs

    def ordered(self, numbers: Sequence[int], precision: float) -> list[int]:
        """Put campaigns in order: by virtual end, then creation, user and number."""
        given = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        ends = np.rint(np.asarray(self.virtual.tag)[given] * precision)
        found: list[int] = given[np.lexsort((self._rank[given], ends))].tolist()
        return found

    def __len__(self) -> int:
        """Count the campaigns."""
        return len(self.user)

    def submitted(self, job: int, planned_s: float) -> None:
        """Take in a job."""
        number = self.of[job]
        if self.previous[number] < 0:
            self.previous[number] = self.virtual.left(self.user[number])
        self._open[number] += 1
        self._grow(number, self._jobs.size[job] * planned_s)

    def prolonged(self, job: int, by_s: float) -> None:
        """Learn that a job is believed to run so much longer."""
        self._grow(self.of[job], self._jobs.size[job] * by_s)

    def ended(self, job: int, planned_s: float) -> None:
        """Learn that a job ended that was believed to run for ``planned_s``."""
        number = self.of[job]
        work = self._jobs.size[job] * (planned_s - self._jobs.run_s[job])
        self._work[number] -= work
        self.virtual.remove(self.user[number], number, work)
        self._open[number] -= 1
        if not self._open[number]:
            self.virtual.close(self.user[number], number)

    def _grow(self, number: int, work: float) -> None:
        self._work[number] += work
        self.planned[number] = max(self.planned[number], self._work[number])
        self.virtual.add(self.user[number], number, work)
