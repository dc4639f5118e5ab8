"""Compute the rows of a value table for many tasks in a few calls of numpy, as concatenated arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bftrain.deciding.objectives import Entries, OfSpeeds
from bftrain.deciding.table_deadline import Late, in_time
from bftrain.values.curve import SpeedCurve, curve_on
from bftrain.values.curve_axis import CurveAxis, Integers
from bftrain.values.problem import CompetingTask

Layout = tuple[tuple[str, int], ...]  # the largest size on each kind of nodes

_TOGETHER: Final = 2**17  # numbers: intermediate arrays of this size fit into the processor's cache


@dataclass(frozen=True, slots=True)
class RowsOfKind:
    """Rows of one node kind, from size 0 on, and the cost for each task to release its nodes."""

    values: Entries
    leaving: Entries


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """Computes rows over ``horizon_s`` by ``of_speeds``; values above ``most`` are too large."""

    horizon_s: float
    of_speeds: OfSpeeds
    most: float

    def rows(
        self, tasks: Sequence[CompetingTask], curves: Sequence[SpeedCurve], held: Integers, largest: Integers
    ) -> RowsOfKind | None:
        """Compute rows of tasks with ``held`` nodes of a kind and sizes up to ``largest``; larger sizes are -inf.

        Return ``None`` on overflow.
        """
        if not tasks:
            return RowsOfKind(np.zeros((0, 1)), np.zeros(0))
        width = 1 + int(max(largest.max(initial=0), held.max(initial=0)))
        axis = CurveAxis.of(curves, np.full(len(tasks), width))
        if axis is None:
            return None
        size, rows = np.arange(width), np.arange(len(tasks))

        def each(number: Callable[[CompetingTask, SpeedCurve], float]) -> Entries:
            return np.array(list(map(number, tasks, curves)), dtype=np.float64).reshape(-1, 1)

        costs = [(task.grow_cost_s, task.shrink_cost_s, task.start_cost_s, task.min_nodes) for task in tasks]
        grow, shrink, start, fewest = np.array(costs, dtype=np.float64).reshape(-1, 4).T
        with np.errstate(all="ignore"):  # the check below has the better message
            worth = self.of_speeds(axis.speeds(rows[:, None], size), size, each)
            leaving, growing = shrink * worth[rows, held], grow * worth[rows, held]
            value = self.horizon_s * worth
            if start[held == 0].any():
                value[:, 1:] -= np.where(held == 0, start, 0.0)[:, None] * worth[:, 1:]
            if held.any():
                value -= np.where(size < held[:, None], leaving[:, None], 0.0)
                value -= np.where((size > held[:, None]) & (held > 0)[:, None], growing[:, None], 0.0)
        outside = size > largest[:, None]
        if not (np.isfinite(worth).all() and ((np.abs(value) <= self.most) | outside).all()):
            return None
        value[outside] = -np.inf
        if (fewest > 1.0).any():
            value[(size > 0) & (size < fewest[:, None])] = -np.inf
        return RowsOfKind(value, leaving)

    def fill(self, values: Entries, tasks: Sequence[CompetingTask], layout: Layout, *, named: bool) -> bool:
        """Write the rows of ``tasks`` into ``values``; return whether all numbers were small enough.

        ``named`` means that nodes have kinds. Otherwise, a task without speeds by kind runs on all of them.
        """
        sizes, largest = (np.array([getattr(task, field) for task in tasks]) for field in ("size", "max_nodes"))
        holds = [task.kind if named or task.curves else kind for task in tasks for kind, _ in layout[:1]]
        none, leaving, own = np.zeros(len(tasks)), np.zeros(len(tasks)), np.full(len(tasks), -1)
        runs = np.zeros(len(tasks), dtype=np.bool_)
        end = values.shape[1]
        for number, (kind, width) in reversed(list(enumerate(layout))):  # reversed: the first of several kinds wins
            end -= width
            on_kind = (curve_on(task.curve, task.curves, kind) for task in tasks) if width else ()
            seen = {place: curve for place, curve in enumerate(on_kind) if curve is not None}
            rows = np.array(list(seen), dtype=np.int64)
            held = np.where(np.array([holds[place] == kind for place in seen], dtype=np.bool_), sizes[rows], 0)
            most = np.minimum(largest[rows], width)
            found = self.rows([tasks[place] for place in seen], list(seen.values()), held, most)
            if found is None:
                return False
            inside, holding = found.values[:, 1 : width + 1], rows[held > 0]
            values[rows, end : end + inside.shape[1]] = inside
            values[rows, 0] = found.values[:, 0]
            runs[rows] = True
            none[holding], leaving[holding], own[holding] = found.values[held > 0, 0], found.leaving[held > 0], number
        values[own >= 0, 0] = none[own >= 0]
        if len(layout) > 1:  # a task stops before it changes to another kind
            of_column = np.repeat(np.arange(len(layout)), [width for _, width in layout])
            values[:, 1:] -= np.where((own >= 0)[:, None] & (own[:, None] != of_column), leaving[:, None], 0.0)
        rest = [task for task, some in zip(tasks, runs.tolist(), strict=True) if not some]
        found = self.rows(rest, [task.curve for task in rest], sizes[~runs], np.zeros(len(rest), dtype=np.int64))
        if found is None:
            return False
        values[~runs, 0] = found.values[:, 0]
        return True


def table_rows(
    tasks: Sequence[CompetingTask], builder: RowBuilder, layout: Layout, late: Late, *, named: bool
) -> Entries | None:
    """Return the rows of a table of ``layout``; ``None`` on overflow or if a curve is too long."""
    values = np.full((len(tasks), 1 + sum(largest for _, largest in layout)), -np.inf)
    widest = max(largest for _, largest in layout)
    reach = np.array([1 + max(min(task.max_nodes, widest), task.size) for task in tasks])
    order = np.argsort(-reach, kind="stable")  # group tasks with rows of similar length
    start = 0
    while start < order.size:
        in_time(late)
        part = order[start : start + max(1, _TOGETHER // (int(reach[order[start]]) * len(layout)))]
        rows = np.full((part.size, values.shape[1]), -np.inf)
        if not builder.fill(rows, [tasks[place] for place in part.tolist()], layout, named=named):
            return None
        values[part] = rows
        start += part.size
    return values
