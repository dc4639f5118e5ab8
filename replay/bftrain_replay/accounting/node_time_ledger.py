"""Ledger: where every idle node-second of the log went.

It keeps one row for each stretch of time between two moments: how many nodes were idle, how many of them worked,
and why the others did not. The rows must add up to the log, which :meth:`Ledger.check` makes sure of.
"""

from __future__ import annotations

import math
from array import array
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog

_TOLERANCE: Final = 1e-9  # relative; sums of a million stretches stay far below it


class UnusedReason(StrEnum):
    """Why an idle node did not work."""

    NO_TASK = "no_task"  # every task that had arrived was finished
    TASK_CAP = "task_cap"  # all that compete are full, and more tasks wait than may compete
    AT_MAXIMUM = "at_maximum"  # every unfinished task is full
    BELOW_MINIMUM = "below_minimum"  # a waiting task needs more nodes than are left
    NOT_WORTH = "not_worth"  # a task could have taken it, and the decision was against it
    UNDECIDED = "undecided"  # the decision on it was still to take effect
    OTHER_KIND = "other_kind"  # tasks that want more run on nodes of other kinds, or hold some; only where kinds differ


PLAIN: Final = tuple(
    reason for reason in UnusedReason if reason is not UnusedReason.OTHER_KIND
)  # where nodes are all alike


class Ledger:
    """Rows of a run, each from its time to that of the next. Times are seconds since the log's start."""

    __slots__ = ("_end_s", "_pool", "_times", "_unused", "_used")

    def __init__(self, reasons: Iterable[UnusedReason] = PLAIN) -> None:
        self._times = array("d")
        self._pool = array("i")
        self._used = array("i")
        self._unused = {reason: array("i") for reason in reasons}
        self._end_s: float | None = None

    def open(self, now_s: float, pool: int, used: int, unused: dict[UnusedReason, int]) -> None:
        """Begin a stretch in which ``used`` of ``pool`` nodes work; ``unused`` says why the others do not."""
        if used < 0 or used + sum(unused.values()) != pool:
            raise Fault(f"{used} used and {unused} unused nodes do not make {pool}", where=f"at {now_s!r} s")
        self._times.append(now_s)
        self._pool.append(pool)
        self._used.append(used)
        for reason, column in self._unused.items():
            column.append(unused.get(reason, 0))

    def close(self, now_s: float) -> None:
        """End the last stretch."""
        self._end_s = now_s

    @property
    def times_s(self) -> NDArray[np.float64]:
        """When each stretch begins."""
        return np.array(self._times, dtype=np.float64)

    @property
    def end_s(self) -> float:
        """When the last stretch ends."""
        if self._end_s is None:
            raise Fault("the ledger is still open")
        return self._end_s

    @property
    def pool(self) -> NDArray[np.int64]:
        """Idle nodes in each stretch."""
        return np.array(self._pool, dtype=np.int64)

    @property
    def used(self) -> NDArray[np.int64]:
        """Working nodes in each stretch."""
        return np.array(self._used, dtype=np.int64)

    @property
    def idle_node_s(self) -> float:
        """Idle node-seconds."""
        return self._total(self._pool)

    @property
    def used_node_s(self) -> float:
        """Node-seconds held by tasks."""
        return self._total(self._used)

    @property
    def unused_node_s(self) -> dict[UnusedReason, float]:
        """Unused idle node-seconds by reason."""
        return {reason: self._total(column) for reason, column in self._unused.items()}

    def check(self, log: EventLog, held_node_s: Iterable[float]) -> None:
        """Make sure that used and unused add up to the log's idle time, and the tasks' holdings to the used."""
        used, unused = self.used_node_s, self.unused_node_s
        idle = idle_node_s(log, self.end_s)
        _same("used and unused node-seconds", math.fsum((used, *unused.values())), "the log's idle time", idle)
        _same("node-seconds of the tasks", math.fsum(held_node_s), "those used", used)

    def _total(self, column: array[int]) -> float:
        durations = np.diff(self.times_s, append=self.end_s)
        return math.fsum((durations * np.array(column, dtype=np.int64)).tolist())


def idle_node_s(log: EventLog, until_s: float) -> float:
    """Idle node-seconds of ``log`` in its first ``until_s`` seconds, from the log alone."""
    edges = np.minimum(np.append(log.times, log.end_s) - log.start_s, until_s)
    return math.fsum((np.diff(edges) * log.pool_sizes()).tolist())


def _same(what: str, left: float, other: str, right: float) -> None:
    if not math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        raise Fault(f"{what} are {left!r}, but {other} is {right!r}", where="ledger")
