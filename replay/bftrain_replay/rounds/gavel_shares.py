"""Shares of time as Gavel's interior-point solver returns them: the middle of the optimal shares, not a vertex.

Gavel states one linear program for each policy, with a column for each task (or pair of tasks of one gang) and kind.
Tasks with equal speeds, nodes and goals have equal shares in the middle, so each group of such tasks is one column.
Compiled code follows the path of the solver ECOS (homogeneous self-dual embedding with Mehrotra's steps; Domahidi and
others, ECC 2013), and finds the middle for finish-time fairness by Newton's method.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from bftrain_replay.rounds.pair_shares import PairModels
from bftrain_replay.rounds.round_inputs import Floats, Ints
from bftrain_solvers.arrays import distinct_rows
from bftrain_solvers.knapsack.compiled_knapsack import call_compiled
from bftrain_solvers.sharing.policies import water_filling_shares
from bftrain_solvers.sharing.published import allox_shares
from bftrain_solvers.sharing.rising import ShareDemands, rise

MAKESPANS: Final = frozenset({"makespan", "makespan-blind", "makespan-packed"})
FINISH_TIMES: Final = frozenset({"finish-time", "finish-time-blind"})
# Policies for which a task is as fast on every kind as on the first one
BY_FIRST_KIND: Final = frozenset({"finish-time-blind", "makespan-blind", "water-filling-blind"})
ALLOX: Final = "allox"
WATER_FILLING: Final = frozenset({"water-filling", "water-filling-blind"})
# Policies whose shares are computed from columns, without a sharing problem
DIRECT: Final = frozenset(
    {"max-min", "max-min-blind", "max-min-packed", ALLOX, *MAKESPANS, *FINISH_TIMES, *WATER_FILLING}
)
_NOT_SOLVED: Final = frozenset({"isolated", ALLOX, "gandiva"})  # Gavel computes these shares without the solver
_DIGITS: Final = 9  # tasks whose required speeds (relative to the largest speed) agree to so many digits are a group
_USUAL: Final = 1e6  # goals outside 1/_USUAL to _USUAL are rescaled; the solver's precision is absolute
_SLACK: Final = 1e-4  # fraction of its speed that a task may lose: the set of the best shares may have no interior
_LEAST: Final = 1e-300  # smaller fractions count as equal
_MOST_STEPS: Final = 60  # steps of the search for rho
_RHO_CLOSE: Final = 1e-7  # relative
_SHORTEST_S, _LONGEST_S, _CLOSE = 100.0, 1e6, 1.05  # start, limit and precision of Gavel's makespan bisection


class CentralShares(NamedTuple):
    """Shares by task and kind, shares of pairs of task groups by kind, and each task's group."""

    alone: Floats
    together: Floats
    group: Ints


def shares_like_gavel(policy: str, shares: Floats, market: ShareDemands) -> Floats:
    """Return a policy's shares, by task and kind, as found by Gavel's solver for policies that use it."""
    if policy in _NOT_SOLVED or policy.endswith("-packed"):
        return shares
    return _central(market, (market.speeds * shares).sum(axis=1)).alone


def max_min_shares(policy: str, market: ShareDemands, weights: Floats, pairs: PairModels | None) -> CentralShares:
    """Return the shares of ``max-min``, ``max-min-blind`` or ``max-min-packed``."""
    speeds, nodes, counts = market.speeds, market.nodes, market.counts
    if policy == "max-min-blind":
        return _central(ShareDemands(np.ones_like(speeds), nodes, counts), weights / nodes)
    return _central(market, weights * (speeds @ counts / counts.sum()) / nodes, pairs)


def filled_shares(policy: str, market: ShareDemands, weights: Floats) -> CentralShares:
    """Return the shares of water filling as found by Gavel's solver."""
    usable = _usable(market)
    # Sums depend on the order in memory
    usable = ShareDemands(np.ascontiguousarray(usable.speeds), usable.nodes, usable.counts)
    shares = _on_all_kinds(market, water_filling_shares(usable, weights, blind=policy.endswith("-blind")))
    fits = market.nodes[:, None] <= market.counts
    market = ShareDemands(np.where(fits, market.speeds, 0.0), market.nodes, market.counts)
    return _central(market, (market.speeds * shares).sum(axis=1))


