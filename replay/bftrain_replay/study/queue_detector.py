"""QueueDetector: whether the queue of a cluster grows without bound.

It does if all of these conditions apply since the queue was empty last:

- at least 100 tasks arrived, and the period is ten times the mean minimum duration of a task;
- the arrived work takes the whole cluster longer than the period, even minus three standard deviations of the sum (for
  random arrivals with these sizes), by a bound for any policy (:func:`costs`);
- more tasks wait now than after three quarters of the period, then than after half, then than after a quarter.

For :func:`costs` a node-second of each kind gets a price, normalised to 1 per second of the whole cluster. A task costs
no less than its work on its cheapest choice, at its best speed per node. One second pays for a cost of 1, so a set of
tasks takes its total cost in seconds or longer. The bound applies to rigid and elastic tasks and to any division of
nodes and time. The linear programme chooses the prices with the largest bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.values.task import TaskSpec
from bftrain_replay.simulation.engine import QueueWatcher
from bftrain_solvers.sharing.linear import LinearRows, maximise

Floats = NDArray[np.float64]


def best_per_node(spec: TaskSpec, nodes: Mapping[str, int]) -> tuple[float, ...]:
    """Return by kind the largest speed per node at the task's sizes there, 0 where it cannot run."""
    found = []
    for kind, count in nodes.items():
        curve, most = spec.curve_on(kind), min(spec.max_nodes, count)
        if curve is None or spec.min_nodes > most:
            found.append(0.0)
        else:
            sizes = np.arange(spec.min_nodes, most + 1)
            found.append(float((curve.speeds(most)[spec.min_nodes :] / sizes).max()))
    return tuple(found)


def costs(tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> Floats:
    """Return each task's minimum in seconds of the whole cluster; infinite for endless or impossible tasks."""
    rates: dict[object, int] = {}
    rows: list[tuple[float, ...]] = []
    known: dict[object, tuple[float, ...]] = {}
    place = np.empty(len(tasks), dtype=np.int64)
    for number, spec in enumerate(tasks):
        key = (spec.curve, spec.min_nodes, spec.max_nodes, *spec.curves.items())
        if key not in known:
            known[key] = best_per_node(spec, nodes)
        rate = known[key]
        if rate not in rates:
            rates[rate] = len(rows)
            rows.append(rate)
        place[number] = rates[rate]
    work = np.array([np.inf if spec.work_samples is None else spec.work_samples for spec in tasks])
    table = np.array(rows).reshape(len(rows), len(nodes))
    best = table.max(axis=1, initial=0.0)
    able = (best > 0.0)[place]
    finite = able & np.isfinite(work)
    weights = work[finite] / best[place[finite]]
    sums: Floats = np.bincount(place[finite], weights, minlength=len(rows)).astype(np.float64)
    counts = np.array([float(count) for count in nodes.values()])
    price = _prices(table / np.where(best > 0.0, best, 1.0)[:, None], sums, counts)
    with np.errstate(divide="ignore"):
        each = np.where(table > 0.0, price / np.where(table > 0.0, table, 1.0), np.inf).min(axis=1, initial=np.inf)
    found: Floats = np.where(able, work, np.inf) * np.where(able, each[place], 1.0)
    return found


def _prices(table: Floats, work: Floats, counts: Floats) -> Floats:
    """Return the prices of a node-second by kind: the dual of the shortest time for all the work.

    ``table`` has the speed per node by class and kind as a part of the best, ``work`` its node-seconds on the best.
    """
    used = np.flatnonzero(work > 0.0)
    even: Floats = np.full(counts.size, 1.0 / counts.sum())
    if counts.size == 1 or not used.size:
        return even
    table, work = table[used], work[used] / work.sum()
    classes, kinds = np.nonzero(table > 0.0)
    pairs = np.arange(classes.size)
    budget = np.full(counts.size, pairs.size)
    rows = LinearRows(
        data=(table[classes, kinds], -np.ones(pairs.size), counts),
        row=(pairs, pairs, budget),
        column=(classes, used.size + kinds, used.size + np.arange(counts.size)),
        limits=np.append(np.zeros(pairs.size), 1.0),
    )
    found = maximise(np.append(work, np.zeros(counts.size)), rows)
    if found.columns is None:
        raise BadInput(f"the bound was not found: {found.words}", where="cluster")
    price = np.maximum(found.columns[used.size :], 0.0)
    whole = float(price @ counts)
    # Solvers are exact only to a tolerance; any prices scaled to 1 per cluster second give a valid bound
    return price / whole if whole > 0.0 else even


FEWEST: Final = 100  # arrivals
LONG: Final = 10.0  # multiple of the mean minimum duration of a task
DEVIATIONS: Final = 3.0
_QUARTERS: Final = (0.25, 0.5, 0.75)


class QueueDetector(QueueWatcher):
    """Detects a queue that grows without bound."""

    __slots__ = ("_cost", "_costs", "_empty_s", "_squares", "_times", "_waiting")

    def __init__(self, nodes: Mapping[str, int], tasks: Sequence[TaskSpec]) -> None:
        self._costs = dict(zip((spec.name for spec in tasks), costs(tasks, nodes).tolist(), strict=True))
        self._begin(0.0)

    def _begin(self, now_s: float) -> None:
        self._empty_s = now_s
        self._cost = self._squares = 0.0
        self._times: list[float] = []
        self._waiting: list[int] = []

    def arrived(self, spec: TaskSpec, now_s: float) -> None:
        """Record an arrival, and whether the queue was empty before it."""
        if self._waiting and self._waiting[-1] == 0:
            self._begin(now_s)
        cost = self._costs[spec.name]
        self._cost += cost
        self._squares += cost * cost
        self._times.append(now_s)
        self._waiting.append(self._waiting[-1] if self._waiting else 0)

    def overloaded(self, now_s: float, waiting: int) -> bool:
        """Return whether the queue grows without bound; ``waiting`` tasks are without nodes now."""
        self._waiting[-1] = waiting
        count, lasts_s = len(self._times), now_s - self._empty_s
        if count < FEWEST or lasts_s < LONG * self._cost / count:
            return False
        if not self._cost - DEVIATIONS * math.sqrt(self._squares) > lasts_s:
            return False
        earlier = [self._waiting_at(self._empty_s + part * lasts_s) for part in _QUARTERS]
        return all(before < after for before, after in zip(earlier, [*earlier[1:], waiting], strict=True))

    def _waiting_at(self, time_s: float) -> int:
        place = bisect_right(self._times, time_s)
        return self._waiting[place - 1] if place else 0
