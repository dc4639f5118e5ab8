"""Time spans in which jobs held nodes: one row per pair of job and node, for part of the nodes at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.importing.job_columns import StayColumns

_PAIRS_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class HeldSpans:
    """Every (job, node) pair of part of the nodes, ordered by node and start; ``row`` is the job's row.

    If GPUs or cores are counted, ``units`` are the number held of each node, or a slot (see ``StayColumns``).
    """

    node: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    row: NDArray[np.int64]
    units: NDArray[np.int32] | None = None


def spans_by_node(
    jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float, node_count: int
) -> Iterator[HeldSpans]:
    """Yield every (job, node) pair within the observed time, for part of the nodes at a time to bound memory."""
    rows = np.flatnonzero(keep & (jobs.start < end_s) & (jobs.end > begin_s))
    rows = rows[np.argsort(np.maximum(jobs.start[rows], begin_s), kind="stable")]  # then pairs need no second key
    sizes = np.diff(jobs.set_offsets)
    weight = np.zeros(node_count, dtype=np.int64)
    uses = np.bincount(jobs.sets[rows], minlength=sizes.size)
    np.add.at(weight, jobs.set_nodes, np.repeat(uses, sizes))
    part = np.cumsum(weight) // _PAIRS_AT_ONCE
    for number in np.unique(part).tolist():
        low, high = np.searchsorted(part, [number, number + 1]).tolist()
        yield _held_by(jobs, rows, low, high, begin_s, end_s)


def _held_by(
    jobs: StayColumns, rows: NDArray[np.int64], low: int, high: int, begin_s: float, end_s: float
) -> HeldSpans:
    inside = np.flatnonzero((jobs.set_nodes >= low) & (jobs.set_nodes < high))
    nodes = jobs.set_nodes[inside]
    offsets = np.searchsorted(inside, jobs.set_offsets)
    sets = jobs.sets[rows]
    counts = np.diff(offsets)[sets]
    row = np.repeat(rows, counts)
    firsts = np.repeat(offsets[sets] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    member = firsts + np.arange(row.size)
    node = nodes[member]
    start = np.maximum(jobs.start[row], begin_s)
    end = np.minimum(jobs.end[row], end_s)
    fits = high - low <= np.iinfo(np.uint16).max  # NumPy sorts 16-bit numbers without comparisons
    order = np.argsort((node - low).astype(np.uint16) if fits else node, kind="stable")
    units = jobs.set_units[inside][member][order] if jobs.set_units.size else None
    return HeldSpans(node[order], start[order], end[order], row[order], units)


def latest_ends(group: NDArray[np.int64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each span the latest end of it and all before it in the same group; group numbers rise."""
    # Replace ends by their rank and raise it group by group, so that one running maximum covers all groups
    values, rank = np.unique(end, return_inverse=True)
    lift = group * values.size
    found: NDArray[np.float64] = values[np.maximum.accumulate(lift + rank) - lift]
    return found
