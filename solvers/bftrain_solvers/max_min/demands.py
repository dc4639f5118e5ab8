"""ResourceDemands: the options of each task, what each option takes of each resource, and how much there is.

Resources are the nodes of each kind, and turns at staying low (:mod:`bftrain_solvers.max_min.open_levels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

NEVER: Final = 2**40  # of a resource: an option that there is not
_CLEAR: Final = 1e-9  # relative: what prices prove must be clearer than rounding


@dataclass(frozen=True, slots=True)
class ResourceDemands:
    """``uses[place, option, resource]`` and ``limits``, how much there is of each resource."""

    uses: Numbers
    limits: Numbers

    def over(self, chosen: Numbers) -> Numbers:
        """Give how much more of each resource is taken than there is."""
        taken: Numbers = self.uses[np.arange(len(self.uses)), chosen].sum(axis=0) - self.limits
        return taken

    def there(self) -> NDArray[np.bool_]:
        """Say which options fit by themselves."""
        fit: NDArray[np.bool_] = np.all(self.uses <= self.limits, axis=2)
        return fit

    def dear(self, prices: Sequence[Floats]) -> bool:
        """Say whether at any of these prices even the cheapest options of all cost more than there is."""
        known = [each for each in prices if each.size == self.limits.size]
        if not known:
            return False
        by_prices = np.array(known).T
        costs = np.where(self.there()[:, :, None], self.uses @ by_prices, np.inf)
        there_is = self.limits @ by_prices
        return bool((costs.min(axis=1).sum(axis=0) > there_is * (1.0 + _CLEAR)).any())
