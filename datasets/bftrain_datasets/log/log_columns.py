"""Arithmetic on the columns of a log, and checks of its input, which raise BadValue with the field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bftrain.errors import BadValue
from bftrain.values import checks

_CHANGES_PER_BATCH: Final = 1 << 18  # changes of nodes; the columns of a batch fit in a CPU cache
STATE_BITS: Final = 2  # lowest bits of a number that also has a node's state
STATE_MASK: Final = (1 << STATE_BITS) - 1
_MOST_WHOLE_S: Final = 1 << 31
_UNITS_PER_S: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def epochs(moments: NDArray[Any]) -> NDArray[np.float64]:
    """Return numpy times in seconds UTC. Splits off whole seconds first, because floats cannot hold nanoseconds."""
    unit = _UNITS_PER_S[np.datetime_data(moments.dtype)[0]]
    whole, rest = np.divmod(moments.astype(np.int64), unit)
    seconds: NDArray[np.float64] = whole + rest / unit
    return seconds


def pack_changes(
    begin_s: float, times: NDArray[np.float64], nodes: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int8]]:
    """Sort changes by time and node into columns times, offsets, nodes, states, from ``begin_s`` on."""
    first_s = times.min(initial=np.inf)
    whole = (times - first_s).astype(np.int64) if times.size and np.ptp(times) < _MOST_WHOLE_S else None
    if whole is not None and (first_s + whole == times).all():
        at, change = sorted_pairs(whole, nodes << STATE_BITS | states)
        firsts = np.flatnonzero(begins_of_runs(at))
        distinct, nodes, states = first_s + at[firsts], change >> STATE_BITS, (change & STATE_MASK).astype(np.int8)
    else:
        order = np.lexsort((nodes, times))
        nodes, states = nodes[order], states[order]
        distinct, firsts = np.unique(times[order], return_index=True)
    if distinct.size == 0 or distinct[0] > begin_s:
        distinct = np.concatenate(([begin_s], distinct))
        firsts = np.concatenate(([0], firsts))
    offsets = np.concatenate((firsts, [times.size])).astype(np.int64)
    return distinct.astype(np.float64), offsets, nodes, states


def sorted_pairs(
    high: NDArray[np.integer[Any]], low: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sort pairs of numbers from 0 to 2**31 - 1 by the first, then by the second number.

    Packs each pair into one number, because numpy sorts 64-bit numbers several times faster than pairs.
    """
    pairs = high.astype("<i8")
    pairs <<= 32
    pairs |= low
    pairs.sort()
    halves = pairs.view("<i4")  # a view, not a copy
    return halves[1::2], halves[::2]


