"""What prices mean: how each task reaches its speed most cheaply, on one kind or in turn on two, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]
    Mask = NDArray[np.bool_]

_NOTHING: Final = -1  # where a task is that does not run
_TIED: Final = 1e-12  # relative: what costs the same


@dataclass(frozen=True)
class ShareDemands:
    """Who wants what: ``speeds`` by task and kind (0: cannot run there), ``nodes`` by task, ``counts`` by kind."""

    speeds: Floats
    nodes: Floats
    counts: Floats

    def only(self, which: Mask) -> ShareDemands:
        """Give the market of some of the tasks."""
        return ShareDemands(self.speeds[which], self.nodes[which], self.counts)

    @cached_property
    def pairs(self) -> KindPairs:
        """All pairs of kinds that a task may be on in turn; each slower one with each faster one, or with nothing."""
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
    """A row a pair, a column a task: ``slow`` and ``fast`` kind, and their speeds ``low`` and ``high``.

    ``per_speed`` is how many nodes change over for a little more speed. Above ``begins`` the pair is of use.
    """

    slow: Places
    fast: Places
    low: Floats
    high: Floats
    per_speed: Floats
    begins: Floats

    def costs(self, nodes: Floats, demand: Floats, prices: Floats) -> tuple[Floats, Floats]:
        """Give the cost of every pair, infinite if it does not give the speed, and what more speed costs."""
        with_nothing = np.append(prices, 0.0)
        lower = with_nothing[self.slow]
        slopes = (with_nothing[self.fast] - lower) * self.per_speed
        costs = nodes * lower + (demand - self.low) * slopes
        return np.where((demand > self.begins) & (demand <= self.high), costs, np.inf), slopes


@dataclass(frozen=True, slots=True)
class CheapestKinds:
    """How each task reaches its demand most cheaply: on kind ``slow`` all the while it runs, or on ``fast`` in turn.

    ``doubt``: by what part another way is dearer, or how far the way's own limit is.
    """

    slow: Places
    fast: Places
    doubt: Floats


def ways(market: ShareDemands, demand: Floats, prices: Floats) -> CheapestKinds:
    """Give the cheapest way of each task."""
    demand, pairs = np.minimum(demand, 1.0), market.pairs
    costs, _ = pairs.costs(market.nodes, demand, prices)
    best, tasks = costs.argmin(axis=0), np.arange(len(demand))
    cost = costs[best, tasks]
    costs[best, tasks] = np.inf
    with np.errstate(invalid="ignore"):
        dearer = np.where(cost > 0.0, costs.min(axis=0) / np.maximum(cost, 1e-300) - 1.0, 0.0)
    slow, fast = pairs.slow[best, tasks], pairs.fast[best, tasks]
    alone = slow == _NOTHING
    room = pairs.high[best, tasks] - demand
    room = np.where(alone, room, np.minimum(room, demand - pairs.low[best, tasks]))
    return CheapestKinds(slow=np.where(alone, fast, slow), fast=fast, doubt=np.minimum(dearer, room))


def paid(market: ShareDemands, demand: Floats, prices: Floats) -> tuple[Floats, Floats]:
    """Give what each task pays at the least, and what a little more speed costs it at most."""
    costs, slopes = market.pairs.costs(market.nodes, np.minimum(demand, 1.0), prices)
    cost = costs.min(axis=0)
    return cost, np.where(costs <= cost * (1.0 + _TIED), slopes, 0.0).max(axis=0)


def marginal(market: ShareDemands, demand: Floats, prices: Floats) -> Floats:
    """Give what a little more than the demand costs each task; infinity for one that has all the speed there is."""
    more = demand + 1e-7
    return np.where(more > 1.0, np.inf, paid(market, more, prices)[1])
