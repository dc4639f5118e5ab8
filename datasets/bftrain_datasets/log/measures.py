"""Measures of a log: idle fragments, pool percentiles, and how nodes leave the pool."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.log.eventlog import DOWN, IDLE, EventLog
from bftrain_datasets.log.log_columns import (
    STATE_BITS,
    STATE_MASK,
    begins_of_runs,
    parts_of,
    sorted_pairs,
    sums_by_time,
)
from bftrain_datasets.log.provenance import LogProvenance

PERCENTILES: Final = (5, 10, 25, 50, 75, 90, 95, 99)
LENGTH_BOUNDS_S: Final = (120, 600, 3600)
AGES_S: Final = (0, 600, 1800, 3600, 7200)
CHANCE_WITHIN_S: Final = 300
LARGE_DEPARTURE_NODES: Final = 64


class IdleFragments(msgspec.Struct, frozen=True, kw_only=True):
    """All stays of nodes in the pool: node, join and leave time (indices in the log's ``times``), and length.

    A node still idle when the log stops has ``leave`` one past the last index; its true length is unknown.
    """

    node: NDArray[np.int32]
    join: NDArray[np.int32]
    leave: NDArray[np.int32]
    length_s: NDArray[np.float64]
    open: NDArray[np.bool_]


class PoolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Number of idle nodes over time: ``percentiles`` are weighted by time."""

    mean: float
    largest: int
    percentiles: dict[int, int]


class LengthShare(msgspec.Struct, frozen=True, kw_only=True):
    """Fragments up to ``up_to_s``: their fraction of all fragments and their fraction of idle time, 0 to 1."""

    up_to_s: int
    fragments: float
    idle_time: float


class FragmentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of idle fragments in seconds; ``open`` counts fragments cut off by the log's end."""

    count: int
    open: int
    mean_s: float
    percentiles_s: dict[int, float]
    shares: tuple[LengthShare, ...]


class LeavingSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures on how nodes leave the pool, as fractions from 0 to 1.

    ``together``: of each group of nodes that joined together, the largest part that left together, as a fraction of all
    such nodes. ``in_large_departures``: nodes that leave in departures of 64 or more. ``at_once``: percentiles of the
    departure size, over leaving nodes. ``chance_within_300_s``: by age in seconds, the probability that an idle node
    leaves within five minutes.
    """

    together: float
    in_large_departures: float
    at_once: dict[int, int]
    chance_within_300_s: dict[int, float]


class KindSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node kind: its number of nodes, idle share, and largest pool."""

    nodes: int
    idle_share: float
    idle_node_hours: float
    largest: int


class LogSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures that ``bftrain inspect`` prints; shares are fractions of all node-time, 0 to 1."""

    sha256: str
    nodes: int
    events: int
    start_s: float
    end_s: float
    span_s: float
    idle_share: float
    idle_node_hours: float
    down_share: float
    down_node_hours: float
    mean_gap_s: float
    median_gap_s: float
    pool: PoolSummary
    fragments: FragmentSummary
    leaving: LeavingSummary
    provenance: LogProvenance
    kinds: dict[str, KindSummary] = {}  # empty without kinds


def fragments(log: EventLog) -> IdleFragments:
    """Return all idle fragments, by node and then by time."""
    # By node and time, the change after each join closes its fragment
    index = np.repeat(np.arange(len(log), dtype=np.int32), np.diff(log.offsets))
    node, change = sorted_pairs(log.nodes, index << STATE_BITS | log.states)
    found = [(np.zeros(0, dtype=np.int32),) * 3]
    for part in parts_of(node.size):
        joins = part.start + np.flatnonzero(change[part] & STATE_MASK == IDLE)
        after = np.minimum(joins + 1, node.size - 1)
        closed = (node[after] == node[joins]) & (after > joins)
        leave = np.where(closed, change[after] >> STATE_BITS, np.int32(len(log)))
        found.append((node[joins], change[joins] >> STATE_BITS, leave))
    node, join, leave = map(np.concatenate, zip(*found, strict=True))
    return _fragments(np.append(log.times, log.end_s), node, join, leave)


def fragments_in_parts(log: EventLog, at_once: int = 1 << 20) -> Iterator[IdleFragments]:
    """Yield all idle fragments, in parts of ``at_once`` changes; open fragments are last."""
    bounds = np.append(log.times, log.end_s)
    since = np.full(len(log.node_names), -1, dtype=np.int32)  # the time at which each idle node has joined
    for low in range(0, log.nodes.size, at_once):
        high = min(low + at_once, log.nodes.size)
        idle, before = (np.equal(column[low:high], IDLE) for column in (log.states, log.before))
        moved = np.flatnonzero(idle | before)
        time = (np.searchsorted(log.offsets, low + moved, side="right") - 1).astype(np.int32)
        node, order = sorted_pairs(log.nodes[low:high][moved], np.arange(moved.size))
        # Each departure closes the fragment opened by the previous change
        joins, time, first = idle[moved[order]], time[order], begins_of_runs(node)
        begun = np.roll(time, 1)
        begun[first] = since[node[first]]
        since[node] = np.where(joins, time, -1)  # the last of several changes of a node remains
        yield _fragments(bounds, node[~joins], begun[~joins], time[~joins])
    still = np.flatnonzero(since >= 0).astype(np.int32)
    yield _fragments(bounds, still, since[still], np.full(still.size, len(log), dtype=np.int32))


def _fragments(
    bounds: NDArray[np.float64], node: NDArray[np.int32], join: NDArray[np.int32], leave: NDArray[np.int32]
) -> IdleFragments:
    length_s = bounds[leave]
    length_s -= bounds[join]
    return IdleFragments(node=node, join=join, leave=leave, length_s=length_s, open=np.equal(leave, bounds.size - 1))


def idle_node_s_by_kind(log: EventLog, pieces: IdleFragments | None = None) -> dict[str, float]:
    """Return the idle node-seconds of each kind; empty without kinds."""
    if not log.kind_names:
        return {}
    pieces = pieces or fragments(log)
    kinds = log.node_kinds[pieces.node]
    lengths = (pieces.length_s[kinds == number].tolist() for number in range(len(log.kind_names)))
    return dict(zip(log.kind_names, map(math.fsum, lengths), strict=True))


def pool_sizes_by_kind(log: EventLog) -> dict[str, NDArray[np.int64]]:
    """Return the number of idle nodes of each kind after each time; without kinds under an empty name."""
    if not log.kind_names:
        return {"": log.pool_sizes()}
    change = log.joins.astype(np.int64) - log.leaves
    kinds, found = log.node_kinds[log.nodes], {}
    for number, kind in enumerate(log.kind_names):
        sizes = np.concatenate(([0], np.cumsum(np.where(kinds == number, change, 0))))
        found[kind] = sizes[log.offsets[1:]]
    return found


def largest_by_kind(log: EventLog) -> dict[str, int]:
    """Return the largest number of simultaneously idle nodes of each kind."""
    return {kind: int(sizes.max()) for kind, sizes in pool_sizes_by_kind(log).items()}


def weighted_percentiles(
    values: NDArray[np.int64], weights: NDArray[Any], percentiles: Sequence[int] = PERCENTILES
) -> dict[int, int]:
    """Return the weighted percentiles of the values; none without values."""
    if not values.size:
        return {}
    order = np.argsort(values, kind="stable")
    passed = np.cumsum(weights[order])
    wanted = np.array(percentiles) / 100 * passed[-1]
    places = np.minimum(np.searchsorted(passed, wanted), values.size - 1)
    return dict(zip(percentiles, values[order][places].tolist(), strict=True))


def leaving_together(pieces: IdleFragments) -> float:
    """Return ``together`` of :class:`LeavingSummary`; nodes still idle at the log's end count as leaving then."""
    if pieces.join.size == 0:
        return 0.0
    # Nodes that joined together and left together form a run of equal pairs
    join, leave = sorted_pairs(pieces.join, pieces.leave)
    first = begins_of_runs(join)
    runs = np.flatnonzero(first | begins_of_runs(leave))
    of_join = np.flatnonzero(first[runs])
    largest = np.maximum.reduceat(np.diff(runs, append=join.size), of_join)
    joined = np.diff(runs[of_join], append=join.size)
    several = joined > 1
    return float(largest[several].sum() / max(1, int(joined[several].sum())))


def departures(log: EventLog) -> NDArray[np.int64]:
    """Return the number of nodes that leave the pool at each time."""
    return sums_by_time(log.leaves.view(np.int8), log.offsets)


def in_large_departures(leaving: NDArray[np.int64], least: int = LARGE_DEPARTURE_NODES) -> float:
    """Return the fraction of leaving nodes in ``departures`` of at least ``least`` nodes."""
    return float(leaving[leaving >= least].sum() / max(1, int(leaving.sum())))


def down_node_s(log: EventLog) -> float:
    """Return the down time of all nodes, in node-seconds."""
    return math.fsum((log.count_of(DOWN) * log.durations_s).tolist())


def leave_chances(
    pieces: IdleFragments, ordered_s: NDArray[np.float64], ages_s: Sequence[float], within_s: float = CHANCE_WITHIN_S
) -> list[float]:
    """Return the probabilities that nodes idle for ``ages_s`` leave within ``within_s`` more.

    Fragments cut off by the log's end count only if longer than the sum of both. ``ordered_s`` are the sorted lengths.
    """
    bounds = np.array(ages_s) + np.array([[0.0], [within_s]])
    open_s = np.sort(pieces.length_s[pieces.open])
    longer, cut_off = (lengths.size - np.searchsorted(lengths, bounds, side="right") for lengths in (ordered_s, open_s))
    idle, still_idle = longer[0] - cut_off[0] + cut_off[1], longer[1]
    chances: list[float] = ((idle - still_idle) / np.maximum(1, idle)).tolist()
    return chances


def summarise(log: EventLog) -> LogSummary:
    """Return all figures of ``bftrain inspect``."""
    pieces = fragments(log)
    ordered = np.sort(pieces.length_s)
    gaps, leaving = np.diff(log.times), departures(log)
    sizes, gone = log.pool_sizes(), leaving[leaving > 0]
    down_s, idle_s = down_node_s(log), log.idle_node_s
    return LogSummary(
        sha256=log.sha256,
        nodes=len(log.node_names),
        events=len(log),
        start_s=log.start_s,
        end_s=log.end_s,
        span_s=log.span_s,
        idle_share=log.idle_share,
        idle_node_hours=idle_s / 3600,
        down_share=down_s / max(log.span_s * len(log.node_names), 1e-300),
        down_node_hours=down_s / 3600,
        mean_gap_s=float(gaps.mean()) if gaps.size else 0.0,
        median_gap_s=float(np.median(gaps)) if gaps.size else 0.0,
        pool=PoolSummary(
            mean=idle_s / log.span_s if log.span_s else float(sizes[-1]),
            largest=int(sizes.max()),
            percentiles=weighted_percentiles(sizes, log.durations_s),
        ),
        fragments=_fragment_summary(pieces, ordered),
        leaving=LeavingSummary(
            together=leaving_together(pieces),
            in_large_departures=in_large_departures(leaving),
            at_once=weighted_percentiles(gone, gone),
            chance_within_300_s=dict(zip(AGES_S, leave_chances(pieces, ordered, AGES_S), strict=True)),
        ),
        provenance=log.provenance,
        kinds=_kinds(log, pieces),
    )


def _kinds(log: EventLog, pieces: IdleFragments) -> dict[str, KindSummary]:
    idle, largest = idle_node_s_by_kind(log, pieces), largest_by_kind(log)
    counts = np.bincount(log.node_kinds, minlength=1).tolist()
    return {
        kind: KindSummary(
            nodes=count,
            idle_share=idle[kind] / max(log.span_s * count, 1e-300),
            idle_node_hours=idle[kind] / 3600,
            largest=largest[kind],
        )
        for kind, count in zip(log.kind_names, counts, strict=False)
    }


def _fragment_summary(pieces: IdleFragments, ordered: NDArray[np.float64]) -> FragmentSummary:
    lengths = pieces.length_s
    if lengths.size == 0:
        return FragmentSummary(count=0, open=0, mean_s=0.0, percentiles_s={}, shares=())
    whole = max(float(lengths.sum()), 1e-300)
    shares = (
        LengthShare(up_to_s=bound, fragments=count / lengths.size, idle_time=float(ordered[:count].sum() / whole))
        for bound, count in zip(
            LENGTH_BOUNDS_S, np.searchsorted(ordered, LENGTH_BOUNDS_S, side="right").tolist(), strict=True
        )
    )
    return FragmentSummary(
        count=int(lengths.size),
        open=int(np.count_nonzero(pieces.open)),
        mean_s=float(lengths.mean()),
        percentiles_s=dict(zip(PERCENTILES, np.percentile(ordered, PERCENTILES).tolist(), strict=True)),
        shares=tuple(shares),
    )
