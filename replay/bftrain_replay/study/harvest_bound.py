"""Proven harvest bound: no scheduler exceeds it on these idle nodes, not even with knowledge of the future.

At any moment no more than ``most`` tasks run, on the nodes idle then. For tasks with one speed curve ``v`` the joint
speed is bounded by ``f(n) = max sum v(n_j)`` over up to ``most`` sizes ``n_j`` with a sum of up to ``n``. The integral
of ``f`` over the pool bounds the harvest, and so does the total work.

Different tasks need a linear programme over each class's mean number of tasks at each size. Its limits are the ones
above, for each part of the log with similar pools, and the work of each class. Using mean pools per part keeps the
bound valid, since the programme's largest speed is concave in the nodes. Costs can only lower a harvest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.goodput import by_progress
from bftrain.errors import Fault
from bftrain.values.curve import ANY_KIND, SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.run.fair_time import ConcaveSpeed, concave_hull
from bftrain_replay.simulation.engine import pools_at
from bftrain_solvers.sharing.linear import LinearRows, maximise

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_Limit = tuple[str, int, float, float]  # a row by its name and number, its bound, and the coefficient of a column

_STRAIGHT: Final = 1e-12  # relative: rounding of speeds between measured sizes
_MOST_STEPS: Final = 100_000_000  # additions for the exact bound; beyond it, the concave hull is used
_MOST_COLUMNS: Final = 8_000  # size of the linear programme: more parts of the log make it tighter and slower
_MOST_EPOCHS: Final = 8  # parts by the number of tasks that have arrived
_MOST_CLASSES: Final = 64
_CORNERS: Final = 8  # about the number in a task's concave speed curve
_WORTH_MORE: Final = 0.01  # fraction of the bound: minimum gain that twice as many competing tasks must bring
_MARGIN: Final = 1e-9  # relative: tolerance of the linear solver


class HarvestBound(msgspec.Struct, frozen=True, kw_only=True):
    """The bound in samples.

    ``one_each_samples`` is the harvest if all idle nodes trained identical tasks of the smallest size, without costs;
    ``None`` for different tasks or node kinds. The difference comes from the cap on competing tasks, or their work.
    """

    bound_samples: float
    one_each_samples: float | None


class _TaskClass(msgspec.Struct, frozen=True):
    """Tasks with the same speeds and sizes, or bounded together by the fastest of them."""

    tasks: tuple[TaskSpec, ...]
    shapes: tuple[TaskSpec, ...]  # one task per distinct set of speeds and sizes

    @property
    def most_nodes(self) -> int:
        """The largest size of any."""
        return max(spec.max_nodes for spec in self.shapes)

    @property
    def work_samples(self) -> float:
        """The joint work; infinite if a task is endless."""
        works = [spec.work_samples for spec in self.tasks]
        return math.inf if None in works else math.fsum(work for work in works if work is not None)

    def arrived(self, times_s: Floats) -> Counts:
        """Return the number of tasks submitted by each time."""
        return np.searchsorted(np.sort([spec.submit_s for spec in self.tasks]), times_s, side="right").astype(np.int64)

    def speeds(self, kind: str, largest: int) -> Floats:
        """Return the speed at sizes 0, 1, ..., ``largest`` of a kind: 0 where the task cannot run."""
        speeds = np.zeros(largest + 1)
        for spec in self.shapes:
            curve, sizes = spec.curve_on(kind), slice(spec.min_nodes, min(largest, spec.max_nodes) + 1)
            if curve is not None and sizes.start < sizes.stop:
                speeds[sizes] = np.maximum(speeds[sizes], _at_best_spread(spec, curve, kind, sizes.stop - 1)[sizes])
        return speeds


def _at_best_spread(spec: TaskSpec, curve: SpeedCurve, kind: str, largest: int) -> Floats:
    """Return the speeds up to a size; above one node, the largest over all spreads across hosts or racks."""
    together = speeds = curve.speeds(largest)
    for each in spec.spread.speeds if spec.spread is not None else ():
        if each.kind in (kind, ANY_KIND):
            apart = together * (each.share or 0.0) if each.curve is None else each.curve.speeds(largest)
            speeds = np.concatenate((speeds[:2], np.maximum(speeds, apart)[2:]))
    return speeds


class _Pool(msgspec.Struct, frozen=True):
    """The idle nodes by kind over time: each number lasts for its duration. Times are seconds since the log's start."""

    times_s: Floats
    durations_s: Floats
    nodes: Mapping[str, Counts]

    @property
    def span_s(self) -> float:
        """The length of the log."""
        return math.fsum(self.durations_s.tolist())

    @classmethod
    def of(cls, log: EventLog, arrivals_s: Sequence[float]) -> _Pool:
        """Build it with a time for each change of the log, and each arrival within it."""
        all_s = np.union1d(log.times - log.start_s, [time_s for time_s in arrivals_s if 0.0 < time_s < log.span_s])
        return cls(all_s, np.diff(all_s, append=log.span_s), pools_at(log, all_s))


