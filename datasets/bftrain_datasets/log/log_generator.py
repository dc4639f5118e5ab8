"""Generator of logs for a machine like Summit. BFTrainer (arXiv:2106.12091) measured its idle nodes in 2021.

The model: at random times a *batch* of nodes becomes idle, as after a large job. A batch has one or more *groups*; the
nodes in a group stay idle equally long and leave together. A slow random wave makes groups larger and longer at some
hours, which creates bursts; a second wave varies the batch frequency. Lengths and sizes follow fixed distributions
exactly, independent of the waves. Groups that would leave at about the same time as a larger group leave with it, as
when a large job starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadValue
from bftrain.node_units import GPU, NODE
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.log import npz_log
from bftrain_datasets.log.eventlog import EventLog, LogBuilder, NodeState
from bftrain_datasets.log.provenance import LogProvenance

SUMMIT_NODES: Final = 4734
SUMMIT_IDLE_SHARE: Final = 0.0827
# The fraction of Summit's idle fragments up to each length in seconds
LENGTH_PARTS: Final = (0.0, 0.10, 0.15, 0.25, 0.50, 0.56, 0.75, 0.90, 0.91, 0.95, 0.99, 0.999, 1.0)
LENGTH_SECONDS: Final = (60, 91, 120, 162, 475, 600, 1397, 3269, 3600, 4723, 9246, 13_000, 20_000)
# Group sizes are log-normal. Median and spread fit Summit; their scaling with the machine is an assumption
GROUP_MEDIAN: Final = 2.33
GROUP_SPREAD: Final = 2.03
GROUP_SCALING: Final = 0.7
LARGEST_GROUP_PART: Final = 0.6

GROUPS_PER_BATCH: Final = 1.8
WAVE_STEP_S: Final = 300.0
BURST_TIME_S: Final = 3600.0
RATE_TIME_S: Final = 5400.0
RATE_SPREAD: Final = 0.6
# Contributions to a group's length and size: fractions of the variance, as correlations
LENGTH_WITH_BURST: Final = 0.76
LENGTH_WITH_BATCH: Final = 0.3
SIZE_WITH_BURST: Final = 0.42
SIZE_WITH_BATCH: Final = 0.7
# Groups below this size (nodes, on Summit) leave with a larger group if that shifts them by at most this fraction of
# their length
LEAVE_WITH: Final = ((60, 0.5), (8, 0.3))

FULLEST_PART: Final = 0.95
OVERFLOW_ROUNDS: Final = 20

WARM_UP_S: Final = 4 * 3600.0
DAY_S: Final = 86_400.0
ATTEMPTS: Final = 5
SHARE_TOLERANCE: Final = 0.01
LONGEST_DAYS: Final = 3660
LARGEST_IDLE_SHARE: Final = 0.5

SAMPLES: Final = (NODE, GPU)  # units of the built-in samples
SAMPLE_START_S: Final = 1_772_409_600.0  # Monday 2026-03-02, UTC


# Nodes that join and leave together: start and end (seconds since the warm-up start), number of nodes
_Groups = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]


def generate_log(
    nodes: int, days: float, seed: int, *, idle_share: float = SUMMIT_IDLE_SHARE, start_s: float = 0.0
) -> EventLog:
    """Generate a log of ``nodes`` nodes over ``days`` days with Summit-like idle time.

    Equal arguments, ``seed`` included, lead to equal logs. The idle share is within one per cent of ``idle_share``
    (above 0, at most 0.5) if the log is long enough. Smaller machines have smaller groups. Times are whole seconds
    after ``start_s`` (UTC). Raises :class:`bftrain.errors.BadValue` for an argument out of range.

    >>> from bftrain import generate_log
    >>> len(generate_log(64, 0.5, seed=1).node_names)
    64
    """
    if nodes < 1:
        raise BadValue(f"must be at least 1, not {nodes}", where="generate_log.nodes")
    if nodes > MOST_NODES:
        raise BadValue(f"must not exceed {MOST_NODES:,}, but is {nodes:,}", where="generate_log.nodes")
    if not 0 < days <= LONGEST_DAYS:
        raise BadValue(f"must be above 0 and up to {LONGEST_DAYS}, not {days:g}", where="generate_log.days")
    if seed < 0:
        raise BadValue(f"must not be negative, but is {seed}", where="generate_log.seed")
    if not 0 < idle_share <= LARGEST_IDLE_SHARE:
        problem = f"must be above 0 and up to {LARGEST_IDLE_SHARE}, not {idle_share:g}"
        raise BadValue(problem, where="generate_log.idle_share")
    asked = idle_share
    logs = []
    for _ in range(ATTEMPTS):
        span_s = round(days * DAY_S)
        shape, spots = np.random.default_rng(seed).spawn(2)
        groups = _draw_groups(nodes, span_s + WARM_UP_S, asked, shape)
        which, group = _choose_nodes(groups, nodes, spots.random(groups[2].size))
        join, leave = groups[0][group] - WARM_UP_S, groups[1][group] - WARM_UP_S
        seen = (leave > 0) & (join < span_s)
        which, join, leave = which[seen], np.maximum(join[seen], 0.0), leave[seen]
        ended = leave < span_s
        width = len(str(nodes))
        builder = LogBuilder(f"n{number:0{width}d}" for number in range(1, nodes + 1))
        builder.add_columns(start_s + join, which, np.full(which.size, NodeState.IDLE))
        builder.add_columns(start_s + leave[ended], which[ended], np.full(int(ended.sum()), NodeState.BUSY))
        options = {"nodes": nodes, "days": days, "seed": seed, "idle_share": idle_share, "start_s": start_s}
        log = builder.build(
            begin_s=start_s,
            end_s=start_s + span_s,
            provenance=LogProvenance(made_by="generator summit-like", options=options),
        )
        logs.append(log)
        if abs(log.idle_share / idle_share - 1) <= SHARE_TOLERANCE:
            break
        # Bursts overflow a machine and logs cut fragments on both sides: raise the target by the missing share
        asked *= min(4.0, idle_share / log.idle_share) if log.idle_share else 4.0
    return min(logs, key=lambda log: abs(log.idle_share - idle_share))


def sample_log(unit: str = NODE) -> EventLog:
    """Return a built-in sample with realistic dates, for first tries and examples.

    ``unit`` is ``"node"`` for a Summit-like machine of 256 nodes for two and a half days, which equals
    ``generate_log(256, 2.5, 54, start_s=SAMPLE_START_S)`` but loads in a tenth of the time; or ``"gpu"`` for a week of
    32 hosts with eight GPUs each, shared by jobs like those of Microsoft's Philly cluster. Raises
    :class:`bftrain.errors.BadValue` for another unit.

    >>> from bftrain import sample_log
    >>> len(sample_log().node_names), sample_log("gpu").node_names[0]
    (256, 'g01/gpu0')
    """
    if unit not in SAMPLES:
        raise BadValue(f"must be one of {', '.join(SAMPLES)}, not {unit!r}", where="sample_log.unit")
    return npz_log.load(Path(__file__).with_name(f"sample_{unit}s.npz"))


def _draw_groups(nodes: int, span_s: float, idle_share: float, rng: np.random.Generator) -> _Groups:
    """Return random groups sorted by joining time; separate random streams limit the effect of more groups."""
    streams = iter(rng.spawn(9))
    steps = int(span_s / WAVE_STEP_S) + 2
    burst = _wave(steps, BURST_TIME_S, next(streams))
    rate = np.exp(RATE_SPREAD * _wave(steps, RATE_TIME_S, next(streams)))
    scale = (nodes / SUMMIT_NODES) ** GROUP_SCALING
    fragments = idle_share * nodes * span_s / _lengths(_even(10_000)).mean()
    count = max(1, round(fragments / _sizes(_even(10_000), nodes, scale).mean()))
    batches = max(1, round(count / GROUPS_PER_BATCH))
    passed = np.concatenate(([0.0], np.cumsum(rate)))
    moments = np.interp(next(streams).random(batches), passed / passed[-1], np.arange(steps + 1) * WAVE_STEP_S)
    extra = (next(streams).random(count - batches) * batches).astype(np.int64)
    batch = np.concatenate((np.arange(batches), extra))
    join_s = np.floor(moments[batch])
    now = burst[np.minimum((join_s / WAVE_STEP_S).astype(np.int64), steps - 1)]

    def mixed(with_burst: float, with_batch: float) -> NDArray[np.float64]:
        own = np.sqrt(1 - with_burst**2 - with_batch**2)
        shared = next(streams).standard_normal(batches)[batch]
        mixture: NDArray[Any] = with_burst * now + with_batch * shared + own * next(streams).standard_normal(count)
        return mixture

    sizes = _sizes(_ranks(mixed(SIZE_WITH_BURST, SIZE_WITH_BATCH), np.ones(count)), nodes, scale)
    lengths = _lengths(_ranks(mixed(LENGTH_WITH_BURST, LENGTH_WITH_BATCH), sizes))
    join_s = _avoid_full_machine(join_s, lengths, sizes, nodes, span_s, next(streams))
    leave_s = _leave_with_larger(join_s, np.floor(join_s + lengths), sizes, scale)
    order = np.argsort(join_s, kind="stable")
    return join_s[order], leave_s[order], sizes[order].astype(np.int64)


def _wave(steps: int, memory_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a mean-reverting random walk of variance 1 with a memory of about ``memory_s``."""
    kept = float(np.exp(-WAVE_STEP_S / memory_s))
    kicks = (rng.standard_normal(steps) * np.sqrt(1 - kept**2)).tolist()
    value = float(rng.standard_normal())
    wave = []
    for kick in kicks:
        value = kept * value + kick
        wave.append(value)
    return np.array(wave)


