"""Rising: how far can the speeds of all tasks rise together, each at its own rate, on shares of time of several kinds?

The programme: largest ``z`` with ``sum_k speed[j,k] x[j,k] >= level[j] + rate[j] z``, ``sum_k x[j,k] <= 1`` and
``sum_j nodes[j] x[j,k] <= count[k]``. It has two rows a task and only one a kind. Once a node-second of each kind has
a price, every task knows by itself where it runs: on its cheapest kind, or in turn on two of them. So a linear
programme is solved for those few tasks only to which two ways cost nearly the same; the others are what their choice
makes them. The prices that come out of it also give a bound, and it ends when bound and answer meet: it is proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bftrain_solvers.sharing.linear import LinearRows, maximise
from bftrain_solvers.sharing.ways import ShareDemands, marginal, paid, ways

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.sharing.ways import CheapestKinds

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]
    Mask = NDArray[np.bool_]
    Solved = tuple[float, Floats, Floats]  # height, shares and prices

_SMALL: Final = 160  # tasks of which none is taken to have chosen
_SAMPLE: Final = 64  # tasks of which first prices come, at least
_NEAR: Final = 0.002  # relative: how much dearer another way may be, or how far a limit, so that a task is in doubt
_FEWEST: Final = 128  # tasks in doubt at first: prices that come of very few are wild
_TOLERANCE: Final = 1e-9  # relative, between answer and bound
_MOST_ROUNDS: Final = 60
_TRIES: Final = 8
_HASTE: Final = 0.6  # of prices that follow demand
_CHEAP: Final = 1e-3  # a price for what is free, as others are about 1


class ProgramNotSolved(Exception):
    """The programme was not solved; the text is the solver's."""


@dataclass(frozen=True, slots=True)
class RaisedLevels:
    """How far they rose, by which shares of time, at which prices of a node by kind.

    ``marginal`` is what a little more speed would cost each task: nothing if it is free, infinity if there is no more.
    """

    height: float
    shares: Floats
    marginal: Floats
    prices: Floats
    hint: Floats | None  # for one much like it


def rise(market: ShareDemands, level: Floats, rate: Floats, hint: Floats | None = None) -> RaisedLevels:
    """Solve it. ``level`` must be reachable, and a ``rate`` positive; the ``hint`` is that of one much like it."""
    largest = market.speeds.max(axis=1)
    # Solvers work to absolute tolerances: let all have the largest speed 1
    table = np.column_stack(
        (market.speeds / largest[:, None], market.nodes, np.minimum(level / largest, 1.0), rate / largest)
    )
    # Tasks that are alike may have the same shares, and so are as one that needs the nodes of all
    alike, place, many = np.unique(table, axis=0, return_inverse=True, return_counts=True)
    place, kinds = place.reshape(-1), len(market.counts)
    even = ShareDemands(alike[:, :kinds], alike[:, kinds] * many, market.counts)
    low, steep = alike[:, kinds + 1], alike[:, kinds + 2]
    wants = (low > 0.0) | (steep > 0.0)
    risen = _rise(even.only(wants), low[wants], steep[wants], hint)
    shares = np.zeros(even.speeds.shape)
    shares[wants] = risen.shares
    more = marginal(even, low + steep * risen.height, risen.prices) / many
    return RaisedLevels(
        height=risen.height,
        shares=shares[place],
        marginal=more[place] / largest,
        prices=risen.prices,
        hint=risen.hint,
    )


class _Found(NamedTuple):
    height: float
    shares: Floats
    prices: Floats
    hint: Floats | None


def _rise(market: ShareDemands, level: Floats, rate: Floats, prices: Floats | None) -> _Found:
    rising = rate > 0.0
    top = max(0.0, float(((1.0 - level)[rising] / rate[rising]).min()))
    if (at_top := _if_all_find_room(market, level, rate, top, prices)) is not None:
        return at_top
    if prices is None:
        prices = _prices_among_some(market, level, rate)
    if prices is None:
        found = _solve(market, level, rate, None, np.ones(len(level), dtype=bool), top)
        if found is None:
            raise ProgramNotSolved("the level cannot be reached")
    else:
        found = _searched(market, level, rate, top, prices)
    height, shares, prices = found
    return _Found(height, shares, prices, hint=prices if prices.any() else None)


