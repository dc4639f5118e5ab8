"""Pair records split over several rows: job starts with job ends, in any files, and node outages."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.node_units import NODE, node_of
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.job_columns import key_of
from bftrain_datasets.importing.machine_nodes import Expand, Units
from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import BUSY, DOWN, IDLE, EventLog, NodeState

MOST_ENDED: Final = 1 << 14  # maximum number of recently finished jobs to remember
SAME_START_S: Final = 60.0  # tolerance between two records of the same start


@dataclass(slots=True)
class OpenJob:
    """A started job without an end. ``may_end_s`` is its latest possible end, ``place`` its file and line.

    ``restarted`` means that it started again before its end was read.
    """

    job: str
    start_s: float
    nodes: str
    queue: str
    place: int
    may_end_s: float | None = None
    restarted: bool = False
    expand: Expand = expand_set
    units: Units = 0
    user: str = ""
    submit_s: float | None = None
    count: int = 0


class ClosedJobs(NamedTuple):
    """Jobs still open after all records, each with its end and whether it restarted before the end was read.

    ``lost_ends_s`` are end times of jobs with no recorded start; ``place`` is the place of the first.
    """

    jobs: list[tuple[OpenJob, float, bool]]
    lost_ends_s: Sequence[float]
    place: int


class OpenJobTable:
    """Stores jobs between the rows of their start and end; jobs left after all files are still running.

    If files are not in order, an end may be read before its start. It is stored as a few numbers and matched in
    ``close``. ``any_begun`` is whether the records have any starts, ``first_begun_s`` the first start.
    """

    def __init__(self) -> None:
        self.any_begun = False
        self.first_begun_s = math.inf
        self._open: dict[str, OpenJob] = {}
        self._unended: list[OpenJob] = []  # restarted jobs with no recorded end
        self._ended: dict[str, None] = {}
        self._end_job = array("q")
        self._end_s = array("d")
        self._end_start = array("d")
        self._end_place = array("q")
        self._end_counts = array("b")

    def get(self, job: str) -> OpenJob | None:
        """Return the job if it is running."""
        return self._open.get(job)

    def begin(self, job: OpenJob) -> bool:
        """Add a starting job; return False if this start is already known."""
        self.first_begun_s = min(self.first_begun_s, job.start_s)
        known = self._open.get(job.job)
        if known is not None:
            if abs(known.start_s - job.start_s) <= SAME_START_S and known.nodes == job.nodes:
                return False
            if job.start_s < known.start_s:  # files out of order
                known, job = job, known
            known.restarted = known.may_end_s is None
            known.may_end_s = min(job.start_s, known.may_end_s or math.inf)
            self._unended.append(known)
        self.any_begun = True
        self._open[job.job] = job
        self._ended.pop(job.job, None)
        return True

    def end(self, job: str, end_s: float) -> OpenJob | None:
        """Remove and return a finished job; return None if no such job was running."""
        known = self._open.get(job)
        if known is None or end_s < known.start_s:
            return None
        del self._open[job]
        if len(self._ended) >= MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[job] = None
        return known

    def recently_ended(self, job: str) -> bool:
        """Return whether the job is among the most recently finished jobs."""
        return job in self._ended

    def end_before_start(
        self, job: str, end_s: float, place: int, *, start_s: float = math.nan, counts: bool = True
    ) -> None:
        """Store the end time of a job before its start is read. If no start follows, it is a doubt if ``counts``."""
        self._end_job.append(key_of(job))
        self._end_s.append(end_s)
        self._end_start.append(start_s)
        self._end_place.append(place)
        self._end_counts.append(counts)

    def close(self) -> ClosedJobs:
        """Return the remaining jobs: they are still running, unless an earlier read end matches."""
        matched = np.zeros(len(self._end_s), dtype=np.bool_)
        left = [*self._unended, *self._open.values()]
        closed: list[tuple[OpenJob, float, bool]] = []
        if left:
            wanted = {key_of(job.job) for job in left}
            among = np.isin(np.array(self._end_job, dtype=np.int64), np.fromiter(wanted, dtype=np.int64))
            ends: dict[int, list[int]] = {}  # job -> indices of its recorded end times
            for number in np.flatnonzero(among).tolist():
                ends.setdefault(self._end_job[number], []).append(number)
            closed = [found for job in left if (found := self._end_of(job, ends, matched)) is not None]
        self._open.clear()
        self._unended.clear()
        lost = np.flatnonzero(~matched & np.array(self._end_counts, dtype=np.bool_))
        return ClosedJobs(
            closed, np.array(self._end_s)[lost].tolist(), self._end_place[int(lost[0])] if lost.size else 0
        )

    def _end_of(
        self, job: OpenJob, ends: dict[int, list[int]], matched: NDArray[np.bool_]
    ) -> tuple[OpenJob, float, bool] | None:
        """Return a remaining job with its end; ``None`` if another row describes it completely."""
        after = [number for number in ends.get(key_of(job.job), ()) if self._end_s[number] >= job.start_s]
        first = min(after, key=self._end_s.__getitem__, default=None)
        end_s = math.inf if job.may_end_s is None else job.may_end_s
        if first is not None:
            matched[first] = True
            start_s = self._end_start[first]
            if abs(start_s - job.start_s) <= SAME_START_S:
                return None
            end_s = min(end_s, self._end_s[first] if math.isnan(start_s) else start_s)
        return job, end_s, first is None and job.restarted


class NodeOutages:
    """Collects node outages, in any time order."""

    def __init__(self) -> None:
        self._reports: dict[str, list[tuple[float, bool, str]]] = {}

    def tell(self, node: str, time_s: float, *, out: bool, why: str = "") -> None:
        """Record that a node fails or returns. With several reasons ``why``, each must be cleared."""
        self._reports.setdefault(node, []).append((time_s, out, why))

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes with reports."""
        return tuple(self._reports)

    def add(self, nodes: Iterable[str], start_s: float, end_s: float | None, *, why: str) -> None:
        """Record an outage of nodes; None is an unknown end."""
        for node in nodes:
            self.tell(node, start_s, out=True, why=why)
            if end_s is not None:
                self.tell(node, end_s, out=False, why=why)

    def rename(self, same: Mapping[str, str]) -> None:
        """Move the reports of nodes to their other names."""
        for name in [each for each in self._reports if each in same]:
            self._reports.setdefault(same[name], []).extend(self._reports.pop(name))

    def spans(self, *names: str) -> list[tuple[float, float]]:
        """Return the outages of a node, reported under any of its names."""
        reasons: set[str] = set()
        begin_s, spans = math.nan, []
        for time_s, out, why in sorted(
            (each for name in names for each in self._reports.get(name, ())), key=lambda each: each[0]
        ):
            was_out = bool(reasons)
            if out:
                reasons.add(why)
            elif why:
                reasons.discard(why)
            else:
                reasons.clear()
            if reasons and not was_out:
                begin_s = time_s
            elif was_out and not reasons:
                spans.append((begin_s, time_s))
        if reasons:
            spans.append((begin_s, math.inf))
        return spans

    def mark(self, log: EventLog, tally: FindingsTally) -> EventLog:
        """Return the log with idle nodes marked as down during their outages."""
        if not self._reports:
            return log
        names = {name: {name} if log.unit == NODE else {name, node_of(name)} for name in log.node_names}
        known = {each for several in names.values() for each in several}
        strange = [name for name in self._reports if name not in known and self.spans(name)]
        if strange:
            tally.note("node_down", count=len(strange), where=f"node {strange[0]}")
        concerned_by = ((node, each & self._reports.keys()) for node, each in enumerate(names.values()))
        spans = {node: found for node, known in concerned_by if (found := self.spans(*known))}
        if not spans:
            return log
        concerned = np.isin(log.nodes, np.fromiter(spans, dtype=np.int32))
        at = log.times[log.time_index]
        builder = LogBuilder(log.node_names)
        builder.add_columns(at[~concerned], log.nodes[~concerned], log.states[~concerned])
        order = np.flatnonzero(concerned)[np.argsort(log.nodes[concerned], kind="stable")]
        for node, found in spans.items():
            low, high = np.searchsorted(log.nodes[order], [node, node + 1]).tolist()
            mine = order[low:high]
            states = dict(zip(at[mine].tolist(), log.states[mine].tolist(), strict=True))
            for time_s, state in _with_outages(states, found, log.start_s, log.end_s):
                builder.add(time_s, log.node_names[node], NodeState(state))
        made = builder.build(begin_s=log.start_s, end_s=log.end_s)
        count = sum(map(len, spans.values()))
        tally.note("node_down", count=count, node_s=log.idle_node_s - made.idle_node_s, where="")
        return replace(made, kind_names=log.kind_names, node_kinds=log.node_kinds, provenance=log.provenance)


def _with_outages(
    states: dict[float, int], spans: list[tuple[float, float]], begin_s: float, end_s: float
) -> Iterator[tuple[float, int]]:
    """Yield the states of a node by time, with idle replaced by down during outages."""
    edges = {edge for span in spans for edge in span if begin_s <= edge < end_s}
    state, place = BUSY, 0
    for time_s in sorted({begin_s, *states, *edges}):
        state = states.get(time_s, state)
        while place < len(spans) and spans[place][1] <= time_s:
            place += 1
        out = place < len(spans) and spans[place][0] <= time_s
        yield time_s, DOWN if out and state == IDLE else state
