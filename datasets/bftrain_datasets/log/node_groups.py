"""Groups of a log's nodes: kinds, partitions, or racks inferred from node names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.node_units import node_of
from bftrain.nodesets import expand
from bftrain.topology import rack_of
from bftrain_datasets.log.eventlog import EventLog

RACKS: Final = "rack"
KINDS: Final = "kind"
PARTITION: Final = "partition"
NAMES: Final = "name"
NO_PARTITION: Final = "no partition known"
NO_RACK: Final = "no rack known"


def groups_of_nodes(
    log: EventLog, racks: Mapping[str, str] | None = None
) -> tuple[tuple[str, ...], NDArray[np.int32], str] | None:
    """Return group names, the group of each node, and the source of the groups; None without several groups.

    Given racks (from ``bftrain.topology.load_topology``) take precedence, then kinds, then the partitions that used the
    nodes longest, then similar names.
    """
    if racks:
        rack = rack_of(racks)
        found = [rack(name) or NO_RACK for name in log.node_names]
        places = {name: place for place, name in enumerate(dict.fromkeys(found))}
        if len(places) > 1:
            return tuple(places), np.array([places[name] for name in found], dtype=np.int32), RACKS
    if len(log.kind_names) > 1:
        return log.kind_names, log.node_kinds, KINDS
    partition = {node: name for name, text in log.provenance.partitions.items() for node in expand(text)}
    if partition:
        found = [partition.get(node_of(name), NO_PARTITION) for name in log.node_names]
        names = tuple(sorted(set(found), key=lambda name: (name == NO_PARTITION, name)))
        if len(names) > 1:
            return names, np.array([names.index(name) for name in found], dtype=np.int32), PARTITION
    named = groups_by_name(log.node_names)
    return None if named is None else (*named, NAMES)


# Maximum number of groups by name, for readable tables
_MOST_GROUPS: Final = 24
_ALL_OTHERS: Final = "*"


def groups_by_name(nodes: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int32]] | None:
    """Return groups of nodes with names alike up to their numbers, such as racks, and the group of each node.

    >>> groups_by_name(("a01n1", "a01n2", "b07n1"))
    (('a01n*', 'b07n*'), array([0, 0, 1], dtype=int32))
    """
    for depth in (1, 2):
        found = [_stem(name, depth) for name in nodes]
        names = tuple(dict.fromkeys(found))
        if 1 < len(names) <= _MOST_GROUPS and len(names) < len(nodes):
            places = {name: place for place, name in enumerate(names)}
            return tuple(f"{name}{_ALL_OTHERS}" for name in names), np.array([places[n] for n in found], dtype=np.int32)
    return None


def _stem(name: str, depth: int) -> str:
    """Return a node's name up to its last ``depth`` numbers.

    >>> _stem("r1i2n07", 1), _stem("r1i2n07", 2)
    ('r1i2n', 'r1i')
    """
    for _ in range(depth):
        name = re.sub(r"\d+\D*$", "", name)
    return name
