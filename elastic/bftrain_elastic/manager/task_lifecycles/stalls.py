"""Stalls: notice that a task has stopped making steps, find out where its ranks are, and describe that."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

LEAST_S = 30.0  # without a step before that is reported
PACES: Final = 10.0  # or so many steps' time, if steps are long
ANSWER_S = 3.0  # within which ranks say where they are
RESTARTS: Final = 3  # after which another one is of no use,
WITHIN_LIMITS: Final = 6.0  # if they come within so many times the limit
_LONGEST_SHARE: Final = 1.5  # of the longest pause that ended well
_STOPPED: Final = frozenset({"T", "t"})
_WAITS_FOR_DISK: Final = "D"


class StallAction(StrEnum):
    """What is due of a task that makes no step."""

    LOOK = "look"  # find out where its ranks are, and tell
    RESTART = "restart"  # end its workers and start them again
    GIVE_UP = "give up"  # give its nodes back


class StallWatch:
    """Measures the time without a step. It counts while the task trains, not while it starts or has no nodes."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._trains_since: float | None = None
        self._without_s = 0.0  # without a step, before that
        self._stepped_at: float | None = None
        self._longest_s = 0.0
        self._furthest = -1  # step
        self._stalled_at = -1  # the step at which its workers were started again: only one further ends the stall
        self._restarts: list[float] = []
        self._due = [StallAction.LOOK, StallAction.RESTART, StallAction.GIVE_UP]
        self.pace_s = 0.0

    def trains(self, now: float) -> None:
        """Know that the task trains from now on."""
        if self._trains_since is None:
            self._trains_since, self._stepped_at = now, None

    def rests(self, now: float) -> None:
        """Know that it does not train any more: its group is changed, or it has no nodes."""
        if self._trains_since is not None:
            self._without_s += now - self._trains_since
            self._trains_since = None
        self._stepped_at = None  # what a change takes is no step

    def step(self, now: float, number: int) -> None:
        """Know of a step. Those that are done again after a stall do not end it, but are no standstill either."""
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
        self._due = [StallAction.LOOK, StallAction.RESTART, StallAction.GIVE_UP]

    def without_s(self, now: float) -> float:
        """Return for how long it has trained without a step."""
        return self._without_s + (0.0 if self._trains_since is None else now - self._trains_since)

    def check(self, now: float) -> StallAction | None:
        """Return what is due now; each once for every stall."""
        if self._trains_since is None or not self._due:
            return None
        if self.without_s(now) <= self._after_s(self._due[0]):
            return None
        action = self._due.pop(0)
        return self._restart(now) if action is StallAction.RESTART else action

    def _restart(self, now: float) -> StallAction:
        """Note that workers are to be started again; another try is of no use if that was so often lately."""
        self._restarts = [at for at in self._restarts if now - at <= WITHIN_LIMITS * self._limit_s]
        if len(self._restarts) >= RESTARTS:
            return StallAction.GIVE_UP
        self._restarts.append(now)
        self._stalled_at = self._furthest
        return StallAction.RESTART

    def _after_s(self, action: StallAction) -> float:
        look_s = max(LEAST_S, PACES * self.pace_s, _LONGEST_SHARE * self._longest_s)
        if action is StallAction.LOOK:
            return min(look_s, self._limit_s / 4) if self._limit_s else look_s
        if not self._limit_s:
            return float("inf")
        return self._limit_s / (2 if action is StallAction.RESTART else 1)


@dataclass(slots=True)
class _Rank:
    rank: int
    node: str
    state: str = ""  # of its process, as Linux names it
    place: str = ""
    line: str = ""
    commits: int = -1  # -1: it has not answered


class StallInspection:
    """Collects where the ranks of a group are. ``ranks`` maps workers to their rank and node."""

    def __init__(self, ranks: Mapping[str, tuple[int, str]], now: float) -> None:
        self._ranks = {worker: _Rank(rank, node) for worker, (rank, node) in ranks.items()}
        self._ends_at = now + ANSWER_S

    @property
    def workers(self) -> Collection[str]:
        """The workers to ask."""
        return self._ranks.keys()

    def position(self, worker: str, message: Mapping[str, Any]) -> None:
        """Take in where a worker says that it is."""
        rank = self._ranks.get(worker)
        if rank is not None:
            rank.place, rank.line = str(message["place"]), str(message["line"])
            rank.commits = int(message["commits"])

    def process_state(self, worker: str, state: str) -> None:
        """Take in the state of a worker's process."""
        rank = self._ranks.get(worker)
        if rank is not None:
            rank.state = state

    def complete(self, now: float) -> bool:
        """Return whether all have answered, or have had the time to."""
        answered = all(rank.commits >= 0 or rank.state in _STOPPED for rank in self._ranks.values())
        return answered or now > self._ends_at

    def words(self) -> str:
        """Say where the ranks are, the likely culprit first."""
        ranks = sorted(self._ranks.values(), key=lambda rank: rank.rank)
        parts = [*map(_stopped, filter(_is_stopped, ranks)), *_uneven_commits(ranks)]
        if not parts:
            parts = [_where(rank) for rank in ranks]
        return "; ".join(parts)


def _is_stopped(rank: _Rank) -> bool:
    return rank.state in _STOPPED


def _stopped(rank: _Rank) -> str:
    return f"rank {rank.rank} on {rank.node} is stopped (SIGSTOP), its process does not run"


def _uneven_commits(ranks: list[_Rank]) -> list[str]:
    """Say which ranks wait in commit() for others that did not call it."""
    waiting = [rank for rank in ranks if rank.place == "commit"]
    others = [rank for rank in ranks if rank.place != "commit" and rank.commits >= 0]
    if not waiting or not others:
        return []
    names = " and ".join(f"rank {rank.rank}" for rank in waiting)
    where = "; ".join(_where(rank) for rank in others)
    return [f"{names} wait{'s' if len(waiting) == 1 else ''} in state.commit(), which every rank must call; {where}"]


def _where(rank: _Rank) -> str:
    name = f"rank {rank.rank} on {rank.node}"
    if rank.state == _WAITS_FOR_DISK:
        return f"{name} waits for a disk or a file system"
    if rank.commits < 0:
        return f"{name} does not say where it is"
    at = f" at {rank.line}" if rank.line else ""
    return f"{name} is in {rank.place or 'the script'}{at}"
