"""Measuring: how fast a task is at each size, and what it costs to change the size, from the lines it reports.

A speed is the median over windows of some steps, without the first steps after a change: so neither warming up nor
one slow step counts, and what comes back regularly (a commit, an evaluation) does. A cost is the gap across a change,
up to the first step that goes beyond the last one before it, less one median step.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from bftrain_elastic.messages import Message

Change = Literal["grow", "shrink", "start"]

WARM_UP: Final = 3  # steps after a change that do not count
WINDOW: Final = 5  # steps that are looked at together
_WINDOWS: Final = 200  # remembered for each size
_CHANGES: Final = 20  # remembered of each kind


@dataclass(frozen=True, slots=True)
class _Line:
    """One reported step."""

    t: float
    step: int
    size: int
    samples: int


class Measuring:
    """What is known of one task. Feed it everything that is told of the task."""

    def __init__(self) -> None:
        self._windows: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOWS))
        self._steps: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOWS))
        self._costs: defaultdict[Change, deque[float]] = defaultdict(lambda: deque(maxlen=_CHANGES))
        self._last: _Line | None = None  # the furthest step, and the last one at its size
        self._run: list[_Line] = []  # steps in a row at one size
        self._starting_at: float | None = None

    def starting(self, t: float) -> None:
        """Know that at time ``t`` a task without nodes was told to start."""
        self._starting_at, self._run, self._last = t, [], None

    def hear(self, told: Message) -> bool:
        """Take in what is told; tell whether a speed or a cost is known better now."""
        if told.get("told") in {"confirmed", "paused"}:
            self._run = []
        if told.get("told") != "report":
            return False
        line = _Line(float(told["t"]), int(told["step"]), int(told["size"]), int(told["samples"]))
        learned = self._cost_of_change(line)
        if self._last is not None and line.step <= self._last.step:
            self._run = []  # done before: what it costs is in the gap
            return learned
        self._last = line
        if self._run and (self._run[-1].size != line.size or line.step != self._run[-1].step + 1):
            self._run = []
        self._run.append(line)
        return self._speed(line) or learned

    # -- what is known

    def speeds(self) -> dict[int, float]:
        """Samples/s at each size that was measured."""
        return {size: median(found) for size, found in sorted(self._windows.items()) if found}

    def step_s(self, size: int) -> float | None:
        """Seconds that a step takes at ``size``, in the median."""
        found = self._steps.get(size)
        return median(found) if found else None

    def costs(self) -> dict[Change, float]:
        """Seconds that a change costs, of each kind that was seen."""
        return {change: median(found) for change, found in self._costs.items() if found}

    def changes(self) -> dict[Change, list[float]]:
        """Give every cost that is remembered."""
        return {change: list(found) for change, found in self._costs.items()}

    # -- how it is found

    def _speed(self, line: _Line) -> bool:
        counted = self._run[WARM_UP:]
        if len(counted) > 1:
            self._steps[line.size].append(counted[-1].t - counted[-2].t)
        if len(counted) <= WINDOW or (len(counted) - 1) % WINDOW:
            return False
        window = counted[-WINDOW - 1 :]
        took = window[-1].t - window[0].t
        if took <= 0:  # a clock that was set back
            return False
        self._windows[line.size].append(sum(one.samples for one in window[1:]) / took)
        return True

    def _cost_of_change(self, line: _Line) -> bool:
        if self._starting_at is not None:
            change: Change = "start"
            gap = line.t - self._starting_at - (self.step_s(line.size) or 0.0)
            self._starting_at = None
        elif self._last is None or line.step <= self._last.step or line.size == self._last.size:
            return False
        else:
            change = "grow" if line.size > self._last.size else "shrink"
            gap = line.t - self._last.t - (self.step_s(self._last.size) or self.step_s(line.size) or 0.0)
        self._costs[change].append(max(0.0, gap))
        return True


def curve(measured: Mapping[int, float], stated: Mapping[int, float], largest: int) -> dict[int, float]:
    """Give samples/s at some sizes up to ``largest``: measured where it was, and for the others the best guess.

    What was stated keeps its shape and is scaled to what was measured at the nearest size. With nothing stated a task
    is taken to be as fast on each further node as on those it was measured on; with nothing measured either, every
    node brings one sample a second.
    """
    if not measured:
        return dict(stated) or {largest: float(largest)}
    known = dict(measured)
    for size, rate in stated.items():
        if size not in known:
            nearest = min(measured, key=lambda other: abs(other - size))
            there = interpolated(stated, nearest)
            known[size] = rate * measured[nearest] / there if there > 0 else measured[nearest] / nearest * size
    last = max(known)
    if last < largest and not stated:
        known[largest] = known[last] / last * largest
    return dict(sorted(known.items()))


def interpolated(points: Mapping[int, float], size: int) -> float:
    """Give the value at ``size``: linear between points, from 0 at size 0, flat beyond the last."""
    below = max(((at, value) for at, value in points.items() if at <= size), default=(0, 0.0))
    above = min(((at, value) for at, value in points.items() if at >= size), default=below)
    if above[0] == below[0]:
        return below[1]
    return below[1] + (above[1] - below[1]) * (size - below[0]) / (above[0] - below[0])


def sizes_to_try(smallest: int, largest: int, measured: Mapping[int, float]) -> list[int]:
    """Give the sizes at which a task should be measured next: from the largest downwards, which is the cheaper way."""
    sizes, size = [], largest
    while size > smallest:
        sizes.append(size)
        size //= 2
    return [one for one in [*sizes, smallest] if one not in measured and one >= smallest]
