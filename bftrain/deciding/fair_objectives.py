"""Fair objectives: each entry of the table is the benefit of one task, and the smallest benefit is raised first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.equal_share_speed import isolated_speed
from bftrain.deciding.levels import GroupLevels, LevelCoupling, UserGroup
from bftrain.deciding.objectives import speed
from bftrain.deciding.unservable_tasks import raisable, waiting
from bftrain.values.capabilities import ObjectiveCapabilities
from bftrain.values.problem import CompetingTask
from bftrain.values.sharing import Entity, Inside
from bftrain.values.table import ValueTable

Entries = NDArray[np.float64]
Scores = Callable[[ValueTable], tuple[Entries, NDArray[np.bool_]]]


def _nodes(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    """Node-seconds a second; none at sizes at which the task does not run: idle nodes serve no task."""
    return np.where(speed(task, sizes) > 0.0, sizes, 0).astype(np.float64)


_BY_HISTORY = ObjectiveCapabilities(level_coupling=True, uses_history=True, uses_work_left=False)


@dataclass(frozen=True, slots=True)
class FairObjective:
    """Raise the worst-off first, and of plans that leave the worst-off alike take the one with most samples.

    ``scores`` gives how well off every task is at every entry of a table of ``values``, and which tasks count.
    ``all_in_turn``: once the worst-off cannot be raised, the next one is, and so on. Else only as many are looked at
    as must wait for lack of nodes, and one more: so that a task that gets nothing does not make all plans alike.
    """

    name: str
    scores: Scores
    all_in_turn: bool = False
    per_second: Callable[[CompetingTask, NDArray[np.int64]], Entries] = speed
    capabilities: ObjectiveCapabilities = _BY_HISTORY

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Say what a task does a second, alone."""
        return self.per_second(task, sizes)

    def recast(self, table: ValueTable) -> ValueTable:
        """Give the table that is solved: how well off every task is, and that the worst-off come first."""
        scores, counts = self.scores(table)
        counted = raisable(scores, counts)
        first = None if self.all_in_turn else waiting(table, scores, counted) + 1
        coupling = LevelCoupling(counted=counted, spare=table.values / table.problem.horizon_s, first=first)
        return ValueTable(problem=table.problem, values=scores, coupling=coupling)


@dataclass(frozen=True, slots=True)
class HierarchicalObjective:
    """Users share by their weights, and each divides their nodes over their tasks: evenly by weight, or in order.

    How well off a user is: the service that their tasks had and get over the horizon, in seconds of an equal share.
    """

    name: str
    capabilities: ObjectiveCapabilities = _BY_HISTORY

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
        """Samples per second."""
        return speed(task, sizes)

    def recast(self, table: ValueTable) -> ValueTable:
        """Give the table that is solved: the service of every user, and which user has which tasks."""
        problem = table.problem
        scores, counts = _service(table, np.ones(len(problem.tasks)))
        of_user: dict[str, list[int]] = {}
        for place in raisable(scores, counts):
            of_user.setdefault(problem.tasks[place].user, []).append(place)
        plain = Entity()
        groups = tuple(
            UserGroup(
                name=user,
                places=tuple(places),
                weights=tuple(problem.tasks[place].weight for place in places),
                weight=problem.entities.get(user, plain).weight,
                fifo=problem.entities.get(user, plain).inside is Inside.FIFO,
            )
            for user, places in of_user.items()
        )
        coupling = GroupLevels(
            groups=groups, spare=table.values / problem.horizon_s, one_kind=len(problem.by_kind) == 1
        )
        return ValueTable(problem=problem, values=scores, coupling=coupling)


def _finite(scores: Entries, allowed: NDArray[np.bool_]) -> Entries:
    return np.where(allowed, scores, -np.inf)


def _weights(table: ValueTable) -> Entries:
    return np.array([task.weight for task in table.problem.tasks], dtype=np.float64)


def _isolated(table: ValueTable) -> Entries:
    problem = table.problem
    by_kind, count = problem.by_kind, len(problem.tasks)
    return np.array([isolated_speed(task, by_kind, count) for task in problem.tasks], dtype=np.float64)


def _done(table: ValueTable) -> Entries:
    return np.array([task.done_samples for task in table.problem.tasks], dtype=np.float64)


def _service(table: ValueTable, weights: Entries) -> tuple[Entries, NDArray[np.bool_]]:
    """Work done and done over the horizon, over the speed on an equal share: seconds of equal share, by weight."""
    per = _isolated(table) * weights
    counts = (per > 0.0) & (_weights(table) > 0.0)
    per = np.where(counts, per, 1.0)
    entries = (_done(table)[:, None] + table.values) / per[:, None]
    return _finite(entries, np.isfinite(table.values)), counts


def service(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """``(A + h thr / E) / w``: service had and to be had over the horizon, in seconds of the equal share, by weight."""
    return _service(table, _weights(table))


def node_time(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """``(held + h N) / w``: node-seconds had and to be had over the horizon, by weight, at sizes at which it runs."""
    weights = _weights(table)
    held = np.array([task.held_node_s for task in table.problem.tasks], dtype=np.float64)
    entries = (held[:, None] + table.values) / np.where(weights > 0.0, weights, 1.0)[:, None]
    return _finite(entries, np.isfinite(table.values)), weights > 0.0


def on_time(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """``w / rho``, rho being (age + work / thr) / (done / E + work / E), E the speed on an n-th part of the nodes.

    A task whose work left is not known is taken to go on for ever: then ``1 / rho`` is thr / E.
    """
    isolated, done, weights = _isolated(table), _done(table), _weights(table)
    counts = (isolated > 0.0) & (weights > 0.0)
    isolated = np.where(counts, isolated, 1.0)
    work = np.array([task.work_left_samples or 0.0 for task in table.problem.tasks], dtype=np.float64)
    known = work > 0.0
    age = np.array([task.age_s for task in table.problem.tasks], dtype=np.float64)
    thr = _speeds(table)
    alone_s = (done + work) / isolated
    will_take = age[:, None] * thr + np.where(known, work, 1.0)[:, None]
    entries = np.where(known[:, None], alone_s[:, None] * thr / will_take, thr / isolated[:, None])
    return _finite(entries * weights[:, None], np.isfinite(table.values)), counts


def pace(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """``thr / work``: one over the time to the end. Tasks that have no known end, or weight 0, do not count."""
    work = np.array([task.work_left_samples or 0.0 for task in table.problem.tasks], dtype=np.float64)
    entries = _speeds(table) / np.where(work > 0.0, work, 1.0)[:, None]
    return _finite(entries, np.isfinite(table.values)), (work > 0.0) & (_weights(table) > 0.0)


def _speeds(table: ValueTable) -> Entries:
    """Samples/s over the horizon, costs of rescaling taken off; 0 where these eat all."""
    return np.maximum(np.where(np.isfinite(table.values), table.values, 0.0), 0.0) / table.problem.horizon_s


max_min = FairObjective("max-min", service)
max_min_plain = FairObjective("max-min-plain", node_time, per_second=_nodes)
water_filling = FairObjective("water-filling", service, all_in_turn=True)
finish_time = FairObjective(
    "finish-time", on_time, capabilities=ObjectiveCapabilities(level_coupling=True, uses_history=True)
)
makespan = FairObjective("makespan", pace, capabilities=ObjectiveCapabilities(level_coupling=True))
hierarchical = HierarchicalObjective("hierarchical")
