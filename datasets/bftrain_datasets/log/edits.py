"""Changes to a log: declaring time as down, and closing idle gaps that are too short to use."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import BUSY, DOWN
from bftrain_datasets.log.measures import fragments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.log.eventlog import EventLog


def mark_down(log: EventLog, windows: Sequence[tuple[float, float]]) -> EventLog:
    """Make all nodes down in these windows (seconds UTC); after each they are what they would have been."""
    joined = _united(windows, log.start_s, log.end_s)
    if not joined:
        return log
    builder = LogBuilder(log.node_names)
    everyone = np.arange(len(log.node_names), dtype=np.int32)
    at = log.times[log.time_index]
    inside = np.zeros(at.size, dtype=np.bool_)
    for begin_s, end_s in joined:
        inside |= (at >= begin_s) & (at < end_s)
    builder.add_columns(at[~inside], log.nodes[~inside], log.states[~inside])
    for begin_s, end_s in joined:
        builder.add_columns(np.full(everyone.size, begin_s), everyone, np.full(everyone.size, DOWN, dtype=np.int8))
        if end_s < log.end_s:
            builder.add_columns(np.full(everyone.size, end_s), everyone, log.states_at(end_s))
    made = builder.build(begin_s=log.start_s, end_s=log.end_s)
    return replace(made, kind_names=log.kind_names, node_kinds=log.node_kinds, provenance=log.provenance)


def close_short_gaps(log: EventLog, min_gap_s: float) -> tuple[EventLog, int, float]:
    """Make idle fragments shorter than this busy; give also how many there were, and their node-seconds.

    Fragments that the log's beginning or end cuts off are kept, because their length is not known.
    """
    pieces = fragments(log)
    short = (pieces.length_s < min_gap_s) & ~pieces.open & (pieces.join > 0)
    if not short.any():
        return log, 0, 0.0
    states = log.states.copy()
    width = len(log)
    keys = log.nodes.astype(np.int64) * width + log.time_index
    joins = np.isin(keys, pieces.node[short].astype(np.int64) * width + pieces.join[short])
    states[joins] = BUSY
    builder = LogBuilder(log.node_names)
    builder.add_columns(log.times[log.time_index], log.nodes, states)
    made = builder.build(begin_s=log.start_s, end_s=log.end_s)
    made = replace(made, kind_names=log.kind_names, node_kinds=log.node_kinds, provenance=log.provenance)
    return made, int(short.sum()), float(pieces.length_s[short].sum())


def _united(windows: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Cut windows to the log and join those that overlap or touch."""
    cut = sorted((max(low, begin_s), min(high, end_s)) for low, high in windows)
    joined: list[tuple[float, float]] = []
    for low, high in cut:
        if low >= high:
            continue
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined
