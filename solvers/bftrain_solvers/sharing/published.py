"""Policies beyond linear programming: AlloX's queues, hard deadlines, and strategy-proof shares."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.sharing.policies import ShareColumns, SharingRule, checked_weights, price_of, work_left
from bftrain_solvers.sharing.rising import ProgramNotSolved, ShareDemands
from bftrain_solvers.sharing.sum_of_logs import largest_sum_of_logs

_NOWHERE: Final = 1e6  # cost of a kind that cannot run the task, in multiples of the longest time
_LONGEST_S: Final = 10.0  # limit of the search over deadlines
_SLACK: Final = 1e-9  # relative: keeps the sum of all worth below one deadline


def _allox(columns: ShareColumns) -> tuple[Floats, float]:
    """Assign waiting tasks to places in the queues of free nodes with the least sum of completion times.

    A task also delays its ``i`` followers in a node's queue: its time counts ``i + 1`` times. A gang takes a position
    for its time multiplied by its nodes. The first task of a queue runs until completion.
    """
    kinds = [columns.kinds.index(task.kind) if task.kind in columns.kinds else -1 for task in columns.tasks]
    return allox_shares(columns.market, work_left(columns), np.array(kinds))


def allox_shares(market: ShareDemands, work: Floats, kinds: Integers) -> tuple[Floats, float]:
    """Return AlloX's shares and mean completion time; ``kinds`` are the kinds on which tasks run (-1: none)."""
    runs_on = np.where(market.speeds[np.arange(kinds.size), kinds] > 0.0, kinds, -1)
    shares, free = np.zeros(market.speeds.shape), market.counts.copy()
    for place in np.flatnonzero(runs_on >= 0).tolist():
        if market.nodes[place] <= free[runs_on[place]]:
            shares[place, runs_on[place]] = 1.0
            free[runs_on[place]] -= market.nodes[place]
    waiting = np.flatnonzero(shares.sum(axis=1) == 0.0)
    kind_of = np.repeat(np.arange(free.size), free.astype(np.intp))
    if not waiting.size or not kind_of.size:
        return shares, 0.0
    able = market.speeds[waiting] > 0.0
    times_s = work[waiting, None] * market.nodes[waiting, None] / np.where(able, market.speeds[waiting], 1.0)
    longest_s = float(np.where(able, times_s, 0.0).max())
    times_s = np.where(able, times_s, _NOWHERE * longest_s)
    task, node, behind = _places(times_s, kind_of)
    delays_s = times_s[task, kind_of[node]] * (behind + 1)
    for one in np.lexsort((delays_s, -behind)).tolist():
        place, kind = waiting[task[one]], kind_of[node[one]]
        first = behind[one] == behind[node == node[one]].max()
        if first and able[task[one], kind] and market.nodes[place] <= free[kind]:
            shares[place, kind] = 1.0
            free[kind] -= market.nodes[place]
    return shares, float(delays_s.sum() / waiting.size)


def _places(times_s: Floats, kind_of: Integers) -> tuple[Any, Any, Any]:
    """Return task, node and number of followers of each place in the best assignment of ``times_s[task, kind]``.

    Nodes of a kind are equal, so the lengths of their queues differ by 0 or 1: a task in a longer queue would cost less
    in a shorter queue. Longer queues are not considered.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

    longest = -(-len(times_s) // np.bincount(kind_of)[kind_of])  # queue length by node
    behind, node = np.nonzero(np.arange(longest.max())[:, None] < longest)
    task, place = linear_sum_assignment(times_s[:, kind_of[node]] * (behind + 1))
    return task, node[place], behind[place]


def _strategy_proof(columns: ShareColumns) -> tuple[Floats, float]:
    """Reduce each task's proportional share by the loss that its presence causes for others (partial allocation)."""
    market, weights = columns.market, checked_weights(columns)
    counted = np.flatnonzero(weights > 0.0)
    shares = largest_sum_of_logs(market, weights)
    logs = np.log(columns.speeds(shares)[counted])
    parts = np.ones(weights.size)
    for own, place in enumerate(counted.tolist()):
        others = np.delete(counted, own)
        if others.size:
            rest = ShareDemands(market.speeds[others], market.nodes[others], market.counts)
            without = (rest.speeds * largest_sum_of_logs(rest, weights[others])).sum(axis=1)
            lost = float(weights[others] @ (np.delete(logs, own) - np.log(without)))
            parts[place] = np.exp(min(0.0, lost / weights[place]))
    return shares * parts[:, None], float(parts[counted].min())


