"""Harvest over time: how many samples were done by the end of each of so many equal stretches of a log.

It costs nothing between the ends of stretches, and there it looks only at tasks that may have advanced.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.task import TaskSpec

STRETCHES: Final = 1000  # more than a chart has room for
_SHORTEST_S: Final = 1.0  # of stretches where the end is not known


class AdvancingTask(Protocol):
    """A task whose work grows over time."""

    @property
    def spec(self) -> TaskSpec:
        """Return the task."""
        ...

    @property
    def size(self) -> int:
        """Return how many nodes it holds."""
        ...

    def done_by(self, now_s: float, /) -> float:
        """Return the samples done by ``now_s``."""
        ...


class HarvestOverTime:
    """Takes down how the harvest grows in a run of ``span_s`` seconds. Times are seconds since the log's start.

    Where the length of the run is unknown (``None``), stretches are short at first, and whenever there are twice
    as many as wanted, each two become one.
    """

    __slots__ = ("_advancing", "_done", "_ends", "_growing", "_samples", "next_s")

    def __init__(self, span_s: float | None) -> None:
        self._growing = span_s is None
        if span_s is None:
            self._ends = [_SHORTEST_S * place for place in range(1, 2 * STRETCHES + 1)]
        else:
            self._ends = np.linspace(0.0, span_s, STRETCHES + 1)[1:].tolist()
        self._samples = array("d")
        self._done: dict[str, float] = {}  # by task, when it was looked at last
        self._advancing: dict[str, AdvancingTask] = {}  # those that may have advanced since
        self.next_s: float = self._ends[0]  # when it wants to look next

    def note(self, task: AdvancingTask) -> None:
        """A task's size has changed, or it has finished."""
        self._advancing[task.spec.name] = task

    def look(self, now_s: float) -> None:
        """Look at the ends of all stretches that have passed before ``now_s``, since when nothing has changed."""
        while self.next_s < now_s:
            self._look(self.next_s)
            if self._growing and len(self._samples) == len(self._ends):
                self._join_pairs()
            place = len(self._samples)
            self.next_s = self._ends[place] if place < len(self._ends) else math.inf

    def close(self, now_s: float) -> None:
        """The run ends at ``now_s``, perhaps inside a stretch; all before it has been looked at."""
        self._look(now_s)
        self._ends[len(self._samples) - 1 :] = [now_s]
        self.next_s = math.inf

    @property
    def ends_s(self) -> NDArray[np.float64]:
        """When each stretch ends; the first begins at 0."""
        return np.array(self._ends, dtype=np.float64)

    @property
    def samples(self) -> NDArray[np.float64]:
        """Samples done by then."""
        return np.array(self._samples, dtype=np.float64)

    def _join_pairs(self) -> None:
        self._samples = self._samples[1::2]
        self._ends = [2 * end_s for end_s in self._ends]

    def _look(self, at_s: float) -> None:
        for name, task in self._advancing.items():
            self._done[name] = task.done_by(at_s)
        self._advancing = {name: task for name, task in self._advancing.items() if task.size}
        self._samples.append(math.fsum(self._done.values()))
