"""The virtual fair schedule with its history, and its campaigns: jobs that one user submits together."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bftrain_datasets.scheduling import ostrich_schedule

if TYPE_CHECKING:
    from bftrain_datasets.scheduling.jobs import JobTable


_DIGITS: Final = 6  # significant digits when times are rounded up to seconds; the others are rounding errors


class UserVirtualSchedule(ostrich_schedule.VirtualSchedule[int]):
    """Users and campaigns are numbers, all known from the begin; none is removed.

    With ``whole_seconds`` users keep their share until the second after their end, as in the published simulator.
    """

    tag: array[float]  # contiguous, because it is sorted repeatedly

    def __init__(self, shares: Sequence[float], campaigns: int, *, whole_seconds: bool = False) -> None:
        super().__init__(dict(enumerate(shares)))
        self._whole_seconds = whole_seconds
        self.tag = array("d", bytes(8 * campaigns))
        self._times_s, self._levels = array("d", [0.0]), array("d", [0.0])
        self._share_times_s, self._share_sums = array("d", [0.0]), array("d", [0.0])

    def advance(self, to_s: float, busy: int) -> None:
        """Advance time with ``busy`` nodes in use, at least one, so that all campaigns end."""
        super().advance(to_s, max(busy, 1))

    def times_of(self, levels: ArrayLike) -> NDArray[np.float64]:
        """Return when these levels were reached; NaN for levels not reached."""
        wanted = np.asarray(levels, dtype=np.float64)
        reached, times_s = np.asarray(self._levels), np.asarray(self._times_s)
        after = np.minimum(np.searchsorted(reached, wanted), reached.size - 1)  # the level is constant at times
        before = np.maximum(after - 1, 0)
        rise = reached[after] - reached[before]
        part = np.divide(wanted - reached[before], rise, out=np.ones_like(wanted), where=rise > 0)
        found: NDArray[np.float64] = times_s[before] + part * (times_s[after] - times_s[before])
        return np.where(wanted > reached[-1], np.nan, found)

    def most_shares(self, begins_s: ArrayLike, ends_s: ArrayLike) -> NDArray[np.float64]:
        """Return the largest sum of the shares of all active users between these times."""
        # Range maximum by a sparse table: ``values[i]`` holds from ``times[i]``
        # on. Row ``k`` of the table has the maximum of ``2 ** k`` values from each index on; two of them cover any
        # range.
        times = np.asarray(self._share_times_s)
        values = np.asarray(self._share_sums)
        first = np.maximum(np.searchsorted(times, np.asarray(begins_s, dtype=np.float64), side="right") - 1, 0)
        last = np.maximum(np.searchsorted(times, np.asarray(ends_s, dtype=np.float64), side="right") - 1, first)
        rows = [values]
        while 2 * (width := 1 << (len(rows) - 1)) <= values.size:
            rows.append(np.maximum(rows[-1][:-width], rows[-1][width:]))
        row = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        largest = np.empty(first.size)
        for number in np.unique(row).tolist():
            here = row == number
            table = rows[number]
            largest[here] = np.maximum(table[first[here]], table[last[here] + 1 - (1 << number)])
        return largest

    def _end_of(self, level: float, share: float, served: float) -> tuple[float, float]:
        if not self._whole_seconds:
            return super()._end_of(level, share, served)
        left = math.ceil(round(max(0.0, level - self.level) * share, _DIGITS))  # whole node-seconds
        end_s = float(math.ceil(round(self.now_s + left * self.active_shares / (share * served), _DIGITS)))
        end_s = max(end_s, self.now_s)
        return end_s, max(level, self.level + (end_s - self.now_s) * served / self.active_shares)

    def _forget(self, campaigns: Iterable[int]) -> None:
        """Keep the campaigns, because figures need their ends."""

    def _forget_if_at_rest(self, user: int, known: ostrich_schedule.UserAccount) -> None:
        """Keep the user, who may return."""

    def _note_level(self) -> None:
        self._times_s.append(self.now_s)
        self._levels.append(self.level)

    def _note_shares(self) -> None:
        self._share_times_s.append(self.now_s)
        self._share_sums.append(self.active_shares)


NO_CAMPAIGN: Final = -1


class UserCampaigns:
    """Numbers campaigns in order of creation, and updates the virtual schedule.

    A job joins the last campaign of its user if submitted less than ``gap_s`` after the first job of that campaign.
    Jobs larger than the machine join none. ``of`` is the campaign of each job, or ``NO_CAMPAIGN``; ``user``
    and ``created_s`` describe each campaign. ``previous`` is the
    virtual work that the user had left at its creation, and ``planned`` the largest estimate of its
    work, in node-seconds. The last two grow during the simulation.
    """

    def __init__(self, jobs: JobTable, nodes: int, gap_s: float, *, whole_seconds: bool = False) -> None:
        self.of: list[int] = []
        self.user: list[int] = []
        self.created_s: list[float] = []
        last: dict[int, int] = {}  # last campaign by user
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
        self.virtual = UserVirtualSchedule(jobs.shares, len(self.user), whole_seconds=whole_seconds)
        self._work = [0.0] * len(self.user)
        self._open = [0] * len(self.user)  # submitted jobs that have not ended
        self._jobs = jobs

    def ordered(self, numbers: Sequence[int], precision: float, least: float) -> list[int]:
        """Return campaigns sorted by virtual end, which is at least ``least``, then creation, user and number."""
        given = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        ends = np.rint(np.maximum(np.asarray(self.virtual.tag)[given], least) * precision)
        found: list[int] = given[np.lexsort((self._rank[given], ends))].tolist()
        return found

    def __len__(self) -> int:
        return len(self.user)

    def submitted(self, job: int, planned_s: float) -> None:
        """Add a submitted job."""
        number = self.of[job]
        if self.previous[number] < 0:
            self.previous[number] = self.virtual.left(self.user[number])
        self._open[number] += 1
        self._grow(number, self._jobs.size[job] * planned_s)

    def prolonged(self, job: int, by_s: float) -> None:
        """Extend the estimate of a job by ``by_s``."""
        self._grow(self.of[job], self._jobs.size[job] * by_s)

    def ended(self, job: int, planned_s: float) -> None:
        """End a job with the estimate ``planned_s``."""
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