def begins_of_runs(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return whether each value differs from the previous one; true for the first."""
    begins = np.ones(values.size, dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins


def states_before(nodes: NDArray[np.int32], states: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return each node's state before each change, for changes in time order. Every node is busy at first."""
    before = np.empty_like(states)
    known = np.zeros(int(nodes.max(initial=0)) + 1, dtype=states.dtype)
    for part in parts_of(nodes.size):
        grouped, packed = sorted_pairs(nodes[part], np.arange(part.stop - part.start) << STATE_BITS | states[part])
        mine = (packed & STATE_MASK).astype(states.dtype)
        firsts = np.flatnonzero(begins_of_runs(grouped))
        lasts = mine[np.append(firsts[1:], mine.size) - 1]
        mine[1:] = mine[:-1]
        mine[firsts] = known[grouped[firsts]]
        known[grouped[firsts]] = lasts
        before[part][packed >> STATE_BITS] = mine
    return before


def parts_of(size: int) -> Iterator[slice]:
    """Return slices that cover a column, to process it in parts and bound memory."""
    return (slice(low, min(low + _CHANGES_PER_BATCH, size)) for low in range(0, size, _CHANGES_PER_BATCH))


def sums_by_time(values: NDArray[np.int8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of the values at each time; only the first time may have no values."""
    sums = np.zeros(offsets.size - 1, dtype=np.int64)
    empty = int(offsets[1] == 0)
    cuts = [*np.searchsorted(offsets[:-1], np.arange(0, values.size, _CHANGES_PER_BATCH)).tolist(), sums.size]
    for low, high in pairwise(sorted({max(cut, empty) for cut in cuts})):
        first, last = int(offsets[low]), int(offsets[high])
        sums[low:high] = np.add.reduceat(values[first:last], offsets[low:high] - first, dtype=np.int64)
    return sums


def running_sums(
    times: NDArray[np.float64], changes: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct times in order, and the sum of all changes up to each."""
    distinct, place = np.unique(times, return_inverse=True)
    sums = np.zeros(distinct.size, dtype=np.int64)
    np.add.at(sums, place, changes)
    return distinct, np.cumsum(sums)


def last_changes(nodes: NDArray[np.int32], first: int, node_count: int) -> NDArray[np.int64]:
    """Return the index of each node's last change from index ``first``, or -1."""
    last = np.full(node_count, -1, dtype=np.int64)
    for part in parts_of(nodes.size):
        low = max(part.start, first)
        if low < part.stop:
            last[nodes[low : part.stop]] = np.arange(low, part.stop)
    return last


def first_mentioned(codes: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Renumber codes by first occurrence; return also the old codes in the new order."""
    used, first, places = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank[places.reshape(-1)], used[order].astype(np.intp)


def reject(name: str, problem: str, fix: str | None = None) -> NoReturn:
    """Raise ``BadValue`` for a field of an event log."""
    raise BadValue(problem, where=f"EventLog.{name}", fix=fix)


def is_node_name(name: str) -> bool:
    """Return whether a node may have this name: printable text without surrounding space."""
    return bool(name) and name == name.strip() and name.isprintable()


def checked_names(given: Sequence[str], field: str = "node_names") -> tuple[str, ...]:
    """Return the names after checking that there is at least one, and no duplicates."""
    names = () if isinstance(given, str) else tuple(given)
    if not names:
        reject(field, "must be a list of at least one name")
    for name in names:
        if not is_node_name(name):
            reject(field, f"must be printable texts without surrounding space, not {name!r}")
    twice = checks.repeated(names)
    if twice is not None:
        reject(field, f"names '{twice}' twice")
    return names


def checked_column(name: str, given: ArrayLike, kind: type[np.number[Any]]) -> NDArray[Any]:
    """Return a column converted to ``kind`` without loss, as a copy unless it is immutable."""
    column = np.asarray(given)
    if column.ndim != 1:
        reject(name, f"must be a one-dimensional list, not {column.ndim} dimensions")
    allowed = "iuf" if kind is np.float64 else "iu"
    if column.size and column.dtype.kind not in allowed:
        reject(name, f"must contain {np.dtype(kind)} numbers, not {column.dtype}")
    base: object = column.base
    if isinstance(base, bytes) and column.dtype == kind and column.flags.aligned:
        return column  # read from a file, immutable
    copy = column.astype(kind)
    if "f" not in allowed and column.size and copy.dtype != column.dtype and not np.array_equal(copy, column):
        reject(name, f"contains numbers beyond the range of {np.dtype(kind)}")
    return copy


def chosen_places(nodes: slice | Sequence[int] | NDArray[np.integer[Any]] | None, node_count: int) -> NDArray[np.int64]:
    """Return the indices of the selected nodes, in the given order."""
    if nodes is None:
        return np.arange(node_count)
    if isinstance(nodes, slice):
        chosen = np.arange(node_count)[nodes]
    else:
        chosen = np.asarray(nodes)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            reject("select.nodes", "must be a slice or a list of whole numbers")
    if chosen.size == 0:
        reject("select.nodes", "selects no node")
    if int(chosen.min()) < 0 or int(chosen.max()) >= node_count:
        reject("select.nodes", f"must lie between 0 and {node_count - 1}")
    if np.unique(chosen).size != chosen.size:
        reject("select.nodes", "selects a node twice")
    return chosen.astype(np.int64)
