"""Doubts about a log's idle node-time: how much of it may not have been idle, by cause, in any part of the log.

An import writes down for each cause how many idle nodes are doubtful at which time (`DoubtfulTime` in the log's
provenance). A part of the log keeps these curves, so they are cut to its time and scaled to its nodes here. Every idle
node-second is doubtful for one cause at most: the first in the order of `CAUSES`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from bftrain import text_formats
from bftrain_datasets.log.eventlog import BUSY, IDLE
from bftrain_datasets.log.provenance import DoubtfulTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_datasets.log.provenance import LogProvenance

CENSORED_END: Final = "censored_end"
DOWNTIME: Final = "suspected_downtime"
ALWAYS_IDLE: Final = "always_idle"
OVER_CAPACITY: Final = "over_capacity"
SIMULATED: Final = "simulated"
CAUSES: Final[Mapping[str, str]] = {  # each after "because"; ``{their}`` and ``{them}`` are the idle node-hours
    CENSORED_END: "the records end and jobs that ended later may be missing",
    DOWNTIME: "all nodes were idle at once and the machine may have been down",
    ALWAYS_IDLE: "{their} nodes never ran a job",
    OVER_CAPACITY: "more nodes were in use than the machine has",
    SIMULATED: "a simulated main scheduler left {them} idle",
}
COUNTS: Final = "counts"  # only how many nodes were busy is known
RECORDS: Final = "records"
LABELS: Final[Mapping[str, str]] = {
    SIMULATED: "The log is simulated: no record tells which nodes were idle",
    COUNTS: "The log is derived from counts of busy nodes: which nodes were idle is assumed",
}
_LEAST_SHARE: Final = 0.0005  # less would be shown as 0.0 %
_HOUR_S: Final = 3600.0


class IdleDoubts(msgspec.Struct, frozen=True, kw_only=True):
    """Idle node-hours of a log, those that are doubtful by cause, and whether it is out of records."""

    source: str
    idle_node_h: float
    causes: dict[str, float]

    @property
    def doubtful_node_h(self) -> float:
        """All that is doubtful."""
        return math.fsum(self.causes.values())

    @property
    def share(self) -> float | None:
        """The doubtful part of the idle node-time."""
        return self.doubtful_node_h / self.idle_node_h if self.idle_node_h else None

    @property
    def sentence(self) -> str:
        """Say how much is doubtful and why; nothing if nothing is."""
        if not self.share or self.share < _LEAST_SHARE:
            return ""
        one = self.idle_node_h == 1.0
        hours = text_formats.counted(self.idle_node_h, "idle node-hour")
        if self.share > 1.0 - _LEAST_SHARE:
            part = f"All of {hours}" if one else f"All {hours}"
        else:
            share = text_formats.percent(self.share)
            part = f"{share} of {hours}" if one else f"{share} of the {hours}"
        return f"{part} {'is' if one else 'are'} doubtful{self._reasons(one=one)}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader of any figure of the log has to know, as sentences."""
        label = LABELS.get(self.source, "")
        # Of a simulated log all is doubtful, which the first sentence says
        doubtful = "" if label and set(self.causes) <= {SIMULATED} else self.sentence
        return tuple(text for text in (label, doubtful) if text)

    def to_dict(self) -> dict[str, Any]:
        """Return it for ``summary.json``."""
        return {
            "source": self.source,
            "idle_node_h": self.idle_node_h,
            "doubtful_node_h": self.doubtful_node_h,
            "share": self.share,
            "causes": self.causes,
            "sentence": self.sentence,
            "caveats": list(self.caveats),
        }

    def _reasons(self, *, one: bool) -> str:
        """Say why, with the share of each cause if there are several."""
        pronouns = {"their": "its", "them": "it"} if one else {"their": "their", "them": "them"}
        ordered = sorted(self.causes.items(), key=lambda each: -each[1])
        shares = [(CAUSES[cause].format(**pronouns), hours / self.idle_node_h) for cause, hours in ordered]
        named = [(why, share) for why, share in shares if share >= _LEAST_SHARE] or shares[:1]
        if len(named) == 1:
            return f", because {named[0][0]}"
        return f": {', '.join(f'{text_formats.percent(share)} because {why}' for why, share in named)}"


def source_of(provenance: LogProvenance) -> str:
    """Return whether a log is out of ``records``, out of ``counts``, or ``simulated``."""
    names = {each.name for each in provenance.findings}
    if "derived" in names or provenance.made_by.startswith("derived"):
        return SIMULATED
    return COUNTS if "which_unknown" in names else RECORDS


def doubts_of(log: EventLog) -> IdleDoubts:
    """Return the idle node-hours of a log and how much of them is doubtful.

    >>> from bftrain_datasets.log.log_generator import sample_log
    >>> doubts_of(sample_log()).sentence
    ''
    """
    times, counts = _by_cause(log)
    lasting = np.diff(times, append=log.end_s)
    node_s = {cause: math.fsum((nodes * lasting).tolist()) for cause, nodes in counts.items()}
    idle_s = log.idle_node_s
    left_s = idle_s - math.fsum(node_s.values())
    over_s = sum(_integral(each, log) for each in log.provenance.doubtful if each.cause == OVER_CAPACITY)
    node_s[OVER_CAPACITY] = min(max(left_s, 0.0), over_s)
    causes = {cause: node_s[cause] / _HOUR_S for cause in CAUSES if node_s.get(cause, 0.0) > 0.0}
    return IdleDoubts(source=source_of(log.provenance), idle_node_h=idle_s / _HOUR_S, causes=causes)