def _even(count: int) -> NDArray[np.float64]:
    return (np.arange(count) + 0.5) / count


def _ranks(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weighted rank of each value, between 0 and 1."""
    order = np.argsort(values)
    passed = np.cumsum(weights[order])
    ranks = np.empty(values.size)
    ranks[order] = (passed - weights[order] / 2) / passed[-1]
    return ranks


def _lengths(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithms: NDArray[np.float64] = np.interp(parts, LENGTH_PARTS, np.log(LENGTH_SECONDS))
    seconds: NDArray[np.float64] = np.exp(logarithms)
    return seconds


def _sizes(parts: NDArray[np.float64], nodes: int, scale: float) -> NDArray[np.float64]:
    from statistics import NormalDist  # noqa: PLC0415 - the built-in sample needs no generator

    normal = NormalDist()
    deviations = np.array([normal.inv_cdf(part) for part in parts.tolist()])
    sizes = np.rint(GROUP_MEDIAN * scale * np.exp(GROUP_SPREAD * deviations))
    largest = max(1.0, np.floor(LARGEST_GROUP_PART * nodes))
    clipped: NDArray[np.float64] = np.clip(sizes, 1.0, largest)
    return clipped


def _avoid_full_machine(
    join_s: NDArray[np.float64],
    lengths: NDArray[np.float64],
    sizes: NDArray[np.float64],
    nodes: int,
    span_s: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Move groups that lack busy nodes to another time, to keep the distributions unchanged."""
    steps = int((span_s + LENGTH_SECONDS[-1]) / WAVE_STEP_S) + 2
    for _ in range(OVERFLOW_ROUNDS):
        begin = (join_s / WAVE_STEP_S).astype(np.int64)
        end = ((join_s + lengths) / WAVE_STEP_S).astype(np.int64)
        load = np.cumsum(np.bincount(begin, sizes, steps) - np.bincount(end, sizes, steps))
        excess = np.maximum(0.0, 1 - FULLEST_PART * nodes / np.maximum(load, 1.0))
        moved = rng.random(join_s.size) < excess[begin]
        if not moved.any():
            break
        join_s = np.where(moved, np.floor(rng.random(join_s.size) * span_s), join_s)
    return join_s


def _leave_with_larger(
    join_s: NDArray[np.float64], leave_s: NDArray[np.float64], sizes: NDArray[np.float64], scale: float
) -> NDArray[np.float64]:
    """Move departures of small groups to the nearest departure of a large one, if near enough."""
    settled = np.zeros(sizes.size, dtype=np.bool_)
    for nodes, part in LEAVE_WITH:
        large = sizes >= max(2.0, nodes * scale)
        moments = np.unique(leave_s[large])
        if moments.size == 0:
            continue
        after = np.minimum(np.searchsorted(moments, leave_s), moments.size - 1)
        before = np.maximum(after - 1, 0)
        nearer = np.where(leave_s - moments[before] < moments[after] - leave_s, moments[before], moments[after])
        near = (np.abs(nearer - leave_s) <= part * (leave_s - join_s)) & (nearer > join_s)
        moved = near & ~settled & ~large
        leave_s = np.where(moved, nearer, leave_s)
        settled |= moved | large
    return leave_s


def _choose_nodes(
    groups: _Groups, nodes: int, spots: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Assign neighbouring busy nodes to each group, from a random position; return each fragment's node and group.

    A full machine shrinks groups. A leaving node rejoins after one second at the earliest.
    """
    idle_until = np.full(nodes, -1.0)
    chosen = []
    for join_s, leave_s, size, spot in zip(*(column.tolist() for column in (*groups, spots)), strict=True):
        busy = np.flatnonzero(idle_until < join_s)
        first = int(spot * busy.size)
        taken = busy[first : first + size].copy()  # a copy, because a view would keep the whole array in memory
        missing = min(size, busy.size) - taken.size
        if missing > 0:
            taken = np.concatenate((taken, busy[:missing]))
        idle_until[taken] = leave_s
        chosen.append(taken)
    counts = [taken.size for taken in chosen]
    return np.concatenate(chosen), np.repeat(np.arange(len(chosen)), counts)
