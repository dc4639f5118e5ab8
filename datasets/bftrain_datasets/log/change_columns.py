"""Arithmetic on the columns of a log: sorting changes, and following each node through them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNITS_PER_S: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def epochs(moments: NDArray[Any]) -> NDArray[np.float64]:
    """Seconds UTC of numpy's times. Whole seconds come first, because no float holds all of 2021 in nanoseconds."""
    unit = _UNITS_PER_S[np.datetime_data(moments.dtype)[0]]
    whole, rest = np.divmod(moments.astype(np.int64), unit)
    seconds: NDArray[np.float64] = whole + rest / unit
    return seconds


def pack_changes(
    begin_s: float,
    times: NDArray[np.float64],
    nodes: NDArray[np.int32],
    states: NDArray[np.int8],
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32], NDArray[np.int8]]:
    """Sort changes by time and node into columns times, offsets, nodes, states, from ``begin_s`` on."""
    order = np.lexsort((nodes, times))
    distinct, firsts = np.unique(times[order], return_index=True)
    if distinct.size == 0 or distinct[0] > begin_s:
        distinct = np.concatenate(([begin_s], distinct))
        firsts = np.concatenate(([0], firsts))
    offsets = np.concatenate((firsts, [times.size])).astype(np.int64)
    return distinct.astype(np.float64), offsets, nodes[order], states[order]


def by_node(nodes: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Order that puts each node's changes together, in time, and where in it a node's first change stands."""
    few = nodes.size > 0 and int(nodes.max()) <= np.iinfo(np.uint16).max
    keys = nodes.astype(np.uint16) if few else nodes  # numpy sorts 16-bit keys by radix, many times faster
    order = np.argsort(keys, kind="stable")
    grouped = nodes[order]
    first = np.ones(nodes.size, dtype=np.bool_)
    first[1:] = grouped[1:] != grouped[:-1]
    return order, first


def states_before(nodes: NDArray[np.int32], states: NDArray[np.int8]) -> NDArray[np.int8]:
    """For changes in order of time: the state each node had before. Every node is busy at first."""
    order, first = by_node(nodes)
    grouped = np.empty_like(states)
    grouped[1:] = states[order][:-1]
    grouped[first] = 0
    before = np.empty_like(states)
    before[order] = grouped
    return before


def first_mentioned(codes: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Renumber codes in the order in which they come first; give also which old ones these are."""
    used, first, places = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(order.size, dtype=np.int32)
    rank[order] = np.arange(order.size, dtype=np.int32)
    return rank[places.reshape(-1)], used[order].astype(np.intp)
