"""Shares of time as Gavel's interior-point solver returns them: the middle of the optimal shares, not a vertex.

The middle is the analytic centre, where the sum of the logarithms of all slacks is largest: of shares, of each task's
time, of each kind's nodes, and of each task's speed above what it needs. For the makespan Gavel asks for any shares
that are fast enough; there such a solver ends near its start, which has the smallest squares of the slacks, so half the
sum of squares is subtracted. Newton's method finds both. The Hessian is a block for each task and a rank-one term for
each kind, so a step costs time linear in the tasks.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np

from bftrain_replay.rounds.round_inputs import Floats

_OPTIMAL: Final = 1e-4  # a part of its speed that a task may lose: the set of the best shares may have no inside
_MAKESPAN: Final = 0.025  # Gavel's bisection of the makespan ends when its bounds are 5 % apart
_AS_THEY_ARE: Final = frozenset({"isolated", "allox", "gandiva"})
_MOST_STEPS: Final = 500
_CLOSE: Final = 1e-9  # of the Newton decrement
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
    if policy != "finish-time":
        needed = (speeds * shares).sum(axis=1)
    return central_shares(shares, speeds, nodes, counts, needed, slack=_OPTIMAL)


def central_shares(
    shares: Floats, speeds: Floats, nodes: Floats, counts: Floats, needed: Floats, *, slack: float, squares: float = 0.0
) -> Floats:
    """Return the centre of the shares at which no task is slower than ``needed`` by more than a part ``slack``."""
    able = (speeds > 0.0) & (nodes[:, None] <= counts)
    table, one, wide = np.where(able, speeds, 0.0), able.astype(np.float64), np.where(able, nodes[:, None], 0.0)
    counts = np.where(counts > 0.0, counts, 1.0)  # no task is able to run on a kind without nodes
    least = (1.0 - slack) * np.minimum(needed, (table * shares).sum(axis=1))
    inside = slack / 4.0 * min(1.0 / counts.size, float(counts.min() / nodes.sum()))
    found, unit = np.where(able, (1.0 - slack / 2.0) * shares + inside, 1.0), np.eye(counts.size)
    for _ in range(_MOST_STEPS):
        rest, over = 1.0 - (one * found).sum(axis=1), (table * found).sum(axis=1) - least
        room = counts - (wide * found).sum(axis=0)
        slope = 1.0 / found - squares * found - wide * (1.0 / room - squares * room)
        slope += table * (1.0 / over - squares * over)[:, None] - (1.0 / rest - squares * rest)[:, None]
        block = unit * (1.0 / found**2 + squares)[:, None, :]
        for row, left in ((one, rest), (table, over)):
            block += row[:, :, None] * row[:, None, :] * (1.0 / left**2 + squares)[:, None, None]
        inverse = np.linalg.inv(block)
        slope *= one
        own = (inverse @ slope[:, :, None])[:, :, 0]
        shared = np.diag(1.0 / (1.0 / room**2 + squares)) + np.einsum("jk,jkl,jl->kl", wide, inverse, wide)
        price = np.linalg.solve(shared, (wide * own).sum(axis=0))
        step = one * (own - (inverse @ (wide * price)[:, :, None])[:, :, 0])
        decrement = sqrt(max(0.0, float((slope * step).sum())))
        found = found + step / (1.0 if decrement < _QUICK else 1.0 + decrement)
        if decrement <= _CLOSE:
            break
    return found * one
