"""Spread: how a figure differs from task to task."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TaskPercentiles(msgspec.Struct, frozen=True, kw_only=True):
    """Of how many tasks a figure is known, its mean, its median, what 95 in 100 stay below, and the largest."""

    count: int
    mean: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self | None:
        """Measure those that are known (not NaN); ``None`` if none is."""
        known = values[~np.isnan(values)]
        if not known.size:
            return None
        p50, p95 = np.percentile(known, (50.0, 95.0)).tolist()
        mean = math.fsum(known.tolist()) / known.size  # exact, so that the order of tasks does not matter
        return cls(count=int(known.size), mean=mean, p50=p50, p95=p95, max=float(known.max()))
