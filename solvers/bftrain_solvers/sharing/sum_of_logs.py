"""The largest sum of the logarithms of speeds: shares in proportion to weights, over kinds of nodes."""

from __future__ import annotations

from itertools import combinations
from math import sqrt
from typing import Final

import numpy as np

from bftrain_solvers.arrays import Floats
from bftrain_solvers.sharing.rising import ProgramNotSolved, ShareDemands, rise

_CLOSE_SUM: Final = 1e-6  # maximum distance of the sum of logarithms from its bound, for weights of sum 1
_MOST_CUTS: Final = 20_000
_SEARCHED: Final = 1e-14  # precision of the price search
_NEVER: Final = -1e300  # worth of an impossible choice


def largest_sum_of_logs(market: ShareDemands, weights: Floats) -> Floats:
    """Maximise the sum of ``weights`` times the logarithms of speeds.

    At the right prices of the kinds, each task alone chooses exactly the speed that it gets: with a logarithm, the
    speed is unique, and only the mix of kinds is not. The prices are searched first, and then shares that give all
    these speeds. The tasks' demand at any prices is also a bound, which proves both.
    """
    counted = np.flatnonzero(weights > 0.0)
    budgets = weights[counted] / weights[counted].sum()
    market_of_those = ShareDemands(market.speeds[counted], market.nodes[counted], market.counts)
    wanted, bound = _wanted_at_right_prices(market_of_those, budgets)
    rate = np.zeros(len(weights))
    rate[counted] = wanted
    shares = rise(market, np.zeros(len(weights)), rate).shares
    reached = float(budgets @ np.log((market.speeds * shares).sum(axis=1)[counted]))
    if bound - reached > _CLOSE_SUM:
        raise ProgramNotSolved(f"the sum of logarithms may be {bound - reached:g} higher")
    return shares


def _wanted_at_right_prices(market: ShareDemands, budgets: Floats) -> tuple[Floats, float]:
    """Return the demanded speeds at the prices that minimise the bound, and the bound.

    The ellipsoid method: the bound is convex in the few prices, but has kinks where tasks change their choice. Prices
    are per kind, for all its nodes together; no task exceeds its budget, so they are between 0 and 1.
    """
    kinds = market.counts.size
    if kinds == 1:  # the method below needs two
        market = ShareDemands(np.pad(market.speeds, ((0, 0), (0, 1))), market.nodes, np.append(market.counts, 1.0))
        kinds = 2
    # The ellipsoid is centre + axes @ (anything of length 1)
    centre, axes = np.full(kinds, 0.5), np.eye(kinds) * (0.5 * sqrt(kinds))
    grow, flatten = kinds / sqrt(kinds**2 - 1.0), 1.0 - sqrt((kinds - 1.0) / (kinds + 1.0))
    best, wanted = np.inf, np.zeros(len(budgets))
    for _ in range(_MOST_CUTS):
        slope = np.where((centre < 0.0) & (centre == centre.min()), -1.0, 0.0)  # look only where no price is negative
        if not slope.any() or np.linalg.norm(slope @ axes) <= _SEARCHED:
            centre = np.maximum(centre, 0.0)
            shares = _best_ways(market, budgets, centre / market.counts)
            speeds: Floats = (market.speeds * shares).sum(axis=1)
            slope = 1.0 - shares.T @ market.nodes / market.counts
            bound = float((budgets * np.log(speeds)).sum() + slope @ centre)
            if bound < best:
                best, wanted = bound, speeds
        width = float(np.linalg.norm(slope @ axes))  # possible decrease of the bound inside
        if width <= _SEARCHED:
            break
        towards = slope @ axes / width
        centre = centre - axes @ towards / (kinds + 1)
        axes = grow * (axes - flatten * np.outer(axes @ towards, towards))
    return wanted, best


def _best_ways(market: ShareDemands, budgets: Floats, prices: Floats) -> Floats:
    """Return each task's best shares of time: budget times the logarithm of its speed, minus the cost.

    It runs on one kind for a part of its time, or alternates between two for all of it.
    """
    speeds, cost = market.speeds, market.nodes[:, None] * prices
    ways = []
    for kind in range(prices.size):
        shares = np.zeros(speeds.shape)
        free = cost[:, kind] <= budgets
        shares[:, kind] = np.where(free, 1.0, budgets / np.where(free, 1.0, cost[:, kind]))
        ways.append(shares)
    for one, other in combinations(range(prices.size), 2):
        faster, dearer = speeds[:, other] - speeds[:, one], cost[:, other] - cost[:, one]
        trade = faster * dearer > 0.0  # otherwise one of the two is better in both
        part = budgets / np.where(trade, dearer, 1.0) - speeds[:, one] / np.where(trade, faster, 1.0)
        part = np.where(trade, np.clip(part, 0.0, 1.0), 0.0)
        shares = np.zeros(speeds.shape)
        shares[:, one], shares[:, other] = 1.0 - part, part
        ways.append(shares)
    worth = []
    for shares in ways:
        reached = (speeds * shares).sum(axis=1)
        runs = reached > 0.0
        gained = budgets * np.log(np.where(runs, reached, 1.0)) - (cost * shares).sum(axis=1)
        worth.append(np.where(runs, gained, _NEVER))
    chosen: Floats = np.array(ways)[np.array(worth).argmax(axis=0), np.arange(len(budgets))]
    return chosen
