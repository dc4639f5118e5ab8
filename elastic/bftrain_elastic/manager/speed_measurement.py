"""SpeedMeasurement: the speed of a task at each size, and the cost of changing the size, from its reported steps.

A speed is the median over windows of several steps; the first steps after a change are excluded. So warm-up and single
slow steps do not count, but periodic work (a commit, an evaluation) does. A cost is the gap across a change, up to the
first new step, less one median step at the new size (at the old size until that is known). Consecutive steps are timed
by the clock of the reporting node, gaps by the manager's: another node may report after a change.

Lines can be lost, and an agent that reconnects repeats the latest line of a worker. So only steps with consecutive
numbers count as consecutive, and a change is measured only if no line is missing around it.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Final, Literal

from bftrain_elastic.wire.messages import Message

Change = Literal["grow", "shrink", "start"]

WARM_UP: Final = 3  # steps after a change that do not count
WINDOW: Final = 5  # steps per window
ENOUGH: Final = 3  # windows after which the speed at a size is known
ENOUGH_S: Final = 30.0  # total time of fewer windows that is enough, too: steps may be slow
_WINDOWS: Final = 200  # remembered windows per size
_CHANGES: Final = 20  # remembered changes of each kind


@dataclass(frozen=True, slots=True)
class _Line:
    """One reported step."""

    t: float  # clock of the reporting node
    received_at: float  # clock of the manager
    step: int
    size: int
    samples: int


@dataclass(frozen=True, slots=True)
class _Gap:
    """The time from the last step before a change to the first step after it."""

    change: Change
    took_s: float
    before: int  # nodes before the change; 0 for a start
    after: int  # nodes after it


class SpeedMeasurement:
    """Measurements of one task. Feed it all messages of the task."""

    def __init__(self) -> None:
        self._windows: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOWS))
        self._watched_s: defaultdict[int, float] = defaultdict(float)  # seconds in windows, including forgotten ones
        self._steps: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=_WINDOWS))
        self._gaps: defaultdict[Change, deque[_Gap]] = defaultdict(lambda: deque(maxlen=_CHANGES))
        self._newest: _Gap | None = None
        self.crossed = 0  # number of changes so far, including forgotten ones
        self._last: _Line | None = None  # the furthest step so far
        self._run: list[_Line] = []  # consecutive steps at one size
        self._stride: int | None = None  # step difference between the latest two lines at one size
        self._starting_at: float | None = None  # time of a start, until its first step
        self._first_after_start = False  # the next line is the first one after a start

    def on_message(self, message: Message) -> bool:
        """Add a message; return whether it adds to a speed or a cost."""
        if message.get("type") == "starting":
            self._starting_at, self._last, self._stride = float(message["t"]), None, None
            self._first_after_start = True
        if message.get("type") in {"starting", "confirmed", "paused"}:
            self._run = []
        if message.get("type") != "report":
            return False
        t = float(message["t"])
        repeated = self._first_after_start and self._starting_at is not None and t < self._starting_at
        self._first_after_start = False
        if repeated:  # an agent repeated the latest report of an earlier process
            return False
        line = _Line(
            t, float(message.get("received_at", t)), int(message["step"]), int(message["size"]), int(message["samples"])
        )
        learned = self._crossed_change(line)
        if self._last is not None and line.step <= self._last.step:
            self._run = []  # repeated steps: their cost is in the gap
            return learned
        if self._last is not None and line.size == self._last.size:
            self._stride = line.step - self._last.step
        self._last = line
        if self._run and (self._run[-1].size != line.size or line.step != self._run[-1].step + 1):
            self._run = []
        self._run.append(line)
        return self._speed(line) or learned

    def speeds(self) -> dict[int, float]:
        """Return samples/s at each measured size."""
        return {size: median(rates) for size, rates in sorted(self._windows.items()) if rates}

    def settled(self) -> frozenset[int]:
        """Return the sizes with a sufficiently measured speed."""
        return frozenset(
            size for size, rates in self._windows.items() if len(rates) >= ENOUGH or self._watched_s[size] >= ENOUGH_S
        )

    def step_s(self, size: int) -> float | None:
        """Return the median seconds of a step at ``size``."""
        times = self._steps.get(size)
        return median(times) if times else None

    def costs(self) -> dict[Change, float]:
        """Return the median cost in seconds of each kind of change."""
        return {change: median(costs) for change, costs in self.changes().items()}

    def changes(self) -> dict[Change, list[float]]:
        """Return the remembered costs of each kind of change."""
        return {change: [self._cost(one) for one in gaps] for change, gaps in self._gaps.items()}

    @property
    def latest(self) -> tuple[Change, float] | None:
        """The latest change and its cost, once the step time after it is known."""
        gap = self._newest
        return (gap.change, self._cost(gap)) if gap is not None and self.step_s(gap.after) is not None else None

    def _speed(self, line: _Line) -> bool:
        counted = self._run[WARM_UP:]
        if len(counted) > 1:
            self._steps[line.size].append(counted[-1].t - counted[-2].t)
        if len(counted) <= WINDOW or (len(counted) - 1) % WINDOW:
            return False
        window = counted[-WINDOW - 1 :]
        took = window[-1].t - window[0].t
        if took <= 0:  # a clock was set back
            return False
        rate = sum(one.samples for one in window[1:]) / took
        if not isfinite(rate):  # the interval is too short to measure
            return False
        self._windows[line.size].append(rate)
        self._watched_s[line.size] += took
        return True

    def _cost(self, gap: _Gap) -> float:
        return max(0.0, gap.took_s - (self.step_s(gap.after) or self.step_s(gap.before) or 0.0))

    def _crossed_change(self, line: _Line) -> bool:
        """Record the change between the previous line and this one; return whether there is one."""
        last = self._last
        if self._starting_at is not None:
            gap = _Gap("start", line.received_at - self._starting_at, 0, line.size)
            self._starting_at = None
        elif last is None or line.step <= last.step or line.size == last.size:
            return False
        elif self._stride is None or line.step - last.step > self._stride:
            return False  # lines between the two were lost, and with them the time of the change
        else:
            change: Change = "grow" if line.size > last.size else "shrink"
            gap = _Gap(change, line.received_at - last.received_at, last.size, line.size)
        self._gaps[gap.change].append(gap)
        self._newest, self.crossed = gap, self.crossed + 1
        return True
