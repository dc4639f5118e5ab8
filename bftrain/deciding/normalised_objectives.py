"""Objectives whose entries depend on all tasks, but which are sums: any solver finds the best sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.equal_share_speed import isolated_speed
from bftrain.deciding.objectives import speed
from bftrain.values.capabilities import SPEED_ALONE, WORK_LEFT, ObjectiveCapabilities
from bftrain.values.problem import CompetingTask
from bftrain.values.table import ValueTable

Entries = NDArray[np.float64]

# A size at which a task would take so many times as long as at its best one counts as none: beside such times the
# others' would drown in rounding
_TOO_SLOW: Final = 1e-6


@dataclass(frozen=True, slots=True)
class NormalisedObjective:
    """Samples per second and what ``reckon`` makes of a whole table of them."""

    name: str
    reckon: Callable[[ValueTable], Entries]
    capabilities: ObjectiveCapabilities = SPEED_ALONE

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Samples per second."""
        return speed(task, sizes)

    def recast(self, table: ValueTable) -> ValueTable:
        """Give the table that is solved."""
        if not table.problem.tasks:
            return table
        allowed = np.isfinite(table.values)
        return ValueTable(problem=table.problem, values=np.where(allowed, self.reckon(table), -np.inf))


def times(table: ValueTable) -> Entries:
    """Minus the weighted sum of times to the end; a task that gets nothing ends after all others.

    How old tasks are is the same in every plan, and left out. A task that has no known end does not count, nor does one
    that runs at no size.
    """
    tasks = table.problem.tasks
    work = np.array([task.work_left_samples or 0.0 for task in tasks], dtype=np.float64)
    weights = np.array([task.weight for task in tasks], dtype=np.float64)
    speeds, runs = _running(table)
    counts = (work > 0.0) & (weights > 0.0) & runs.any(axis=1)
    ends = work[:, None] / np.where(runs, speeds, 1.0)
    return _with_all_who_can(-weights[:, None] * ends, runs, counts)


def logarithms(table: ValueTable) -> Entries:
    """Weighted sum of ``log(thr / E)``; first as many tasks as possible run. Weight 0 does not count."""
    problem = table.problem
    by_kind, count = problem.by_kind, len(problem.tasks)
    isolated = np.array([isolated_speed(task, by_kind, count) for task in problem.tasks], dtype=np.float64)
    weights = np.array([task.weight for task in problem.tasks], dtype=np.float64)
    speeds, runs = _running(table)
    counts = (weights > 0.0) & (isolated > 0.0) & runs.any(axis=1)
    relative = np.where(runs & counts[:, None], speeds, 1.0) / np.where(counts, isolated, 1.0)[:, None]
    return _with_all_who_can(weights[:, None] * np.log(relative), runs, counts)


def bought(table: ValueTable) -> Entries:
    """Weighted samples over the price of a node of the kind they are done on."""
    problem = table.problem
    weights = np.array([task.weight for task in problem.tasks], dtype=np.float64)
    return np.where(np.isfinite(table.values), table.values, 0.0) * weights[:, None] / _prices(table)


def _prices(table: ValueTable) -> Entries:
    problem = table.problem
    kinds = list(problem.by_kind)
    price = np.array([problem.prices.get(kind, 1.0) for kind in kinds], dtype=np.float64)
    if len(kinds) == 1:
        return np.full(table.values.shape[1], price[0])
    return price[np.maximum(table.kind_of, 0)]


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


completion = NormalisedObjective("completion", times, WORK_LEFT)
proportional = NormalisedObjective("proportional", logarithms)
cost = NormalisedObjective("cost", bought)
