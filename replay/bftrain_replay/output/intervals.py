"""Stretches: the times between two changes of what a task holds, out of the table of allocations."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bftrain_replay.output.read_folder import AllocationTable


class NodeInterval(NamedTuple):
    """``nodes`` are places in ``AllocationTable.nodes``."""

    from_s: float
    to_s: float
    nodes: frozenset[int]


def rows_by_task(holdings: AllocationTable) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Give each task that held a node, and which rows are its own."""
    if not holdings.tasks:
        return
    order = np.argsort(holdings.task, kind="stable")
    ends = np.cumsum(np.bincount(holdings.task, minlength=len(holdings.tasks)))
    yield from zip(holdings.tasks, np.split(order, ends[:-1]), strict=True)


def stretches(holdings: AllocationTable, rows: NDArray[np.int64]) -> Iterator[NodeInterval]:
    """Give the stretches in which the task of these rows held the same nodes, in order; none if it held nothing."""
    rows = rows[holdings.to_s[rows] > holdings.from_s[rows]]
    times = np.concatenate((holdings.from_s[rows], holdings.to_s[rows]))
    nodes = np.concatenate((holdings.node[rows], holdings.node[rows]))
    taken = np.repeat((True, False), len(rows))
    order = np.lexsort((taken, times))  # at one time nodes are given back before others are taken
    held: set[int] = set()
    since_s = -np.inf
    for time_s, node, is_taken in zip(times[order].tolist(), nodes[order].tolist(), taken[order].tolist(), strict=True):
        if time_s > since_s:
            if held:
                yield NodeInterval(since_s, time_s, frozenset(held))
            since_s = time_s
        if is_taken:
            held.add(node)
        else:
            held.discard(node)


def sizes(holdings: AllocationTable, rows: NDArray[np.int64]) -> Iterator[tuple[float, float, int]]:
    """Give the stretches in which the task of these rows held as many nodes: begin, end and how many."""
    times, places = np.unique(np.concatenate((holdings.from_s[rows], holdings.to_s[rows])), return_inverse=True)
    changes = np.zeros(len(times), dtype=np.int64)
    np.add.at(changes, places[: len(rows)], 1)
    np.add.at(changes, places[len(rows) :], -1)
    held = np.cumsum(changes)
    begins = np.flatnonzero(np.diff(held, prepend=0))  # the same number of other nodes is no change
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        if held[begin]:
            yield float(times[begin]), float(times[end]), int(held[begin])
