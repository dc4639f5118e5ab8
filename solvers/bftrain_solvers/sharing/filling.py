"""Water filling: stuck tasks stay, and the rest continue to rise, until no task can gain without a loss elsewhere.

While all tasks fit, each rises up to its own largest speed, which needs no programme. The path of levels is therefore
followed regardless of nodes, and its last feasible position is found by trial and then by a few programmes. The next
rise is a programme: its prices determine which tasks stay, and the speed that each remaining task can reach without
scarce nodes. That speed is its cap on the next path. After too many programmes, or an unsolved programme, a single
programme assigns the remainder to maximise the gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats, Mask
from bftrain_solvers.sharing.linear import LinearRows, maximise
from bftrain_solvers.sharing.rising import ProgramNotSolved, RaisedLevels, Rise, ShareDemands, paid, rise

Rates = Callable[[Mask], Floats]  # rates of the tasks that can still rise; 0 for all other tasks

_FREE: Final = 1e-7  # a price of speed below this is none: prices are about 1
_FULL: Final = 1.0 - 1e-12  # part of its cap at which a task has reached it
_CLOSE: Final = 1e-9  # relative tolerance for reaching a level of the path
_SLACK: Final = (1e-9, 1e-8, 1e-7, 1e-6)  # relative: allowed errors of levels from programmes
_MOST_WORK: Final = 30_000  # tasks times programmes: about 3 s
_LEAST_RISES: Final = 20  # programmes for any number of tasks


def fill(market: ShareDemands, rates: Rates) -> tuple[Floats, str]:
    """Return the shares, and the unproven part."""
    level, shares, rising, hint = _last_feasible_place(market, rates)
    largest, rises = market.speeds.max(axis=1), 0
    cap = largest
    while rising.any():
        rate = _rates(rates, rising, largest)
        why = f"it takes more than {rises} programmes" if rises > max(_LEAST_RISES, _MOST_WORK // len(level)) else ""
        try:
            risen = None if why else rise(market, level, rate, hint)
        except ProgramNotSolved as error:
            risen, why = None, str(error)
        if risen is None:
            words = f"{int(rising.sum())} of {len(level)} tasks might rise further by their weights: {why}"
            return spare_time(market, level, shares), f"{words}; a single programme divided the rest"
        level = np.minimum(level + rate * risen.height, largest)
        shares, hint = risen.shares, risen.hint
        rises += bool(risen.prices.any())
        dear = np.where(rising, risen.marginal * largest, 0.0)  # also for tasks of rate 0, which would get no nodes
        rising &= dear < min(_FREE, float(dear.max()))
        if risen.prices.any() and rising.any():
            # These prices use up all scarce nodes, so a task can only gain on free kinds
            for_nothing = risen.prices * market.counts <= _FREE * float(risen.prices @ market.counts)
            free = np.where(for_nothing, market.speeds, 0.0).max(axis=1)
            cap = np.where(rising & (free > level), np.minimum(cap, free), cap)
            rising &= level < _FULL * cap
            way = _LevelPath(market, rates, cap, (level, rising))
            place, shares, hint = _furthest(market, way, 0, shares, hint)
            level, rising = way.at(place)
    return shares, ""


def _rates(rates: Rates, rising: Mask, largest: Floats) -> Floats:
    rate = rates(rising)
    # Tasks of weight 0 get the remaining time
    return rate if rate.any() else np.where(rising, largest, 0.0)


class _LevelPath:
    """The levels of all tasks as they rise regardless of nodes; at each place of the path one task reaches its ``cap``.

    The path starts at ``start``: levels, and a mask of rising tasks.
    """

    def __init__(self, market: ShareDemands, rates: Rates, cap: Floats, start: tuple[Floats, Mask]) -> None:
        self.largest = market.speeds.max(axis=1)
        self.even = ShareDemands(market.speeds / self.largest[:, None], market.nodes, market.counts)
        self._rates, self._cap, self._way = rates, cap, [start]

    def last(self, place: int) -> int:
        """Return ``place``, limited to the last position of the path."""
        while len(self._way) <= place and self._way[-1][1].any():
            level, rising = self._way[-1]
            rate = _rates(self._rates, rising, self.largest)
            moving = rate > 0.0
            level = level + rate * float(((self._cap - level)[moving] / rate[moving]).min())
            np.minimum(level, self._cap, out=level)
            self._way.append((level, rising & (level < _FULL * self._cap)))
        return min(place, len(self._way) - 1)

    def at(self, place: int) -> tuple[Floats, Mask]:
        """Return the levels at a place that has been computed, and which tasks rise from there."""
        return self._way[place]

    def proven_out_of_reach(self, last: int, beyond: int, prices: Floats) -> int:
        """Return the first place after ``last`` that ``prices`` prove to be out of reach, or ``beyond``.

        Levels are infeasible if, at any prices, the cheapest shares for them cost more than all nodes.
        """
        budget, step = float(prices @ self.even.counts) * (1.0 + _CLOSE), 1
        while beyond - last > 1:
            place = self.last(min(last + step, beyond - 1))
            if place <= last:
                break
            step *= 2
            if paid(self.even, self.at(place)[0] / self.largest, prices)[0].sum() > budget:
                beyond, step = place, max(1, (place - last) // 2)
            else:
                last = place
                step = min(step, max(1, (beyond - last) // 2))
        return beyond


def _last_feasible_place(market: ShareDemands, rates: Rates) -> tuple[Floats, Floats, Mask, Floats | None]:
    """Return levels, shares, which tasks still rise, and prices, at the last place where all tasks fit.

    The search doubles its distance, then bisects, by heuristic trials; a few programmes find the exact place.
    """
    tasks = len(market.nodes)
    way = _LevelPath(market, rates, market.speeds.max(axis=1), (np.zeros(tasks), np.ones(tasks, dtype=bool)))
    end = tasks + 1
    last, beyond, found, hint = 0, end, None, None
    while beyond - last > 1:
        place = way.last(min(2 * last + 1, end - 1) if beyond == end else (last + beyond) // 2)
        tried = _tried_shares(way.even, way.at(place)[0] / way.largest, hint)
        if tried is None:
            beyond = place
        else:
            last, found, hint = place, tried, tried.hint
            if not way.at(place)[1].any():
                break
    shares = np.zeros(market.speeds.shape) if found is None else found.shares
    if way.at(last)[1].any():
        last, shares, hint = _furthest(market, way, last, shares, hint)
    return way.at(last)[0], shares, way.at(last)[1], hint


def _furthest(
    market: ShareDemands, way: _LevelPath, last: int, shares: Floats, hint: Floats | None
) -> tuple[int, Floats, Floats | None]:
    """Return the last feasible position of the path, shares that reach it, and prices.

    A programme computes how far all tasks can rise towards a position. If they do not reach it, its prices prove which
    positions are infeasible, and the position before these is tried next: it is usually the last feasible position.
    """
    prices, beyond = 1.0 / market.counts if hint is None else hint, len(market.nodes) + 1
    while (place := way.last(way.proven_out_of_reach(last, beyond, prices) - 1)) > last:
        level = way.at(last)[0]
        try:
            risen = rise(market, level, way.at(place)[0] - level, hint)
        except ProgramNotSolved:
            break
        if risen.height >= 1.0 - _CLOSE:
            last, shares = place, risen.shares
        else:
            beyond = place
        if risen.prices.any():
            prices = hint = risen.prices
        if not way.at(last)[1].any():
            break
    return last, shares, hint


def _tried_shares(even: ShareDemands, level: Floats, hint: Floats | None) -> RaisedLevels | None:
    """Return shares that reach ``level`` if a single trial finds them, otherwise ``None``."""
    wants = level > 0.0
    those = ShareDemands(even.speeds[wants], even.nodes[wants], even.counts)
    found = Rise(those, level[wants], np.zeros(int(wants.sum()))).try_height(0.0, hint)
    if found is None:
        return None
    shares = np.zeros(even.speeds.shape)
    shares[wants] = found.shares
    return found._replace(shares=shares)


def spare_time(market: ShareDemands, level: Floats, shares: Floats) -> Floats:
    """Return Pareto-optimal shares that reach ``level``; fall back to ``shares``, which also reach it.

    Spare time goes to the tasks with the largest speed relative to their own maximum.
    """
    task, kind = np.nonzero(market.speeds > 0.0)
    tasks, entry = len(market.nodes), np.arange(task.size)
    largest = market.speeds.max(axis=1)
    speeds = market.speeds[task, kind] / largest[task]
    for slack in _SLACK:
        rows = LinearRows(
            data=(np.ones(task.size), market.nodes[task], -speeds),
            row=(task, tasks + kind, tasks + len(market.counts) + task),
            column=(entry, entry, entry),
            limits=np.concatenate((np.ones(tasks), market.counts, -level / largest * (1.0 - slack))),
        )
        found = maximise(speeds, rows)
        if found.columns is not None:
            filled = np.zeros(market.speeds.shape)
            filled[task, kind] = found.columns
            return filled
    return shares


def with_spare_time(market: ShareDemands, level: Floats, risen: RaisedLevels) -> Floats:
    """Return :func:`spare_time` of a rise to ``level``; its own shares if no task can gain."""
    scarce = risen.marginal.size and (risen.marginal * market.speeds.max(axis=1) >= _FREE).all()
    return risen.shares if scarce else spare_time(market, level, risen.shares)
