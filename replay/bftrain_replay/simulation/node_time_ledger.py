"""Ledger: the use of every idle node-second of the log, and the growth of the harvest.

The ledger has one row for each interval between two moments: the numbers of idle nodes, of allocated nodes, and of
unused nodes by reason. :meth:`Ledger.check` verifies that the rows add up to the log.

The harvest is recorded at the boundaries of equal intervals of the run. This costs nothing between boundaries, and at a
boundary only tasks that may have advanced are looked at.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import Fault
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.simulation.run_records import RowFile
from bftrain_replay.simulation.task_progress import TaskProgress

_TOLERANCE: Final = 1e-9  # relative; sums of a million stretches stay far below it


class UnusedReason(StrEnum):
    """Reason why an idle node did not work."""

    NO_TASK = "no_task"  # every task that had arrived was finished
    TASK_CAP = "task_cap"  # all that compete are full, and more tasks wait than may compete
    AT_MAXIMUM = "at_maximum"  # every unfinished task is full
    BELOW_MINIMUM = "below_minimum"  # a waiting task needs more nodes than are left
    NOT_WORTH = "not_worth"  # a task could have used it; the decision was against it
    UNDECIDED = "undecided"  # the decision had not yet taken effect
    OTHER_KIND = "other_kind"  # tasks that want more can only use other kinds, or have nodes of another kind


# The reasons where nodes have no kinds
PLAIN: Final = tuple(reason for reason in UnusedReason if reason is not UnusedReason.OTHER_KIND)


class Ledger:
    """Rows of a run, each from its time to the next row's. Times are seconds since the log's start."""

    __slots__ = ("_end_s", "_none", "_reasons", "_rows")

    def __init__(self, reasons: Iterable[UnusedReason] = PLAIN) -> None:
        self._reasons = tuple(reasons)
        self._none = [0] * len(self._reasons)
        self._rows = RowFile({"time_s": "d", **dict.fromkeys(("pool", "used", *self._reasons), "i")})
        self._end_s: float | None = None

    def open(self, now_s: float, pool: int, used: int, unused: dict[UnusedReason, int]) -> None:
        """Start an interval with ``used`` of ``pool`` nodes allocated; ``unused`` counts the rest by reason."""
        if used < 0 or used + sum(unused.values()) != pool:
            raise Fault(f"{used} used and {unused} unused nodes do not make {pool}", where=f"at {now_s!r} s")
        counts = [unused.get(reason, 0) for reason in self._reasons] if unused else self._none
        self._rows.add((now_s, pool, used, *counts))

    def close(self, now_s: float) -> None:
        """End the last interval."""
        self._end_s = now_s

    @property
    def times_s(self) -> NDArray[np.float64]:
        """The start of each interval."""
        return self._rows.column("time_s")

    @property
    def end_s(self) -> float:
        """The last interval's end."""
        if self._end_s is None:
            raise Fault("the ledger is still open")
        return self._end_s

    @property
    def pool(self) -> NDArray[np.int64]:
        """Idle nodes in each interval."""
        return self._rows.column("pool").astype(np.int64)

    @property
    def used(self) -> NDArray[np.int64]:
        """Allocated nodes in each interval."""
        return self._rows.column("used").astype(np.int64)

    @property
    def unused(self) -> dict[UnusedReason, NDArray[np.int64]]:
        """Unused nodes in each interval by reason."""
        return {reason: self._rows.column(reason).astype(np.int64) for reason in self._reasons}

    @property
    def idle_node_s(self) -> float:
        """Idle node-seconds."""
        return self._total("pool")

    @property
    def used_node_s(self) -> float:
        """Allocated node-seconds."""
        return self._total("used")

    @property
    def unused_node_s(self) -> dict[UnusedReason, float]:
        """Unused idle node-seconds by reason."""
        return {reason: self._total(reason) for reason in self._reasons}

    def check(self, log: EventLog, held_node_s: Iterable[float]) -> None:
        """Raise unless used and unused add up to the log's idle time, and the tasks' allocations to the used."""
        used, unused = self.used_node_s, self.unused_node_s
        idle = idle_node_s(log, self.end_s)
        _same("used and unused node-seconds", math.fsum((used, *unused.values())), "the log's idle time", idle)
        _same("node-seconds of the tasks", math.fsum(held_node_s), "the used node-time", used)

    def _total(self, column: str) -> float:
        durations = np.diff(self.times_s, append=self.end_s)
        return math.fsum((durations * self._rows.column(column)).tolist())


def idle_node_s(log: EventLog, until_s: float) -> float:
    """Return the idle node-seconds of ``log`` in its first ``until_s`` seconds, from the log alone."""
    edges = np.minimum(np.append(log.times, log.end_s) - log.start_s, until_s)
    return math.fsum((np.diff(edges) * log.pool_sizes()).tolist())


def _same(what: str, left: float, other: str, right: float) -> None:
    if not math.isclose(left, right, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        raise Fault(f"{what} are {left!r}, but {other} is {right!r}", where="ledger")


STRETCHES: Final = 1000  # intervals: more than a chart has room for
_SHORTEST_S: Final = 1.0  # minimum interval while the run length is unknown


class HarvestOverTime:
    """Records the growth of the harvest in a run of ``span_s`` seconds. Times are seconds since the log's start.

    With an unknown run length (``None``), intervals are short at first, and pairs are merged whenever there are twice
    ``STRETCHES`` of them.
    """

    __slots__ = ("_advancing", "_done", "_ends", "_growing", "_samples", "next_s")

    def __init__(self, span_s: float | None) -> None:
        self._growing = span_s is None
        if span_s is None:
            self._ends = [_SHORTEST_S * place for place in range(1, 2 * STRETCHES + 1)]
        else:
            self._ends = np.linspace(0.0, span_s, STRETCHES + 1)[1:].tolist()
        self._samples = array("d")
        self._done: dict[TaskProgress, float] = {}  # progress of each task at its last check
        self._advancing: dict[TaskProgress, None] = {}  # tasks that may have advanced since then
        self.next_s: float = self._ends[0]  # time of the next check

    def note(self, *tasks: TaskProgress) -> None:
        """Record that the sizes of tasks have changed, or that they have finished."""
        self._advancing.update(dict.fromkeys(tasks))

    def sample_until(self, now_s: float) -> None:
        """Record the harvest at all boundaries before ``now_s``; call it before tasks change after ``next_s``."""
        while self.next_s < now_s:
            self._look(self.next_s)
            if self._growing and len(self._samples) == len(self._ends):
                self._samples = self._samples[1::2]
                self._ends = [2 * end_s for end_s in self._ends]
            place = len(self._samples)
            self.next_s = self._ends[place] if place < len(self._ends) else math.inf

    def close(self, now_s: float) -> None:
        """Finish at ``now_s``, possibly within an interval."""
        self._look(now_s)
        self._ends[len(self._samples) - 1 :] = [now_s]
        self._advancing, self._done, self.next_s = {}, {}, math.inf

    @property
    def ends_s(self) -> NDArray[np.float64]:
        """Each interval's end; the first interval starts at 0."""
        return np.array(self._ends, dtype=np.float64)

    @property
    def samples(self) -> NDArray[np.float64]:
        """Samples done up to each interval's end."""
        return np.array(self._samples, dtype=np.float64)

    def _look(self, at_s: float) -> None:
        for task in self._advancing:
            self._done[task] = task.done_by(at_s)
        self._advancing = {task: None for task in self._advancing if task.size}
        self._samples.append(math.fsum(self._done.values()))
