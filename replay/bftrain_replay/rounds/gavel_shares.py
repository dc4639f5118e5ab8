"""Shares of time as Gavel's interior-point solver returns them: the middle of the optimal shares, not a vertex.

The middle is the analytic centre, where the sum of the logarithms of all slacks is largest: of shares, of each task's
time, of each kind's nodes, and of each task's speed above what it needs. For the makespan Gavel asks for any shares
that are fast enough; there such a solver ends near its start, which has the smallest squares of the slacks, so half the
sum of squares is subtracted. Newton's method finds both. The Hessian is a block for each task and a rank-one term for
each kind, so a step costs time linear in the tasks.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain_replay.rounds.round_inputs import Floats
from bftrain_solvers.sharing.rising import ShareDemands, rise

_OPTIMAL: Final = 1e-4  # a part of its speed that a task may lose: the set of the best shares may have no inside
DIRECT: Final = frozenset({"max-min", "max-min-blind"})  # policies whose shares are found without their own solver
_MAKESPAN: Final = 0.025  # Gavel's bisection of the makespan ends when its bounds are 5 % apart
_AS_THEY_ARE: Final = frozenset({"isolated", "allox", "gandiva"})
_MOST_STEPS: Final = 500
_CLOSE: Final = 1e-9  # of the Newton decrement
_DIGITS: Final = 9  # of a speed that a task needs, as a part of its largest one
_LONGEST: Final = 0.95  # of the way to the border, at most
_LOOKS: Final = 4  # steps of the search for the length of a step
_QUICK: Final = 0.25  # below this decrement whole steps converge quadratically


def shares_like_gavel(
    policy: str, shares: Floats, speeds: Floats, nodes: Floats, counts: Floats, needed: Floats
) -> Floats:
    """Return the shares of a policy as Gavel's solver finds them, where it uses such a solver.

    ``shares`` and ``speeds`` are by task and kind, ``nodes`` by task, ``counts`` by kind; where a speed is 0, so is the
    share. ``needed`` is the speed that each task needs: all that makespan and finish time ask for.
    """
    if policy in _AS_THEY_ARE or policy.endswith("-packed"):
        return shares
    if policy == "makespan":
        return central_shares(shares, speeds, nodes, counts, needed, slack=_MAKESPAN, squares=1.0)
    if policy == "max-min-blind":
        speeds = (speeds > 0.0).astype(np.float64)
    if not policy.startswith("finish-time"):
        needed = (speeds * shares).sum(axis=1)
    return central_shares(shares, speeds, nodes, counts, needed, slack=_OPTIMAL)


def max_min_shares(policy: str, speeds: Floats, nodes: Floats, weights: Floats, counts: Floats) -> Floats:
    """Return the shares of ``max-min`` or ``max-min-blind`` as Gavel's solver finds them."""
    able = (speeds > 0.0) & (nodes[:, None] <= counts)
    seen = able.astype(np.float64) if policy == "max-min-blind" else np.where(able, speeds, 0.0)
    rate = weights * (1.0 if policy == "max-min-blind" else seen @ counts / counts.sum()) / nodes
    shares = rise(ShareDemands(seen, nodes, counts), np.zeros(nodes.size), rate).shares
    return central_shares(shares, seen, nodes, counts, (seen * shares).sum(axis=1), slack=_OPTIMAL)