def doubtful_nodes(log: EventLog) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how many idle nodes are doubtful over time, as a step curve: times, and nodes from each on.

    That a log is simulated holds for all of its time, and is left out.
    """
    times, counts = _by_cause(log)
    found = [nodes for cause, nodes in counts.items() if cause != SIMULATED]
    return times, np.sum(found, axis=0) if found else np.zeros(times.size)


def _by_cause(log: EventLog) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Divide the idle nodes at all times among the causes."""
    curves = {each.cause: each for each in log.provenance.doubtful if each.cause != OVER_CAPACITY}
    moved = [np.asarray(each.times) for each in curves.values()]
    times = np.unique(np.concatenate((log.times, *moved)))
    times = times[(times >= log.start_s) & (times < log.end_s)]
    left = _at(times, log.times, log.pool_sizes())
    found = {}
    for cause in CAUSES:
        if cause in curves:
            found[cause] = np.minimum(left, _scaled(curves[cause], times, log))
        elif cause == SIMULATED == source_of(log.provenance):
            found[cause] = left
        else:
            continue
        left = left - found[cause]  # not in place: the curve of a simulated log is what was left
    return times, found


def _at(
    times: NDArray[np.float64], known: NDArray[np.float64], values: NDArray[np.generic] | Sequence[int]
) -> NDArray[np.float64]:
    """Return a step curve's value at each time; before its first step that is 0."""
    steps = np.concatenate(([0.0], np.asarray(values, dtype=np.float64)))
    return steps[np.searchsorted(known, times, side="right")]


def _scaled(curve: DoubtfulTime, times: NDArray[np.float64], log: EventLog) -> NDArray[np.float64]:
    """Return the doubtful nodes of a log that may have fewer nodes than the imported one: in proportion."""
    share = len(log.node_names) / curve.of_nodes
    return _at(times, np.asarray(curve.times), curve.nodes) * min(share, 1.0)


def _integral(curve: DoubtfulTime, log: EventLog) -> float:
    times = np.unique(np.clip(np.asarray((log.start_s, *curve.times)), log.start_s, log.end_s))
    return float((_scaled(curve, times, log) * np.diff(times, append=log.end_s)).sum())


def doubtful_times(
    log: EventLog, *, censored: bool, by_counts: bool, downtime: Sequence[tuple[float, float]]
) -> tuple[DoubtfulTime, ...]:
    """Return the doubtful idle nodes of a log that was just imported.

    ``censored`` says that its end may lack jobs, ``by_counts`` that nodes are only numbered, ``downtime`` when the
    machine may have been down.
    """
    pool = log.pool_sizes().astype(np.int64)
    last = np.full(len(log.node_names), -np.inf)
    np.maximum.at(last, log.nodes[log.offsets[1] :], log.times[log.time_index[log.offsets[1] :]])
    always = int(((log.states_at(log.start_s) == IDLE) & np.isinf(last)).sum())
    tail = np.zeros(pool.size, dtype=np.int64)
    if censored:
        tail = _idle_to_the_end(log, last, pool, by_counts=by_counts)
    down = np.zeros(pool.size, dtype=np.int64)
    for begin_s, end_s in downtime:
        inside = (log.times >= begin_s) & (log.times < end_s)
        down[inside] = (pool - tail)[inside]
    unused = np.minimum(always, pool - tail - down)
    found = ((CENSORED_END, tail), (DOWNTIME, down), (ALWAYS_IDLE, unused))
    curves = (curve_of(cause, log.times, nodes, len(log.node_names)) for cause, nodes in found)
    return tuple(curve for curve in curves if any(curve.nodes))


def _idle_to_the_end(
    log: EventLog, last: NDArray[np.float64], pool: NDArray[np.int64], *, by_counts: bool
) -> NDArray[np.int64]:
    """Count at each time the nodes that stay idle until the end after a job; numbered nodes: after the last start."""
    if by_counts:
        starts = log.times[log.time_index[log.states == BUSY]]
        since_s = float(starts.max()) if starts.size else log.start_s
        return np.where(log.times >= since_s, pool, 0)
    idle = np.sort(last[np.isfinite(last) & (log.states_at(log.end_s) == IDLE)])
    return np.searchsorted(idle, log.times, side="right").astype(np.int64)


def curve_of(cause: str, times: NDArray[np.float64], nodes: NDArray[np.int64], of_nodes: int) -> DoubtfulTime:
    """Return the curve with those times only at which it changes."""
    changed = np.flatnonzero(np.diff(nodes, prepend=0))
    return DoubtfulTime(
        cause=cause, of_nodes=of_nodes, times=tuple(times[changed].tolist()), nodes=tuple(nodes[changed].tolist())
    )
