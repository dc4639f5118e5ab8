"""Doubtful idle node-time of a log, by cause, for any part of the log.

For each cause, an import records the number of doubtful idle nodes over time (`DoubtfulTime` in the log's provenance).
A part of the log inherits these curves, cut to its time and scaled to its nodes here. Every idle node-second is
doubtful for one cause only: the first in `CAUSES`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from bftrain import text_formats
from bftrain.node_units import NODE, in_words_of, node_of
from bftrain_datasets.log.eventlog import BUSY, IDLE, EventLog
from bftrain_datasets.log.log_columns import last_changes, running_sums, sums_by_time
from bftrain_datasets.log.provenance import DoubtfulTime, LogProvenance

CENSORED_END: Final = "censored_end"
DOWNTIME: Final = "suspected_downtime"
NODE_FAILED: Final = "node_failed"
ALWAYS_IDLE: Final = "always_idle"
LATE_NODES: Final = "late_nodes"
ROWS_ASIDE: Final = "rows_aside"
HOSTS_INCOMPLETE: Final = "hosts_incomplete"
PROCS_AS_NODES: Final = "procs_as_nodes"
POLL_GAP: Final = "poll_gap"
OVER_CAPACITY: Final = "over_capacity"
CUT_OFF: Final = "cut_off"
SIMULATED: Final = "simulated"
CAUSES: Final[Mapping[str, str]] = {  # texts that follow the idle node-hours
    CENSORED_END: "after the last recorded jobs: later jobs may be missing",
    DOWNTIME: "suspected downtime, as no node ran a job",
    NODE_FAILED: "on nodes that may have been down, between a job with a node failure and the next job",
    ALWAYS_IDLE: "on nodes that ran no job in this time",
    LATE_NODES: "before the first job of nodes that may not have been there yet",
    ROWS_ASIDE: "during jobs with unusable rows",
    HOSTS_INCOMPLETE: "on further hosts of jobs with only the first host recorded",
    PROCS_AS_NODES: "as jobs that do not fill their nodes may have used more nodes",
    POLL_GAP: "between two polls or counts that lie far apart",
    OVER_CAPACITY: "as more nodes were in use than the machine has",
    CUT_OFF: "as a file is cut off, and jobs of any time may be missing from it",
    SIMULATED: "left by a simulated schedule",
}
COUNTS: Final = "counts"  # only the number of busy nodes is known
RECORDS: Final = "records"
LABELS: Final[Mapping[str, str]] = {
    SIMULATED: "The log is a simulated schedule: no record tells which nodes were idle",
    COUNTS: "The log is derived from counts of busy nodes: which ones are idle is assumed, which understates losses",
}
_LEAST_SHARE: Final = 0.0005  # smaller shares would be shown as 0.0 %
_HOUR_S: Final = 3600.0
# A node is late if its first job starts after both: seconds, and a fraction of the log's length
_LATE_S, _LATE_SHARE = 604_800.0, 0.1


class IdleDoubts(msgspec.Struct, frozen=True, kw_only=True):
    """Idle node-hours of a log, doubtful node-hours by cause, and the log's source."""

    source: str
    idle_node_h: float
    causes: dict[str, float]
    unit: str = NODE

    @property
    def doubtful_node_h(self) -> float:
        """All doubtful node-hours."""
        return math.fsum(self.causes.values())

    @property
    def sure_node_h(self) -> float:
        """All node-hours without doubt."""
        return max(0.0, self.idle_node_h - self.doubtful_node_h)

    @property
    def share(self) -> float | None:
        """The doubtful fraction of the idle node-time."""
        return self.doubtful_node_h / self.idle_node_h if self.idle_node_h else None

    @property
    def parts(self) -> str:
        """The sure node-hours, and the doubtful ones by cause; empty if none are doubtful.

        The text continues a sentence about the idle node-hours.
        """
        return in_words_of(self.unit, self._parts())

    def _parts(self) -> str:
        if not self.share or self.share < _LEAST_SHARE:
            return ""
        if self.source == SIMULATED:
            return "none certain: no record tells which nodes were idle in a simulated schedule"
        sure = text_formats.count(self.sure_node_h) if self.share <= 1.0 - _LEAST_SHARE else "none"
        verb = "is" if sure in {"none", "1"} else "are"
        doubtful = text_formats.count(self.doubtful_node_h)
        return f"of which {sure} {verb} sure; {doubtful} doubtful: {self._reasons()}"

    @property
    def sentence(self) -> str:
        """Both numbers with their causes as a sentence; empty without doubtful time."""
        return f"{self._idle}, {self.parts}" if self.parts else ""

    @property
    def in_words(self) -> str:
        """Both numbers with their causes as a sentence, even without doubtful time."""
        return self.sentence or f"{self._idle}, none known to be doubtful"

    @property
    def _idle(self) -> str:
        return in_words_of(self.unit, text_formats.counted(self.idle_node_h, "idle node-hour"))

    @property
    def label(self) -> str:
        """The source of the log, unless it was built from records."""
        return in_words_of(self.unit, LABELS.get(self.source, ""))

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats for every reader of the log's figures."""
        # In a simulated log everything is doubtful, as the first sentence explains
        doubtful = "" if self.label and set(self.causes) <= {SIMULATED} else self.sentence
        return tuple(text for text in (self.label, doubtful) if text)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures for ``summary.json``."""
        return {
            "source": self.source,
            "idle_node_h": self.idle_node_h,
            "sure_node_h": self.sure_node_h,
            "doubtful_node_h": self.doubtful_node_h,
            "share": self.share,
            "causes": self.causes,
            "sentence": self.sentence,
            "caveats": list(self.caveats),
            **({"unit": self.unit} if self.unit != NODE else {}),
        }

    def _reasons(self) -> str:
        ordered = sorted(self.causes.items(), key=lambda each: -each[1])
        shown = [(cause, hours) for cause, hours in ordered if hours >= _LEAST_SHARE * self.idle_node_h] or ordered[:1]
        return "; ".join(f"{text_formats.count(hours)} {CAUSES[cause]}" for cause, hours in shown)


def source_of(provenance: LogProvenance) -> str:
    """Return the source of a log: ``records``, ``counts``, or ``simulated``."""
    names = {each.name for each in provenance.findings}
    if "derived" in names or provenance.made_by.startswith("derived"):
        return SIMULATED
    return COUNTS if "which_unknown" in names else RECORDS


def doubts_of(log: EventLog) -> IdleDoubts:
    """Return the idle node-hours of a log, with the doubtful ones by cause.

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
    return IdleDoubts(source=source_of(log.provenance), idle_node_h=idle_s / _HOUR_S, causes=causes, unit=log.unit)


