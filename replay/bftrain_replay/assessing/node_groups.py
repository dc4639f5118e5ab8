"""Harvest by group of nodes, such as racks, and working nodes by hour of the day and weekday."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import fragments
from bftrain_datasets.log.node_groups import groups_of_nodes
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.run.harvest_by_block import EstimatedFigure, Floats, HarvestCurve
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.simulation.run_records import AllocationTable


@dataclass(frozen=True, eq=False)
class NodeGroups:
    """Group names, each node's group, and the source of the grouping."""

    names: tuple[str, ...]
    of_node: NDArray[np.int32]
    source: str

    @classmethod
    def of(cls, log: EventLog, racks: Mapping[str, str] | None = None) -> NodeGroups | None:
        """Return the given racks, otherwise kinds, partitions or groups of similar names; ``None`` without groups."""
        grouped = groups_of_nodes(log, racks)
        return None if grouped is None else cls(*grouped)

    def idle_by_block(self, sample: ReplayedSample) -> NDArray[np.float64]:
        """Return the idle node-hours of each group (a row) in every block (a column)."""
        pieces = fragments(sample.log)
        begin_s = sample.log.times[pieces.join] - sample.log.start_s
        return self._clipped(
            pieces.node, begin_s, begin_s + pieces.length_s, sample.blocks.begin_s, sample.blocks.end_s
        )

    def held_by_block(self, sample: ReplayedSample, held: Sequence[AllocationTable]) -> NDArray[np.float64]:
        """Return the allocated node-hours of each group in every replayed block."""
        node_h = []
        for window, table in zip(sample.windows, held, strict=True):
            edges = np.array(window.edges_s)
            node_h.append(self._clipped(table.node, table.from_s, table.to_s, edges[:-1], edges[1:]))
        return np.concatenate(node_h, axis=1)

    def _clipped(
        self, node: NDArray[np.integer], from_s: Floats, to_s: Floats, begin_s: Floats, end_s: Floats
    ) -> NDArray[np.float64]:
        """Return the node-hours of each group in each block; the intervals of nodes are clipped to blocks."""
        group, node_s = self.of_node[node], np.zeros((len(self.names), begin_s.size))
        for block, (low, high) in enumerate(zip(begin_s.tolist(), end_s.tolist(), strict=True)):
            inside_s = np.minimum(to_s, high) - np.maximum(from_s, low)
            node_s[:, block] = np.bincount(group, np.maximum(inside_s, 0.0), minlength=len(self.names))
        return node_s / SECONDS_AN_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHarvest:
    """The figures of one group: nodes, and weekly idle and harvested node-hours."""

    name: str
    nodes: int
    idle: EstimatedFigure
    harvest: EstimatedFigure


def harvest_of_groups(
    groups: NodeGroups, sample: ReplayedSample, held: Sequence[AllocationTable], harvest: Floats, used: Floats
) -> tuple[GroupHarvest, ...]:
    """Estimate each group's harvest: its allocated node-hours times the useful share of all allocated node-hours."""
    idle, allocated = groups.idle_by_block(sample), groups.held_by_block(sample, held)
    useful_share = np.divide(harvest, used, out=np.zeros_like(harvest), where=used > 0.0)
    counts = np.bincount(groups.of_node, minlength=len(groups.names)).tolist()
    return tuple(
        GroupHarvest(
            name=name,
            nodes=counts[place],
            idle=sample.blocks.a_week(idle[place]),
            harvest=sample.a_week(allocated[place] * useful_share, idle[place]),
        )
        for place, name in enumerate(groups.names)
    )


DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
HOURS: Final = tuple(f"{hour:02}" for hour in range(24))
_STEP_S: Final = 900.0  # divides the offsets of all current time zones


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """A log divided into quarters of an hour, and at the edges of blocks: the block, hour and weekday of each step."""

    edges_s: Floats  # seconds since the log's start
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
        node_h = np.zeros(self.edges_s.size - 1)
        for window, curve in zip(sample.windows, curves, strict=True):
            edges = np.flatnonzero((self.edges_s >= window.begin_s) & (self.edges_s <= window.end_s))
            node_h[edges[:-1]] = curve.harvest_node_h(self.edges_s[edges] - window.begin_s)
        return node_h

    def mean_nodes(
        self, sample: ReplayedSample, harvest: Floats, part_of_step: NDArray[np.int64], count: int
    ) -> list[EstimatedFigure | None]:
        """Estimate the mean number of working nodes in each of ``count`` parts, such as the hours of the day.

        ``harvest`` is that of each step.
        """
        idle = sample.idle_node_h(self.edges_s[:-1], self.edges_s[1:])
        step_h = np.diff(self.edges_s) / SECONDS_AN_HOUR

        def by_block(amounts: Floats, part: int) -> Floats:
            inside = amounts * (part_of_step == part)
            return np.bincount(self.block, inside, len(sample.blocks)).astype(np.float64)

        figures = []
        for part in range(count):
            hours = by_block(step_h, part)
            resampled = sample.rate(by_block(harvest, part)[sample.places], by_block(idle, part), hours)
            figure = sample.blocks.estimate(resampled)
            # A weekday that occurs once in a log of a few days has no interval
            once = figure is not None and np.count_nonzero(hours) == 1
            figures.append(EstimatedFigure(median=figure.median) if once and figure else figure)
        return figures