def central_shares(
    shares: Floats, speeds: Floats, nodes: Floats, counts: Floats, needed: Floats, *, slack: float, squares: float = 0.0
) -> Floats:
    """Return the centre of the shares at which no task is slower than ``needed`` by more than a part ``slack``.

    Tasks of equal speeds, nodes and needs have equal shares there, so each group of them is one row.
    """
    reached = np.minimum(needed, (np.where(speeds > 0.0, speeds, 0.0) * shares).sum(axis=1))
    keys = np.column_stack((speeds, nodes, np.round(reached / speeds.max(axis=1), _DIGITS)))
    _, first, group, counted = np.unique(keys, axis=0, return_index=True, return_inverse=True, return_counts=True)
    many, group = counted.astype(np.float64), group.ravel()
    means = np.column_stack([np.bincount(group, column) for column in shares.T]) / many[:, None]
    able = (speeds[first] > 0.0) & (nodes[first, None] <= counts)
    rows = _Rows(np.where(able, speeds[first], 0.0), able, nodes[first], many)
    counts = np.where(counts > 0.0, counts, 1.0)  # no task is able to run on a kind without nodes
    inside = slack / 4.0 * min(1.0 / counts.size, float(counts.min() / nodes.sum()))
    start = np.where(able, (1.0 - slack / 2.0) * means + inside, 1.0)
    found = _centre(rows, start, counts, (1.0 - slack) * reached[first], squares)
    centre: Floats = (found * able)[group]
    return centre


class _Rows(NamedTuple):
    """Groups of equal tasks: speeds by kind, where they are able to run, their nodes, and how many they are."""

    table: Floats
    able: NDArray[np.bool_]
    nodes: Floats
    many: Floats


def _centre(rows: _Rows, found: Floats, counts: Floats, least: Floats, squares: float) -> Floats:
    """Move to the centre by Newton's method; every step stays inside."""
    table, able, many = rows.table, rows.able, rows.many[:, None]
    one, wide, unit = able.astype(np.float64), np.where(able, rows.nodes[:, None], 0.0), np.eye(counts.size)
    ones, tables = one[:, :, None] * one[:, None, :], table[:, :, None] * table[:, None, :]
    for _ in range(_MOST_STEPS):
        rest, over = 1.0 - (one * found).sum(axis=1), (table * found).sum(axis=1) - least
        room = counts - (many * wide * found).sum(axis=0)
        slope = 1.0 / found - squares * found - wide * (1.0 / room - squares * room)
        slope += table * (1.0 / over - squares * over)[:, None] - (1.0 / rest - squares * rest)[:, None]
        block = unit * (1.0 / found**2 + squares)[:, None, :]
        block += ones * (1.0 / rest**2 + squares)[:, None, None] + tables * (1.0 / over**2 + squares)[:, None, None]
        inverse = np.linalg.inv(block)
        slope *= one
        own = (inverse @ slope[:, :, None])[:, :, 0]
        shared = np.diag(1.0 / (1.0 / room**2 + squares)) + np.einsum("jk,jkl,jl->kl", many * wide, inverse, wide)
        price = np.linalg.solve(shared, (many * wide * own).sum(axis=0))
        step = one * (own - (inverse @ (wide * price)[:, :, None])[:, :, 0])
        decrement = sqrt(max(0.0, float((many * slope * step).sum())))
        if decrement < _QUICK:
            found = found + step
        else:
            changes = (step / found, -(one * step).sum(axis=1) / rest, (table * step).sum(axis=1) / over)
            of_rooms = -(many * wide * step).sum(axis=0) / room
            parts = np.concatenate((changes[0][able], *changes[1:], of_rooms))
            weights = np.concatenate((np.broadcast_to(many, able.shape)[able], *([rows.many] * 2), np.ones(room.size)))
            found = found + step * _length(parts, weights, squares)
        if decrement <= _CLOSE:
            break
    return found


def _length(changes: Floats, weights: Floats, squares: float) -> float:
    """Return how far to go along a step that changes each slack by these parts of it, to the largest sum of logs."""
    farthest = _LONGEST / max(1e-12, -float(changes.min()))
    if squares:  # the sum of logs is not the whole objective
        return min(1.0, farthest)
    length = min(1.0, farthest)
    for _ in range(_LOOKS):
        parts = changes / (1.0 + length * changes)
        rise, bend = float(weights @ parts), float(weights @ (parts * parts))
        length = min(farthest, max(0.1 * length, length + rise / bend))
    return length
