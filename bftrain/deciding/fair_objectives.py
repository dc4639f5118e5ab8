"""Fair objectives: each table entry is the benefit of a single task, and the smallest benefit is raised first."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain.deciding.levels import GroupLevels, LevelCoupling, UserGroup
from bftrain.deciding.objectives import Entries, TableObjective, isolated_speeds, speed, speed_of_one, task_field
from bftrain.ports import ObjectiveCapabilities
from bftrain.values.problem import CompetingTask
from bftrain.values.sharing import Entity, Inside
from bftrain.values.table import ValueTable

_TIE: Final = 0.05  # bonus for keeping nodes, as a share of a task's speed: ties favour the holder
_LARGEST: Final = 20_000_000  # numbers computed by the exact count over several kinds; about 20 ms


def raisable(scores: Entries, counts: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the indices of the tasks that count and are better off at some size than without nodes."""
    return tuple(np.flatnonzero(counts & (scores.max(axis=1, initial=-np.inf) > scores[:, 0])).tolist())


def count_waiting(table: ValueTable, scores: Entries, counted: tuple[int, ...]) -> int:
    """Return how many of the ``counted`` tasks must wait because the smallest sizes that raise scores do not all fit.

    Each task needs nodes of one kind. With several kinds, the number may be high in large cases, but never low.
    """
    rows = scores[list(counted)]
    raised = rows > rows[:, :1]
    pools = [table.problem.by_kind[kind] for kind in table.kinds]
    # Fewest nodes that raise a score, by task and kind; pool + 1 if none do
    needs = np.empty((len(counted), len(pools)), dtype=np.int64)
    for number, pool in enumerate(pools):
        here = raised & (table.kind_of == number)
        needs[:, number] = np.where(here, table.nodes, pool + 1).min(axis=1, initial=pool + 1)
    return len(counted) - count_fitting(needs, pools)


