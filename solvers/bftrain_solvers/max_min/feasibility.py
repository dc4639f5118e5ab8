"""Decide whether one option for each task fits the resources.

Most questions are answered by the last answer with a few options changed, or by prices: if the cheapest options of all
cost more than there is, no choice fits. What is left is a linear programme, and where that leaves it open all is
counted out, or is a programme in whole numbers.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.max_min.exact_count import CountTooLarge, counted_out, that_matter, tightest
from bftrain_solvers.max_min.milp_check import FeasibilityUnknown, relaxed, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.max_min.demands import ResourceDemands

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

_GAINED: Final = 1e-9  # relative: less than that is rounding
_MOST_PRICES: Final = 64
_SOON: Final = 1_000_000  # numbers that are looked at sooner than a linear programme is solved
_LARGEST: Final = 4_000_000  # numbers looked at sooner than a programme in whole numbers is solved
_PAIRED: Final = 300  # different changes of which all pairs are looked at


@dataclass
class FeasibleOptions:
    """Options ``chosen`` that fit ``needs``; who asks of other needs may have them taken over."""

    needs: ResourceDemands
    chosen: Numbers
    stop_at: float
    prices: list[Floats] = field(default_factory=list)

    def ask(self, needs: ResourceDemands) -> bool:
        """Say whether all find room; if so the needs are taken over."""
        if perf_counter() > self.stop_at:
            raise FeasibilityUnknown
        chosen = self._found(needs)
        if chosen is None:
            return False
        self.needs, self.chosen = needs, chosen
        return True

    def excluded(self, needs: ResourceDemands) -> bool:
        """Say whether what is known already proves that not all find room."""
        return not needs.there().any(axis=1).all() or needs.dear(self.prices)

    def _found(self, needs: ResourceDemands) -> Numbers | None:
        mended = _mended(needs, self.chosen)
        if (needs.over(mended) <= 0).all():
            return mended
        if self.excluded(needs):
            return None
        paired = _paired(needs, mended)
        if paired is not None:
            return paired
        prices = tightest(needs, self.prices)
        if prices is not None:
            with suppress(CountTooLarge):
                return counted_out(needs, that_matter(needs, prices), _SOON)
        return self._programmed(needs)

    def _programmed(self, needs: ResourceDemands) -> Numbers | None:
        prices, likely = relaxed(needs)
        self.prices = [*self.prices[1 - _MOST_PRICES :], prices]
        if needs.dear([prices]):
            return None
        mended = _mended(needs, likely)
        if (needs.over(mended) <= 0).all():
            return mended
        paired = _paired(needs, mended)
        if paired is not None:
            return paired
        matter = that_matter(needs, prices)
        try:
            return counted_out(needs, matter, _LARGEST)
        except CountTooLarge:
            return whole(needs, matter, self.stop_at)


def _weights(needs: ResourceDemands) -> Floats:
    return 1.0 / np.maximum(needs.limits, 1)


def _mended(needs: ResourceDemands, chosen: Numbers) -> Numbers:
    """Change one option after the other, each time the one that lessens most what there is too little of."""
    chosen, rows, weights = chosen.copy(), np.arange(len(needs.uses)), _weights(needs)
    over = needs.over(chosen)
    lacking = float(np.maximum(over, 0) @ weights)
    while lacking > 0.0:
        then = np.maximum(over + needs.uses - needs.uses[rows, chosen][:, None, :], 0) @ weights
        row, option = np.unravel_index(int(then.argmin()), then.shape)
        if then[row, option] >= lacking * (1.0 - _GAINED):
            break
        over = over + needs.uses[row, option] - needs.uses[row, chosen[row]]
        chosen[row], lacking = option, float(then[row, option])
    return chosen


def _paired(needs: ResourceDemands, chosen: Numbers) -> Numbers | None:
    """Change two options at once so that all fit, if two are enough."""
    over = needs.over(chosen)
    changes = needs.uses - needs.uses[np.arange(len(chosen)), chosen][:, None, :]
    row, option = np.nonzero(needs.there() & (changes != 0).any(axis=2))
    changes = changes[row, option]
    _, first = np.unique(changes, axis=0, return_index=True)
    if first.size > _PAIRED:
        left = np.maximum(changes[first] + over, 0) @ _weights(needs)
        first = first[np.argpartition(left, _PAIRED)[:_PAIRED]]
    fits = row[first][:, None] != row[first][None, :]
    for resource, lacking in enumerate(over.tolist()):
        few = changes[first, resource]
        fits &= few[:, None] + few[None, :] <= -lacking
    if not fits.any():
        return None
    pair = first[list(np.unravel_index(int(fits.argmax()), fits.shape))]
    found = chosen.copy()
    found[row[pair]] = option[pair]
    return found