def harvest_bound(log: EventLog, tasks: Sequence[TaskSpec], most: int, *, mixed: bool = True) -> HarvestBound | None:
    """Return the bound for up to ``most`` competing tasks on the idle nodes of ``log``.

    Return ``None`` without tasks or idle time, or without ``mixed`` if tasks or node kinds differ, which would take
    half a second.

    >>> from bftrain_datasets.log.log_generator import sample_log
    >>> from bftrain_datasets.workloads.task_generators import SaturatingWorkload
    >>> log = sample_log()
    >>> trials = SaturatingWorkload.of(log.idle_node_s, competing=35).tasks
    >>> found = harvest_bound(log, trials, most=35)
    >>> round(found.bound_samples / found.one_each_samples, 3)
    0.949
    """
    if not tasks or not len(log) or log.idle_node_s <= 0.0:
        return None
    classes = _classes(list(map(by_progress, tasks)))
    pool = _Pool.of(log, [spec.submit_s for spec in tasks])
    if len(classes) > 1 or len(pool.nodes) > 1:
        return HarvestBound(bound_samples=_of_mixed(pool, classes, most), one_each_samples=None) if mixed else None
    (kind, nodes), task = next(iter(pool.nodes.items())), classes[0]
    speeds = task.speeds(kind, int(nodes.max()))
    together = _fastest(speeds, nodes, np.minimum(task.arrived(pool.times_s), most))
    bound = math.fsum((together * pool.durations_s).tolist())
    smallest = task.tasks[0].min_nodes
    each = float(speeds[smallest]) / smallest if smallest < speeds.size else 0.0
    return HarvestBound(
        bound_samples=min(bound, task.work_samples), one_each_samples=each * log.idle_node_s if each else None
    )


def enough_tasks(log: EventLog, tasks: Sequence[TaskSpec], least: int) -> int:
    """Return ``least``, doubled (up to the number of tasks) until twice as many add less than 1 % to the bound.

    >>> from bftrain_datasets.log.log_generator import sample_log
    >>> from bftrain_datasets.workloads.task_generators import generate_trials
    >>> enough_tasks(sample_log(), generate_trials(1000), least=10)
    160
    """
    count = min(least, max(len(tasks), 1))
    bound = harvest_bound(log, tasks, count)
    while bound is not None and count < len(tasks):
        more = harvest_bound(log, tasks, 2 * count)
        if more is None or more.bound_samples < (1.0 + _WORTH_MORE) * bound.bound_samples:
            break
        count, bound = min(2 * count, len(tasks)), more
    return max(count, 1)


def _classes(tasks: Sequence[TaskSpec]) -> list[_TaskClass]:
    alike: dict[object, list[TaskSpec]] = {}
    for spec in tasks:
        key = (spec.curve, *spec.curves.items(), spec.min_nodes, spec.max_nodes, spec.spread)
        alike.setdefault(key, []).append(spec)
    if len(alike) <= _MOST_CLASSES:
        return [_TaskClass(tuple(specs), (specs[0],)) for specs in alike.values()]
    ordered = sorted(alike.values(), key=lambda specs: max(specs[0].curve.rate))
    step = math.ceil(len(ordered) / _MOST_CLASSES)
    groups = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    return [_TaskClass(tuple(chain(*group)), tuple(specs[0] for specs in group)) for group in groups]


def _fastest(speeds: Floats, nodes: Counts, tasks: Counts) -> Floats:
    """Return the largest joint speed of identical tasks, for each pair of node and task counts."""
    best = np.maximum.accumulate(speeds)  # a task may leave nodes idle
    steps = int(tasks.max(initial=0)) * best.size * min(best.size, int(np.argmax(best)) + 1)
    if (np.diff(best, n=2) <= _STRAIGHT * best[-1]).all() or steps > _MOST_STEPS:
        return _even(best, nodes, tasks)
    found = np.zeros(nodes.size)
    together = np.zeros_like(best)  # one more task per iteration
    for count in range(1, int(tasks.max(initial=0)) + 1):
        together = _with_one_more(together, best)
        which = tasks == count
        found[which] = together[nodes[which]]
    return found


def _even(best: Floats, nodes: Counts, tasks: Counts) -> Floats:
    """Return the joint speed on even parts (differing by one node or less), optimal for a concave curve."""
    if (np.diff(best, n=2) > _STRAIGHT * best[-1]).any():
        hull = _hull(best)
        best = np.zeros_like(best) if hull is None else np.interp(np.arange(best.size), hull.nodes, hull.rate)
    part, more = np.divmod(nodes, np.maximum(tasks, 1))
    following = np.minimum(part + 1, best.size - 1)
    return np.where(tasks > 0, (tasks - more) * best[part] + more * best[following], 0.0)


def _hull(speeds: Floats) -> ConcaveSpeed | None:
    """Return the least concave curve over the speeds at sizes 0, 1, ...; ``None`` if all are 0."""
    return concave_hull([(float(size), float(speed)) for size, speed in enumerate(speeds)][1:])


def _with_one_more(together: Floats, best: Floats) -> Floats:
    """Return the largest sums of one entry from each array, for indices that add up to 0, 1, ... or less."""
    found = together.copy()
    for size in range(1, int(np.argmax(best)) + 1):  # larger sizes are not faster
        np.maximum(found[size:], together[: together.size - size] + best[size], out=found[size:])
    return found


class _Cell(msgspec.Struct, frozen=True):
    """Moments of one epoch with similar pools of one kind: their mean and largest number of nodes."""

    epoch: int
    kind: str
    share: float  # fraction of the epoch's duration
    seconds: float
    nodes: float
    largest: int


class _Programme:
    """A linear programme: columns are tasks of a class at a size in a cell, on average; rows are their limits."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._worth: list[float] = []
        self._rows: dict[tuple[str, int], int] = {}
        self._limits: list[float] = []
        self._entries: list[tuple[float, int, int]] = []

    def add(self, samples: float, limits: Iterable[_Limit], work: tuple[int, float]) -> None:
        """Add a column with its worth, its limits, and the work of all columns of its class."""
        column, worth = len(self._worth), samples / self._scale
        self._worth.append(worth)
        number, work_samples = work
        finite = [("work", number, work_samples / self._scale, worth)] if work_samples < math.inf else []
        for name, place, bound, coefficient in (*limits, *finite):
            row = self._rows.setdefault((name, place), len(self._rows))
            if row == len(self._limits):
                self._limits.append(bound)
            self._entries.append((coefficient, row, column))

    def optimum(self) -> float:
        """Return the largest sum of samples."""
        if not self._worth:
            return 0.0
        worth = np.array(self._worth)
        data, row, column = map(np.array, zip(*self._entries, strict=True))
        rows = LinearRows(data=(data,), row=(row,), column=(column,), limits=np.array(self._limits))
        found = maximise(worth, rows)
        if found.columns is None:
            raise Fault(f"the bound was not found: {found.words}", where="bound")
        return float(np.dot(worth, found.columns)) * self._scale * (1.0 + _MARGIN)


def _of_mixed(pool: _Pool, classes: Sequence[_TaskClass], most: int) -> float:
    """Return the bound for tasks or node kinds that differ."""
    starts_s = _epochs(classes)
    before_s = np.nextafter(np.append(starts_s[1:], np.inf), 0.0)
    arrived = [task.arrived(before_s).tolist() for task in classes]
    competing = [min(most, sum(counts)) for counts in zip(*arrived, strict=True)]
    cells = list(_cells(pool, starts_s, len(classes)))
    scale = max((float(task.speeds(cell.kind, cell.largest).max()) for cell in cells for task in classes), default=0.0)
    programme = _Programme(scale * pool.span_s or 1.0)
    for number, task in enumerate(classes):
        corners = cache(lambda kind, largest, task=task: _corners(task.speeds(kind, largest)))
        for place, cell in enumerate(cells):
            counts = (float(arrived[number][cell.epoch]), float(competing[cell.epoch]))
            for size, speed in corners(cell.kind, min(cell.largest, task.most_nodes)):
                limits = [("nodes", place, cell.nodes, size), *_limits_of_tasks(number, place, cell, *counts)]
                programme.add(speed * cell.seconds, limits, (number, task.work_samples))
    return programme.optimum()


def _limits_of_tasks(number: int, place: int, cell: _Cell, alike: float, competing: float) -> Iterator[_Limit]:
    """Yield the task limits of a cell: all competing tasks, and class ``number``, here and across all kinds."""
    yield "competing", place, competing, 1.0
    yield "competing on all kinds", cell.epoch, competing, cell.share
    if alike < competing:
        yield f"class {number}", place, alike, 1.0
        yield f"class {number} on all kinds", cell.epoch, alike, cell.share


def _epochs(classes: Sequence[_TaskClass]) -> Floats:
    """Return the epoch starts: all task arrival times, or a subset."""
    times_s = np.unique([max(spec.submit_s, 0.0) for task in classes for spec in task.tasks])
    places = np.linspace(0, times_s.size - 1, min(times_s.size, _MOST_EPOCHS)).astype(np.int64)
    return times_s[places]


def _cells(pool: _Pool, starts_s: Floats, classes: int) -> Iterator[_Cell]:
    """Yield each epoch's moments sorted by idle nodes of a kind, in parts of about equal length."""
    parts = max(4, _MOST_COLUMNS // (_CORNERS * classes * len(pool.nodes) * starts_s.size))
    epochs = np.searchsorted(starts_s, pool.times_s, side="right") - 1  # epoch of each moment; -1 before the first task
    for epoch in np.unique(epochs[epochs >= 0]).tolist():
        moments = epochs == epoch
        for kind, counts in pool.nodes.items():
            order = np.argsort(counts[moments], kind="stable")
            nodes, seconds = counts[moments][order], pool.durations_s[moments][order]
            whole_s = max(float(seconds.sum()), math.ulp(0.0))
            part = ((np.cumsum(seconds) - seconds) * parts / whole_s).astype(np.int64)
            for number in np.unique(part):
                which = part == number
                length_s = float(seconds[which].sum())
                if length_s > 0.0 and nodes[which].max():
                    mean = float(np.dot(nodes[which], seconds[which])) / length_s
                    yield _Cell(epoch, kind, length_s / whole_s, length_s, mean, int(nodes[which].max()))


def _corners(speeds: Floats) -> tuple[tuple[int, float], ...]:
    """Return the sizes at the corners of the least concave curve over the speeds, with their speeds."""
    hull = _hull(speeds)
    if hull is None:
        return ()
    return tuple(zip(hull.nodes[1:].astype(int).tolist(), hull.rate[1:].tolist(), strict=True))
