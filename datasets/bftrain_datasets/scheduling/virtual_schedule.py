"""The virtual fair schedule of OStrich: each user's node-time if the nodes in use were divisible at will.

Campaigns are jobs that one user submits together. All users with unfinished virtual work share the nodes actually in
use, in proportion to their shares. A user's part serves the oldest campaign first; the rest after the last campaign is
lost.

No event updates every user. ``level`` is the node-seconds served so far per unit of share. A campaign finishes
virtually when the level reaches its ``tag``. The tag changes only when work is added to, or removed from, this campaign
or an older campaign of the same user.

J. Emeras, V. Pinheiro, K. Rzadca and D. Trystram, "OStrich: fair scheduling for multiple submissions" (2013).
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:  # a run-time import would load the record readers in replays that use this schedule
    from bftrain_datasets.scheduling.jobs import SubmittedJobs

U = TypeVar("U", int, str)

_DIGITS: Final = 6  # decimal places kept before times are rounded up to seconds; the rest is rounding error
NO_CAMPAIGN: Final = -1
PRECISION: Final = 1e6  # virtual finish levels are rounded to 1 / PRECISION


class UserAccount(msgspec.Struct, kw_only=True):
    """A user and their ``campaigns``, from the oldest that may still change.

    ``total`` is the user's work so far. The work served is ``zero`` plus ``share`` times the level's rise since
    ``base`` while the user is active, and ``total`` otherwise. ``unfinished`` lists the campaigns with unfinished jobs;
    ``order`` is the number of the last change of the user's virtual end.
    """

    share: float
    active: bool = False
    base: float = 0.0
    zero: float = 0.0
    total: float = 0.0
    campaigns: list[int] = msgspec.field(default_factory=list)
    unfinished: list[int] = msgspec.field(default_factory=list)
    order: int = 0


class VirtualSchedule(Generic[U]):
    """Virtual schedule of users (numbers or names) and campaigns (numbered by creation).

    ``tag`` is each campaign's virtual end, as a level. Finished campaigns and users are removed.
    """

    def __init__(self, shares: Mapping[U, float] | None = None) -> None:
        self.now_s = 0.0
        self.level = 0.0
        self.active_shares = 0.0
        self._tags: dict[int, float] = {}
        self.tag: dict[int, float] | array[float] = self._tags
        self._up_to: dict[int, float] = {}  # total work of the user's campaigns up to and including this one
        self._users: dict[U, UserAccount] = {user: UserAccount(share=share) for user, share in (shares or {}).items()}
        self._active = 0
        self._orders = 0
        self._ends: list[tuple[float, U, int]] = []  # (level when the user's work finishes, user, user's order)

    def advance(self, to_s: float, busy: int) -> None:
        """Advance time with ``busy`` nodes in use; with 0, no user is served."""
        served = float(busy)
        while served and self._active and self.now_s < to_s:
            level, user, order = self._ends[0]
            known = self._users.get(user)
            if known is None or order != known.order or not known.active:
                heappop(self._ends)
                continue
            end_s, then = self._end_of(level, known.share, served)
            if end_s > to_s:
                self.level += (to_s - self.now_s) * served / self.active_shares
                break
            heappop(self._ends)
            self.now_s, self.level = end_s, then
            self._deactivate(user, known)
        if to_s > self.now_s:
            self.now_s = to_s
            self._note_level()

    def left(self, user: U) -> float:
        """Return the virtual work that a user has left, in node-seconds."""
        known = self._users.get(user)
        if known is None or not known.active:
            return 0.0
        return max(0.0, self.tag[known.campaigns[-1]] - self.level) * known.share

    def add(self, user: U, campaign: int, work: float, share: float = 1.0) -> None:
        """Add work to a campaign, after a submission or a longer estimate.

        ``share`` applies to a new user only.
        """
        known = self._users.get(user)
        if known is None:
            known = self._users[user] = UserAccount(share=share)
        if not known.campaigns or known.campaigns[-1] < campaign:
            known.campaigns.append(campaign)
            self._up_to[campaign] = known.total
            self.tag[campaign] = 0.0
        place = bisect_left(known.unfinished, campaign)
        if place == len(known.unfinished) or known.unfinished[place] != campaign:
            known.unfinished.insert(place, campaign)
        if not known.active:
            known.base, known.zero = self.level, known.total
        self._change(user, campaign, work)

    def remove(self, user: U, campaign: int, work: float) -> None:
        """Remove work from a campaign that finished earlier than expected. The user's next campaigns move forward."""
        if work > 0:
            self._change(user, campaign, -work)

    def close(self, user: U, campaign: int) -> None:
        """Close a campaign after its last job. Finished campaigns are removed in order."""
        known = self._users[user]
        del known.unfinished[bisect_left(known.unfinished, campaign)]
        gone, oldest = 0, known.unfinished[0] if known.unfinished else known.campaigns[-1]
        while known.campaigns[gone] < oldest and self.tag[known.campaigns[gone]] <= self.level:
            gone += 1
        self._forget(known.campaigns[:gone])
        del known.campaigns[:gone]
        self._forget_if_at_rest(user, known)

    # Hooks for subclasses

    def _forget(self, campaigns: Iterable[int]) -> None:
        for number in campaigns:
            del self._tags[number], self._up_to[number]

    def _forget_if_at_rest(self, user: U, known: UserAccount) -> None:
        if not known.active and not known.unfinished:
            self._forget(known.campaigns)
            del self._users[user]

    def _note_level(self) -> None:
        """Called when the level is known at the current time."""

    def _note_shares(self) -> None:
        """Called when the sum of the active users' shares changes."""

    def _end_of(self, level: float, share: float, served: float) -> tuple[float, float]:  # noqa: ARG002 - for subclasses
        """Return when a user with the last tag ``level`` has no work left, and the level then."""
        needed_s = max(0.0, level - self.level) * self.active_shares / served
        return self.now_s + needed_s, max(level, self.level)

    def _change(self, user: U, campaign: int, by: float) -> None:
        """Change the work of a campaign, and the virtual end of this and each later campaign of the user."""
        known = self._users[user]
        for number in known.campaigns[bisect_left(known.campaigns, campaign) :]:
            self._up_to[number] += by
            tag = known.base + (self._up_to[number] - known.zero) / known.share
            # Keep past virtual finish levels; a lower estimate can move one back to now, but no further
            self.tag[number] = tag if tag > self.level else min(self.tag[number], self.level)
        known.total = self._up_to[known.campaigns[-1]]
        self._orders += 1
        known.order = self._orders
        last = self.tag[known.campaigns[-1]]
        if last > self.level:
            if not known.active:
                known.active = True
                self._active += 1
                self.active_shares += known.share
                self._note_shares()
            heappush(self._ends, (last, user, known.order))
        elif known.active:
            self._deactivate(user, known)

    def _deactivate(self, user: U, known: UserAccount) -> None:
        known.active = False
        self._active -= 1
        self.active_shares = self.active_shares - known.share if self._active else 0.0  # discard rounding errors
        self._note_shares()
        self._note_level()
        self._forget_if_at_rest(user, known)


