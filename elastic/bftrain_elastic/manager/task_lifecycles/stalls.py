"""Stalls: detects tasks that make no steps and groups that never form, and reports the positions of the ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.worker_messages import WorkerPosition

PACES: Final = 10.0  # time with no step before a report as a multiple of the step time
# Give up after RESTARTS restarts within WITHIN_LIMITS times the stall limit.
RESTARTS: Final = 3
WITHIN_LIMITS: Final = 6.0
REMARKED: Final = 2  # consecutive failed groups before a report
_DOUBLINGS: Final = 10
_LONGEST_SHARE: Final = 1.5  # time limit as a multiple of the longest pause that was not a stall
_STOPPED: Final = frozenset({"T", "t"})
_WAITS_FOR_DISK: Final = "D"


class StallAction(StrEnum):
    """The next action for a task that makes no steps."""

    LOOK = "look"  # inspect and report the positions of its ranks
    RESTART = "restart"  # stop its workers and start them again
    GIVE_UP = "give up"  # give its nodes back


@dataclass(eq=False)
class StallWatch:
    """Measures the time since the last step while the task trains; starting and waiting for nodes do not count."""

    _limit_s: float
    _trains_since: float | None = None
    _without_s: float = 0.0  # time with no step in earlier training periods
    _stepped_at: float | None = None
    _longest_s: float = 0.0
    _furthest: int = -1  # step
    _stalled_at: int = -1  # step at which its workers were restarted; only a later step clears the stall
    _restarts: list[float] = field(default_factory=list)
    _due: list[StallAction] = field(default_factory=lambda: list(StallAction))
    pace_s: float = 0.0

    def trains(self, now: float) -> None:
        """Record that the task trains now."""
        if self._trains_since is None:
            self._trains_since, self._stepped_at = now, None

    def rests(self, now: float) -> None:
        """Record that the task does not train: its group changes, or it has no nodes."""
        if self._trains_since is not None:
            self._without_s += now - self._trains_since
            self._trains_since = None
        self._stepped_at = None  # the time of a change is not step time

    def step(self, now: float, number: int) -> None:
        """Record a step. Repeated steps after a stall do not end it, but are no standstill either."""
        if self._stepped_at is not None:
            took_s = now - self._stepped_at
            self.pace_s = max(took_s, self.pace_s / 2)
            self._longest_s = max(took_s, self._longest_s)
        self._stepped_at = now
        self._furthest = max(self._furthest, number)
        if self._trains_since is not None:
            self._trains_since = now
        if number <= self._stalled_at:
            return
        self._stalled_at = -1
        self._without_s = 0.0
        self._due = list(StallAction)

    def without_s(self, now: float) -> float:
        """Return the training time in seconds since the last step."""
        return self._without_s + (0.0 if self._trains_since is None else now - self._trains_since)

    def check(self, now: float) -> StallAction | None:
        """Return the next action if it is due; each action occurs once per stall."""
        if self._trains_since is None or not self._due:
            return None
        if self.without_s(now) <= self._after_s(self._due[0]):
            return None
        action = self._due.pop(0)
        return self._restart(now) if action is StallAction.RESTART else action

    def _restart(self, now: float) -> StallAction:
        """Record a restart of workers; after several in a short time another try is useless."""
        self._restarts = [at for at in self._restarts if now - at <= WITHIN_LIMITS * self._limit_s]
        if len(self._restarts) >= RESTARTS:
            return StallAction.GIVE_UP
        self._restarts.append(now)
        self._stalled_at = self._furthest
        return StallAction.RESTART

    def _after_s(self, action: StallAction) -> float:
        look_s = max(TIMEOUTS.stall_look_s, PACES * self.pace_s, _LONGEST_SHARE * self._longest_s)
        if action is StallAction.LOOK:
            return min(look_s, self._limit_s / 4) if self._limit_s else look_s
        if not self._limit_s:
            return float("inf")
        return self._limit_s / (2 if action is StallAction.RESTART else 1)


@dataclass(slots=True)
class _Rank:
    rank: int
    node: str
    state: str = ""  # state of its process, in Linux's notation
    place: str = ""
    line: str = ""
    commits: int = -1  # -1: it has not answered


class StallInspection:
    """Collects the positions of a group's ranks. ``ranks`` maps workers to their rank and node."""

    def __init__(self, ranks: Mapping[str, tuple[int, str]], now: float) -> None:
        self._ranks = {worker: _Rank(rank, node) for worker, (rank, node) in ranks.items()}
        self._ends_at = now + TIMEOUTS.position_s
        self.complete = False  # it is over, and its result was reported

    def position(self, worker: str, message: WorkerPosition) -> None:
        """Record a worker's reported position."""
        rank = self._ranks.get(worker)
        if rank is not None:
            rank.place, rank.line, rank.commits = message.place, message.line, message.commits

    def process_state(self, worker: str, state: str) -> None:
        """Record the state of a worker's process."""
        rank = self._ranks.get(worker)
        if rank is not None:
            rank.state = state

    def is_over(self, now: float) -> bool:
        """Return whether all ranks have answered, or their time is over."""
        answered = all(rank.commits >= 0 or rank.state in _STOPPED for rank in self._ranks.values())
        return answered or now > self._ends_at

    def text(self) -> str:
        """Return the positions of the ranks as text, the likely culprit first."""
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.rank)
        parts = [
            f"rank {rank.rank} on {rank.node} is stopped (SIGSTOP), its process does not run"
            for rank in ranks
            if rank.state in _STOPPED
        ]
        waiting = [rank for rank in ranks if rank.place == "commit"]
        others = [rank for rank in ranks if rank.place != "commit" and rank.commits >= 0]
        if waiting and others:  # waiting in commit() for ranks that did not call it
            names = " and ".join(f"rank {rank.rank}" for rank in waiting)
            wait = "waits" if len(waiting) == 1 else "wait"
            where = "; ".join(map(_where, others))
            parts.append(f"{names} {wait} in state.commit(), which every rank must call; {where}")
        return "; ".join(parts or map(_where, ranks))


