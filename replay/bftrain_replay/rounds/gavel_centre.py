"""The middle of the shares that are fast enough for finish-time fairness, as Gavel's solver finds it.

Gavel bounds each task's remaining time, the inverse of its speed, by second-order cones. The middle maximises the sum
of the logarithms of all slacks: of shares, of each task's time, of each kind's nodes, and of each task's cone and
bound. The last two add up to ``2 log(speed - least) - log(speed)``. Newton's method finds this middle; the Hessian is a
block for each task and a rank-one term for each kind, so a step takes time linear in the tasks.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain_replay.rounds.round_inputs import Floats
from bftrain_solvers.knapsack.compiled_knapsack import call_compiled
from bftrain_solvers.sharing.rising import ShareDemands

_SLACK: Final = 1e-4  # a part of its speed that a task may lose: the set of the best shares may have no inside
_MOST_STEPS: Final = 500
_CLOSE: Final = 1e-9  # tolerance of the Newton decrement
_DIGITS: Final = 9  # digits of a task's required speed, relative to its largest speed
_LONGEST: Final = 0.95  # maximum step, as a fraction of the distance to the border
_LOOKS: Final = 4  # steps of the search for the length of a step
_QUICK: Final = 0.25  # below this decrement whole steps converge quadratically


def central_shares(market: ShareDemands, shares: Floats, needed: Floats) -> Floats:
    """Return the middle of the shares at which no task is slower than ``needed``, near the given ``shares``.

    Tasks with equal speeds, nodes and needs have equal shares there, so each group of such tasks is one row.
    """
    speeds, nodes, counts = market.speeds, market.nodes, market.counts
    reached = np.minimum(needed, (speeds * shares).sum(axis=1))
    keys = np.column_stack((speeds, nodes, np.round(reached / speeds.max(axis=1), _DIGITS)))
    _, first, group, counted = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    many, group = counted.astype(np.float64), group.ravel()
    means = np.column_stack([np.bincount(group, column) for column in shares.T]) / many[:, None]
    rows = _Rows(speeds[first], speeds[first] > 0.0, nodes[first], many)
    inside = _SLACK / 4.0 * min(1.0 / counts.size, float(counts.min() / nodes.sum()))
    start = np.where(rows.able, (1.0 - _SLACK / 2.0) * means + inside, 1.0)
    middle: Floats = (_middle(rows, start, counts, (1.0 - _SLACK) * reached[first]) * rows.able)[group]
    return middle


class _Rows(NamedTuple):
    """Groups of equal tasks: speeds by kind, where they are able to run, their nodes, and how many they are."""

    table: Floats
    able: NDArray[np.bool_]
    nodes: Floats
    many: Floats


def _middle(rows: _Rows, found: Floats, counts: Floats, least: Floats) -> Floats:
    """Move to the middle by Newton's method; every step stays inside."""
    size, kinds = rows.table.shape
    room = np.empty(size * (kinds * (kinds + 6) + 12) + kinds * (kinds + 6))
    middle = found.copy()
    given = (rows.table, rows.nodes, rows.many, counts, least, room, middle)
    return (
        middle if call_compiled("bftrain_middle", (size, kinds), given) else _numpy_middle(rows, found, counts, least)
    )


def _numpy_middle(rows: _Rows, found: Floats, counts: Floats, least: Floats) -> Floats:
    table, able, many = rows.table, rows.able, rows.many[:, None]
    one, wide, unit = able.astype(np.float64), np.where(able, rows.nodes[:, None], 0.0), np.eye(counts.size)
    ones, tables = one[:, :, None] * one[:, None, :], table[:, :, None] * table[:, None, :]
    weights = np.concatenate((np.broadcast_to(many, able.shape)[able], *(rows.many * part for part in (1, 2, -1))))
    weights = np.concatenate((weights, np.ones(counts.size)))
    for _ in range(_MOST_STEPS):
        rest, speed = 1.0 - (one * found).sum(axis=1), (table * found).sum(axis=1)
        over, room = speed - least, counts - (many * wide * found).sum(axis=0)
        slope = 1.0 / found - wide / room + table * (2.0 / over - 1.0 / speed)[:, None] - 1.0 / rest[:, None]
        block = unit * (1.0 / found**2)[:, None, :] + ones * (1.0 / rest**2)[:, None, None]
        block += tables * (2.0 / over**2 - 1.0 / speed**2)[:, None, None]
        inverse = np.linalg.inv(block)
        slope *= one
        own = (inverse @ slope[:, :, None])[:, :, 0]
        shared = np.diag(room**2) + np.einsum("jk,jkl,jl->kl", many * wide, inverse, wide)
        price = np.linalg.solve(shared, (many * wide * own).sum(axis=0))
        step = one * (own - (inverse @ (wide * price)[:, :, None])[:, :, 0])
        decrement = sqrt(max(0.0, float((many * slope * step).sum())))
        faster = (table * step).sum(axis=1)
        parts = ((step / found)[able], -(one * step).sum(axis=1) / rest, faster / over, faster / speed)
        changes = np.concatenate((*parts, -(many * wide * step).sum(axis=0) / room))
        found = found + step * (1.0 if decrement < _QUICK else _length(changes, weights))
        if decrement <= _CLOSE:
            break
    return found


def _length(changes: Floats, weights: Floats) -> float:
    """Return the step length with the largest sum of logs; ``changes`` are the relative changes of the slacks."""
    farthest = _LONGEST / max(1e-12, -float(changes.min()))
    length = min(1.0, farthest)
    for _ in range(_LOOKS):
        parts = changes / (1.0 + length * changes)
        rise, bend = float(weights @ parts), float(weights @ (parts * parts))
        length = min(farthest, max(0.1 * length, length + rise / bend))
    return length
