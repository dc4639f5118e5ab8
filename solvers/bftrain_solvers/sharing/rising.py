"""Rising: the maximum joint rise of all tasks' speeds, each at its own rate, on shares of several kinds.

The programme: largest ``z`` with ``sum_k speed[j,k] x[j,k] >= level[j] + rate[j] z``, ``sum_k x[j,k] <= 1`` and ``sum_j
nodes[j] x[j,k] <= count[k]``. It has two rows per task and only one per kind. Once a node-second of each kind has a
price, the choice of every task is known: its cheapest kind, or a mix of two kinds. A linear programme is therefore
solved only for the few tasks with two choices of nearly equal cost; the remaining choices are fixed. Its prices also
give a bound, and the search stops when bound and answer meet, which is a proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from bftrain_solvers.arrays import Floats, Mask, Places, distinct_rows
from bftrain_solvers.sharing.linear import LinearRows, maximise

_SMALL: Final = 160  # minimum number of tasks; below it, all are in doubt
_FEWEST: Final = 64  # tasks in doubt at first
_CUTS: Final = 24  # cuts before the next programme
_INSIDE: Final = 0.5  # share of the distance to the next possible cut
_CENTRING: Final = 20  # steps of Newton's method towards the centre
_CENTRED: Final = 0.1  # Newton decrement at the centre
_NARROW: Final = 1e-7  # distance of a cut from the centre; below it, rounding determines the next cut
_TOLERANCE: Final = 1e-9  # relative, between answer and bound
_MISSING: Final = 1e-8  # relative, of a task's speed
_MOST_ROUNDS: Final = 60  # steps of Newton's method towards a bound
_TRIES: Final = 8  # prices that are tried for a height
_HASTE: Final = 0.6  # step size of prices that follow demand
_CHEAP: Final = 1e-3  # least price in a trial; prices of scarce kinds are about 1
_NOTHING: Final = -1  # kind of a task that does not run
_TIED: Final = 1e-12  # relative: what costs the same


@dataclass(frozen=True)
class ShareDemands:
    """Demands: ``speeds`` by task and kind (0: cannot run there), ``nodes`` by task, ``counts`` by kind."""

    speeds: Floats
    nodes: Floats
    counts: Floats

    @cached_property
    def pairs(self) -> KindPairs:
        """All pairs of kinds that a task can alternate between: each slower kind (or idling) with each faster kind."""
        order = self.speeds.argsort(axis=1, kind="stable").T
        speeds = np.take_along_axis(self.speeds.T, order, axis=0)
        kinds, idle, still = range(len(order)), np.full_like(order[0], _NOTHING), np.zeros(len(self.nodes))
        both = list(combinations(kinds, 2))
        slow = np.array([*(idle for _ in kinds), *(order[kind] for kind, _ in both)])
        low = np.array([*(still for _ in kinds), *(speeds[kind] for kind, _ in both)])
        faster = [*kinds, *(kind for _, kind in both)]
        fast, high = order[faster], speeds[faster]
        usable = (high > low) & ((slow == _NOTHING) | (low > 0.0))
        per_speed = np.where(usable, self.nodes, 0.0) / np.where(usable, high - low, 1.0)
        # A task that does not run is below any speed, even none
        begins = np.where(usable, np.where(slow == _NOTHING, -1.0, low), np.inf)
        return KindPairs(slow, fast, low, high, per_speed, begins)


@dataclass(frozen=True, slots=True)
class KindPairs:
    """A row for each pair, a column for each task: ``slow`` and ``fast`` kind, and their speeds ``low`` and ``high``.

    ``per_speed`` is the number of nodes that move for a little more speed. Above ``begins`` the pair is useful.
    """

    slow: Places
    fast: Places
    low: Floats
    high: Floats
    per_speed: Floats
    begins: Floats

    def costs(self, nodes: Floats, demand: Floats, prices: Floats) -> tuple[Floats, Floats]:
        """Return the cost of every pair, infinite if it does not reach the speed, and the marginal cost of speed."""
        with_nothing = np.append(prices, 0.0)
        lower = with_nothing[self.slow]
        slopes = (with_nothing[self.fast] - lower) * self.per_speed
        costs = nodes * lower + (demand - self.low) * slopes
        return np.where((demand > self.begins) & (demand <= self.high), costs, np.inf), slopes


@dataclass(frozen=True, slots=True)
class CheapestKinds:
    """The cheapest way of each task to its demand: kind ``slow`` while it runs, or ``fast`` in turn.

    ``doubt`` is the relative cost difference to the next way, or the distance to the way's own limit.
    """

    slow: Places
    fast: Places
    doubt: Floats


def ways(market: ShareDemands, demand: Floats, prices: Floats) -> CheapestKinds:
    """Return the cheapest way of each task."""
    demand, pairs = np.minimum(demand, 1.0), market.pairs
    costs, slopes = pairs.costs(market.nodes, demand, prices)
    # At the largest speed a task uses a single kind, and all pairs with it have equal cost. Slightly below, the best
    # pair is the one with the largest saving; prices may still change this
    tied = costs <= costs.min(axis=0) * (1.0 + _TIED)
    savings = np.where(tied, slopes, -np.inf)
    best, tasks = savings.argmax(axis=0), np.arange(len(demand))
    cost, saving = costs[best, tasks], savings[best, tasks]
    costs[tied], savings[best, tasks] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        dearer = np.where(cost > 0.0, costs.min(axis=0) / np.maximum(cost, 1e-300) - 1.0, 0.0)
        less = 1.0 - savings.max(axis=0) / np.where(saving > 0.0, saving, 1.0)
    dearer = np.minimum(dearer, np.where(saving > 0.0, less, 0.0))
    slow, fast, high = pairs.slow[best, tasks], pairs.fast[best, tasks], pairs.high[best, tasks]
    alone = slow == _NOTHING
    room = np.where(high >= 1.0 - _TIED, np.inf, high - demand)  # no task exceeds its largest speed
    room = np.where(alone, room, np.minimum(room, demand - pairs.low[best, tasks]))
    return CheapestKinds(slow=np.where(alone, fast, slow), fast=fast, doubt=np.minimum(dearer, room))


def paid(market: ShareDemands, demand: Floats, prices: Floats) -> tuple[Floats, Floats]:
    """Return the least cost of each task, and the largest marginal cost of its speed."""
    return _cheapest(*market.pairs.costs(market.nodes, np.minimum(demand, 1.0), prices))


def _cheapest(costs: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    cost = costs.min(axis=0)
    return cost, np.where(costs <= cost * (1.0 + _TIED), slopes, 0.0).max(axis=0)


class ProgramNotSolved(Exception):
    """The programme was not solved; the text is the solver's message."""


