"""Filling: all speeds rise together, each at its own rate; who cannot rise any more stays, and the others go on.

In the end no task can be made faster without making another one slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.sharing.rising import rise

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_solvers.sharing.ways import Floats, Mask, ShareDemands

_FREE = 1e-7  # a price of speed below this is none: prices are about 1


def fill(market: ShareDemands, rates: Callable[[Mask], Floats]) -> Floats:
    """Give the shares. ``rates`` returns how fast each task rises, given those that still can."""
    largest = market.speeds.max(axis=1)
    level, shares = np.zeros(len(market.nodes)), np.zeros(market.speeds.shape)
    rising, hint = np.ones(len(market.nodes), dtype=bool), None
    while rising.any():
        rate = np.where(rising, rates(rising), 0.0)
        if not rate.any():  # a task without weight gets what no other can use
            rate = np.where(rising, largest, 0.0)
        risen = rise(market, level, rate, hint)
        level = np.minimum(level + rate * risen.height, largest)
        shares, hint = risen.shares, risen.hint
        dear = np.where(rising, risen.marginal * largest, 0.0)  # also who waits for its turn: nothing would be left
        rising &= dear < min(_FREE, float(dear.max()))
    return shares
