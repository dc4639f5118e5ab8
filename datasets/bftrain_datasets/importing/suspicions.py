"""What looks wrong in a finished log, wherever it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.eventlog import BUSY
from bftrain_datasets.importing import moments
from bftrain_datasets.importing.hazards import HAZARDS
from bftrain_datasets.measures import fragments
from bftrain_datasets.provenance import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_datasets.eventlog import EventLog


KINDS: Final = frozenset({"suspected_downtime", "always_idle", "relative_times"})


def suspicions(log: EventLog, downtime_after_s: float) -> Iterator[Finding]:
    """Look for downtime, nodes that no job ever used, and times that count from zero."""
    quiet = all_idle(log, downtime_after_s)
    if quiet:
        whole_s = sum(end_s - begin_s for begin_s, end_s in quiet)
        yield _finding("suspected_downtime", len(quiet), whole_s * len(log.node_names), f"at {quiet[0][0]:.0f} s UTC")
    pieces = fragments(log)
    whole = pieces.node[(pieces.join == 0) & pieces.open]
    if whole.size and log.span_s > 0:
        name = log.node_names[int(whole[0])]
        yield _finding("always_idle", int(whole.size), whole.size * log.span_s, f"node {name}")
    if log.start_s < moments.SMALLEST_EPOCH_S:
        yield _finding("relative_times", len(log), 0.0, f"at {log.start_s:g} s")


def all_idle(log: EventLog, longer_than_s: float) -> list[tuple[float, float]]:
    """Times longer than this in which some nodes are idle and none is busy."""
    states, offsets = log.states, log.offsets
    change = (states == BUSY).astype(np.int64) - (log.before == BUSY)
    busy = len(log.node_names) + np.concatenate(([0], np.cumsum(change)))[offsets[1:]]
    quiet = (busy == 0) & (log.pool_sizes() > 0)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], quiet, [False])).astype(np.int8)))
    bounds = np.append(log.times, log.end_s)
    spans = zip(bounds[edges[::2]].tolist(), bounds[edges[1::2]].tolist(), strict=True)
    return [(begin_s, end_s) for begin_s, end_s in spans if end_s - begin_s > longer_than_s]


def _finding(name: str, count: int, node_s: float, first: str) -> Finding:
    return Finding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done)