class RaisedLevels(NamedTuple):
    """The result of a rise: height, shares of time, and prices of a node by kind.

    ``marginal`` is the cost of a little more speed for each task: 0 if it is free, infinite at the maximum.
    """

    height: float
    shares: Floats
    prices: Floats
    hint: Floats | None = None  # prices from which a similar problem can start
    marginal: Floats = np.zeros(0)


def rise(market: ShareDemands, level: Floats, rate: Floats, hint: Floats | None = None) -> RaisedLevels:
    """Solve the programme.

    ``level`` must be reachable, and a ``rate`` positive; ``hint`` is that of a similar programme's result.
    """
    largest = market.speeds.max(axis=1)
    # Solvers work to absolute tolerances: let all have the largest speed 1, and the steepest rise at about 1
    steep = rate / largest
    bits = int(np.frexp(steep.max(initial=0.0))[1])
    table = np.column_stack(
        (market.speeds / largest[:, None], market.nodes, np.minimum(level / largest, 1.0), np.ldexp(steep, -bits))
    )
    # Equal tasks may have equal shares, and are therefore treated as a single task with all their nodes
    first, place, many = distinct_rows(table)
    alike, kinds = table[first], len(market.counts)
    even = ShareDemands(alike[:, :kinds], alike[:, kinds] * many, market.counts)
    low, steep = alike[:, kinds + 1], alike[:, kinds + 2]
    wants = (low > 0.0) | (steep > 0.0)
    those = even if wants.all() else ShareDemands(even.speeds[wants], even.nodes[wants], even.counts)
    risen = Rise(those, low[wants], steep[wants]).solved(hint)
    shares = np.zeros(even.speeds.shape)
    shares[wants] = risen.shares
    further = low + steep * risen.height + 1e-7  # more costs infinitely much at maximum speed
    more = np.where(further > 1.0, np.inf, paid(even, further, risen.prices)[1]) / many
    height = float(np.ldexp(risen.height, -bits))
    return risen._replace(height=height, shares=shares[place], marginal=more[place] / largest)


class PriceSearch:
    """Possible prices of all nodes of each kind, with sum 1; ``centre`` is their centre.

    That is the analytic centre: it maximises the product of the distances to all cuts. Each cut through it removes a
    large part of the prices.
    """

    def __init__(self, kinds: int) -> None:
        ones = np.ones((1, kinds))
        self._basis: Floats = np.linalg.svd(ones)[2][1:].T  # basis of the steps that keep the sum
        self._cuts, self._limits = self._basis.copy(), np.full(kinds, -1.0 / kinds)
        self._place = np.zeros(kinds - 1)

    @property
    def centre(self) -> Floats:
        """The prices in the middle."""
        centre: Floats = np.maximum(self._basis @ self._place + 1.0 / len(self._basis), 0.0)
        return centre

    def cut(self, towards: Floats) -> bool:
        """Remove the prices that do not lie ``towards`` this direction from the centre; return whether any are left."""
        normal = towards @ self._basis
        length = float(np.linalg.norm(normal))
        room = self._cuts @ self._place - self._limits
        if length <= _TIED or not self._place.size or room.min() < _NARROW:
            return False
        self._cuts = np.vstack((self._cuts, normal / length))
        self._limits = np.append(self._limits, normal @ self._place / length)
        within = self._cuts[:-1] / room[:, None]
        step = np.linalg.solve(within.T @ within, self._cuts[-1])
        place = self._place + _INSIDE * step / np.sqrt(self._cuts[-1] @ step)
        for _ in range(_CENTRING):  # Newton, with steps that stay inside
            within = self._cuts / (self._cuts @ place - self._limits)[:, None]
            slope = within.sum(axis=0)
            step = np.linalg.solve(within.T @ within, slope)
            far = np.sqrt(max(float(slope @ step), 0.0))
            place = place + step / (1.0 + far)
            if far < _CENTRED:
                break
        self._place = place
        return True


