"""Built-in objectives without levels, and the wrapper that makes one of any function ``(task, sizes) -> values``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.table_deadline import Late, in_time, no_limit
from bftrain.ports import SPEED_ALONE, WORK_LEFT, ObjectiveCapabilities
from bftrain.values.coupling import CouplingModel, linear_sum
from bftrain.values.curve import SpeedCurve
from bftrain.values.curve_axis import CurveAxis
from bftrain.values.problem import AllocationProblem, CompetingTask
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec

Entries = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FunctionObjective:
    """An objective made of a plain function of a task and an array of sizes."""

    name: str
    function: Callable[[CompetingTask, NDArray[np.int64]], Entries]
    capabilities: ObjectiveCapabilities = WORK_LEFT

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Call the function."""
        return self.function(task, sizes)


# Gives a number of each task for every entry: a single number where there is one task, else an array
ForEach = Callable[[Callable[[CompetingTask, SpeedCurve], float]], float | Entries]
# Value per second of entries that have these speeds and sizes. What is so written can be computed for all tasks at once
OfSpeeds = Callable[[Entries, NDArray[np.int64], ForEach], Entries]


def alone(of_speeds: OfSpeeds, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Compute ``of_speeds`` for one task."""
    return of_speeds(speed(task, sizes), sizes, lambda number: number(task, task.curve))


def speed(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Samples per second."""
    return _speeds(task.curve, int(sizes[-1]))


@lru_cache(maxsize=128)  # tasks of one model have one curve, and each is asked for again whenever its size changes
def _speeds(curve: SpeedCurve, largest: int) -> Entries:
    speeds = curve.speeds(largest)
    speeds.setflags(write=False)
    return speeds


def as_they_are(speeds: Entries, _sizes: NDArray[np.int64], _each: ForEach) -> Entries:
    """Samples per second."""
    return speeds


def over_single(speeds: Entries, _sizes: NDArray[np.int64], each: ForEach) -> Entries:
    """Speed as a multiple of the speed on one node, so that slow models count as much as fast ones."""
    return np.divide(speeds, each(speed_of_one))


def by_weight(speeds: Entries, _sizes: NDArray[np.int64], each: ForEach) -> Entries:
    """Samples per second times the task's weight."""
    return np.multiply(each(lambda task, _: task.weight), speeds)


def speed_of_one(task: CompetingTask, curve: SpeedCurve) -> float:
    """Speed on one node in samples/s, of the kind that is fastest; the smallest size that runs may stand in for one."""
    best = 0.0
    for seen in task.curves.values() if task.curves else (curve,):
        below = 0
        for nodes, rate in zip(seen.nodes, seen.rate, strict=True):
            if rate > 0.0:  # so the first size that runs is the one above the last that does not
                best = max(best, rate / (nodes - below) / (below + 1))
                break
            below = nodes
    return best or 1.0


@dataclass(frozen=True, slots=True)
class SpeedObjective:
    """An objective that is a function of the speed at each size and of numbers of the task."""

    name: str
    of_speeds: OfSpeeds
    capabilities: ObjectiveCapabilities = SPEED_ALONE

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Value per second at every size."""
        return alone(self.of_speeds, task, sizes)


@dataclass(frozen=True, slots=True)
class SoftDeadline:
    """Speedup, of which the part that a task needs to be done by its deadline counts ``urgency`` times.

    Beyond the speed it needs a task counts like any other, and so does one without a deadline, without a known
    amount of work, or with a deadline that even its largest size cannot keep: no task is dropped for being late. All
    is multiplied by the task's weight.
    """

    name: str
    urgency: float = 10.0
    capabilities: ObjectiveCapabilities = WORK_LEFT

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Value per second at every size."""
        return alone(self.of_speeds, task, sizes)

    def of_speeds(self, speeds: Entries, _sizes: NDArray[np.int64], each: ForEach) -> Entries:
        """Compute the same for the speeds of any tasks."""
        urgent = (self.urgency - 1.0) * np.minimum(speeds, each(_needed_speed))
        return np.divide(each(lambda task, _: task.weight) * (speeds + urgent), each(speed_of_one))


def _needed_speed(task: CompetingTask, curve: SpeedCurve) -> float:
    """Give the speed with which the task is done by its deadline; 0 if it has none, or cannot keep it."""
    if task.deadline_in_s is None or task.work_left_samples is None or task.deadline_in_s <= 0.0:
        return 0.0
    needed = task.work_left_samples / task.deadline_in_s
    # The best size is a measured one, or ``max_nodes`` itself
    rates = [rate for nodes, rate in zip(curve.nodes, curve.rate, strict=True) if nodes <= task.max_nodes]
    return 0.0 if needed > max([curve.speed(task.max_nodes), *rates]) else needed


throughput = SpeedObjective("throughput", as_they_are)
speedup = SpeedObjective("speedup", over_single)
weighted = SpeedObjective("weighted", by_weight)
deadline = SoftDeadline("deadline")


_COUPLED = ObjectiveCapabilities(any_coupling=True, uses_work_left=False)


@dataclass(frozen=True, slots=True)
class MaxMinObjective:
    """Make the worst-off task as well off as possible; of the ways to do that, take the one with most samples/s.

    It ties tasks together, and is the worked example of how to write such an objective.

    How well off a task is: its speedup over the horizon, costs of rescaling taken off, divided by its weight. A
    task of weight 2 is to be twice as fast as one of weight 1; one of weight 0 counts only for the samples/s.
    """

    name: str
    capabilities: ObjectiveCapabilities = _COUPLED

    of_speeds = staticmethod(over_single)

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Value per second of a task alone: what the table is made of."""
        return alone(self.of_speeds, task, sizes)

    def couple(self, model: CouplingModel) -> None:
        """Say what ties the tasks together."""
        tasks = model.problem.tasks
        weights = [task.weight for task in tasks if task.weight > 0.0]
        if weights:
            # Solvers work to an absolute tolerance: keep the numbers near those of the table for any weights
            middle = sqrt(min(weights)) * sqrt(max(weights))
            worst = model.variable(lower=-inf)
            for place, task in enumerate(tasks):
                if task.weight > 0.0:
                    model.at_least(model.value(place) * (middle / task.weight) - worst, 0.0)
            model.maximise(worst / middle)
        model.maximise(linear_sum(model.speed(place) for place in range(len(tasks))))

    def total(self, chosen: Entries, sizes: Sequence[int], problem: AllocationProblem) -> float:
        """What the first goal comes to: how well off the worst-off task is."""
        well_off = [
            float(value) / task.weight for value, task in zip(chosen, problem.tasks, strict=True) if task.weight > 0.0
        ]
        if well_off:
            return min(well_off)
        return sum(task.curve.speed(size) for size, task in zip(sizes, problem.tasks, strict=True))


max_min_now = MaxMinObjective("max-min-now")


def isolated_speed(task: CompetingTask | TaskSpec, by_kind: Mapping[str, int], tasks: int) -> float:
    """Speed in samples/s on an n-th part of the nodes, n being the number of ``tasks``.

    Between whole sizes the curve is linear. Where the part is less than ``min_nodes`` the task has these for a part of
    the time; the same, on the size where it does most, if it does not run on its part at all. Of several kinds it
    has each in turn, for as much of the time as nodes are of that kind. 0 if it runs nowhere.
    """
    nodes = sum(by_kind.values())
    if nodes == 0 or tasks == 0:
        return 0.0
    found = 0.0
    for kind, count in by_kind.items():
        curve = task.curve_on(kind)
        if curve is not None and count >= task.min_nodes:
            part, most = min(nodes / tasks, count), min(task.max_nodes, count)
            if part >= task.min_nodes:
                there = curve.speed(min(part, task.max_nodes))
            else:
                there = curve.speed(task.min_nodes) * part / task.min_nodes
            if there <= 0.0:
                sizes = {task.min_nodes, most, *(size for size in curve.nodes if task.min_nodes <= size <= most)}
                there = max(curve.speed(size) * min(1.0, part / size) for size in sizes)
            found += count / nodes * there
    return found


_MANY: Final = 100  # tasks that are looked at together
# A size at which a task would take so many times as long as at its best one counts as none: beside such times the
# others' would drown in rounding
_TOO_SLOW: Final = 1e-6


def isolated_speeds(table: ValueTable, late: Late = no_limit) -> Entries:
    """Give the speed of each task on an equal share of the nodes: of many tasks at once, by kind."""
    by_kind, tasks = table.problem.by_kind, table.problem.tasks
    nodes, found = sum(by_kind.values()), np.zeros(len(tasks))
    alone_only = np.full(len(tasks), len(tasks) < _MANY or nodes == 0)  # for these other sizes may have to be looked at
    for kind, count in by_kind.items() if not alone_only.all() else ():
        in_time(late)
        on_kind = ((place, task.curve_on(kind)) for place, task in enumerate(tasks) if count >= task.min_nodes)
        curves = {place: curve for place, curve in on_kind if curve is not None}
        places = np.array(list(curves), dtype=np.int64)
        fewest, most = (each_task(table, field)[places] for field in ("min_nodes", "max_nodes"))
        part = min(nodes / len(tasks), count)
        sizes = np.where(part >= fewest, np.minimum(part, most), fewest)
        axis = CurveAxis.of(list(curves.values()), np.ceil(sizes).astype(np.int64))
        if axis is None:
            alone_only[:] = True
            break
        there = axis.at(sizes)
        there = np.where(part >= fewest, there, there * part / fewest)
        found[places] += count / nodes * there
        alone_only[places] |= there <= 0.0
    for place in np.flatnonzero(alone_only).tolist():
        in_time(late)
        found[place] = isolated_speed(tasks[place], by_kind, len(tasks))
    return found


def each_task(table: ValueTable, field: str) -> Entries:
    """Give a field of each task, 0 where it is ``None``."""
    return np.array([getattr(task, field) or 0.0 for task in table.problem.tasks], dtype=np.float64)


_INTERRUPTIBLE: Final = ObjectiveCapabilities(uses_work_left=False, interruptible=True)


@dataclass(frozen=True, slots=True)
class NormalisedObjective:
    """A sum of what ``reckon`` makes of all tasks' samples per second: any solver finds the best sizes."""

    name: str
    reckon: Callable[[ValueTable, Late], Entries]
    capabilities: ObjectiveCapabilities = _INTERRUPTIBLE

    values, of_speeds = staticmethod(speed), staticmethod(as_they_are)

    def recast(self, table: ValueTable, late: Late = no_limit) -> ValueTable:
        """Give the table that is solved."""
        if not table.problem.tasks:
            return table
        entries = self.reckon(table, late)
        in_time(late)
        return ValueTable(problem=table.problem, values=np.where(np.isfinite(table.values), entries, -np.inf))


def times(table: ValueTable, late: Late) -> Entries:
    """Minus the weighted sum of times to the end; a task that gets nothing ends after all others.

    How old tasks are is the same in every plan, and left out. A task that has no known end does not count, nor does one
    that runs at no size.
    """
    work, weights = each_task(table, "work_left_samples"), each_task(table, "weight")
    speeds, runs = _running(table)
    counts = (work > 0.0) & (weights > 0.0) & runs.any(axis=1)
    ends = work[:, None] / np.where(runs, speeds, 1.0)
    in_time(late)
    return _with_all_who_can(-weights[:, None] * ends, runs, counts)


def logarithms(table: ValueTable, late: Late) -> Entries:
    """Weighted sum of ``log(thr / E)``; first as many tasks as possible run. Weight 0 does not count."""
    isolated, weights = isolated_speeds(table, late), each_task(table, "weight")
    speeds, runs = _running(table)
    counts = (weights > 0.0) & (isolated > 0.0) & runs.any(axis=1)
    in_time(late)
    relative = np.where(runs & counts[:, None], speeds, 1.0) / np.where(counts, isolated, 1.0)[:, None]
    entries = weights[:, None] * np.log(relative)
    in_time(late)
    return _with_all_who_can(entries, runs, counts)


def bought(table: ValueTable, _late: Late) -> Entries:
    """Weighted samples over the price of a node of the kind they are done on."""
    problem = table.problem
    weights = each_task(table, "weight")
    price = np.array([problem.prices.get(kind, 1.0) for kind in problem.by_kind], dtype=np.float64)
    prices = price[0] if price.size == 1 else price[np.maximum(table.kind_of, 0)]
    return np.where(np.isfinite(table.values), table.values, 0.0) * weights[:, None] / prices


def _running(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Samples/s over the horizon, costs of rescaling taken off, and where these get a task anywhere."""
    speeds = np.where(np.isfinite(table.values), table.values, 0.0) / table.problem.horizon_s
    runs = speeds > _TOO_SLOW * np.maximum(speeds.max(axis=1, keepdims=True), 0.0)
    return speeds, runs


def _with_all_who_can(entries: Entries, runs: NDArray[np.bool_], counts: NDArray[np.bool_]) -> Entries:
    """Let nothing weigh as much as one more task that runs: one that does not counts less than all others could."""
    valid = runs & counts[:, None]
    most = float(np.abs(entries).max(axis=1, where=valid, initial=0.0).sum())
    return np.where(counts[:, None], np.where(valid, entries, -1.0 - 2.0 * most), 0.0)


completion = NormalisedObjective("completion", times, ObjectiveCapabilities(interruptible=True))
proportional = NormalisedObjective("proportional", logarithms)
cost = NormalisedObjective("cost", bought)