def queue_shares(market: ShareDemands, work: Floats, kept: Ints) -> CentralShares:
    """Return AlloX's shares; ``kept`` is the kind that a task keeps (-1: none)."""
    usable = market.counts > 0.0
    places = np.append(np.where(usable, np.cumsum(usable) - 1, -1), -1)
    shares = allox_shares(_usable(market), work, places[kept])[0]
    return _alone(_on_all_kinds(market, shares))


def _on_all_kinds(market: ShareDemands, shares: Floats) -> Floats:
    """Return shares of the usable kinds as shares of all kinds."""
    whole = np.zeros(market.speeds.shape)
    whole[:, market.counts > 0.0] = np.where(shares > 0.0, shares, 0.0)
    return whole


def _alone(shares: Floats) -> CentralShares:
    """Return shares of tasks without pairs."""
    count, kinds = shares.shape
    return CentralShares(shares, np.zeros((1, 1, kinds)), np.zeros(count, dtype=np.intp))


def makespan_shares(market: ShareDemands, work: Floats, pairs: PairModels | None) -> CentralShares:
    """Return any shares that are fast enough for the makespan at which Gavel's bisection stops."""
    if pairs is None:
        shortest_s = 1.0 / rise(_usable(market), np.zeros(work.size), work).height
    else:
        found = _central(market, work, pairs)
        own, one, other = pairs.model, *np.triu_indices(work.size, 1)
        time, two = found.together[found.group[one], found.group[other]], pairs.speeds[own[one], own[other]]
        parts = (time[:, :, None] * two).sum(axis=1)
        speeds = (market.speeds * found.alone).sum(axis=1)
        speeds += np.bincount(one, parts[:, 0], work.size) + np.bincount(other, parts[:, 1], work.size)
        shortest_s = float((work / speeds).max())
    return _central(market, work / _bisected(shortest_s), pairs, rising=False)


def finish_time_shares(
    market: ShareDemands, work: Floats, age_s: Floats, alone_s: Floats, worst: float
) -> tuple[CentralShares, float]:
    """Return the shares that minimise the largest rho, and this rho; the search starts at ``worst``.

    A task with this rho takes ``alone_s`` times rho from arrival to finish. The secant method finds the rho at which
    all speeds that it requires can be reached exactly.
    """
    usable, none = _usable(market), np.zeros(work.size)
    least_s = work / usable.speeds.max(axis=1)
    smallest = float(((age_s + least_s) / alone_s).max())
    before = worst = max(worst, smallest)
    height_before = 0.0
    left_s = np.maximum(worst * alone_s - age_s, least_s)
    risen = rise(usable, none, work / left_s)
    for _ in range(_MOST_STEPS):
        height = float(np.log(risen.height))
        if abs(height) < _RHO_CLOSE or (worst == smallest and height > 0.0):
            break
        following = max(smallest, float(((age_s + left_s / risen.height) / alone_s).max()))
        if (steep := (height - height_before) * (worst - before)) > 0.0:
            following = max(smallest, worst - height * (worst - before) ** 2 / steep)
        before, height_before, worst = worst, height, following
        left_s = np.maximum(worst * alone_s - age_s, least_s)
        risen = rise(usable, none, work / left_s, risen.hint)
    shares = np.zeros_like(market.speeds)
    shares[:, market.counts > 0.0] = _finish_time_middle(usable, risen.shares, work / left_s)
    return _alone(shares), worst


def _usable(market: ShareDemands) -> ShareDemands:
    """Return the kinds with nodes, and speeds only where a gang fits."""
    kinds = market.counts > 0.0
    fits = market.nodes[:, None] <= market.counts
    return ShareDemands(np.where(fits, market.speeds, 0.0)[:, kinds], market.nodes, market.counts[kinds])


