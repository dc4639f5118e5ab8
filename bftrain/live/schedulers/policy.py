"""The stock of pilots: decides how many to submit and which to cancel. It uses no clock and runs no commands.

Some pilots always wait in the queue, and the scheduler itself fills each node as soon as it is idle: long pilots for
nodes without planned jobs, shorter pilots for nodes with a planned job. The stock adapts: it doubles while all waiting
pilots start immediately, and shrinks while no pilot starts. Site limits, the tasks' demand and a rate limit bound it;
errors only slow it down.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from operator import lt
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bftrain.live.schedulers.backend import ALIVE, LATER, Pilot, PilotLimits, PilotState, Trouble
from bftrain.live.schedulers.base import Count, PollSettings, Positive

MOST_WAITING: Final = 64  # however much there is to fill
_YOUNG_S: Final = 45.0  # pilots that exit before this age failed; agents without a manager exit after 30 s
_GROWN_S: Final = 60.0  # pilots of this age work
_CANCEL_AGAIN_S: Final = 15.0
_BAD_NODE_S: Final = 1800.0
_STRIKES: Final = 2
# First and longest wait after a trouble, each time twice as long
TROUBLE_WAITS_S: Final = {
    Trouble.AWAY: (1.0, 60.0),
    Trouble.GONE: (1.0, 60.0),
    Trouble.LIMIT: (15.0, 300.0),
    Trouble.REFUSED: (30.0, 600.0),
}
_FAILING_S: Final = (2.0, 600.0)
_TURN_S: Final = 5.0  # turn of each length if the limit is too low for all; doubles every round
_LONGEST_TURN_S: Final = 600.0
TURNS: Final = "no pilot starts, and fewer may wait than lengths_s has: these take turns, longer each time"
_SHRINK_S: Final = 15.0  # time since the last start
_SOONEST_S: Final = 0.5
_SOON_S: Final = 1.0


class PilotPolicySettings(PollSettings, frozen=True, kw_only=True):
    """Limits of the stock; 0 nodes mean no limit."""

    pending: Annotated[int, Meta(ge=1)] = 4  # pilots of each length that wait for an idle node
    reserve: Count = 0  # idle nodes to keep free for immediate starts
    max_nodes: Count = 0
    submits_per_min: Positive = 30.0  # commands, including rejected commands


class PilotMoves(msgspec.Struct, frozen=True, kw_only=True):
    """The pilots to submit and cancel now, and when to look again at the latest (infinite: on the next event)."""

    submit: tuple[int, ...]  # pilots by order
    cancel: tuple[str, ...] = ()
    again_s: float = LATER


class _SortedPilots(msgspec.Struct, kw_only=True):
    alive: int
    waiting: dict[str, list[Pilot]]  # mark -> waiting pilots
    stale: list[Pilot] = []  # waiting pilots with outdated parameters
    holding: list[Pilot] = []
    stopped: list[Pilot] = []  # suspended pilots that block a node in use
    leaving: int = 0  # number of pilots with nodes that are exiting or cancelled
    cancelled: int = 0  # number of waiting pilots that are cancelled


class PilotPolicy:
    """Decides on submitting and cancelling. Times are seconds on any monotonic clock.

    ``together``: one command submits any number of pilots of equal length.
    """

    def __init__(self, settings: PilotPolicySettings, *, together: bool = False) -> None:
        self._settings, self._together = settings, together
        self._limits = PilotLimits()
        self._wanted = LATER
        self._aims: dict[str, int] = {}
        self._turn = 0  # turns of other lengths since the last start of a pilot
        self._turned_s: float | None = None  # start of the current turn
        self.takes_turns = False  # the limit is too low for all lengths, and no length could start in its turn
        self._adapted_s: dict[str, float] = {}  # time of the last change or confirmation of the aim
        self._held: frozenset[str] | None = None  # ids of pilots with nodes at the last poll
        self._most = max(1, math.floor(settings.submits_per_min))  # commands in ``_window_s``
        self._window_s = 60.0 * self._most / settings.submits_per_min
        self._sent: deque[float] = deque()  # times of the commands in the current window
        self._now_s = 0.0  # time of the last poll
        # Number of queued pilots when the scheduler reported its limit, and the expiry of that limit
        self._ceiling = LATER
        self._ceiling_until = -math.inf
        self._troubles = 0
        self._resume_at = -math.inf
        self._cancelled: dict[str, float] = {}  # id -> when
        self._over: set[str] | None = None  # ids of finished pilots
        self._failing = 0  # looks in a row that found pilots failed
        self._failed_at_s = -math.inf  # time on the scheduler's clock
        self._strikes: dict[str, int] = {}
        self._bad: dict[str, float] = {}  # node -> until when it is avoided

    def want(self, nodes: float) -> None:
        """Set the largest number of pilots."""
        self._wanted = nodes

    def limit(self, limits: PilotLimits) -> None:
        """Set the site's limits."""
        self._limits = limits

    def submitted(self, count: int) -> None:
        """Record the number of pilots that a command submitted, possibly 0."""
        self._sent.append(self._now_s)
        if count:
            self._troubles = 0

    @property
    def may_submit(self) -> bool:
        """Whether the rate allows one more command now."""
        return len(self._sent) < self._most

    @property
    def _may_follow(self) -> bool:
        """Whether a pilot could be submitted now in place of another one."""
        return self.may_submit and self._now_s >= self._resume_at

    def failed(self, now_s: float, trouble: Trouble, alive: int) -> None:
        """Record that submitting failed while ``alive`` pilots were in the queue."""
        until = now_s + _doubled(*TROUBLE_WAITS_S[trouble], self._troubles)
        self._troubles += 1
        if trouble is Trouble.LIMIT:
            self._ceiling, self._ceiling_until = alive, until
        else:
            self._resume_at = until

    def avoided(self, now_s: float) -> tuple[str, ...]:
        """Return the nodes on which pilots fail although they work on other nodes."""
        self._bad = {node: until for node, until in self._bad.items() if until > now_s}
        return tuple(sorted(self._bad))

    @property
    def failing(self) -> bool:
        """Whether pilots fail wherever they start."""
        return self._failing > 1

    def moves(
        self,
        now_s: float,
        wall_s: float,
        pilots: Sequence[Pilot],
        *,
        marks: Sequence[str],
        idle: int | None = None,
        others: Sequence[int] = (),
    ) -> PilotMoves:
        """Decide after a poll of all pilots.

        ``wall_s`` is the time on the scheduler's clock. ``marks`` are the marks of the orders, the longest first.
        ``idle`` is the number of idle nodes, if known. For schedulers that do not preempt pilots, ``others`` contains
        the sizes of other users' pending jobs, the next job first.
        """
        self._now_s = now_s
        while self._sent and self._sent[0] <= now_s - self._window_s:
            self._sent.popleft()
        self._learn(now_s, wall_s, pilots)
        seen = self._sort(now_s, pilots, marks)
        self._adapt(now_s, seen)
        spare = self._settings.reserve + _startable(others, (idle or 0) + len(seen.holding) + seen.leaving)
        budget = self._budget(seen, idle, spare)
        if not budget:  # turns pause without demand, so the next demand starts with the longest
            self._turn, self._turned_s = 0, None
        # Once the command budget is used up, replacing a pilot by another length is impossible
        kept = [0 if self._may_follow else len(seen.waiting[mark]) for mark in marks]
        targets = self._shared_out(budget, marks, kept)
        submit = self._submits(now_s, seen, budget, targets)
        let_go = seen.stale + seen.stopped
        for mark, target in zip(marks, targets, strict=True):  # a small surplus is cheaper than resubmission
            most = target if budget <= sum(targets) else 2 * self._aims[mark]
            let_go += _youngest(seen.waiting[mark])[: max(0, len(seen.waiting[mark]) - most)]
        excess = max(0, len(seen.holding) - (self._settings.max_nodes or LATER))
        if spare and idle is not None:
            excess = max(excess, spare - idle - seen.leaving)
        let_go += _youngest(seen.holding)[: int(min(excess, len(seen.holding)))]
        self._cancelled |= {pilot.id: now_s for pilot in let_go}
        lacking = sum(targets) > sum(map(len, seen.waiting.values())) + sum(submit)
        return PilotMoves(
            submit=submit, cancel=tuple(one.id for one in let_go), again_s=self._again(now_s, lacking=lacking)
        )

    def _learn(self, now_s: float, wall_s: float, pilots: Iterable[Pilot]) -> None:
        over = {pilot.id: pilot for pilot in pilots if pilot.state not in ALIVE}
        fresh = [] if self._over is None else [pilot for id_, pilot in over.items() if id_ not in self._over]
        self._over = set(over)  # pilots that finished before this run are not news
        grown = [one for one in pilots if one.state is PilotState.RUNNING and wall_s - one.start_s >= _GROWN_S]
        for pilot in grown:
            self._strikes.pop(pilot.node, None)
            if pilot.start_s > self._failed_at_s:
                self._failing = 0
        bad = [pilot for pilot in fresh if pilot.state is PilotState.FAILED]
        bad += [
            pilot
            for pilot in fresh
            if pilot.state is PilotState.LEFT and pilot.end_s is not None and pilot.end_s - pilot.start_s < _YOUNG_S
        ]
        if not bad:
            return
        for node in {pilot.node for pilot in bad if pilot.node}:
            self._strikes[node] = self._strikes.get(node, 0) + 1
            if grown and self._strikes[node] >= _STRIKES:
                self._bad[node] = now_s + _BAD_NODE_S
                del self._strikes[node]
        if all(pilot.node in self._bad for pilot in bad):
            return
        self._resume_at = max(self._resume_at, now_s + _doubled(*_FAILING_S, self._failing))
        self._failing += 1
        self._failed_at_s = wall_s

    def _sort(self, now_s: float, pilots: Iterable[Pilot], marks: Iterable[str]) -> _SortedPilots:
        alive = [pilot for pilot in pilots if pilot.state in ALIVE]
        self._cancelled = {
            pilot.id: self._cancelled[pilot.id]
            for pilot in alive
            if self._cancelled.get(pilot.id, -math.inf) > now_s - _CANCEL_AGAIN_S
        }
        seen = _SortedPilots(alive=len(alive), waiting={mark: [] for mark in marks})
        for pilot in alive:
            if pilot.state is PilotState.ENDING or pilot.id in self._cancelled:
                seen.leaving += pilot.state is not PilotState.WAITING
                seen.cancelled += pilot.state is PilotState.WAITING
            elif pilot.state is PilotState.WAITING:
                seen.waiting.get(pilot.mark, seen.stale).append(pilot)
            elif pilot.state is PilotState.STOPPED:
                seen.stopped.append(pilot)
            else:
                seen.holding.append(pilot)
        return seen

    def _adapt(self, now_s: float, seen: _SortedPilots) -> None:
        """Adapt the number of waiting pilots to the number of recent starts."""
        started: set[str] = set()
        if self._held is not None:
            started = {pilot.mark for pilot in seen.holding if pilot.id not in self._held}
        self._held = frozenset(pilot.id for pilot in seen.holding)
        turn_s = _doubled(_TURN_S, _LONGEST_TURN_S, self._turn // len(seen.waiting))
        if started or self._turned_s is None or (now_s - self._turned_s >= turn_s and self._may_follow):
            self._turn = 0 if started or self._turned_s is None else self._turn + 1
            self._turned_s = now_s
        least = self._settings.pending
        aims = {mark: self._aims.get(mark, least) for mark in seen.waiting}
        for mark, waiting in seen.waiting.items():
            if mark in started and not waiting:
                aims[mark] = min(2 * aims[mark], max(MOST_WAITING, least))
            elif mark not in started and now_s - self._adapted_s.get(mark, now_s) >= _SHRINK_S:
                aims[mark] = max(aims[mark] // 2, least)
            elif mark not in started:
                continue
            self._adapted_s[mark] = now_s
        self._aims = aims
        self._adapted_s = {mark: self._adapted_s.get(mark, now_s) for mark in aims}

    def _budget(self, seen: _SortedPilots, idle: int | None, spare: int) -> int:
        most = min(self._settings.max_nodes or LATER, self._wanted, self._limits.running)
        # Suspended pilots count as submitted
        most = min(most, self._limits.submitted - len(seen.stopped))
        budget = _whole(most - len(seen.holding) - seen.leaving)
        if spare:
            # A waiting pilot takes any node at any time, so none may wait while there are no spare nodes
            budget = min(budget, max(0, (idle or 0) - spare))
        return budget

    def _shared_out(self, budget: int, marks: Sequence[str], kept: Sequence[int]) -> tuple[int, ...]:
        """Return the desired number of waiting pilots by length: each aim if the budget allows it; ``kept`` first.

        A small budget rotates: if no node is idle long enough for one length, another length gets its turn. On a full
        cluster this is useless, so turns get longer: each cancels a job and submits another.
        """
        aims = [1 if self._failing else self._aims[mark] for mark in marks]
        targets = [0] * len(aims)
        shift = self._turn if budget < len(aims) else 0
        self.takes_turns = 0 < budget < len(aims) <= self._turn
        for goals in (list(map(min, aims, kept)), aims):
            while budget > 0 and any(map(lt, targets, goals)):
                for place in range(len(aims)):
                    rank = (place + shift) % len(aims)
                    if budget > 0 and targets[rank] < goals[rank]:
                        targets[rank] += 1
                        budget -= 1
        return tuple(targets)

    def _submits(self, now_s: float, seen: _SortedPilots, budget: int, targets: Sequence[int]) -> tuple[int, ...]:
        waiting = sum(map(len, seen.waiting.values())) + len(seen.stale) + seen.cancelled
        commands = max(0, self._most - len(self._sent))
        left = min(_whole(self._limits.submitted - seen.alive), _whole(budget - waiting))
        if now_s < self._resume_at or (now_s < self._ceiling_until and seen.alive >= self._ceiling):
            left = 0
        submit = []
        for waits, target in zip(seen.waiting.values(), targets, strict=True):
            count = max(0, min(target - len(waits), left))
            count = count if self._together and commands else min(count, commands)
            submit.append(count)
            left -= count
            commands -= min(count, 1) if self._together else count
        return tuple(submit)

    def _again(self, now_s: float, *, lacking: bool) -> float:
        until = max(self._resume_at, self._ceiling_until)
        if lacking and now_s < until:
            return max(until - now_s, _SOONEST_S)
        if lacking and not self.may_submit:
            return max(self._sent[0] + self._window_s - now_s, _SOONEST_S)
        return _SOON_S if self._cancelled else LATER


def _startable(sizes: Iterable[int], nodes: int) -> int:
    """Return the number of nodes for the pending jobs that fit; a wider job waits for other jobs, not for pilots."""
    total = 0
    for size in sizes:
        total += size if total + size <= nodes else 0
    return total


def _youngest(pilots: Iterable[Pilot]) -> list[Pilot]:
    return sorted(pilots, key=lambda pilot: (pilot.start_s, len(pilot.id), pilot.id), reverse=True)


def _doubled(first_s: float, longest_s: float, times: int) -> float:
    return min(longest_s, first_s * 2.0 ** min(times, 30))


def _whole(number: float) -> int:
    return max(0, math.floor(min(number, 1e9)))
