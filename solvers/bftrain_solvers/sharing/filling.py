"""Filling: who cannot rise any more stays, and the others go on, until no task can be faster without another slower.

As long as there is room for all, which task stays when is known without a programme: each has all the speed there is
for it. So the way up is followed without looking at nodes, and the last place on it where all find room is searched
for, by trial and then by a few programmes. The next rise is a programme of its own: its prices say who stays, and up
to which speed each of the others can go without what is scarce. With that for the speed there is, the next way begins.
Where all this takes too many programmes, or one is not solved, what is left goes where it does most in a plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats, Mask
from bftrain_solvers.sharing.linear import LinearRows, maximise
from bftrain_solvers.sharing.rising import ProgramNotSolved, RaisedLevels, Rise, ShareDemands, paid, rise

Rates = Callable[[Mask], Floats]  # how fast each task rises, given those that still can; 0 for the others

_FREE: Final = 1e-7  # a price of speed below this is none: prices are about 1
_FULL: Final = 1.0 - 1e-12
_CLOSE: Final = 1e-9  # relative: what is so near to a place on the way up is there
_SLACK: Final = (1e-9, 1e-8, 1e-7, 1e-6)  # relative: by how much levels out of programmes may be off
_MOST_WORK: Final = 30_000  # tasks times rises that are programmes: about 3 s
_LEAST_RISES: Final = 20


def fill(market: ShareDemands, rates: Rates) -> tuple[Floats, str]:
    """Give the shares, and what is not certain of them."""
    level, shares, rising, hint = _while_all_find_room(market, rates)
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
            return spare_time(market, level, shares), f"{words}; one programme divided what was left"
        level = np.minimum(level + rate * risen.height, largest)
        shares, hint = risen.shares, risen.hint
        rises += bool(risen.prices.any())
        dear = np.where(rising, risen.marginal * largest, 0.0)  # also who waits for its turn: nothing would be left
        rising &= dear < min(_FREE, float(dear.max()))
        if risen.prices.any() and rising.any():
            # At these prices all nodes are paid for, so no task can ever pay more: it stays on what is free
            for_nothing = risen.prices * market.counts <= _FREE * float(risen.prices @ market.counts)
            free = np.where(for_nothing, market.speeds, 0.0).max(axis=1)
            cap = np.where(rising & (free > level), np.minimum(cap, free), cap)
            rising &= level < _FULL * cap
            way = _WayUp(market, rates, cap, (level, rising))
            place, shares, hint = _furthest(market, way, 0, shares, hint)
            level, rising = way.at(place)
    return shares, ""


def _rates(rates: Rates, rising: Mask, largest: Floats) -> Floats:
    rate = rates(rising)
    # A task without weight gets what no other can use
    return rate if rate.any() else np.where(rising, largest, 0.0)


class _WayUp:
    """The way on which all rise as long as there is room: at each place a task comes to all the speed there is for it.

    That is its ``cap``. The way begins at ``start``: levels, and who rises.
    """

    def __init__(self, market: ShareDemands, rates: Rates, cap: Floats, start: tuple[Floats, Mask]) -> None:
        self.largest = market.speeds.max(axis=1)
        self.even = ShareDemands(market.speeds / self.largest[:, None], market.nodes, market.counts)
        self._rates, self._cap, self._way = rates, cap, [start]

    def last(self, place: int) -> int:
        """Give ``place``, or the end of the way if that comes first."""
        while len(self._way) <= place and self._way[-1][1].any():
            level, rising = self._way[-1]
            rate = _rates(self._rates, rising, self.largest)
            moving = rate > 0.0
            level = level + rate * float(((self._cap - level)[moving] / rate[moving]).min())
            np.minimum(level, self._cap, out=level)
            self._way.append((level, rising & (level < _FULL * self._cap)))
        return min(place, len(self._way) - 1)

    def at(self, place: int) -> tuple[Floats, Mask]:
        """Give the levels at a place that has been looked at, and who rises from there."""
        return self._way[place]

    def too_dear(self, last: int, beyond: int, prices: Floats) -> int:
        """Give the first place after ``last`` that is proven to be out of reach by ``prices``, or ``beyond``.

        What all pay at the least, at any prices, is no more than all nodes cost where there are shares for it.
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


def _while_all_find_room(market: ShareDemands, rates: Rates) -> tuple[Floats, Floats, Mask, Floats | None]:
    """Give levels, shares, who still rises, and prices, at the last place where all find room.

    Each time twice as far is tried, then between, without a programme. What is not found so, a few programmes find.
    """
    tasks = len(market.nodes)
    way = _WayUp(market, rates, market.speeds.max(axis=1), (np.zeros(tasks), np.ones(tasks, dtype=bool)))
    end = tasks + 1
    last, beyond, found, hint = 0, end, None, None
    while beyond - last > 1:
        place = way.last(min(2 * last + 1, end - 1) if beyond == end else (last + beyond) // 2)
        tried = _room(way.even, way.at(place)[0] / way.largest, hint)
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
    market: ShareDemands, way: _WayUp, last: int, shares: Floats, hint: Floats | None
) -> tuple[int, Floats, Floats | None]:
    """Give the last place of the way that is reached, shares that reach it, and prices.

    A programme says how far all can rise towards a place. If that is not so far, its prices prove the places out of
    reach, and the one before them is tried: mostly it is the right one.
    """
    prices, beyond = 1.0 / market.counts if hint is None else hint, len(market.nodes) + 1
    while (place := way.last(way.too_dear(last, beyond, prices) - 1)) > last:
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


def _room(even: ShareDemands, level: Floats, hint: Floats | None) -> RaisedLevels | None:
    """Give shares that reach ``level`` if some are found at once."""
    wants = level > 0.0
    those = ShareDemands(even.speeds[wants], even.nodes[wants], even.counts)
    found = Rise(those, level[wants], np.zeros(int(wants.sum()))).if_all_find_room(0.0, hint)
    if found is None:
        return None
    shares = np.zeros(even.speeds.shape)
    shares[wants] = found.shares
    return found._replace(shares=shares)


def spare_time(market: ShareDemands, level: Floats, shares: Floats) -> Floats:
    """Give shares that reach ``level``, as ``shares`` do, after which no task can be faster without another slower.

    What no level needs goes where it does most, in parts of what each task does at its fastest.
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
    """Give the same for shares that come of a rise to ``level``; where all speed is scarce they are as they are."""
    scarce = risen.marginal.size and (risen.marginal * market.speeds.max(axis=1) >= _FREE).all()
    return risen.shares if scarce else spare_time(market, level, risen.shares)