def _bisected(shortest_s: float) -> float:
    """Return the shortest feasible time that Gavel's bisection tries."""
    short_s, long_s, last_s, found_s = _SHORTEST_S, _LONGEST_S, _LONGEST_S, 0.0
    while not found_s:
        while _CLOSE * short_s < long_s:
            middle_s = (short_s + long_s) / 2.0
            if middle_s >= shortest_s:
                found_s = long_s = middle_s
            else:
                short_s = middle_s
        short_s, long_s, last_s = last_s, 10.0 * last_s, 10.0 * last_s
    return found_s


def _central(
    market: ShareDemands, goal: Floats, pairs: PairModels | None = None, *, rising: bool = True
) -> CentralShares:
    """Return the middle of the shares at which all speeds are as large as possible a multiple of ``goal``.

    Without ``rising``, return the middle of the shares at which no task is slower than its goal.
    """
    open_kinds = np.flatnonzero(market.counts > 0.0)
    model = np.zeros(goal.size, dtype=np.intp) if pairs is None else pairs.model
    if rising and not 1.0 / _USUAL < goal.max() < _USUAL:  # only their ratios matter, but the path depends on the scale
        goal = goal / goal.max()
    part = np.round(np.log(np.maximum(goal / market.speeds.max(axis=1), _LEAST)), _DIGITS)
    keys = np.column_stack((market.speeds, market.nodes, model, part))
    first, group, many = distinct_rows(keys)
    model, goal = model[first], goal[first]
    groups = _Groups(
        market.speeds[np.ix_(first, open_kinds)],
        market.nodes[first],
        market.counts[open_kinds],
        many.astype(np.float64),
    )
    one, other = np.zeros((2, 0), dtype=np.intp)
    two = np.zeros((0, open_kinds.size, 2))
    if pairs is not None:
        one, other = np.triu_indices(first.size)
        allowed = (groups.nodes[one] == groups.nodes[other]) & ((one != other) | (many[one] > 1))
        alike_first = np.argsort((one != other)[allowed], kind="stable")
        one, other = one[allowed][alike_first], other[allowed][alike_first]
        two = pairs.speeds[model[one], model[other]][:, open_kinds]
    columns = _columns(groups, _Pairs(one, other, two), goal, rising=rising)
    alone = np.zeros((first.size, market.counts.size))
    alone[:, open_kinds] = columns[: groups.speeds.size].reshape(groups.speeds.shape)
    together = np.zeros((first.size, first.size, market.counts.size))
    if pairs is not None:
        time = np.zeros((one.size, market.counts.size))
        time[:, open_kinds] = columns[groups.speeds.size :].reshape(one.size, open_kinds.size)
        together[one, other] = together[other, one] = time
    return CentralShares(alone[group], together, group)


class _Groups(NamedTuple):
    """Groups of equal tasks: speeds by kind, nodes per task, nodes of each kind, and number of tasks."""

    speeds: Floats
    nodes: Floats
    counts: Floats
    many: Floats


class _Pairs(NamedTuple):
    """Pairs of groups, and the speeds of both by kind. Pairs within one group come first."""

    one: Ints
    other: Ints
    speeds: Floats


