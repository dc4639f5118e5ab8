"""Groups of nodes, by kinds, partitions, or racks (from node names), and the harvest of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import fragments
from bftrain_datasets.log.node_groups import groups_of_nodes
from bftrain_replay.accounting.allocations import AllocationTable
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.results.harvest_by_block import EstimatedFigure, Floats
from bftrain_replay.tables import SECONDS_AN_HOUR


@dataclass(frozen=True, eq=False)
class NodeGroups:
    """Names of groups, the group of each node of a log, and where the grouping comes from."""

    names: tuple[str, ...]
    of_node: NDArray[np.int32]
    source: str

    @classmethod
    def of(cls, log: EventLog, racks: Mapping[str, str] | None = None) -> NodeGroups | None:
        """Return the given racks, the kinds of a log's nodes, their partitions, or groups by names."""
        found = groups_of_nodes(log, racks)
        return None if found is None else cls(*found)

    def idle_by_block(self, sample: ReplayedSample) -> NDArray[np.float64]:
        """Return the idle node-hours of each group (rows) in every block."""
        pieces = fragments(sample.log)
        begin_s = sample.log.times[pieces.join] - sample.log.start_s
        return self._clipped(
            pieces.node, begin_s, begin_s + pieces.length_s, sample.blocks.begin_s, sample.blocks.end_s
        )

    def held_by_block(self, sample: ReplayedSample, held: Sequence[AllocationTable]) -> NDArray[np.float64]:
        """Return the node-hours that tasks held in each group, in every replayed block."""
        found = []
        for window, table in zip(sample.windows, held, strict=True):
            edges = np.array(window.edges_s)
            found.append(self._clipped(table.node, table.from_s, table.to_s, edges[:-1], edges[1:]))
        return np.concatenate(found, axis=1)

    def _clipped(
        self, node: NDArray[np.integer], from_s: Floats, to_s: Floats, begin_s: Floats, end_s: Floats
    ) -> NDArray[np.float64]:
        """Return the node-hours of each group between each start and end."""
        group, found = self.of_node[node], np.zeros((len(self.names), begin_s.size))
        for block, (low, high) in enumerate(zip(begin_s.tolist(), end_s.tolist(), strict=True)):
            inside = np.minimum(to_s, high) - np.maximum(from_s, low)
            found[:, block] = np.bincount(group, np.maximum(inside, 0.0), minlength=len(self.names))
        return found / SECONDS_AN_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHarvest:
    """The figures of one group: nodes, and idle and harvested node-hours a week."""

    name: str
    nodes: int
    idle: EstimatedFigure
    harvest: EstimatedFigure


def harvest_of_groups(
    groups: NodeGroups, sample: ReplayedSample, held: Sequence[AllocationTable], harvest: Floats, used: Floats
) -> list[GroupHarvest]:
    """Estimate the harvest of each group: the node-hours held in it, less the overall share of losses."""
    idle, of_tasks = groups.idle_by_block(sample), groups.held_by_block(sample, held)
    counting = np.divide(harvest, used, out=np.zeros_like(harvest), where=used > 0.0)
    counts = np.bincount(groups.of_node, minlength=len(groups.names)).tolist()
    return [
        GroupHarvest(
            name=name,
            nodes=counts[place],
            idle=sample.blocks.a_week(idle[place]),
            harvest=sample.a_week(of_tasks[place] * counting, idle[place]),
        )
        for place, name in enumerate(groups.names)
    ]