def doubtful_nodes(log: EventLog) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the number of doubtful idle nodes as a step curve: times, and nodes from each time.

    Simulation as a cause is left out, because it covers the whole log.
    """
    times, counts = _by_cause(log)
    found = [nodes for cause, nodes in counts.items() if cause != SIMULATED]
    return times, np.sum(found, axis=0) if found else np.zeros(times.size)


def _by_cause(log: EventLog) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Return the doubtful idle nodes over time, divided among the causes."""
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
        left = left - found[cause]  # a copy, because the curve of a simulated log aliases the rest
    return times, found


def _at(
    times: NDArray[np.float64], known: NDArray[np.float64], values: NDArray[np.generic] | Sequence[int]
) -> NDArray[np.float64]:
    """Return a step curve's value at each time; 0 before its first step."""
    steps = np.concatenate(([0.0], np.asarray(values, dtype=np.float64)))
    return steps[np.searchsorted(known, times, side="right")]


def _scaled(curve: DoubtfulTime, times: NDArray[np.float64], log: EventLog) -> NDArray[np.float64]:
    """Return the doubtful nodes, scaled in proportion if the log has fewer nodes than the imported one."""
    share = len(log.node_names) / curve.of_nodes
    return _at(times, np.asarray(curve.times), curve.nodes) * min(share, 1.0)


def _integral(curve: DoubtfulTime, log: EventLog) -> float:
    times = np.unique(np.clip(np.asarray((log.start_s, *curve.times)), log.start_s, log.end_s))
    return float((_scaled(curve, times, log) * np.diff(times, append=log.end_s)).sum())


def always_idle(log: EventLog) -> NDArray[np.bool_]:
    """Return which nodes are idle throughout the log."""
    return np.equal(log.states_at(log.start_s), IDLE) & (log.last_changes() < 0)


def late_starts(log: EventLog) -> NDArray[np.float64]:
    """Return the first job starts on nodes idle long before: these nodes may have joined the machine late."""
    backwards = last_changes(log.nodes[int(log.offsets[1]) :][::-1], 0, len(log.node_names))
    first = log.nodes.size - 1 - backwards[(backwards >= 0) & (log.states_at(log.start_s) == IDLE)]
    at_s: NDArray[np.float64] = log.times[np.searchsorted(log.offsets, first, side="right") - 1]
    return at_s[at_s - log.start_s > max(_LATE_S, _LATE_SHARE * log.span_s)]