def _where(rank: _Rank) -> str:
    name = f"rank {rank.rank} on {rank.node}"
    if rank.state == _WAITS_FOR_DISK:
        return f"{name} waits for a disk or a file system"
    if rank.commits < 0:
        return f"{name} reports no position"
    at = f" at {rank.line}" if rank.line else ""
    return f"{name} is in {rank.place or 'the script'}{at}"


@dataclass(eq=False)
class FormationWatch:
    """Follows the groups of one task from their start until they train. ``limit_s`` is for consecutive failures.

    The members of a group first meet, which takes moments. Then the state is loaded and sent, in time proportional to
    its size; there, only idle time counts.
    """

    _limit_s: float
    _began_at: float | None = None
    _moved_at: float = 0.0  # time of the latest progress
    _met: bool = False
    _why: str = ""  # reason why the current group did not form, if no death explains it
    _last_why: str = ""  # the same for the previous group
    _failed: int = 0  # consecutive failures
    _spent_s: float = 0.0  # time spent on these failures

    def began(self, now: float) -> str:
        """Record that a group starts to form; return a note on earlier failures, if due."""
        note = ""
        if self._began_at is not None and self._why:
            self._failed, self._last_why = self._failed + 1, self._why
            self._spent_s += now - self._began_at
            if self._failed >= REMARKED:
                note = f"{self._text()}; it is tried again"
        self._began_at, self._moved_at, self._met, self._why = now, now, False, ""
        return note

    def met(self, now: float) -> None:
        """Record that all members of the group have met."""
        if self._began_at is not None and not self._met:
            self._met, self._moved_at = True, now

    def moved(self, now: float) -> None:
        """Record that a part of the state has arrived."""
        if self._began_at is not None:
            self._began_at = self._moved_at = now

    def reset(self) -> None:
        """Forget the groups that did not form."""
        self._began_at, self._why, self._failed, self._spent_s = None, "", 0, 0.0

    def lost(self, why: str) -> None:
        """Record that the group did not form, with no death to explain it."""
        self._why = self._why or why

    def overdue(self, now: float) -> bool:
        """Return whether the group exceeds its time limit."""
        if self._began_at is None:
            return False
        total_s = min(self._total_s, TIMEOUTS.loading_s * 2 ** min(self._failed, _DOUBLINGS))
        limit_s = total_s if self._met else TIMEOUTS.meeting_s
        if now - self._moved_at <= limit_s:
            return False
        what = "its state was not loaded and spread" if self._met else "its members did not meet"
        self._why = self._why or f"{what} within {limit_s:.0f} s"
        return True

    def given_up(self, now: float) -> str:
        """Return the reason for failing the task if groups exceed the total time limit, otherwise ""."""
        if self._began_at is None or not (self._failed or self._why):
            return ""
        spent_s = self._spent_s + now - self._began_at
        if spent_s <= self._total_s:
            return ""
        return f"no step for {spent_s:.0f} s: {self._text()}"

    @property
    def _total_s(self) -> float:
        return max(self._limit_s, TIMEOUTS.least_forming_s) if self._limit_s else math.inf

    def _text(self) -> str:
        tries = max(1, self._failed)
        groups = "a group of its workers" if tries == 1 else f"{tries} groups of its workers in a row"
        return f"{groups} did not get to train, the last because {self._why or self._last_why}"
