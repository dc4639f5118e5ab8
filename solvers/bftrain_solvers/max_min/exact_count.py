"""Exact enumeration of demands: the fewest nodes of one kind for every use of the other resources.

First prices say which options matter. At any prices a choice that fits costs no more than there is; so no task has an
option that is dearer than its cheapest one by more than what the cheapest of all leave over.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_solvers.max_min.demands import ResourceDemands

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

_ROUNDING: Final = 1e-9  # relative to what there is
_TOO_MANY: Final = 2**30


class CountTooLarge(Exception):
    """There is more to count than is worth it."""


def tightest(needs: ResourceDemands, prices: Sequence[Floats]) -> Floats | None:
    """Give those prices at which least is left over once every task has its cheapest option."""
    known = [each for each in prices if each.size == needs.limits.size and (each @ needs.limits) > 0.0]
    if not known:
        return None
    by_prices = np.array(known).T / (np.array(known) @ needs.limits)
    costs = np.where(needs.there()[:, :, None], needs.uses @ by_prices, np.inf)
    return known[int(costs.min(axis=1).sum(axis=0).argmax())]


def that_matter(needs: ResourceDemands, prices: Floats) -> NDArray[np.bool_]:
    """Say which options a choice that fits may have."""
    costs = np.where(needs.there(), needs.uses @ prices, np.inf)
    dearer = costs - costs.min(axis=1)[:, None]
    there_is = float(needs.limits @ prices)
    left = there_is - float(costs.min(axis=1).sum())
    matter: NDArray[np.bool_] = dearer <= left + _ROUNDING * there_is
    return matter


def counted_out(needs: ResourceDemands, matter: NDArray[np.bool_], largest: int) -> Numbers | None:
    """Find options that fit, of those that ``matter``; ``None`` if there are none.

    No more than the ``largest`` number of numbers is looked at.
    """
    if not matter.any(axis=1).all():
        return None
    chosen: Numbers = matter.argmax(axis=1)
    rows = np.flatnonzero(matter.sum(axis=1) > 1)
    fixed = np.flatnonzero(matter.sum(axis=1) == 1)
    limits = needs.limits - needs.uses[fixed, chosen[fixed]].sum(axis=0)
    if (limits < 0).any():
        return None
    last = int(limits.argmax())
    others = np.delete(limits, last)
    if prod((others + 1).tolist()) * int(matter[rows].sum()) > largest:
        raise CountTooLarge
    choices = []
    least = np.zeros(tuple((others + 1).tolist()), dtype=np.int32)  # of the last resource, by the use of the others
    for row in rows.tolist():
        options = np.flatnonzero(matter[row])
        least, choice = _one_more(least, needs.uses[row, options], last)
        choices.append((row, options, choice))
    if int(least.flat[-1]) > limits[last]:
        return None
    at = others
    for row, options, choice in reversed(choices):
        chosen[row] = options[choice[tuple(at.tolist())]]
        at = at - np.delete(needs.uses[row, chosen[row]], last)
    return chosen


def _one_more(least: NDArray[np.int32], uses: Numbers, last: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Let one more task have any of its options, which use so much; returns also the option of that task."""
    best = np.full_like(least, _TOO_MANY)
    choice = np.zeros(least.shape, dtype=np.int16)
    for number, use in enumerate(uses):
        taken = np.delete(use, last).tolist()
        if any(nodes >= width for nodes, width in zip(taken, least.shape, strict=True)):
            continue
        then = tuple(slice(nodes, None) for nodes in taken)
        before = tuple(slice(0, width - nodes) for nodes, width in zip(taken, least.shape, strict=True))
        tried = np.minimum(least[before] + np.int32(use[last]), _TOO_MANY)
        better = tried < best[then]
        best[then] = np.where(better, tried, best[then])
        choice[then][better] = number
    return best, choice