def _columns(groups: _Groups, pairs: _Pairs, goal: Floats, *, rising: bool) -> Floats:
    """Return the columns in the middle of the optimal solutions of Gavel's program: shares of groups, then of pairs.

    Rows are the time of each task, the nodes of each kind, and the speed of each task. An entry is a coefficient, the
    number of equal columns with it, and its row; those of one column are in the order of their rows.
    """
    (size, kinds), many, (one, other, two) = groups.speeds.shape, groups.many, pairs
    unit = np.where((goal > 0.0) & rising, goal, 1.0)  # speeds are multiples of goals
    every, free, rows = np.arange(size), int(rising), 2 * size + kinds
    # Coupled rows are neighbours, so most of the factor is empty: pairs couple gangs of one size, nodes couple all
    apart = groups.nodes if one.size else every
    place = np.empty(2 * size, dtype=np.intp)
    place[np.lexsort((np.repeat((0, 1), size), np.tile(apart, 2)))] = np.arange(2 * size)
    time_row, speed_row = place[:size], place[size:]
    parts: list[tuple[Floats, Floats, Ints]] = []
    sizes, equal_columns = [np.zeros(1, dtype=np.intp)], list[Floats]()

    def add(speeds: Sequence[Floats], tasks: Sequence[Ints], beside: Sequence[Floats], equals: Floats) -> None:
        """Add columns of combinations of one or two tasks, one combination per row of each table of speeds."""
        count = len(tasks)
        shape = (equals.size, kinds, 2 * count + 1)
        entries, times, row = np.ones(shape), np.empty(shape), np.empty(shape, dtype=np.intp)
        for at, (speed, task, number) in enumerate(zip(speeds, tasks, beside, strict=True)):
            entries[:, :, count + at] = -speed / unit[task][:, None]
            times[:, :, at] = times[:, :, count + at] = number[:, None]
            row[:, :, at], row[:, :, count + at] = time_row[task][:, None], speed_row[task][:, None]
        entries[:, :, -1] = groups.nodes[tasks[0]][:, None]
        times[:, :, -1] = equals[:, None]
        row[:, :, -1] = np.arange(2 * size, rows)
        parts.append((entries.ravel(), times.ravel(), row.ravel()))
        sizes.append(np.full(equals.size * kinds, shape[2]))
        equal_columns.append(np.repeat(equals, kinds))

    add([groups.speeds], [every], [np.ones(size)], many)
    if one.size:
        alike = int((one == other).sum())  # pairs of equal tasks come first
        of_one, of_other = many[one], many[other]
        number = np.append((of_one * (of_one - 1.0) / 2.0)[:alike], (of_one * of_other)[alike:])
        add([two[:alike, :, 0]], [one[:alike]], [of_one[:alike] - 1.0], number[:alike])
        speeds = two[alike:, :, 0], two[alike:, :, 1]
        add(speeds, (one[alike:], other[alike:]), (of_other[alike:], of_one[alike:]), number[alike:])
    if rising:
        parts.append(((goal > 0.0).astype(np.float64)[np.argsort(speed_row)], np.ones(size), np.sort(speed_row)))
        sizes.append(np.array([size]))
    entries, times, row = (np.concatenate(each) for each in zip(*parts, strict=True))
    start, equals = np.concatenate(sizes).cumsum(), np.concatenate(equal_columns)
    limits, equal_rows = np.ones((2, rows))
    limits[speed_row] = 0.0 if rising else -goal
    limits[2 * size :] = groups.counts
    equal_rows[time_row] = equal_rows[speed_row] = many
    last = equals.size
    room = np.empty(16 * (last + rows) + 7 * (last + free) + rows * rows + entries.size)
    arrays = (start, row, entries, times, limits, equals, equal_rows, room, found := np.empty(last))
    call_compiled("bftrain_central_columns", (last, free, rows), arrays)
    return found


def _finish_time_middle(market: ShareDemands, shares: Floats, needed: Floats) -> Floats:
    """Return the middle of the shares at which no task is slower than ``needed``, near the given ``shares``.

    Gavel bounds each task's remaining time, the inverse of its speed, by second-order cones. The middle maximises the
    sum of the logarithms of all slacks: of shares, of each task's time, of each kind's nodes, and of each task's cone
    and bound. The last two add up to ``2 log(speed - least) - log(speed)``.
    """
    speeds, nodes, counts = market.speeds, market.nodes, market.counts
    reached = np.minimum(needed, (speeds * shares).sum(axis=1))
    keys = np.column_stack((speeds, nodes, np.round(reached / speeds.max(axis=1), _DIGITS)))
    first, group, counted = distinct_rows(keys)
    many, table = counted.astype(np.float64), speeds[first]
    means = np.column_stack([np.bincount(group, column) for column in shares.T]) / many[:, None]
    inside = _SLACK / 4.0 * min(1.0 / counts.size, float(counts.min() / nodes.sum()))
    middle = np.where(table > 0.0, (1.0 - _SLACK / 2.0) * means + inside, 1.0)
    size, kinds = table.shape
    room = np.empty(size * (kinds * (kinds + 6) + 12) + kinds * (kinds + 6))
    given = (table, nodes[first], many, counts, (1.0 - _SLACK) * reached[first], room, middle)
    call_compiled("bftrain_middle", (size, kinds), given)
    found: Floats = (middle * (table > 0.0))[group]
    return found