def _deadlines(columns: ShareColumns, price: Floats | float = 1.0) -> tuple[Floats, float]:
    """Minimise the missed deadlines, then maximise the weighted samples/s over the ``price`` of their nodes."""
    market, needed = columns.market, needed_speeds(columns)
    worth = columns.weights[:, None] * market.speeds / price
    task, kind = np.nonzero(market.speeds > 0.0)
    alone = np.full(task.size, -1)
    speed, none = market.speeds[task, kind], np.zeros(task.size)
    entries = ShareEntries(task, alone, kind, market.nodes[task], speed, none, worth[task, kind])
    found = fewest_missed(entries, needed, market.counts, columns.notes)
    shares = np.zeros(market.speeds.shape)
    shares[task, kind] = found
    return shares, missed(columns.speeds(shares), needed)


class ShareEntries(NamedTuple):
    """Candidate uses of time on a kind: a task, or a pair of tasks (``other``: -1 for none); speeds and worth."""

    one: Integers
    other: Integers
    kind: Integers
    nodes: Floats
    speed: Floats
    other_speed: Floats
    worth: Floats


def fewest_missed(entries: ShareEntries, needed: Floats, counts: Floats, notes: list[str]) -> Floats:
    """Return the times of ``entries`` with the fewest missed deadlines; ties are broken by the largest worth.

    A task meets its deadline if its speed is at least ``needed``: its work divided by the remaining time.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
    from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import

    due = np.flatnonzero(needed > 0.0)
    count, tasks, kinds = entries.one.size, needed.size, counts.size
    entry, paired = np.arange(count), np.flatnonzero(entries.other >= 0)
    task = np.concatenate((entries.one, entries.other[paired]))
    of_task = np.concatenate((entry, paired))
    speed = np.concatenate((entries.speed, entries.other_speed[paired]))
    row_of = np.full(tasks, -1)
    row_of[due] = tasks + kinds + np.arange(due.size)
    tied = needed[task] > 0.0
    rows = np.concatenate((task, tasks + entries.kind, row_of[task[tied]], row_of[due]))
    column = np.concatenate((of_task, entry, of_task[tied], count + np.arange(due.size)))
    met = speed[tied] / needed[task[tied]]
    data = np.concatenate((np.ones(task.size), entries.nodes, -met, -np.ones(due.size)))
    limits = np.concatenate((np.ones(tasks), counts, -np.ones(due.size)))
    matrix: Any = coo_array((data, (rows, column)), shape=(limits.size, count + due.size)).tocsr()
    most = np.zeros(tasks)
    np.maximum.at(most, entries.one, entries.worth)
    at_most = float(most.sum()) or 1.0
    wanted = np.concatenate((-entries.worth / at_most * (1.0 - _SLACK), np.ones(due.size)))
    whole, upper = np.repeat([0, 1], [count, due.size]), np.ones(wanted.size)
    solve: Any = milp  # its type hints lack sparse matrices
    options = {"time_limit": _LONGEST_S, "mip_rel_gap": 0.0}
    rule = LinearConstraint(matrix, -np.inf, limits)
    found = solve(wanted, integrality=whole, bounds=Bounds(0.0, upper), constraints=rule, options=options)
    if found.x is None:
        raise ProgramNotSolved(str(found.message))
    if found.status != 0:
        notes.append(f"another plan might miss fewer deadlines: the search stopped after {_LONGEST_S:g} s")
    times: Floats = np.maximum(0.0, found.x[:count])
    return times


def missed(speeds: Floats, needed: Floats) -> float:
    """Count the deadlines that speeds miss."""
    return float((speeds < needed * (1.0 - 1e-6)).sum())


def needed_speeds(columns: ShareColumns) -> Floats:
    """Return the speed that each deadline requires; 0 without a deadline, or if no share of time meets it."""
    fastest = columns.market.speeds.max(axis=1, initial=0.0)
    needed = np.zeros(fastest.size)
    for place, task in enumerate(columns.tasks):
        if task.deadline_in_s is not None and task.deadline_in_s > 0.0 and task.work_left_samples is not None:
            speed = task.work_left_samples / task.deadline_in_s
            needed[place] = speed if speed <= fastest[place] else 0.0
    return needed


MISSED: Final = "deadlines that could be met and are missed"
allox: Final = SharingRule("allox", "mean completion time of waiting tasks, in seconds", _allox, needs_work=True)
strategy_proof: Final = SharingRule(
    "strategy-proof", "smallest fraction that a task gets of its proportional share", _strategy_proof
)
deadlines: Final = SharingRule("deadlines", MISSED, _deadlines)
cost_deadlines: Final = SharingRule("cost-deadlines", MISSED, lambda columns: _deadlines(columns, price_of(columns)))
