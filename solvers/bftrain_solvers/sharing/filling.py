"""Water filling: tasks that cannot rise any more stay, and the others go on, until no task can gain without a loss.

As long as all tasks fit, it is known without a programme which task stays: each at the largest speed there is for it.
So the path of levels is followed without looking at nodes, and its last feasible place is searched for, by trial and
then by a few programmes. The next rise is a programme: its prices say which tasks stay, and up to which speed each of
the others can go without scarce nodes. With that as the largest speed, the next path begins. If all this takes too many
programmes, or one is not solved, a plain one assigns the rest where it does most.
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
    """Return the shares, and what is not proven about them."""
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
    """The path on which all tasks rise while they fit: at each place one task comes to the largest speed for it.

    That is its ``cap``. The path begins at ``start``: levels, and which tasks rise.
    """

    def __init__(self, market: ShareDemands, rates: Rates, cap: Floats, start: tuple[Floats, Mask]) -> None:
        self.largest = market.speeds.max(axis=1)
        self.even = ShareDemands(market.speeds / self.largest[:, None], market.nodes, market.counts)
        self._rates, self._cap, self._way = rates, cap, [start]

    def last(self, place: int) -> int:
        """Return ``place``, or the end of the path if that comes first."""
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

        The least that all tasks pay, at any prices, is no more than the cost of all nodes if there are shares for it.
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

    Each time twice as far is tried, then between, without a programme; a few programmes find the rest.
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
    """Return the last reachable place of the path, shares that reach it, and prices.

    A programme says how far all can rise towards a place. If that is not far enough, its prices prove the places out of
    reach, and the one before them is tried: mostly it is the right one.
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


def _room(even: ShareDemands, level: Floats, hint: Floats | None) -> RaisedLevels | None:
    """Return shares that reach ``level`` if some are found at once."""
    wants = level > 0.0
    those = ShareDemands(even.speeds[wants], even.nodes[wants], even.counts)
    found = Rise(those, level[wants], np.zeros(int(wants.sum()))).try_height(0.0, hint)
    if found is None:
        return None
    shares = np.zeros(even.speeds.shape)
    shares[wants] = found.shares
    return found._replace(shares=shares)


def spare_time(market: ShareDemands, level: Floats, shares: Floats) -> Floats:
    """Return shares that reach ``level``, as ``shares`` do, and after which no task can gain without a loss.

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
    """Return the same for shares of a rise to ``level``; if all speed is scarce they are unchanged."""
    scarce = risen.marginal.size and (risen.marginal * market.speeds.max(axis=1) >= _FREE).all()
    return risen.shares if scarce else spare_time(market, level, risen.shares)
