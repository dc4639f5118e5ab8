"""Built-in objectives that sum over tasks (except ``goodput``), and the classes of all built-in objectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.ports import SPEED_ALONE, WORK_LEFT, ObjectiveCapabilities
from bftrain.values.curve import SpeedCurve
from bftrain.values.problem import CompetingTask
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec

Entries = NDArray[np.float64]
Values = Callable[[CompetingTask, NDArray[np.int64]], Entries]


@dataclass(frozen=True, slots=True)
class FunctionObjective:
    """An objective defined by a function of a task and an array of sizes."""

    name: str
    values: Values
    capabilities: ObjectiveCapabilities = WORK_LEFT


def speed(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Return the samples per second."""
    return _speeds(task.curve, int(sizes[-1]))


@lru_cache(maxsize=128)  # tasks of the same model share a curve, and rows are rebuilt after each change in size
def _speeds(curve: SpeedCurve, largest: int) -> Entries:
    speeds = curve.speeds(largest)
    speeds.setflags(write=False)
    return speeds


def relative_speed(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Return the speed as a multiple of the speed on one node; slow models then count like fast ones."""
    return speed(task, sizes) / speed_of_one(task)


def weighted_speed(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Return the samples per second times the task's weight."""
    return task.weight * speed(task, sizes)


def speed_of_one(task: CompetingTask) -> float:
    """Return the speed on one node of the fastest kind, in samples/s; derived from the smallest size that runs."""
    best = 0.0
    for seen in task.curves.values() if task.curves else (task.curve,):
        below = 0
        for nodes, rate in zip(seen.nodes, seen.rate, strict=True):
            if rate > 0.0:  # the first size that runs is the one above the last that does not
                best = max(best, rate / (nodes - below) / (below + 1))
                break
            below = nodes
    return best or 1.0


_URGENCY: Final = 10.0  # weight of speed that a deadline requires


def soft_deadline(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Return the weighted speedup, where the part that a task needs to keep its deadline counts ten times.

    Speed beyond that counts normally. So does all speed of a task without a deadline, without a known amount of work,
    or with a deadline that even its fastest size cannot keep: no task is dropped for being late.
    """
    speeds = speed(task, sizes)
    urgent = (_URGENCY - 1.0) * np.minimum(speeds, _needed_speed(task))
    return task.weight * (speeds + urgent) / speed_of_one(task)


def _needed_speed(task: CompetingTask) -> float:
    """Return the speed with which the task keeps its deadline; 0 if it has none, or cannot keep it."""
    if task.deadline_in_s is None or task.work_left_samples is None or task.deadline_in_s <= 0.0:
        return 0.0
    needed, curve = task.work_left_samples / task.deadline_in_s, task.curve
    # The fastest size is a measured one, or ``max_nodes`` itself
    rates = [rate for nodes, rate in zip(curve.nodes, curve.rate, strict=True) if nodes <= task.max_nodes]
    return 0.0 if needed > max([curve.speed(task.max_nodes), *rates]) else needed


throughput = FunctionObjective("throughput", speed, SPEED_ALONE)
speedup = FunctionObjective("speedup", relative_speed, SPEED_ALONE)
weighted = FunctionObjective("weighted", weighted_speed, SPEED_ALONE)
deadline = FunctionObjective("deadline", soft_deadline)


def isolated_speed(task: CompetingTask | TaskSpec, by_kind: Mapping[str, int], tasks: int) -> float:
    """Return the speed in samples/s on an n-th part of the nodes, n being the number of ``tasks``.

    With several kinds a task uses each in turn, in proportion to the nodes of that kind. 0 if it runs nowhere.
    """
    nodes = sum(by_kind.values())
    if nodes == 0 or tasks == 0:
        return 0.0
    found = 0.0
    for kind, count in by_kind.items():
        curve = task.curve_on(kind)
        if curve is not None and count >= task.min_nodes:
            part, most = min(nodes / tasks, count), min(task.max_nodes, count)
            found += count / nodes * _speed_on_part(curve, task.min_nodes, most, part)
    return found


@lru_cache(maxsize=4096)  # tasks of the same model have equal parts
def _speed_on_part(curve: SpeedCurve, fewest: int, most: int, part: float) -> float:
    """Return the speed on a ``part`` of the nodes; between whole sizes the curve is linear.

    If the part is below the ``fewest`` nodes, the task has these for a part of the time; likewise, if it does not run
    on its part at all, the best size for a part of the time.
    """
    there = curve.speed(min(part, most)) if part >= fewest else curve.speed(fewest) * part / fewest
    if there <= 0.0:
        sizes = {fewest, most, *(size for size in curve.nodes if fewest <= size <= most)}
        there = max(curve.speed(size) * min(1.0, part / size) for size in sizes)
    return there


# A size below this fraction of the best speed counts as not running: its time to completion would
# make all other terms vanish in rounding
_TOO_SLOW: Final = 1e-6


def isolated_speeds(table: ValueTable) -> Entries:
    """Return the speed of each task on an equal share of the nodes."""
    by_kind, tasks = table.problem.by_kind, table.problem.tasks
    return np.array([isolated_speed(task, by_kind, len(tasks)) for task in tasks], dtype=np.float64)


def task_field(table: ValueTable, field: str) -> Entries:
    """Return a field of each task as an array, 0 in place of ``None``."""
    return np.array([getattr(task, field) or 0.0 for task in table.problem.tasks], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class TableObjective:
    """An objective on all tasks: ``recast`` returns the table to solve from the table of ``values``."""

    name: str
    recast: Callable[[ValueTable], ValueTable]
    values: Values = speed
    capabilities: ObjectiveCapabilities = SPEED_ALONE


def with_entries(entries_of: Callable[[ValueTable], Entries], table: ValueTable) -> ValueTable:
    """Return the table of a sum over tasks, which any solver can maximise."""
    if not table.problem.tasks:
        return table
    entries = entries_of(table)
    return ValueTable(problem=table.problem, values=np.where(np.isfinite(table.values), entries, -np.inf))


def negative_times_to_end(table: ValueTable) -> Entries:
    """Return minus the weighted times to completion; a task without nodes finishes after all other tasks.

    The age of tasks is equal in every plan, and left out. Tasks without a known end, a weight or a useful size do not
    count.
    """
    work, weights = task_field(table, "work_left_samples"), task_field(table, "weight")
    speeds, runs = _running(table)
    counts = (work > 0.0) & (weights > 0.0) & runs.any(axis=1)
    ends = work[:, None] / np.where(runs, speeds, 1.0)
    return _prefer_running_tasks(-weights[:, None] * ends, runs, counts)


def log_relative_speeds(table: ValueTable) -> Entries:
    """Return the weighted ``log(thr / E)``; running more tasks has priority. Tasks of weight 0 do not count."""
    isolated, weights = isolated_speeds(table), task_field(table, "weight")
    speeds, runs = _running(table)
    counts = (weights > 0.0) & (isolated > 0.0) & runs.any(axis=1)
    relative = np.where(runs & counts[:, None], speeds, 1.0) / np.where(counts, isolated, 1.0)[:, None]
    entries = weights[:, None] * np.log(relative)
    return _prefer_running_tasks(entries, runs, counts)


def samples_per_price(table: ValueTable) -> Entries:
    """Return weighted samples divided by the price of a node of the kind."""
    problem = table.problem
    weights = task_field(table, "weight")
    price = np.array([problem.prices.get(kind, 1.0) for kind in problem.by_kind], dtype=np.float64)
    prices = price[0] if price.size == 1 else price[np.maximum(table.kind_of, 0)]
    return np.where(np.isfinite(table.values), table.values, 0.0) * weights[:, None] / prices


def _running(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return samples/s over the horizon, minus rescaling costs, and where a task runs at a useful speed."""
    speeds = np.where(np.isfinite(table.values), table.values, 0.0) / table.problem.horizon_s
    runs = speeds > _TOO_SLOW * np.maximum(speeds.max(axis=1, keepdims=True), 0.0)
    return speeds, runs


def _prefer_running_tasks(entries: Entries, runs: NDArray[np.bool_], counts: NDArray[np.bool_]) -> Entries:
    """Value each waiting task below the sum of all others: running one more task outweighs all other gains."""
    valid = runs & counts[:, None]
    most = float(np.abs(entries).max(axis=1, where=valid, initial=0.0).sum())
    return np.where(counts[:, None], np.where(valid, entries, -1.0 - 2.0 * most), 0.0)


completion = TableObjective("completion", partial(with_entries, negative_times_to_end), capabilities=WORK_LEFT)
proportional = TableObjective("proportional", partial(with_entries, log_relative_speeds))
cost = TableObjective("cost", partial(with_entries, samples_per_price))
