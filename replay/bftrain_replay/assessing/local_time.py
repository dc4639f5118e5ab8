"""Local time: hour of the day and weekday of each quarter of an hour of a log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.results.harvest_by_block import EstimatedFigure, Floats, HarvestCurve
from bftrain_replay.tables import SECONDS_AN_HOUR

DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS: Final = tuple(f"{hour:02}" for hour in range(24))
_STEP_S: Final = 900.0  # offsets of all zones of today are multiples of it


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """A log divided into quarters of an hour, also at edges of blocks: their block, hour and weekday."""

    edges_s: Floats  # since the log's start
    block: NDArray[np.int64]
    hour: NDArray[np.int64]
    weekday: NDArray[np.int64]

    @classmethod
    def of(cls, sample: ReplayedSample, zone: tzinfo = UTC) -> LocalSteps:
        """Divide the log of a sample."""
        log, blocks = sample.log, sample.blocks
        first = np.ceil(log.start_s / _STEP_S) * _STEP_S - log.start_s
        edges = np.unique(np.concatenate((np.arange(first, log.span_s, _STEP_S), blocks.begin_s, [log.span_s])))
        middles = (edges[:-1] + edges[1:]) / 2.0
        at = [datetime.fromtimestamp(time_s, zone) for time_s in (log.start_s + middles).tolist()]
        return cls(
            edges,
            np.searchsorted(blocks.begin_s, middles, side="right") - 1,
            np.array([each.hour for each in at]),
            np.array([each.weekday() for each in at]),
        )

    def harvest(self, sample: ReplayedSample, curves: list[HarvestCurve]) -> Floats:
        """Return the harvested node-hours in each step; 0 in blocks that were not replayed."""
        found = np.zeros(self.edges_s.size - 1)
        for window, curve in zip(sample.windows, curves, strict=True):
            inside = (self.edges_s >= window.begin_s) & (self.edges_s <= window.end_s)
            places = np.flatnonzero(inside)
            found[places[:-1]] = curve.harvest_node_h(self.edges_s[places] - window.begin_s)
        return found

    def mean_nodes(
        self, sample: ReplayedSample, harvest: Floats, part: NDArray[np.int64], count: int
    ) -> list[EstimatedFigure | None]:
        """Estimate the mean number of working nodes in each part, such as each hour of the day."""
        idle = sample.idle_node_h(self.edges_s[:-1], self.edges_s[1:])
        lasting = np.diff(self.edges_s) / SECONDS_AN_HOUR

        def by_block(amounts: Floats, place: int) -> Floats:
            found: Floats = np.bincount(self.block, amounts * (part == place), len(sample.blocks)).astype(np.float64)
            return found

        found = []
        for place in range(count):
            hours = by_block(lasting, place)
            resampled = sample.rate(by_block(harvest, place)[sample.places], by_block(idle, place), hours)
            figure = sample.blocks.estimate(resampled)
            once = figure is not None and np.count_nonzero(hours) == 1  # as a weekday in a log of some days
            found.append(EstimatedFigure(median=figure.median) if once and figure else figure)
        return found
