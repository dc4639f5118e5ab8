"""What looks wrong in a finished log, wherever it came from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.importing.hazard_kinds import HAZARDS
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import BUSY, IDLE
from bftrain_datasets.log.provenance import LogFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog


KINDS: Final = frozenset({"suspected_downtime", "always_idle", "relative_times"})


def suspicions(log: EventLog, downtime_after_s: float) -> Iterator[LogFinding]:
    """Look for downtime, nodes that no job ever used, and times that count from zero."""
    downtime = _downtime(log, downtime_after_s)
    if downtime is not None:
        yield downtime
    whole = _always_idle(log)
    if whole.size and log.span_s > 0:
        name = log.node_names[int(whole[0])]
        yield _finding("always_idle", int(whole.size), whole.size * log.span_s, f"node {name}")
    if log.start_s < time_formats.SMALLEST_EPOCH_S:
        yield _finding("relative_times", len(log), 0.0, f"at {time_formats.time_text(log.start_s)}")


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


def _downtime(log: EventLog, longer_than_s: float) -> LogFinding | None:
    """Find downtime; also said is how long nothing ran in all, as short pauses can be part of a longer one."""
    quiet = all_idle(log, 0.0)
    long = [(begin_s, end_s) for begin_s, end_s in quiet if end_s - begin_s > longer_than_s]
    if not long:
        return None
    long_s, all_s = (math.fsum(end_s - begin_s for begin_s, end_s in spans) for spans in (long, quiet))
    name = "suspected_downtime"
    done = (
        f"{HAZARDS[name].done}; {long_s / 3600:,.1f} h in pauses longer than {longer_than_s:,.0f} s, and with shorter "
        f"ones nothing ran for {all_s / 3600:,.1f} h in all"
    )
    first = f"at {time_formats.time_text(long[0][0])}"
    return LogFinding(name=name, count=len(long), node_s=long_s * len(log.node_names), first=first, done=done)


def _always_idle(log: EventLog) -> NDArray[np.int64]:
    """Nodes that are idle when the log begins, and never change."""
    later = np.bincount(log.nodes[log.offsets[1] :], minlength=len(log.node_names))
    return np.flatnonzero((log.states_at(log.start_s) == IDLE) & (later == 0))


def _finding(name: str, count: int, node_s: float, first: str) -> LogFinding:
    return LogFinding(name=name, count=count, node_s=node_s, first=first, done=HAZARDS[name].done)
