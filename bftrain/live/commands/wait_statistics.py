"""Waits of jobs with and without harvesting, compared: quantiles, their difference, and how sure that is.

Waits that follow each other are alike, since the machine's load changes slowly. So whole pairs of neighbouring blocks,
one with and one without harvesting, are drawn again for the confidence intervals, and not single jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from scipy import stats

_RESAMPLES: Final = 2000
_LEVEL: Final = 0.95
_LEAST_PAIRS: Final = 4  # below that an interval would say nothing
_FIGURES: Final = (("median", 0.5), ("p95", 0.95), ("longest", 1.0))

Blocks = Sequence[Sequence[float]]  # waits in seconds, by block


class ComparedWait(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of the waits: without harvesting, with it, and the difference with its confidence interval."""

    name: str
    without_s: float
    with_s: float
    difference_s: float
    low_s: float | None = None  # none where there are too few blocks
    high_s: float | None = None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of ``count`` durations."""

    name: str
    count: int
    median_s: float
    p99_s: float
    longest_s: float


def compare(without: Blocks, with_it: Blocks) -> tuple[ComparedWait, ...]:
    """Compare waits; block by block the two belong together."""
    return tuple(_compared(name, level, without, with_it) for name, level in _FIGURES)


def spread(name: str, values: Sequence[float]) -> Spread:
    """Return how long something took."""
    median, p99, longest = (float(np.quantile(values, level)) for level in (0.5, 0.99, 1.0))
    return Spread(name=name, count=len(values), median_s=median, p99_s=p99, longest_s=longest)


def _compared(name: str, level: float, without: Blocks, with_it: Blocks) -> ComparedWait:
    def difference(pairs: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
        sides = ([blocks[int(pair)] for pair in pairs] for blocks in (without, with_it))
        before, after = (float(np.quantile(np.concatenate(side), level)) for side in sides)
        return after - before

    pairs = np.arange(min(len(without), len(with_it)))
    low: float | None = None
    high: float | None = None
    if len(pairs) >= _LEAST_PAIRS and level < 1.0:
        found = stats.bootstrap(
            (pairs,),
            difference,
            vectorized=False,
            n_resamples=_RESAMPLES,
            confidence_level=_LEVEL,
            method="percentile",
            rng=np.random.default_rng(0),
        )
        low, high = float(found.confidence_interval.low), float(found.confidence_interval.high)
    before, after = (float(np.quantile(np.concatenate(list(blocks)), level)) for blocks in (without, with_it))
    return ComparedWait(name=name, without_s=before, with_s=after, difference_s=after - before, low_s=low, high_s=high)