def _searched(market: ShareDemands, level: Floats, rate: Floats, top: float, middle: Floats) -> Solved:
    """Solve it for the tasks most in doubt at prices that come nearer and nearer to the right ones."""
    count, many = len(level), _FEWEST
    bound, best = _settled(market, level, rate, top, middle)
    middle = best
    while many < count:
        chosen = ways(market, level + rate * bound, middle)
        doubtful = chosen.doubt <= max(_NEAR, float(np.partition(chosen.doubt, many)[many]))
        many *= 2
        solved = _solve(market, level, rate, chosen, doubtful, top)
        if solved is None:  # what some were taken to have chosen cannot be
            continue
        height, shares, prices = solved
        if not prices.any():
            return solved  # nothing is scarce: a task has all the speed there is
        prices = prices / (prices @ market.counts)
        reached = _bound(market, level, rate, prices, top)
        if min(bound, reached) <= height + _TOLERANCE * height:
            return height, shares, prices if reached <= bound else best
        # Prices that come of few tasks are wild: go there only if that is proven to be better, else half the way
        middle = prices if reached < bound else (middle + prices) / 2.0
        if reached < bound:
            bound, best = reached, prices
    solved = _solve(market, level, rate, None, np.ones(count, dtype=bool), top)
    if solved is None:
        raise ProgramNotSolved("the level cannot be reached")
    return solved


def _settled(market: ShareDemands, level: Floats, rate: Floats, top: float, prices: Floats) -> tuple[float, Floats]:
    """Let prices follow demand for a while; gives the lowest bound that came of it, and its prices."""
    every_task = np.ones(len(level), dtype=bool)
    height = bound = top
    best = prices = prices / (prices @ market.counts)
    for _ in range(_TRIES):
        height = _bound(market, level, rate, prices, top, height)
        if height <= bound:
            bound, best = height, prices
        fixed = _Fixed.of(market, level, rate, ways(market, level + rate * height, prices), every_task)
        used, grows = fixed.usage(market)
        load = (used + grows * height) / market.counts
        if np.abs(load - 1.0).max() < _NEAR:
            break
        prices = prices * np.clip(load, 0.2, 5.0) ** _HASTE
        prices = prices / (prices @ market.counts)
    return bound, best


def _if_all_find_room(
    market: ShareDemands, level: Floats, rate: Floats, top: float, prices: Floats | None
) -> _Found | None:
    """Give the end if all can rise until one has all the speed there is; whether they can is tried, not proven."""
    demand, kinds = level + rate * top, len(market.counts)
    prices = np.ones(kinds) if prices is None else np.maximum(prices, _CHEAP)
    for _ in range(_TRIES):
        fixed = _Fixed.of(market, level, rate, ways(market, demand, prices), np.ones(len(level), dtype=bool))
        used, grows = fixed.usage(market)
        load = (used + grows * top) / market.counts
        if (load <= 1.0).all():
            return _Found(top, fixed.shares(top, market.speeds.shape), np.zeros(kinds), hint=prices)
        if load @ market.counts > market.counts.sum():
            return None  # though each uses little of what is cheap
        prices = prices * np.clip(load, 0.2, 5.0) ** _HASTE
    return None


