"""Partitions: for each node the partition whose jobs held it longest, as the records of jobs tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.nodesets import expand, fold
from bftrain_datasets.importing.job_columns import StayColumns

MOST_PARTITIONS: Final = 100  # more of them are users or projects by another name


def partitions_of(
    jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float, nodes: Sequence[str]
) -> dict[str, str]:
    """Return the node set of each partition; a node counts for that whose jobs held it longest in the time observed.

    Nothing if the jobs that are kept were in one partition, in none, or in too many.
    """
    rows = np.flatnonzero(keep & (jobs.queue >= 0) & (jobs.sets >= 0))
    queues = np.unique(jobs.queue[rows])
    if not 1 < queues.size <= MOST_PARTITIONS:
        return {}
    held_s = np.maximum(np.minimum(jobs.end[rows], end_s) - np.maximum(jobs.start[rows], begin_s), 0.0)
    sizes = np.diff(jobs.set_offsets)
    longest_s, found = np.zeros(len(nodes)), np.full(len(nodes), -1)
    for queue in queues.tolist():
        of_queue = jobs.queue[rows] == queue
        by_set = np.bincount(jobs.sets[rows[of_queue]], held_s[of_queue], minlength=sizes.size)
        by_node = np.bincount(jobs.set_nodes, np.repeat(by_set, sizes), minlength=len(nodes))
        found[by_node > longest_s] = queue
        longest_s = np.maximum(longest_s, by_node)
    sets = {}
    for queue in np.unique(found[found >= 0]).tolist():
        names = [nodes[place] for place in np.flatnonzero(found == queue).tolist()]
        sets[jobs.queue_names[queue]] = _node_set(names)
    return sets if all(sets.values()) else {}


def _node_set(names: Sequence[str]) -> str:
    """Write names as a node set that reads back as these; nothing if that cannot be done."""
    plain = ",".join(names)
    if not plain.isascii() or _names_in(plain) != list(names):
        return ""
    short = fold(names)
    return short if sorted(_names_in(short)) == sorted(names) else plain  # long sets of several brackets do not


def _names_in(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError:
        return []