def count_fitting(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Return how many tasks can have the nodes they need at the same time."""
    if len(pools) == 1:
        return int(np.searchsorted(np.sort(needs[:, 0]).cumsum(), pools[0], side="right"))
    if prod(count + 1 for count in pools) * max(needs.size, 1) <= _LARGEST:
        return _count_exactly(needs, pools)
    return _count_greedily(needs, pools)


def _count_exactly(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Count exactly, by dynamic programming over the number of free nodes of each kind."""
    most = np.zeros([count + 1 for count in pools], dtype=np.int32)
    for row in needs.tolist():
        before = most.copy()
        for axis, (need, count) in enumerate(zip(row, pools, strict=True)):
            if need <= count:
                ahead, behind = (np.moveaxis(array, axis, 0) for array in (most, before))
                np.maximum(ahead[need:], behind[: count + 1 - need] + 1, out=ahead[need:])
    return int(most.flat[-1])


def _count_greedily(needs: NDArray[np.int64], pools: list[int]) -> int:
    """Count greedily, tasks with the smallest part of a pool first: a lower bound."""
    left = list(pools)
    there = needs <= np.array(pools)
    parts = np.where(there, needs / np.maximum(pools, 1), np.inf)
    placed = 0
    for place in np.lexsort((there.sum(axis=1), parts.min(axis=1, initial=np.inf))).tolist():
        fits = [kind for kind, free in enumerate(left) if there[place, kind] and needs[place, kind] <= free]
        if fits:
            kind = max(fits, key=lambda kind: (left[kind] - needs[place, kind]) / pools[kind])
            left[kind] -= int(needs[place, kind])
            placed += 1
    return placed


Scores = Callable[[ValueTable], tuple[Entries, NDArray[np.bool_]]]


def _nodes(task: CompetingTask, sizes: NDArray[np.int64]) -> Entries:
    return np.where(speed(task, sizes) > 0.0, sizes, 0).astype(np.float64)


def _raise_worst_off(scores_of: Scores, table: ValueTable, *, all_in_turn: bool = False) -> ValueTable:
    """Return the table that raises the worst-off task first; of equal plans it prefers the one with most samples.

    ``scores_of`` computes the benefit of every table entry for its task, and which tasks count.
    With ``all_in_turn``, once the worst-off task cannot be raised, the next task is, and so on. Otherwise the number of
    considered tasks is one more than must wait for lack of nodes: a task without nodes must not make all plans equal.
    """
    benefits, counts = scores_of(table)
    scores = np.where(np.isfinite(table.values), benefits, -np.inf)
    counted = raisable(scores, counts)
    first = None if all_in_turn else count_waiting(table, scores, counted) + 1
    coupling = LevelCoupling(counted=counted, spare=_spare(table), first=first)
    return ValueTable(problem=table.problem, values=scores, coupling=coupling)


def _raise_worst_off_user(table: ValueTable) -> ValueTable:
    """Return the table by which users share by weight, and each divides their nodes: evenly by weight, or in order.

    The benefit of a user is the service of their tasks, past and over the horizon, in seconds of an equal share.
    """
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
    coupling = GroupLevels(groups=groups, spare=_spare(table), one_kind=len(problem.by_kind) == 1)
    return ValueTable(problem=problem, values=scores, coupling=coupling)


def _lowered(table: ValueTable, entries: Entries, by: Callable[[NDArray[np.int64], Entries], Entries]) -> Entries:
    """Return ``entries``, lowered where a task that holds nodes and takes turns would lose all its nodes.

    ``by`` returns the reduction of each such task, from their indices and their objective per second at present.
    """
    held = table.columns.present(table.problem.tasks)
    rows = np.flatnonzero((task_field(table, "turn_s") > 0.0) & (held < len(table.columns)))
    if not rows.size:
        return entries
    rates = table.values[rows, held[rows]] / table.problem.horizon_s
    keeps_nodes = table.kind_of == table.kind_of[held[rows]][:, None]
    found = entries.copy()
    found[rows] -= np.where(keeps_nodes, 0.0, by(rows, np.where(np.isfinite(rates), rates, 0.0))[:, None])
    return found


def _less_turns(table: ValueTable) -> Entries:
    """Return the table's values, lowered by one turn of work where a task would lose all its nodes.

    So a task keeps some nodes until another task is worse off by more than a turn. A turn is longer than a start:
    tasks do not displace each other while they start.
    """
    return _lowered(table, table.values, lambda rows, rates: task_field(table, "turn_s")[rows] * rates)


def _kept_in_turn(table: ValueTable, entries: Entries) -> Entries:
    """Return ``entries`` (0 for no nodes), lowered where a task would lose its nodes during its turn."""
    in_turn = task_field(table, "tenure_s") < task_field(table, "turn_s")
    return _lowered(table, entries, lambda rows, _: (in_turn * entries.max(axis=1, initial=0.0))[rows])


def _spare(table: ValueTable) -> Entries:
    """Return the values per second, which decide between plans with equal levels: less for a task that stops."""
    return _lowered(table, table.values / table.problem.horizon_s, lambda _, rates: _TIE * rates)


def _service(table: ValueTable, weights: Entries) -> tuple[Entries, NDArray[np.bool_]]:
    """Return the work done so far and over the horizon, in seconds of an equal share, by weight."""
    per = isolated_speeds(table) * weights
    counts = (per > 0.0) & (task_field(table, "weight") > 0.0)
    per = np.where(counts, per, 1.0)
    entries = (task_field(table, "done_samples")[:, None] + _less_turns(table)) / per[:, None]
    return entries, counts


def service(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return ``(done + h thr) / (w E)``: service so far and over the horizon, in seconds of the equal share."""
    return _service(table, task_field(table, "weight"))


def node_time(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return ``(held + h N) / w``: past and future node-seconds over the horizon, by weight, at valid sizes."""
    weights = task_field(table, "weight")
    held = task_field(table, "held_node_s")
    entries = (held[:, None] + _less_turns(table)) / np.where(weights > 0.0, weights, 1.0)[:, None]
    return entries, weights > 0.0


def speedup(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return ``h thr / (w thr(1 node))``: the multiple of the speed on one node over the horizon, by weight."""
    alone = np.array([speed_of_one(task) for task in table.problem.tasks])
    weights = task_field(table, "weight")
    entries = table.values / (alone * np.where(weights > 0.0, weights, 1.0))[:, None]
    return _kept_in_turn(table, entries), weights > 0.0


def on_time(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return ``w / rho``, rho being (age + work / thr) / (done / E + work / E), E the speed on an equal share.

    A task with unknown remaining work counts as endless: then ``1 / rho`` is thr / E.
    """
    isolated = isolated_speeds(table)
    done, weights = task_field(table, "done_samples"), task_field(table, "weight")
    counts = (isolated > 0.0) & (weights > 0.0)
    isolated = np.where(counts, isolated, 1.0)
    work = task_field(table, "work_left_samples")
    known = work > 0.0
    age = task_field(table, "age_s")
    thr = _speeds(table)
    alone_s = (done + work) / isolated
    will_take = age[:, None] * thr + np.where(known, work, 1.0)[:, None]
    entries = np.where(known[:, None], alone_s[:, None] * thr / will_take, thr / isolated[:, None])
    return _kept_in_turn(table, entries * weights[:, None]), counts


def pace(table: ValueTable) -> tuple[Entries, NDArray[np.bool_]]:
    """Return ``thr / work``, the inverse time to completion. Tasks of unknown length or weight 0 do not count."""
    work = task_field(table, "work_left_samples")
    entries = _speeds(table) / np.where(work > 0.0, work, 1.0)[:, None]
    return _kept_in_turn(table, entries), (work > 0.0) & (task_field(table, "weight") > 0.0)


def _speeds(table: ValueTable) -> Entries:
    """Return samples/s over the horizon, minus rescaling costs; 0 if these exceed the gain."""
    return np.maximum(np.where(np.isfinite(table.values), table.values, 0.0), 0.0) / table.problem.horizon_s


_BY_HISTORY = ObjectiveCapabilities(level_coupling=True, uses_history=True, uses_work_left=False)
_BY_WORK = ObjectiveCapabilities(level_coupling=True)

max_min = TableObjective("max-min", partial(_raise_worst_off, service), capabilities=_BY_HISTORY)
max_min_plain = TableObjective("max-min-plain", partial(_raise_worst_off, node_time), _nodes, _BY_HISTORY)
water_filling = TableObjective(
    "water-filling", partial(_raise_worst_off, service, all_in_turn=True), capabilities=_BY_HISTORY
)
finish_time = TableObjective(
    "finish-time", partial(_raise_worst_off, on_time), capabilities=replace(_BY_WORK, uses_history=True)
)
max_min_now = TableObjective(
    "max-min-now", partial(_raise_worst_off, speedup), capabilities=replace(_BY_WORK, uses_work_left=False)
)
makespan = TableObjective("makespan", partial(_raise_worst_off, pace), capabilities=_BY_WORK)
hierarchical = TableObjective("hierarchical", _raise_worst_off_user, capabilities=_BY_HISTORY)