def _prices_among_some(market: ShareDemands, level: Floats, rate: Floats) -> Floats | None:
    """Guess prices: those among some of the tasks, who have as much less to share."""
    count = len(market.nodes)
    if count <= _SMALL:
        return None
    some = np.unique(np.linspace(0, count - 1, max(_SAMPLE, count // 32)).astype(int))
    if not (rate[some] > 0.0).any() or level.any():
        return None
    part = ShareDemands(market.speeds[some], market.nodes[some], market.counts * (len(some) / count))
    prices = _rise(part, level[some], rate[some], None).prices
    return prices if prices.any() else None


def _bound(
    market: ShareDemands, level: Floats, rate: Floats, prices: Floats, top: float, begin: float | None = None
) -> float:
    """Give how far all could rise, up to ``top``, if only the sum of what they pay were limited."""
    budget, height = float(prices @ market.counts), top if begin is None else begin
    for _ in range(_MOST_ROUNDS):  # Newton, from above after one step: the sum is convex and made of straight pieces
        cost, slope = paid(market, level + rate * height, prices)
        excess, steep = float(cost.sum()) - budget, float(slope @ rate)
        if abs(excess) <= 1e-11 * budget or steep <= 0.0 or (excess < 0.0 and height >= top):
            break
        height = min(top, max(0.0, height - excess / steep))
    return height


# -- the programme of those in doubt


def _solve(
    market: ShareDemands, level: Floats, rate: Floats, chosen: CheapestKinds | None, doubtful: Mask, top: float
) -> Solved | None:
    """Solve it with the others on their ways; gives height, shares and prices, or nothing if that cannot be."""
    kinds = len(market.counts)
    fixed = _Fixed.of(market, level, rate, chosen, ~doubtful)
    used, grows = fixed.usage(market)
    task, kind = np.nonzero((market.speeds > 0.0) & doubtful[:, None])
    count, several = len(task), int(doubtful.sum())
    entry, own = np.arange(count), (np.cumsum(doubtful) - 1)[task]
    rows = LinearRows(
        data=(-market.speeds[task, kind], rate[doubtful], np.ones(count), market.nodes[task], grows),
        row=(own, np.arange(several), several + own, 2 * several + kind, 2 * several + np.arange(kinds)),
        column=(entry, np.full(several, count), entry, entry, np.full(kinds, count)),
        limits=np.concatenate([-level[doubtful], np.ones(several), market.counts - used]),
    )
    worth = np.zeros(count + 1)
    worth[-1] = market.counts.sum() / top if top > 0.0 else 1.0  # so that prices are about 1
    highest = max(fixed.lowest, min(top, fixed.highest))
    found = maximise(worth, rows, last=(fixed.lowest, highest))
    if found.columns is None:
        return None
    height = float(found.columns[-1])
    if fixed.lowest < top and not doubtful.all() and not fixed.lowest < height < min(top, fixed.highest):
        return None  # it ended at a limit of a way, not of the programme
    shares = fixed.shares(height, market.speeds.shape)
    shares[task, kind] = found.columns[:-1]
    return height, shares, found.prices[2 * several :]


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Tasks that are on their ways: their shares are straight lines over the height, from ``lowest`` to ``highest``."""

    task: Places
    slow: Places
    fast: Places
    at_zero: tuple[Floats, Floats]  # shares of the slow and of the fast kind
    grows: tuple[Floats, Floats]
    lowest: float
    highest: float

    @classmethod
    def of(cls, market: ShareDemands, level: Floats, rate: Floats, chosen: CheapestKinds | None, which: Mask) -> _Fixed:
        task = np.flatnonzero(which)
        nothing = np.zeros(0)
        if chosen is None or not task.size:
            none = task[:0]
            return cls(none, none, none, (nothing, nothing), (nothing, nothing), 0.0, np.inf)
        slow, fast = chosen.slow[task], chosen.fast[task]
        low, high = market.speeds[task, slow], market.speeds[task, fast]
        alone = slow == fast
        step = np.where(alone, low, high - low)
        more_at_zero, more = np.where(alone, level[task], level[task] - low) / step, rate[task] / step
        rises = more > 0.0
        ends = ((1.0 - more_at_zero)[rises] / more[rises]).min(initial=np.inf)
        begins = (-more_at_zero[rises] / more[rises]).max(initial=0.0)
        at_zero = (np.where(alone, more_at_zero, 1.0 - more_at_zero), np.where(alone, 0.0, more_at_zero))
        grows = (np.where(alone, more, -more), np.where(alone, 0.0, more))
        return cls(task, slow, fast, at_zero, grows, max(0.0, float(begins)), float(ends))

    def usage(self, market: ShareDemands) -> tuple[Floats, Floats]:
        """Give how many nodes of each kind they use at height 0, and how that grows."""
        kinds, nodes = len(market.counts), market.nodes[self.task]
        used, grows = (
            np.bincount(self.slow, nodes * slow, kinds) + np.bincount(self.fast, nodes * fast, kinds) + np.zeros(kinds)
            for slow, fast in (self.at_zero, self.grows)
        )
        return used, grows

    def shares(self, height: float, shape: tuple[int, ...]) -> Floats:
        """Give their shares at a height, and nothing for the others."""
        shares = np.zeros(shape)
        for kind, at_zero, grows in zip((self.slow, self.fast), self.at_zero, self.grows, strict=True):
            shares[self.task, kind] += at_zero + grows * height
        return shares