def idle_after_failures(
    log: EventLog, nodes: NDArray[np.int32], at_s: NDArray[np.float64]
) -> list[tuple[float, float, int]]:
    """Return the idle time after failures of ``nodes`` at ``at_s``: start, next change, and number of idle nodes.

    All GPUs or cores of a node fail together. Slots idle throughout the log are excluded, since they are doubtful
    anyway. A node has not failed if another job still runs there.
    """
    names = log.node_names
    whole = names if log.unit == NODE else [node_of(name) for name in names]
    group = np.unique(whole, return_inverse=True)[1]
    unused = np.bincount(group[always_idle(log)], minlength=len(names))
    busy_first = np.bincount(group)
    failed = group[nodes]
    concerned = np.flatnonzero(np.isin(group[log.nodes], failed))
    concerned = concerned[np.argsort(group[log.nodes[concerned]], kind="stable")]
    changed, times = group[log.nodes[concerned]], log.times[log.time_index[concerned]]
    states, before = log.states[concerned], log.before[concerned]
    spans = list[tuple[float, float, int]]()
    for node in np.intersect1d(failed, changed).tolist():
        part = slice(*np.searchsorted(changed, [node, node + 1]).tolist())
        idle = np.cumsum((states[part] == IDLE).view(np.int8) - (before[part] == IDLE).view(np.int8), dtype=np.int64)
        busy = np.cumsum((states[part] == BUSY).view(np.int8) - (before[part] == BUSY).view(np.int8), dtype=np.int64)
        edges = np.append(times[part], log.end_s)
        starts = np.unique(at_s[failed == node])
        last = np.searchsorted(times[part], starts, side="right") - 1
        idle -= unused[node]
        free = (idle[last] > 0) & (busy_first[node] + busy[last] == 0) & (last >= 0)
        for start_s, place in zip(starts[free].tolist(), last[free].tolist(), strict=True):
            spans.append((start_s, float(edges[place + 1]), int(idle[place])))
    return spans


def doubtful_times(
    log: EventLog,
    *,
    censored: bool,
    by_counts: bool,
    downtime: Sequence[tuple[float, float]],
    late: NDArray[np.float64],
) -> tuple[DoubtfulTime, ...]:
    """Return the doubtful idle nodes of a newly imported log.

    ``censored`` means that jobs may be missing at its end. ``by_counts`` means that nodes are only numbered.
    ``downtime`` are periods of suspected downtime. ``late`` are the first job starts of nodes that may have been
    missing before.
    """
    pool = log.pool_sizes().astype(np.int64)
    changes = log.last_changes()
    last = np.where(changes >= 0, log.times[np.searchsorted(log.offsets, changes, side="right") - 1], -np.inf)
    tail = np.zeros(pool.size, dtype=np.int64)
    if censored:
        # Count at each time the nodes idle until the log's end; for numbered nodes, from the last start
        if by_counts:
            starts = sums_by_time((log.states == BUSY).view(np.int8), log.offsets)
            since_s = float(log.times[starts > 0].max(initial=log.start_s))
            tail = np.where(log.times >= since_s, pool, 0)
        else:
            idle = np.sort(last[np.isfinite(last) & (log.states_at(log.end_s) == IDLE)])
            tail = np.searchsorted(idle, log.times, side="right").astype(np.int64)
    down = np.zeros(pool.size, dtype=np.int64)
    for begin_s, end_s in downtime:
        inside = (log.times >= begin_s) & (log.times < end_s)
        down[inside] = (pool - tail)[inside]
    unused = np.minimum(int(always_idle(log).sum()), pool - tail - down)
    missing = np.minimum(
        late.size - np.searchsorted(np.sort(late), log.times, side="right"), pool - tail - down - unused
    )
    found = ((CENSORED_END, tail), (DOWNTIME, down), (ALWAYS_IDLE, unused), (LATE_NODES, missing))
    curves = (curve_of(cause, log.times, nodes, len(log.node_names)) for cause, nodes in found)
    return tuple(curve for curve in curves if any(curve.nodes))


class DoubtfulStays:
    """Collects for each cause the times and numbers of nodes that may have been in use, as columns."""

    def __init__(self) -> None:
        self._stays: dict[str, tuple[array[Any], array[Any], array[Any]]] = {}

    def add(self, cause: str, begin_s: ArrayLike, end_s: ArrayLike, nodes: ArrayLike) -> None:
        """Add nodes that may have been in use; a number above the log's size stands for all nodes."""
        columns = np.broadcast_arrays(np.atleast_1d(begin_s), end_s, nodes)
        kept = (columns[2] > 0) & (columns[0] < columns[1])
        if kept.any():
            begins, ends, counts = self._stays.setdefault(cause, (array("d"), array("d"), array("q")))
            begins.frombytes(columns[0][kept].astype(np.float64).tobytes())
            ends.frombytes(columns[1][kept].astype(np.float64).tobytes())
            counts.frombytes(columns[2][kept].astype(np.int64).tobytes())

    def curves(self, log: EventLog) -> Iterator[DoubtfulTime]:
        """Yield for each cause the number of such nodes over time, limited to the observed time."""
        for cause, (begin_s, end_s, nodes) in self._stays.items():
            edges = np.clip(np.concatenate((begin_s, end_s)), log.start_s, log.end_s)
            change = np.concatenate((nodes, np.negative(nodes)))
            times, count = running_sums(edges, change)
            if count.any():
                yield curve_of(cause, times, np.minimum(count, len(log.node_names)), len(log.node_names))


def curve_of(cause: str, times: NDArray[np.float64], nodes: NDArray[np.int64], of_nodes: int) -> DoubtfulTime:
    """Return the curve reduced to the times at which it changes."""
    changed = np.flatnonzero(np.diff(nodes, prepend=0))
    return DoubtfulTime(
        cause=cause, of_nodes=of_nodes, times=tuple(times[changed].tolist()), nodes=tuple(nodes[changed].tolist())
    )
