"""MemberShares: how many nodes each member of a site may hold.

Members are live runs of users. Each submits pilots under its own account, and reports what it holds and could use. Idle
nodes are not handed out: the scheduler starts the pilots of members that may have more. Only if a member has less than
its share and no node is idle do others give nodes back. Nothing is stored: after a restart all members report again.

A member that takes no idle nodes although it may, for pilots that fail or an account without hours, would make others
give nodes back in vain. After a while it is *stuck*: it has no claim, and is tried again later, with one node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bftrain.live.model.member_views import MemberReport, MemberView
from bftrain.values.sharing import Entity

_SILENT_S: Final = 30.0  # after which a member is no longer counted
_STUCK_S: Final = 30.0  # for which a member may leave idle nodes that it may have
_RETRY_S: Final = (60.0, 3600.0)  # until a stuck member is tried again, at first and at most
_TURN_S: Final = 300.0  # for which those who can use few nodes only together keep their turn
_HALF_S: Final = 3600.0  # half-life of held node-time, for the order of members
_ROUNDS: Final = 50  # of bisection
_EPSILON: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Claim:
    """The nodes that a member could use, the fewest of use to it, its weight, and the nodes that it holds."""

    most: int
    fewest: int = 1
    weight: float = 1.0
    held: int = 0


def divide(total: int, claims: Mapping[str, Claim]) -> dict[str, int]:
    """Divide nodes max-min fairly by weight, each member between its fewest useful nodes and its claim.

    If the pool is too small for all, earlier members of the mapping are served and later ones get none.
    """
    shares, left, served = dict.fromkeys(claims, 0), total, {}
    for user, claim in claims.items():
        if max(1, claim.fewest) <= min(claim.most, left):
            served[user] = claim
            left -= claim.fewest

    def at(level: float) -> dict[str, float]:
        return {user: min(one.most, max(one.fewest, level * one.weight)) for user, one in served.items()}

    total = min(total, sum(one.most for one in served.values()))
    low, high = 0.0, max((one.most / one.weight for one in served.values()), default=0.0)
    for _ in range(_ROUNDS if total < sum(one.most for one in served.values()) else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(at(middle).values()) <= total else (low, middle)
    exact = at(high)
    shares |= {user: math.floor(nodes + _EPSILON) for user, nodes in exact.items()}
    rest = sorted(
        (user for user, one in served.items() if shares[user] < one.most),
        key=lambda user: (served[user].held <= shares[user], shares[user] - exact[user], user),
    )
    for user in rest[: total - sum(shares.values())]:  # members with one more already come first
        shares[user] += 1
    return shares


@dataclass(eq=False)
class _Member:
    report: MemberReport
    heard_s: float
    nodes: int = 0
    node_s: float = 0.0
    recent_s: float = 0.0  # node-seconds with exponential decay
    behind_s: float | None = None  # since when it has not taken idle nodes that it may take
    strikes: int = 0  # times in a row that it was found stuck
    stuck_until_s: float = -math.inf

    def hear(self, report: MemberReport, now_s: float) -> None:
        passed_s = now_s - self.heard_s
        held_s = self.report.held * min(passed_s, _SILENT_S)
        self.node_s += held_s
        self.recent_s = self.recent_s * 0.5 ** (passed_s / _HALF_S) + held_s
        if report.held > self.report.held:
            self.strikes, self.stuck_until_s, self.behind_s = 0, -math.inf, None
        self.report, self.heard_s = report, now_s

    def watch(self, now_s: float, *, behind: bool) -> None:
        """Detect a stuck member: one that is ``behind``, with idle nodes that it may take, for too long."""
        if not behind:
            self.behind_s = None
        elif self.behind_s is None:
            self.behind_s = now_s
        elif now_s - self.behind_s > _STUCK_S:
            self.stuck_until_s = now_s + min(_RETRY_S[0] * 2.0 ** min(self.strikes, 30), _RETRY_S[1])
            self.strikes += 1
            self.behind_s = None


@dataclass(eq=False)
class MemberShares:
    """The members of a site, by user. ``entities`` are users' weights and quotas."""

    entities: Mapping[str, Entity] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._members: dict[str, _Member] = {}
        self._order: list[str] = []  # the order of members where not all can have their fewest useful nodes
        self._ordered_s = -math.inf

    def report(self, user: str, report: MemberReport, idle: int) -> int:
        """Return how many nodes a member may hold; ``idle`` is how many others could be taken."""
        now_s = self.now()
        self._members.setdefault(user, _Member(report, now_s)).hear(report, now_s)
        self._divide(now_s, idle)
        return self._members[user].nodes

    @property
    def views(self) -> tuple[MemberView, ...]:
        """All members that ever reported."""
        now_s = self.now()
        return tuple(
            MemberView(
                user=user,
                held=one.report.held,
                wanted=one.report.wanted,
                nodes=one.nodes,
                node_s=one.node_s,
                silent_s=now_s - one.heard_s,
                stuck=now_s < one.stuck_until_s,
            )
            for user, one in sorted(self._members.items())
        )

    def _divide(self, now_s: float, idle: int) -> None:
        active = {user: one for user, one in self._members.items() if now_s - one.heard_s <= _SILENT_S}
        if set(active) != set(self._order) or now_s - self._ordered_s > _TURN_S:
            self._ordered_s = now_s
            self._order = sorted(active, key=lambda user: (active[user].recent_s / self._entity(user).weight, user))
        claims = {user: self._claim(user, active[user], now_s) for user in self._order}
        shares = divide(sum(one.report.held for one in active.values()) + idle, claims)
        behind = {user for user, one in active.items() if one.report.held < shares[user]}
        for user, one in active.items():
            one.watch(now_s, behind=user in behind and idle > 0)
            held, most = one.report.held, min(one.report.wanted, self._quota(user))
            if user in behind or (behind and not idle):
                one.nodes = shares[user]
            elif behind:
                one.nodes = held  # idle nodes go to members below their share
            else:  # one more than it holds, to probe for idle nodes
                one.nodes = max(held, min(most, held + 1)) if held <= self._quota(user) else most

    def _claim(self, user: str, one: _Member, now_s: float) -> Claim:
        most, held = min(one.report.wanted, self._quota(user)), one.report.held
        if now_s < one.stuck_until_s:
            most = min(most, held)
        elif one.strikes:
            most = min(most, held + max(1, one.report.fewest))
        return Claim(most, one.report.fewest, self._entity(user).weight, held)

    def _quota(self, user: str) -> int:
        nodes = self._entity(user).nodes
        return 1 << 31 if nodes is None else nodes

    def _entity(self, user: str) -> Entity:
        return self.entities.get(user, Entity())
