"""A lower bound of the time that the whole cluster needs for a task's work under any policy.

A node-second of each kind gets a price, so that a second of all nodes together costs 1. A task then costs at least what
its cheapest way of doing its work costs, at its best speed per node. In one second no more than 1 can be paid, so a
set of tasks takes at least as many seconds as it costs: a bound that holds for rigid and elastic tasks, for any
division of nodes and time. Of all prices those are taken for which this bound is largest: the linear programme's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadInput
from bftrain_solvers.sharing.linear import LinearRows, maximise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bftrain.values.task import TaskSpec

    Floats = NDArray[np.float64]


def best_per_node(spec: TaskSpec, nodes: Mapping[str, int]) -> tuple[float, ...]:
    """Give by kind the largest speed per node at a size that the task can have there, 0 where it cannot run."""
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
    """Seconds of the whole cluster that each task takes at least; infinity if it has no end, or runs nowhere."""
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
    """Give the prices of a node-second by kind: the dual of the shortest time in which all the work could be done.

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
    # Solvers work to tolerances; scaled so that a second of all nodes costs 1, any prices give a bound that holds
    return price / whole if whole > 0.0 else even
