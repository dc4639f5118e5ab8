"""The virtual fair schedule of OStrich: the node-time of each user if the nodes in use could be divided at will.

All users with unfinished work in it share the nodes really in use, in proportion to their shares. A user's
part goes to their campaigns, the oldest first; any rest after all are complete is lost.

The idea: nothing is updated for every user at every event. ``level`` is the node-seconds served so far per unit of
share; a campaign ends virtually when the level reaches its ``tag``, which only changes when work is added to,
or removed from, that campaign or an older one of the same user.

J. Emeras, V. Pinheiro, K. Rzadca and D. Trystram, "OStrich: fair scheduling for multiple submissions" (2013).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

import msgspec

U = TypeVar("U", int, str)

PRECISION: Final = 1e6  # of virtual ends, relative: smaller differences are rounding


class UserAccount(msgspec.Struct, kw_only=True):
    """One user: the ``campaigns`` in order, from the oldest that may still change.

    ``total`` is all their work up to now. The work served is ``zero`` plus the share of the rise of the level
    since ``base`` while the user is active, else ``total``. ``unfinished`` are the campaigns with tasks
    that have not ended; ``order`` numbers their virtual ends.
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
    """Virtual schedule of users (numbers or names) and campaigns (numbers that rise in order of creation).

    ``tag`` is the virtual end of each campaign, as a level. Finished campaigns and users are removed.
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
        self._ends: list[tuple[float, U, int]] = []  # level at which a user's work ends, the user, their order

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

        ``share`` is that of a new user.
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
        """Remove work from a campaign that ended earlier than expected. The user's next campaigns move forward."""
        if work > 0:
            self._change(user, campaign, -work)

    def close(self, user: U, campaign: int) -> None:
        """End a campaign whose last task is over. Finished campaigns are removed in order."""
        known = self._users[user]
        del known.unfinished[bisect_left(known.unfinished, campaign)]
        gone, oldest = 0, known.unfinished[0] if known.unfinished else known.campaigns[-1]
        while known.campaigns[gone] < oldest and self.tag[known.campaigns[gone]] <= self.level:
            gone += 1
        self._forget(known.campaigns[:gone])
        del known.campaigns[:gone]
        self._forget_if_at_rest(user, known)

    def share(self, user: U, share: float) -> None:
        """Change the share of a user from now on; the remaining work stays the same."""
        known = self._users.get(user)
        if known is None or known.share == share:
            return
        if known.active:
            known.zero += (self.level - known.base) * known.share
            known.base = self.level
            self.active_shares += share - known.share
        known.share = share
        if known.active:
            self._change(user, known.campaigns[0], 0.0)

    def kept(self) -> ScheduleSnapshot:
        """Return the complete state, with exact numbers."""
        return ScheduleSnapshot(
            now_s=self.now_s,
            level=self.level,
            active_shares=self.active_shares,
            tag=dict(self._tags),
            up_to=dict(self._up_to),
            users={str(user): known for user, known in self._users.items()},
        )

    def restore(self, kept: ScheduleSnapshot, users: Iterable[U]) -> None:
        """Restore a saved state; ``users`` are its users in the same order."""
        self.now_s, self.level, self.active_shares = kept.now_s, kept.level, kept.active_shares
        self.tag = self._tags = dict(kept.tag)
        self._up_to = dict(kept.up_to)
        self._users = dict(zip(users, kept.users.values(), strict=True))
        active = [(user, known) for user, known in self._users.items() if known.active]
        self._active = len(active)
        self._orders = max((known.order for known in self._users.values()), default=0)
        self._ends = [(self.tag[known.campaigns[-1]], user, known.order) for user, known in active]
        heapify(self._ends)

    # -- hooks for subclasses

    def _forget(self, campaigns: Iterable[int]) -> None:
        for number in campaigns:
            del self._tags[number], self._up_to[number]

    def _forget_if_at_rest(self, user: U, known: UserAccount) -> None:
        if not known.active and not known.unfinished:
            self._forget(known.campaigns)
            del self._users[user]

    def _note_level(self) -> None:
        """Called when the level is known at the present time."""

    def _note_shares(self) -> None:
        """Called when the set of active users or their shares change."""

    def _end_of(self, level: float, share: float, served: float) -> tuple[float, float]:  # noqa: ARG002 - see above
        """Return when a user whose work ends at ``level`` has none left, and the level then."""
        needed_s = max(0.0, level - self.level) * self.active_shares / served
        return self.now_s + needed_s, max(level, self.level)

    def _change(self, user: U, campaign: int, by: float) -> None:
        """Change the work of a campaign, and the virtual ends of that and the user's later campaigns."""
        known = self._users[user]
        for number in known.campaigns[bisect_left(known.campaigns, campaign) :]:
            self._up_to[number] += by
            tag = known.base + (self._up_to[number] - known.zero) / known.share
            # Past virtual ends stay; a campaign that ends because of a lower estimate ends now
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


class ScheduleSnapshot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The saved state of a virtual schedule."""

    now_s: float
    level: float
    active_shares: float
    tag: dict[int, float]
    up_to: dict[int, float]
    users: dict[str, UserAccount]