@dataclass(frozen=True)
class Rise:
    """The rise of all tasks from their ``level``, each by its ``rate``."""

    market: ShareDemands
    level: Floats
    rate: Floats

    @cached_property
    def top(self) -> float:
        """Return the height at which the first task is at its largest speed."""
        rising = self.rate > 0.0
        return max(0.0, float(((1.0 - self.level)[rising] / self.rate[rising]).min()))

    def solved(self, prices: Floats | None) -> RaisedLevels:
        """Return the maximum rise, starting from ``prices`` if given."""
        if (at_top := self.try_height(self.top, prices)) is not None:
            return at_top
        found = self._searched(prices) if len(self.level) > _SMALL else None
        if found is None:
            found = self._programme(None, np.ones(len(self.level), dtype=bool))
        if found is None:
            raise ProgramNotSolved("the level cannot be reached")
        return found._replace(hint=found.prices if found.prices.any() else None)

    def _searched(self, prices: Floats | None) -> RaisedLevels | None:
        """Solve for the tasks most in doubt, at prices that are narrowed down until these are few."""
        many, counts, search = _FEWEST, self.market.counts, PriceSearch(len(self.market.counts))
        bound, full = self.top, 1.0 - _TIED
        # Tasks that stay at maximum speed, on the only kind with that speed
        settled = (self.rate == 0.0) & (self.level >= full) & ((self.market.speeds >= full).sum(axis=1) == 1)
        while many < len(self.level) - int(settled.sum()):
            if prices is None:
                bound = self._narrowed(search, bound)
                prices = search.centre / counts
            chosen = ways(self.market, self.level + self.rate * bound, prices)
            doubt = np.where(settled, np.inf, chosen.doubt)
            solved = self._programme(chosen, doubt <= float(np.partition(doubt, many)[many]))
            if solved is not None:  # otherwise some assumed choices are impossible
                if not solved.prices.any():
                    return solved  # no scarce nodes: a task has its maximum speed
                bound, _ = self._bound(solved.prices, bound)
                if bound <= solved.height * (1.0 + _TOLERANCE) and self._reached(solved):
                    return solved._replace(prices=solved.prices / (solved.prices @ counts))
            many, prices = 2 * many, None
        return None

    def _reached(self, solved: RaisedLevels) -> bool:
        """Return whether the shares reach the speeds, as a library computes to absolute tolerances."""
        speeds = (self.market.speeds * solved.shares).sum(axis=1)
        return bool((speeds >= (self.level + self.rate * solved.height) * (1.0 - _MISSING)).all())

    def _narrowed(self, search: PriceSearch, bound: float) -> float:
        """Cut off prices with worse bounds; return the lowest bound."""
        for _ in range(_CUTS):
            prices = search.centre / self.market.counts
            bound, costs = self._bound(prices, bound)
            if not search.cut(self._load(bound, costs) - 1.0):
                break
        return bound

    def _costs(self, height: float, prices: Floats) -> tuple[Floats, Floats]:
        """Return the cost of every pair of kinds for each task at a height, and the marginal cost of speed there."""
        demand = np.minimum(self.level + self.rate * height, 1.0)
        return self.market.pairs.costs(self.market.nodes, demand, prices)

    def _load(self, height: float, costs: Floats) -> Floats:
        """Return the used part of each kind at a height if every task is on its cheapest pair by ``costs``."""
        market, pairs, kinds = self.market, self.market.pairs, len(self.market.counts)
        chosen = (costs.argmin(axis=0), np.arange(len(self.level)))
        demand = np.minimum(self.level + self.rate * height, 1.0)
        on_fast = (demand - pairs.low[chosen]) * pairs.per_speed[chosen]
        on_slow = np.bincount(pairs.slow[chosen] - _NOTHING, market.nodes - on_fast, kinds + 1)[1:]
        load: Floats = (np.bincount(pairs.fast[chosen], on_fast, kinds) + on_slow) / market.counts
        return load

    def try_height(self, height: float, prices: Floats | None) -> RaisedLevels | None:
        """Return shares if all can rise to ``height``; this is tried, not proven."""
        counts = self.market.counts
        prices = np.ones(len(counts)) if prices is None else np.maximum(prices, _CHEAP)
        for _ in range(_TRIES):
            load = self._load(height, self._costs(height, prices)[0])
            if (load <= 1.0).all():
                chosen = ways(self.market, self.level + self.rate * height, prices)
                fixed = _Fixed.of(self, chosen, np.ones(len(self.level), dtype=bool))
                shares = fixed.shares(height, self.market.speeds.shape)
                return RaisedLevels(height, shares, np.zeros(len(counts)), hint=prices)
            if load @ counts > counts.sum():
                return None  # although each uses few cheap nodes
            prices = prices * np.clip(load, 0.2, 5.0) ** _HASTE
        return None

    def _bound(self, prices: Floats, height: float) -> tuple[float, Floats]:
        """Return the maximum rise, up to ``height``, under a limit on total payments only, and the costs there."""
        budget = float(prices @ self.market.counts)
        costs, slopes = self._costs(height, prices)
        for _ in range(_MOST_ROUNDS):
            # Newton's method from above: the sum is convex and piecewise linear
            cost, slope = _cheapest(costs, slopes)
            excess, steep = float(cost.sum()) - budget, float(slope @ self.rate)
            if excess <= 1e-11 * budget or steep <= 0.0:
                break
            height = max(0.0, height - excess / steep)
            costs, slopes = self._costs(height, prices)
        return height, costs

    def _programme(self, chosen: CheapestKinds | None, doubtful: Mask) -> RaisedLevels | None:
        """Solve for the doubtful tasks, with fixed choices of all other tasks; ``None`` if infeasible."""
        market, kinds, top = self.market, len(self.market.counts), self.top
        fixed = _Fixed.of(self, chosen, ~doubtful)
        used, grows = fixed.usage(market)
        task, kind = np.nonzero((market.speeds > 0.0) & doubtful[:, None])
        count, several = len(task), int(doubtful.sum())
        entry, own = np.arange(count), (np.cumsum(doubtful) - 1)[task]
        rows = LinearRows(
            data=(-market.speeds[task, kind], self.rate[doubtful], np.ones(count), market.nodes[task], grows),
            row=(own, np.arange(several), several + own, 2 * several + kind, 2 * several + np.arange(kinds)),
            column=(entry, np.full(several, count), entry, entry, np.full(kinds, count)),
            limits=np.concatenate([-self.level[doubtful], np.ones(several), market.counts - used]),
        )
        worth = np.zeros(count + 1)
        worth[-1] = market.counts.sum() / top if top > 0.0 else 1.0  # scales prices to about 1
        highest = max(fixed.lowest, min(top, fixed.highest))
        found = maximise(worth, rows, last=(fixed.lowest, highest))
        if found.columns is None:
            return None
        height = float(found.columns[-1])
        ends = fixed.highest if fixed.highest < top * (1.0 - _TIED) else np.inf
        if fixed.lowest < top and not doubtful.all() and not fixed.lowest < height < ends:
            return None  # limited by a fixed choice, not by the programme
        shares = fixed.shares(height, market.speeds.shape)
        shares[task, kind] = found.columns[:-1]
        return RaisedLevels(height, shares, found.prices[2 * several :])


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Tasks on fixed ways: their shares are linear in the height, from ``lowest`` to ``highest``."""

    task: Places
    slow: Places
    fast: Places
    at_zero: tuple[Floats, Floats]  # shares of the slow and of the fast kind
    grows: tuple[Floats, Floats]
    lowest: float
    highest: float

    @classmethod
    def of(cls, rise: Rise, chosen: CheapestKinds | None, which: Mask) -> _Fixed:
        market, level, rate, task = rise.market, rise.level, rise.rate, np.flatnonzero(which)
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
        """Return the number of nodes of each kind used at height 0, and the slope."""
        kinds, nodes = len(market.counts), market.nodes[self.task]
        used, grows = (
            np.bincount(self.slow, nodes * slow, kinds) + np.bincount(self.fast, nodes * fast, kinds) + np.zeros(kinds)
            for slow, fast in (self.at_zero, self.grows)
        )
        return used, grows

    def shares(self, height: float, shape: tuple[int, ...]) -> Floats:
        """Return their shares at a height, and 0 for all other tasks."""
        shares = np.zeros(shape)
        for kind, at_zero, grows in zip((self.slow, self.fast), self.at_zero, self.grows, strict=True):
            shares[self.task, kind] += at_zero + grows * height
        return shares
