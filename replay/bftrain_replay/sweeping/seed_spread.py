"""Spread over seeds: the mean of a metric over points that differ only in the seed, and its interval.

Each resample draws seeds with replacement, the same number as given, and computes the mean: 90 % of these means lie in
the interval. Equal values give the same interval in any order. Two seeds have no interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.run.harvest_by_block import PERCENTILES, RESAMPLES, too_narrow
from bftrain_replay.run.harvest_by_block import SEED as OF_DRAWS
from bftrain_replay.sweeping.sweep_spec import SEED, SweepSpec, Value
from bftrain_replay.sweeping.sweep_table import MetricColumn, PointRow

INTERVAL: Final = "90 % interval of the mean"
LEAST_TO_MOST: Final = "least to most"
_LEAST_SEEDS: Final = 3  # minimum number of seeds for an interval
_DRAWN_AT_ONCE: Final = 1_000_000  # values

Cells = tuple["Value", ...]


@dataclass(frozen=True)
class SeedSpread:
    """The values of a metric in points that differ only in the seed."""

    values: tuple[float, ...]

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        """Return their mean."""
        return fmean(self.values)

    @property
    def kind(self) -> str:
        """The meaning of ``low`` and ``high``."""
        return LEAST_TO_MOST if self.count < _LEAST_SEEDS else INTERVAL

    @property
    def words(self) -> str:
        """The meaning of ``low`` and ``high``, with a warning if the seeds are few."""
        return self.kind + (too_narrow(self.count) if self.kind == INTERVAL else "")

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Return the bootstrap interval of the mean; minimum and maximum of fewer than three."""
        if self.kind == LEAST_TO_MOST:
            return min(self.values), max(self.values)
        means = _resampled_means(np.array(sorted(self.values)))
        low, high = np.percentile(means, (PERCENTILES[0], PERCENTILES[-1])).tolist()
        return low, high

    def text(self, metric: MetricColumn) -> str:
        """Return the mean in words, with its number of seeds."""
        text = metric.format(self.mean)
        if self.count == 1:
            return text
        low, high = map(metric.format, self.ends)
        return f"{text} on average of {self.count}, {low} to {high} ({self.words})"

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in ``sweep.json``."""
        low, high = self.ends
        return {"seeds": self.count, "mean": self.mean, "low": low, "high": high, "interval": self.kind}


def _resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each resample, drawn in parts to limit memory."""
    random, at_once = np.random.default_rng(OF_DRAWS), max(_DRAWN_AT_ONCE // values.size, 1)
    sizes = [(min(at_once, RESAMPLES - done), values.size) for done in range(0, RESAMPLES, at_once)]
    return np.concatenate([values[random.integers(0, values.size, size)].mean(axis=1) for size in sizes])


def spreads(rows: Sequence[PointRow], metric: MetricColumn, names: Sequence[str]) -> dict[Cells, SeedSpread]:
    """Return the metric for each combination of these options, over all other varied options."""
    found: dict[Cells, list[float]] = defaultdict(list)
    for row in rows:
        value = metric.of(row)
        if value is not None:
            found[tuple(row.point.options[name] for name in names)].append(value)
    return {cells: SeedSpread(tuple(values)) for cells, values in found.items()}


def reach(found: Collection[SeedSpread]) -> str:
    """Return the meaning of the range from ``low`` to ``high``; "" where each has one seed."""
    counts = sorted({spread.count for spread in found if spread.count > 1})
    if not counts:
        return ""
    if counts[-1] < _LEAST_SEEDS:
        return f"from the least to the most over {text_formats.counted(counts[-1], 'seed')}"
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    text = f"the {INTERVAL} over {many} seeds, by bootstrap"
    if counts[0] < _LEAST_SEEDS:
        text += f" (the least and the most where there are fewer than {_LEAST_SEEDS})"
    return text + too_narrow(counts[0])


def over_seeds(rows: Sequence[PointRow], metrics: Sequence[MetricColumn], spec: SweepSpec) -> list[dict[str, Any]]:
    """Return the spread of each metric and combination over seeds, for ``sweep.json``; empty without seeds."""
    if SEED not in spec.swept:
        return []
    names = [name for name in spec.swept if name != SEED]
    return [
        {"options": dict(zip(names, cells, strict=True)), "metric": metric.column, **spread.to_dict()}
        for metric in metrics
        for cells, spread in spreads(rows, metric, names).items()
    ]
