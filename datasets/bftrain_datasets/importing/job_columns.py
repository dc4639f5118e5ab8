"""Jobs as columns: JobTable has a reader's rows, JobStays the used rows, HeldSpans the (job, node) pairs.

OpenJobTable pairs records split over several rows: job starts and job ends, in any files. NodeOutages has the outages.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from pyarrow import compute

from bftrain.errors import BadInput
from bftrain.node_units import NODE, node_of
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.machine_nodes import Expand, Units, ranges_from
from bftrain_datasets.importing.text_columns import Texts, lengths_of
from bftrain_datasets.log.arrow_arrays import Column, arrow_of, numpy_of
from bftrain_datasets.log.edits import mark_nodes_down
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_columns import sorted_pairs

MOST_PAIRS: Final = 1 << 27  # (job, node) pairs; half a gigabyte of memory
BAD_TIME: Final = -np.inf  # an unreadable time
_PAIRS_AT_ONCE: Final = 1 << 19
_MOST_DIGITS: Final = 18  # maximum number of digits in a name that serves as its own key
_LEAST_OF_DIGITS: Final = np.array([0, 0, *(10 ** (digits - 1) for digits in range(2, _MOST_DIGITS + 1))])
_LINE_BITS: Final = 40  # bits of the line number in a place; the file number uses the rest


def time_cell(time_s: float | None) -> float:
    """Return a time as in ``JobTable``: NaN for None, and ``BAD_TIME`` for NaN."""
    return np.nan if time_s is None else BAD_TIME if math.isnan(time_s) else time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTable:
    """Rows of a reader, one per job. Times are seconds UTC: NaN for missing ones, ``BAD_TIME`` for unreadable ones.

    ``lines`` are line numbers, ``job`` are name keys. ``end`` is infinite while a job runs. ``nodes`` are node sets as
    written, an Arrow array with nulls. ``count`` is the number of nodes, to replace or check the names; 0 if not
    recorded. ``units`` are the GPUs or cores of each job, if these are counted. ``reason`` is the index in ``reasons``
    of a skipped row, or -1. ``most`` is the largest number of nodes that a job may have used, if only its processors
    are known.
    """

    lines: NDArray[np.int64]
    job: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    count: NDArray[np.int64]
    nodes: Column | None = None
    queue: Texts | None = None
    user: Texts | None = None
    submit: NDArray[np.float64] | None = None
    preempted: NDArray[np.bool_] | None = None
    node_failed: NDArray[np.bool_] | None = None
    reason: NDArray[np.int8] | None = None
    reasons: tuple[str, ...] = ()
    units: Sequence[Units] | None = None
    most: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self.start.size


@dataclass(frozen=True, slots=True)
class StayColumns:
    """One row per job. ``end`` is infinite while it runs, ``sets`` are its nodes, ``place`` its file and line.

    The nodes of set ``i`` are ``set_nodes[set_offsets[i]:set_offsets[i + 1]]``; without names, ``count`` is the number.
    If GPUs or cores are counted, ``set_units`` is the number used on each node; a negative number is a slot, -1 the
    first. ``queue`` and ``user`` are indices in ``queue_names`` and ``user_names``, or -1; ``submit`` is the submission
    time, or NaN; ``node_failed`` is 1 if a node failure killed the job.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    sets: NDArray[np.int32]
    job: NDArray[np.int64]
    place: NDArray[np.int64]
    count: NDArray[np.int32]
    set_offsets: NDArray[np.int64]
    set_nodes: NDArray[np.int32]
    set_units: NDArray[np.int32]
    queue: NDArray[np.int32]
    user: NDArray[np.int32]
    submit: NDArray[np.float64]
    node_failed: NDArray[np.int8]
    queue_names: tuple[str, ...]
    user_names: tuple[str, ...]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of nodes of each job."""
        return np.diff(self.set_offsets)[self.sets]

    def set_keys(self) -> NDArray[np.uint64]:
        """Return a key for each job: equal for equal nodes, or for equal counts if no nodes are named.

        Two files may list the same set in different orders. Each node has a pseudo-random number; the key is their sum,
        which does not depend on the order.
        """
        # Hash numbers to 64 bits (the last steps of SplitMix64)
        members = self.set_nodes.astype(np.uint64)
        if self.set_units.size:
            members += self.set_units.astype(np.int64).astype(np.uint64) << np.uint64(32)
        mixed = (members + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
        sums = np.concatenate((np.zeros(1, dtype=np.uint64), np.cumsum(mixed, dtype=np.uint64)))
        # The last key is for jobs with no set
        keys = np.append(np.diff(sums[self.set_offsets]), np.uint64(0))
        nameless = self.sets < 0
        return np.where(nameless, self.count.astype(np.uint64), keys[self.sets])


class JobStays:
    """Collects stays. A node set is stored once, and each job refers to it by number."""

    def __init__(self) -> None:
        kinds = zip(
            ("start", "end", "submit", "job", "place", "sets", "count", "queue", "user", "node_failed"),
            "dddqqiiiib",
            strict=True,
        )
        self._columns = {name: array(kind) for name, kind in kinds}
        self._set_offsets = array("q", [0])
        self._set_nodes = array("i")
        self._set_units = array("i")
        self.queues = Names()
        self.users = Names()
        self._pairs = 0
        self._outside_job = array("q")
        self._outside_start = array("d")

    def __len__(self) -> int:
        return len(self._columns["job"])

    def keys(self) -> set[tuple[int, float, float]]:
        """Return each job's key, start and end, to recognise jobs contained in two files."""
        return set(zip(*(self._columns[name] for name in ("job", "start", "end")), strict=True))

    def add_outside(self, jobs: NDArray[np.int64], start: NDArray[np.float64]) -> None:
        """Record jobs that finished outside the window; other rows may list them as running."""
        self._outside_job.frombytes(jobs.tobytes())
        self._outside_start.frombytes(start.tobytes())

    def outside(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the key and start of jobs that finished outside the window."""
        return np.array(self._outside_job, dtype=np.int64), np.array(self._outside_start, dtype=np.float64)

    def add_sets(self, nodes: ArrayLike, sizes: ArrayLike, units: Sequence[int] = ()) -> int:
        """Add concatenated node sets; return the number of the first set. ``units`` are counted for each node."""
        ends = self._set_offsets[-1] + np.cumsum(sizes, dtype=np.int64)
        self._set_offsets.frombytes(ends.tobytes())
        self._set_nodes.frombytes(np.asarray(nodes, dtype=np.int32).tobytes())
        self._set_units.extend(units)
        self._check_pairs()
        return len(self._set_offsets) - 1 - ends.size

    def rename_nodes(self, places: Sequence[int]) -> None:
        """Replace the node at each index by the one in ``places``."""
        self._set_nodes = array(
            "i", np.array(places, dtype=np.int32)[np.array(self._set_nodes, dtype=np.int64)].tolist()
        )

    def add_many(self, sets: NDArray[np.int64], count: NDArray[np.int64], **columns: NDArray[Any]) -> None:
        """Add jobs as columns; a job with no node set has the set -1 and counts as a single pair in memory.

        Further columns are as in ``StayColumns``.
        """
        self._pairs += int(np.where(sets >= 0, count, 1).sum())
        self._check_pairs()
        for name, column in {"sets": sets, "count": count, **columns}.items():
            kept = self._columns[name]
            kept.frombytes(column.astype(kept.typecode, copy=False).tobytes())

    def _check_pairs(self) -> None:
        if max(self._pairs, len(self._set_nodes)) > MOST_PAIRS:
            raise BadInput(
                f"more than {MOST_PAIRS:,} pairs of a job and a node", fix="import it in parts, with --window A:B"
            )

    def columns(self) -> StayColumns:
        """Return all stays, sharing the memory; no stays can be added afterwards."""
        return StayColumns(
            **{name: _shared(column) for name, column in self._columns.items()},
            set_offsets=_shared(self._set_offsets),
            set_nodes=_shared(self._set_nodes),
            set_units=_shared(self._set_units),
            queue_names=tuple(self.queues),
            user_names=tuple(self.users),
        )


class Names(dict[str, int]):
    """Numbers names by first use; an empty name is -1."""

    def __missing__(self, name: str) -> int:
        if not name:
            return -1
        number = self[name] = len(self)
        return number

    def codes_of(self, column: Texts | None, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the numbers of selected rows of a name column."""
        if column is None:
            return np.full(rows.size, -1, dtype=np.int32)
        codes = column.codes[rows]
        used = np.unique(codes)
        numbers = np.full(len(column.texts) + 1, -1, dtype=np.int32)
        numbers[used] = [self[column.texts[code]] if code >= 0 else -1 for code in used.tolist()]
        return numbers[codes]


def _shared(column: array[Any]) -> NDArray[Any]:
    return np.frombuffer(column, dtype=column.typecode) if column else np.array(column)


def key_of(job: str) -> int:
    """Return the key of a job name, to save memory: a number plus 1, or a hash. Times and nodes resolve collisions.

    Unnamed jobs have the key 0.
    """
    plain = job.isascii() and job.isdecimal() and len(job) <= _MOST_DIGITS and (job[0] != "0" or len(job) == 1)
    return int(job) + 1 if plain else hash(job)


def keys_of(jobs: Column | NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the keys of job names, as by ``key_of``: texts in an Arrow array, or numbers; NaN is no name."""
    if isinstance(jobs, np.ndarray):
        return np.nan_to_num(jobs, nan=-1).astype(np.int64) + 1
    lengths = lengths_of(jobs)
    plain = numpy_of(compute.ascii_is_decimal(jobs)) & (lengths <= _MOST_DIGITS)
    keys = np.zeros(lengths.size, dtype=np.int64)
    texts = jobs if plain.all() else jobs.filter(arrow_of(plain))
    numbers = numpy_of(texts.cast(pa.int64()))
    leading = numbers < _LEAST_OF_DIGITS[lengths[plain]]
    keys[plain] = numbers + 1
    plain[np.flatnonzero(plain)[leading]] = False
    if not plain.all():
        keys[~plain] = list(map(hash, jobs.filter(arrow_of(~plain)).to_pylist()))
    return keys


def place_of(file: int, line: int) -> int:
    """Combine a file number and a line number into one number."""
    return file << _LINE_BITS | line


def file_and_line(place: int) -> tuple[int, int]:
    """Split a place into its file number and its line number."""
    return place >> _LINE_BITS, place & ((1 << _LINE_BITS) - 1)


def files_of(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the file numbers of these places."""
    return places >> _LINE_BITS


@dataclass(frozen=True, slots=True)
class HeldSpans:
    """(Job, node) pairs, ordered by node and start; ``row`` is the job's row.

    If GPUs or cores are counted, ``units`` is the number used on each node, or a slot (see ``StayColumns``).
    """

    node: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    row: NDArray[np.int64]
    units: NDArray[np.int32] | None = None


def spans_by_time(jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float) -> Iterator[HeldSpans]:
    """Yield every (job, node) pair within the observed time, in parts with increasing starts, to bound memory."""
    rows = _rows_by_start(jobs, keep, begin_s, end_s)
    pairs = np.cumsum(np.diff(jobs.set_offsets)[jobs.sets[rows]])
    bounds = np.searchsorted(pairs, np.arange(_PAIRS_AT_ONCE, pairs[-1] if pairs.size else 0, _PAIRS_AT_ONCE))
    for part in np.split(rows, bounds):
        yield _spans_of(jobs, part, jobs.set_offsets, jobs.set_nodes, jobs.set_units, (begin_s, end_s))


def spans_by_node(
    jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float, node_count: int
) -> Iterator[HeldSpans]:
    """Yield every (job, node) pair within the observed time, for a part of the nodes at a time, to bound memory."""
    rows = _rows_by_start(jobs, keep, begin_s, end_s)
    sizes = np.diff(jobs.set_offsets)
    weight = np.zeros(node_count, dtype=np.int64)
    np.add.at(weight, jobs.set_nodes, np.repeat(np.bincount(jobs.sets[rows], minlength=sizes.size), sizes))
    part = np.cumsum(weight) // _PAIRS_AT_ONCE
    for number in np.unique(part).tolist():
        low, high = np.searchsorted(part, [number, number + 1]).tolist()
        inside = np.flatnonzero((jobs.set_nodes >= low) & (jobs.set_nodes < high))
        offsets = np.searchsorted(inside, jobs.set_offsets)
        units = jobs.set_units[inside] if jobs.set_units.size else jobs.set_units
        yield _spans_of(jobs, rows, offsets, jobs.set_nodes[inside], units, (begin_s, end_s))


def _rows_by_start(jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float) -> NDArray[np.int64]:
    rows = np.flatnonzero(keep & (jobs.start < end_s) & (jobs.end > begin_s))
    return rows[np.argsort(np.maximum(jobs.start[rows], begin_s), kind="stable")]


def _spans_of(
    jobs: StayColumns,
    rows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    nodes: NDArray[np.int32],
    units: NDArray[np.int32],
    window: tuple[float, float],
) -> HeldSpans:
    """Return the (job, node) pairs of rows sorted by start; the nodes of each set start at its offset."""
    sets = jobs.sets[rows]
    counts = offsets[sets + 1] - offsets[sets]
    member = ranges_from(offsets[sets], counts)
    node, order = sorted_pairs(nodes[member], np.arange(member.size))
    index = np.repeat(np.arange(rows.size), counts)[order]
    start, end = np.maximum(jobs.start[rows], window[0])[index], np.minimum(jobs.end[rows], window[1])[index]
    return HeldSpans(node, start, end, rows[index], units[member[order]] if units.size else None)


def latest_ends(first: NDArray[np.bool_], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return for each span the latest end so far in its group; ``first`` marks the first span of each group."""
    pairs = np.empty(end.size, dtype=np.complex128)  # NumPy compares the group first, then the end
    pairs.real, pairs.imag = np.cumsum(first), end
    return np.maximum.accumulate(pairs).imag


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
        self._end_job = array("q")
        self._end_s = array("d")
        self._end_start = array("d")

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
        return True

    def end(self, job: str, end_s: float) -> OpenJob | None:
        """Remove and return a finished job; return None if no such job was running."""
        known = self._open.get(job)
        if known is None or end_s < known.start_s:
            return None
        del self._open[job]
        return known

    def end_before_start(self, job: str, start_s: float, end_s: float) -> None:
        """Store the start and end time of a finished job, in case its start is read later."""
        self._end_job.append(key_of(job))
        self._end_s.append(end_s)
        self._end_start.append(start_s)

    def close(self) -> list[tuple[OpenJob, float, bool]]:
        """Return the remaining jobs, each with its end, and whether it restarted before its end was read.

        Jobs are still running, unless an earlier read end matches.
        """
        left = [*self._unended, *self._open.values()]
        self._open.clear()
        self._unended.clear()
        if not left:
            return []
        wanted = {key_of(job.job) for job in left}
        among = np.isin(np.array(self._end_job, dtype=np.int64), np.fromiter(wanted, dtype=np.int64))
        ends: dict[int, list[int]] = {}  # job -> indices of its recorded end times
        for number in np.flatnonzero(among).tolist():
            ends.setdefault(self._end_job[number], []).append(number)
        return [found for job in left if (found := self._end_of(job, ends)) is not None]

    def _end_of(self, job: OpenJob, ends: dict[int, list[int]]) -> tuple[OpenJob, float, bool] | None:
        """Return a remaining job with its end; ``None`` if another row describes it completely."""
        after = [number for number in ends.get(key_of(job.job), ()) if self._end_s[number] >= job.start_s]
        end_s = math.inf if job.may_end_s is None else job.may_end_s
        if not after:
            return job, end_s, job.restarted
        start_s = self._end_start[min(after, key=self._end_s.__getitem__)]
        return None if abs(start_s - job.start_s) <= SAME_START_S else (job, min(end_s, start_s), False)


class NodeOutages:
    """Collects node outages, in any time order."""

    def __init__(self) -> None:
        self._reports: dict[str, list[tuple[float, bool, str]]] = {}

    def tell(self, node: str, time_s: float, *, out: bool, why: str) -> None:
        """Record that a node fails or returns for the reason ``why``; each reason must be cleared."""
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
            else:
                reasons.discard(why)
            if reasons and not was_out:
                begin_s = time_s
            elif was_out and not reasons:
                spans.append((begin_s, time_s))
        if reasons:
            spans.append((begin_s, math.inf))
        return spans

    def mark(self, log: EventLog, tally: FindingsTally) -> EventLog:
        """Return the log with idle nodes marked as down during their outages; note their number and node-time."""
        if not self._reports:
            return log
        names = {name: {name} if log.unit == NODE else {name, node_of(name)} for name in log.node_names}
        known = {each for several in names.values() for each in several}
        strange = [name for name in self._reports if name not in known and self.spans(name)]
        if strange:
            tally.note("node_down", count=len(strange), where=f"node {strange[0]}")
        reported = ((node, each & self._reports.keys()) for node, each in enumerate(names.values()))
        spans = {node: found for node, those in reported if (found := self.spans(*those))}
        if not spans:
            return log
        made = mark_nodes_down(log, spans)
        count = sum(map(len, spans.values()))
        tally.note("node_down", count=count, node_s=log.idle_node_s - made.idle_node_s, where="")
        return made