class UserVirtualSchedule(VirtualSchedule[int]):
    """The schedule of numbered users and campaigns, all known at the start; none is removed.

    With ``whole_seconds``, users keep their share until the second after their end, as in the published simulator.
    """

    tag: array[float]  # contiguous, because it is sorted repeatedly

    def __init__(self, shares: Sequence[float], campaigns: int, *, whole_seconds: bool = False) -> None:
        super().__init__(dict(enumerate(shares)))
        self._whole_seconds = whole_seconds
        self.tag = array("d", bytes(8 * campaigns))
        self._times_s, self._levels = array("d", [0.0]), array("d", [0.0])
        self._share_times_s, self._share_sums = array("d", [0.0]), array("d", [0.0])

    def advance(self, to_s: float, busy: int) -> None:
        """Advance time with ``busy`` nodes in use, but at least one, so all campaigns finish."""
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
        times = np.asarray(self._share_times_s)
        values = np.append(self._share_sums, 0.0)  # each share applies from its time on; the appended value is unused
        first = np.maximum(np.searchsorted(times, begins_s, side="right") - 1, 0)
        last = np.maximum(np.searchsorted(times, ends_s, side="right") - 1, first)
        largest: NDArray[np.float64] = np.maximum.reduceat(values, np.column_stack((first, last + 1)).ravel())[::2]
        return largest

    def _end_of(self, level: float, share: float, served: float) -> tuple[float, float]:
        if not self._whole_seconds:
            return super()._end_of(level, share, served)
        left = math.ceil(round(max(0.0, level - self.level) * share, _DIGITS))  # whole node-seconds
        end_s = float(math.ceil(round(self.now_s + left * self.active_shares / (share * served), _DIGITS)))
        end_s = max(end_s, self.now_s)
        return end_s, max(level, self.level + (end_s - self.now_s) * served / self.active_shares)

    def _forget(self, campaigns: Iterable[int]) -> None:
        """Keep the campaigns, because the figures need them."""

    def _forget_if_at_rest(self, user: int, known: UserAccount) -> None:
        """Keep the user, since more jobs may follow."""

    def _note_level(self) -> None:
        self._times_s.append(self.now_s)
        self._levels.append(self.level)

    def _note_shares(self) -> None:
        self._share_times_s.append(self.now_s)
        self._share_sums.append(self.active_shares)


class UserCampaigns:
    """Numbers campaigns by creation, and updates the virtual schedule.

    A job joins its user's last campaign if submitted less than ``gap_s`` after the first job of that campaign. Jobs
    larger than the machine join no campaign. ``of`` is the campaign of each job, or ``NO_CAMPAIGN``; ``user`` and
    ``created_s`` describe each campaign. ``previous`` is the user's remaining virtual work at its creation, and
    ``planned`` the largest estimate of its work, both in node-seconds. The last two grow during the simulation.
    """

    def __init__(self, jobs: SubmittedJobs, nodes: int, gap_s: float, *, whole_seconds: bool = False) -> None:
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
        self._rank = np.empty(len(self.user), dtype=np.int64)  # rank by creation, then user, then number
        self._rank[np.lexsort((self.user, self.created_s))] = np.arange(len(self.user))
        self.previous = [-1.0] * len(self.user)
        self.planned = [0.0] * len(self.user)
        self.virtual = UserVirtualSchedule(jobs.shares, len(self.user), whole_seconds=whole_seconds)
        self._work = [0.0] * len(self.user)
        self._open = [0] * len(self.user)  # submitted, unfinished jobs
        self._jobs = jobs

    def ordered(self, numbers: Collection[int], least: float) -> list[int]:
        """Return campaigns sorted by virtual end, which is at least ``least``, then creation, user and number."""
        given = np.fromiter(numbers, dtype=np.int64, count=len(numbers))
        ends = np.rint(np.maximum(np.asarray(self.virtual.tag)[given], least) * PRECISION)
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
