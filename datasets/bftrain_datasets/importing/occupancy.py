"""Build a log from jobs. Each job counts once; a node is busy while a job occupies it, and idle otherwise."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import NODE, in_words_of, slot_name
from bftrain.nodesets import expand, fold, natural_order
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import (
    HeldSpans,
    StayColumns,
    files_of,
    latest_ends,
    spans_by_node,
    spans_by_time,
)
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import BUSY, IDLE, EventLog, LogBuilder
from bftrain_datasets.log.idle_doubts import OVER_CAPACITY, curve_of
from bftrain_datasets.log.log_columns import running_sums
from bftrain_datasets.log.provenance import LogProvenance

MOST_SLOTS: Final = 1 << 24
_NAMELESS: Final = 0  # the key of unnamed jobs; equal rows are different jobs


def first_reports(intake: RecordIntake) -> tuple[StayColumns, NDArray[np.bool_]]:
    """Return all jobs, and a mask that keeps only one report of each stay."""
    jobs = intake.stays.columns()
    keep = np.ones(jobs.start.size, dtype=np.bool_)
    runs = np.isinf(jobs.end) & (jobs.job != _NAMELESS)
    rows = _of_repeated_names(jobs.job, runs)
    held = jobs.set_keys() if rows.size else np.zeros(jobs.start.size, dtype=np.uint64)
    order = rows[np.lexsort([each[rows] for each in (jobs.place, jobs.end, held, jobs.start, jobs.job)])]
    # Keep one of the jobs with equal name, times and nodes; duplicates across files are not doubtful
    same_stay = _equals_previous(order, jobs.job, jobs.start, held)
    same = np.flatnonzero(same_stay & _equals_previous(order, jobs.end))
    again = order[same]
    elsewhere = files_of(jobs.place[again]) != files_of(jobs.place[order[same - 1]])
    keep[again] = False
    _set_used_aside("duplicate", again[~elsewhere], jobs, intake)
    # Drop rows of running jobs if another row has the same start and nodes, and an end
    running = np.flatnonzero((runs & keep)[order])
    over = order[running][same_stay[running] | _ended_outside(order[running], jobs, intake)]
    keep[over] = False
    _set_used_aside("repeated", np.concatenate((again[elsewhere], over)), jobs, intake)
    # Close running jobs in one file if they start again later in another file, as after a requeue
    runs &= keep
    rows = np.flatnonzero(keep & np.isin(jobs.job, jobs.job[runs]))
    order = rows[np.lexsort((jobs.end[rows], jobs.start[rows], jobs.job[rows]))]
    now, later = order[:-1], order[1:]
    on = runs[now] & (jobs.job[now] == jobs.job[later]) & (jobs.start[now] < jobs.start[later])
    on &= files_of(jobs.place[now]) != files_of(jobs.place[later])
    now, later = now[on], later[on]
    if now.size:
        intake.note("restarted", count=int(now.size), where=intake.place_name(int(jobs.place[now].min())))
        end = jobs.end.copy()
        end[now] = jobs.start[later]
        jobs = replace(jobs, end=end)
    still = np.flatnonzero(keep & np.isinf(jobs.end))
    if still.size:
        intake.note("still_running", count=int(still.size), where=intake.place_name(int(jobs.place[still].min())))
    # Count rows sorted neither by start nor by end, if rows have both
    falls = min((np.flatnonzero(each[1:] < each[:-1]) + 1 for each in (jobs.start, jobs.end)), key=len)
    if falls.size and not intake.open_jobs.any_begun:
        intake.is_unsorted = True
        intake.note("notation", count=int(falls.size), where=intake.place_name(int(jobs.place[falls[0]])))
    return jobs, keep


def _of_repeated_names(names: NDArray[np.int64], runs: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows of named jobs that still run, or are listed several times. Most logs have few."""
    ordered = np.sort(names)
    several = np.isin(names, np.append(ordered[1:][ordered[1:] == ordered[:-1]], names[runs]))
    return np.flatnonzero(several & (names != _NAMELESS))


def any_running(jobs: StayColumns, keep: NDArray[np.bool_]) -> bool:
    """Return whether any kept job is still running when the records stop."""
    return bool(np.isinf(jobs.end[keep]).any())


def _ended_outside(rows: NDArray[np.int64], jobs: StayColumns, intake: RecordIntake) -> NDArray[np.bool_]:
    """Return for each job whether another row, outside the window, records its end."""
    job, start = intake.stays.outside()
    among = np.isin(job, jobs.job[rows])
    known = set(zip(job[among].tolist(), start[among].tolist(), strict=True))
    pairs = zip(jobs.job[rows].tolist(), jobs.start[rows].tolist(), strict=True)
    return np.array([pair in known for pair in pairs], dtype=np.bool_)


def _equals_previous(order: NDArray[np.int64], *columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return for each row, in ``order``, whether all columns equal the previous row's."""
    same = np.ones(order.size, dtype=np.bool_)
    same[:1] = False
    for column in columns:
        ordered = column[order]
        same[1:] &= ordered[1:] == ordered[:-1]
    return same


def _set_used_aside(reason: str, rows: NDArray[np.int64], jobs: StayColumns, intake: RecordIntake) -> None:
    if rows.size == 0:
        return
    held_s = jobs.end[rows] - jobs.start[rows]
    known = np.isfinite(held_s)
    node_s = float((held_s * jobs.count[rows])[known].sum())
    intake.unuse(reason, intake.place_name(int(jobs.place[rows].min())), int(rows.size), node_s)


# Fraction of the span; in a dump of all jobs, the first end follows soon after the first start
CENSORED_FROM: Final = 0.01
CENSORED_FROM_S: Final = 3600.0


def log_from_jobs(intake: RecordIntake) -> EventLog:
    """Build the log of a machine from the jobs in the intake."""
    jobs, keep = first_reports(intake)
    slots = None
    if intake.options.unit != NODE and keep.any():
        slots = NodeSlots.of(jobs, keep, _node_order(intake).tolist(), intake)
    begin_s, end_s = observed(jobs, keep, intake)
    pieces: Iterable[HeldSpans]
    if slots is not None:
        names, place_of = slots.names, np.arange(len(slots.names), dtype=np.int32)
        pieces = slots.spans(begin_s, end_s, intake)
    else:
        order = _node_order(intake)
        unordered = intake.node_names
        names = [unordered[place] for place in order.tolist()]
        place_of = np.empty(len(names), dtype=np.int32)
        place_of[order] = np.arange(len(names), dtype=np.int32)
        pieces = spans_by_time(jobs, keep, begin_s, end_s)
    builder = LogBuilder(names)
    everyone = np.arange(len(names), dtype=np.int32)
    builder.add_columns(np.full(len(names), begin_s), everyone, np.full(len(names), IDLE, dtype=np.int8))
    sweep = _Sweep(jobs, len(names))
    for held in pieces:
        if held.node.size:
            nodes, times, failed = sweep.stays(held)
            known = np.isfinite(times)  # the first stay on a node ends no idle time
            states = np.tile(np.array((IDLE, BUSY), dtype=np.int8), nodes.size // 2)
            builder.add_columns(times[known], place_of[nodes[known]], states[known])
            intake.failed_nodes.append((place_of[failed[0]], failed[1]))
    sweep.note(intake)
    ended = np.isfinite(sweep.reach) & (sweep.reach < end_s)
    builder.add_columns(sweep.reach[ended], place_of[ended], np.full(int(ended.sum()), IDLE, dtype=np.int8))
    _note_censored_end(sweep.reach, end_s, intake, runs_on=any_running(jobs, keep))
    story = LogProvenance(partitions=partitions_of(jobs, keep, begin_s, end_s, intake.node_names))
    return builder.build(begin_s=begin_s, end_s=end_s, provenance=story)


_AtNodes = tuple[NDArray[np.int32], NDArray[np.float64]]  # nodes, and the time of each


class _Sweep:
    """Merges the stays on each node, sorted by start; ``reach`` is each node's latest end so far."""

    def __init__(self, jobs: StayColumns, node_count: int) -> None:
        self.reach = np.full(node_count, -np.inf)
        self._jobs = jobs
        self._last_row = np.zeros(node_count, dtype=np.int64)
        self._found: dict[str, tuple[int, float, tuple[int, int]]] = {}  # count, node-seconds, first node and its row

    def stays(self, held: HeldSpans) -> tuple[NDArray[np.int32], NDArray[np.float64], _AtNodes]:
        """Return nodes with the times at which they become idle and busy again, and when a failure killed a job.

        A node that was not yet in use becomes idle at an infinite time.
        """
        node, row = held.node, held.row
        first = np.append(True, node[1:] != node[:-1])
        firsts = np.flatnonzero(first)
        lasts = np.append(firsts[1:], node.size) - 1
        nodes = node[firsts]
        end = held.end.copy()
        end[firsts] = np.maximum(end[firsts], self.reach[nodes])
        reach = latest_ends(first, end)
        before, row_before = np.empty_like(reach), np.empty_like(row)
        before[1:], row_before[1:] = reach[:-1], row[:-1]
        before[firsts], row_before[firsts] = self.reach[nodes], self._last_row[nodes]
        self.reach[nodes], self._last_row[nodes] = reach[lasts], row[lasts]
        over = np.flatnonzero(held.start < before)
        both_s = np.minimum(held.end[over], before[over]) - held.start[over]
        job, job_before = self._jobs.job[row[over]], self._jobs.job[row_before[over]]
        twice = (job == job_before) & (job != _NAMELESS)
        self._add("held_twice", held, over[twice], both_s[twice])
        self._add("shared", held, over[~twice], both_s[~twice])
        touching = np.flatnonzero(held.start == before)
        self._add("short_gaps", held, touching, np.zeros(touching.size))
        begins = np.flatnonzero(held.start > before)
        times = np.stack((before[begins], held.start[begins]), axis=1).ravel()
        failed = self._jobs.node_failed[row] > 0
        return np.repeat(node[begins], 2), times, (node[failed], held.end[failed])

    def _add(self, finding: str, held: HeldSpans, these: NDArray[np.int64], node_s: NDArray[np.float64]) -> None:
        if these.size:
            count, sum_s, first = self._found.get(finding, (0, 0.0, (MOST_SLOTS, 0)))
            here = int(held.node[these[0]]), int(held.row[these[0]])
            first = here if here[0] < first[0] else first
            self._found[finding] = count + these.size, sum_s + float(node_s.sum()), first

    def note(self, intake: RecordIntake) -> None:
        """Count jobs that share a node, and gaps of zero length."""
        for finding, (count, node_s, (_, row)) in self._found.items():
            intake.note(finding, count=count, node_s=node_s, where=intake.place_name(int(self._jobs.place[row])))


def _note_censored_end(last: NDArray[np.float64], end_s: float, intake: RecordIntake, *, runs_on: bool) -> None:
    """Count idle time after each node's last job, unless the records or the options cover the end."""
    held = np.isfinite(last)
    tail_s = float((end_s - last[held]).sum())
    if intake.options.window[1] is None and not runs_on and tail_s > 0:
        where = f"at {time_formats.time_text(float(last[held].min()))}"
        intake.note("censored_end", count=int((last[held] < end_s).sum()), node_s=tail_s, where=where)


def _node_order(intake: RecordIntake) -> NDArray[np.int64]:
    """Return the nodes in the order given by the options; otherwise in natural name order."""
    names = intake.node_names
    if intake.options.nodes is not None:
        return np.arange(len(names))
    intake.note("nodes_inferred", count=len(names), where="")
    return np.array(sorted(range(len(names)), key=lambda place: natural_order(names[place])), dtype=np.int64)


def observed(jobs: StayColumns, keep: NDArray[np.bool_], intake: RecordIntake) -> tuple[float, float]:
    """Return the start and end of the period that the records describe completely."""
    begin_s, end_s = intake.options.window
    if not keep.any():
        raise _no_usable_rows(intake)
    start, end = jobs.start[keep], jobs.end[keep]
    last_s = max(intake.last_s, float(start.max())) if end_s is None else end_s
    if begin_s is None:
        begin_s = _observed_from(start, end, last_s, intake)
    if end_s is None:
        end_s = _observed_until(start, end, begin_s, last_s, intake, runs_on=any_running(jobs, keep))
    if not begin_s < end_s:
        raise BadInput(
            f"no usable records between {time_formats.time_text(begin_s)} and {time_formats.time_text(end_s)}",
            where=", ".join(intake.file_names[:3]),
            fix="set the time for which they are complete by --window A:B",
        )
    return begin_s, end_s


_ADVICE: Final = {  # advice for the most frequent reason
    "does_not_fit": "--nodes contains no node of these jobs: list the machine's nodes, or omit the option",
    "preemptible": "omit --preemptible, or also import jobs of other partitions",
    "no_usage": "import records of jobs that ran; with --unit, records of their GPUs or cores",
    "bad_time": "use a column end or elapsed (--map end=COL), or records with job states, which show running jobs",
    "malformed": "set the format by --format, or the columns by --columns",
}


def _no_usable_rows(intake: RecordIntake) -> BadInput:
    aside = intake.aside
    where = ", ".join(intake.file_names[:3])
    if aside["no_nodes"] and not aside["bad_nodes"] and not intake.options.counts:
        return BadInput(
            "no job lists its nodes, so the idle ones are unknown",
            where=where,
            fix=f"if a column lists them: --map nodes=COL; bftrain schedule {where} -o DIR simulates which nodes were"
            " idle and writes DIR/idle.npz; --counts uses the number of busy nodes",
        )
    fix = "bftrain import --dry-run explains each"
    begin_s, end_s = intake.options.window
    if aside["not_selected"] and (begin_s, end_s) != (None, None):
        edges = ("" if edge_s is None else time_formats.time_text(edge_s) for edge_s in (begin_s, end_s))
        fix = f"--window is {' .. '.join(edges).strip()}; {fix}"
    if aside["bad_time"]:
        fix = f"write times as epochs or as 2020-09-13T12:26:40, the year first; {fix}"
    if not aside and intake.outages.names:
        fix = "the records contain only downtime: also import job records"
    for reason, _ in aside.most_common(1):
        if reason in _ADVICE:
            fix = f"{_ADVICE[reason]}; {fix}"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in aside.most_common()) or "there are no rows"
    return BadInput(f"no row describes an allocated node: {reasons}", where=where, fix=fix)


def _observed_from(start: NDArray[np.float64], end: NDArray[np.float64], end_s: float, intake: RecordIntake) -> float:
    """Return the observation start: the first job start, or the first job end if earlier jobs are clearly missing.

    Dumps of a few days lack earlier jobs, except for jobs still running at the dump's start. Records written at job
    start are complete from their first start.
    """
    first = float(start.min())
    known_s = min(float(end.min()), intake.open_jobs.first_begun_s)
    before = known_s - first
    if known_s >= end_s or before <= max(CENSORED_FROM * (end_s - first), CENSORED_FROM_S):  # a single job is no dump
        return first
    intake.note(
        "log_trimmed",
        count=int((start < known_s).sum()),
        node_s=before * intake.size,
        where=f"at {time_formats.time_text(first)}",
        done=f"left out: the log starts at the first job end, {before / 3600:,.1f} h after the first start",
    )
    return known_s


def _observed_until(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    begin_s: float,
    last_s: float,
    intake: RecordIntake,
    *,
    runs_on: bool,
) -> float:
    """Return the observation end: the last record, or the last job start if later-ending jobs are clearly missing.

    Dumps of finished jobs lack running jobs: the machine seems to drain, and job starts cease. Records written at job
    start, and records of running jobs, show the jobs running when the records stop.
    """
    started_s = float(start.max())
    after = last_s - started_s
    if intake.options.keep_end or runs_on or intake.open_jobs.any_begun:
        return last_s
    if after <= max(CENSORED_FROM * (last_s - begin_s), CENSORED_FROM_S) or after > (last_s - begin_s) / 2:
        return last_s  # omitting more than half of the time suggests a few jobs, not a dump
    intake.note(
        "log_trimmed",
        count=int((end > started_s).sum()),
        node_s=after * intake.size,
        where=f"at {time_formats.time_text(started_s)}",
        done=f"left out: the log stops at the last job start, {after / 3600:,.1f} h before the last end",
    )
    return started_s


# A larger number suggests that the column contains users or projects
MOST_PARTITIONS: Final = 100


def partitions_of(
    jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float, nodes: Sequence[str]
) -> dict[str, str]:
    """Return each partition's node set. A node belongs to the partition that used it longest in the observed time.

    Returns an empty dictionary unless the kept jobs used between 2 and ``MOST_PARTITIONS`` partitions.
    """
    rows = np.flatnonzero(keep & (jobs.queue >= 0) & (jobs.sets >= 0))
    queues = np.unique(jobs.queue[rows])
    if not 1 < queues.size <= MOST_PARTITIONS:
        return {}
    held_s = np.maximum(np.minimum(jobs.end[rows], end_s) - np.maximum(jobs.start[rows], begin_s), 0.0)
    sizes = np.diff(jobs.set_offsets)
    longest_s, found = np.zeros(len(nodes)), np.full(len(nodes), -1)
    for queue in queues.tolist():
        of_queue = jobs.queue[rows] == queue
        by_set = np.bincount(jobs.sets[rows[of_queue]], held_s[of_queue], minlength=sizes.size)
        by_node = np.bincount(jobs.set_nodes, np.repeat(by_set, sizes), minlength=len(nodes))
        found[by_node > longest_s] = queue
        longest_s = np.maximum(longest_s, by_node)
    sets = {}
    for queue in np.unique(found[found >= 0]).tolist():
        names = [nodes[place] for place in np.flatnonzero(found == queue).tolist()]
        sets[jobs.queue_names[queue]] = _node_set(names)
    return sets if all(sets.values()) else {}


def _node_set(names: Sequence[str]) -> str:
    """Return the names as a node set that expands back to them, or an empty string if impossible."""
    plain = ",".join(names)
    if not plain.isascii() or _names_in(plain) != list(names):
        return ""
    short = fold(names)
    # The folded form fails for long sets with several brackets
    return short if sorted(_names_in(short)) == sorted(names) else plain


def _names_in(text: str) -> list[str]:
    try:
        return expand(text)
    except ValueError:
        return []


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """The GPUs or cores of all nodes as slots, by name in node order; each node's slots start at its ``first``.

    If only the number of slots is recorded, a starting job gets the lowest free slots of its node. If more slots are in
    use than the node has, the job gets further slots when other jobs release them. So the number of busy slots is
    right.
    """

    names: list[str]
    first: NDArray[np.int64]
    capacity: NDArray[np.int64]
    jobs: StayColumns
    keep: NDArray[np.bool_]

    @classmethod
    def of(cls, jobs: StayColumns, keep: NDArray[np.bool_], order: Sequence[int], intake: RecordIntake) -> NodeSlots:
        """Determine each node's slot count: from the options, or the largest number used simultaneously."""
        options, nodes = intake.options, intake.node_names
        capacity = np.full(len(nodes), options.node_units or 0, dtype=np.int64)
        places = {name: place for place, name in enumerate(nodes)}
        for text, count in options.node_units_of:
            capacity[[places[name] for name in expand(text) if name in places]] = count
        unknown = capacity == 0
        if unknown.any():
            most = np.zeros(len(nodes), dtype=np.int64)
            for held in spans_by_node(jobs, keep, -np.inf, np.inf, len(nodes)):
                use = _Use.of(held, np.full(len(nodes), np.iinfo(np.int64).max))
                np.maximum.at(most, use.node, use.level)
                numbered = _units(held) < 0
                np.maximum.at(most, held.node[numbered], -_units(held)[numbered])
            capacity[unknown] = most[unknown]
            intake.note("units_assumed", count=int(unknown.sum()), where="")
        intake.unit_count = int(capacity.sum())
        if intake.unit_count > MOST_SLOTS:
            what = f"{intake.unit_count:,} {in_words_of(options.unit, 'nodes')} exceed the limit of {MOST_SLOTS:,}"
            raise BadInput(what, where=f"--unit {options.unit}", fix="select nodes by --nodes")
        first = np.zeros(len(nodes), dtype=np.int64)
        first[order] = np.concatenate(([0], np.cumsum(capacity[order])[:-1]))
        names = [slot_name(nodes[place], options.unit, slot) for place in order for slot in range(capacity[place])]
        return cls(names, first, capacity, jobs, keep)

    def spans(self, begin_s: float, end_s: float, intake: RecordIntake) -> Iterator[HeldSpans]:
        """Yield every (job, slot) pair within the observed time; count and omit slots that a node does not have."""
        over: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []
        for held in spans_by_node(self.jobs, self.keep, begin_s, end_s, self.capacity.size):
            use = _Use.of(held, self.capacity)
            if (use.over > 0).any():
                self._note_overfull(use, intake)
                over.append((use.time, use.over_change()))
            yield self._laid_out(held)
        if over:
            times, count = running_sums(*map(np.concatenate, zip(*over, strict=True)))
            intake.doubtful.append(curve_of(OVER_CAPACITY, times, count, len(self.names)))

    def _note_overfull(self, use: _Use, intake: RecordIntake) -> None:
        lasting_s = np.diff(use.time, append=0.0)
        begins = np.flatnonzero(use.over > np.concatenate(([0], use.over[:-1])))
        node_s = float((use.over * lasting_s)[use.over > 0].sum())
        first = int(begins[np.argmin(use.time[begins])])
        where = f"{intake.node_names[use.node[first]]} at {time_formats.time_text(float(use.time[first]))}"
        intake.note("over_capacity", count=int(begins.size), node_s=node_s, where=where)

    def _laid_out(self, held: HeldSpans) -> HeldSpans:
        units = _units(held)
        summed = np.zeros(self.capacity.size, dtype=np.bool_)
        summed[held.node[units >= 0]] = True
        plain = np.flatnonzero(~summed[held.node] & (-1 - units < self.capacity[held.node]))
        found = [(self.first[held.node[plain]] - 1 - units[plain], held.start[plain], held.end[plain], held.row[plain])]
        bounds = np.flatnonzero(np.diff(held.node, prepend=-1, append=-1))
        for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            node = int(held.node[low])
            if summed[node]:
                columns = (held.start[low:high], held.end[low:high], units[low:high])
                sweep = SlotSweep(int(self.capacity[node]), *(column.tolist() for column in columns))
                entry = np.array(sweep.entry, dtype=np.int64) + low
                slot = np.array(sweep.slot, dtype=np.int64) + self.first[node]
                found.append((slot, np.array(sweep.begin_s), np.array(sweep.end_s), held.row[entry]))
        slot, start, end, row = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.lexsort((start, slot))
        return HeldSpans(slot[order].astype(np.int32), start[order], end[order], row[order])


def _units(held: HeldSpans) -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64) if held.units is None else held.units.astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Use:
    """Jobs use ``level[i]`` slots of a ``node`` from ``time[i]``, ``over[i]`` more than exist; sorted by node."""

    node: NDArray[np.int32]
    time: NDArray[np.float64]
    level: NDArray[np.int64]
    over: NDArray[np.int64]

    @classmethod
    def of(cls, held: HeldSpans, capacity: NDArray[np.int64]) -> _Use:
        """Add up the slots of jobs; a slot shared by several jobs counts once."""
        units = _units(held)
        if not held.node.size:
            return cls(held.node, held.start, units, units)
        order = np.lexsort((held.start, units, held.node))
        node, start, end, unit = held.node[order], held.start[order], held.end[order], units[order]
        numbered = unit < 0
        first = np.concatenate(([True], (node[1:] != node[:-1]) | (unit[1:] != unit[:-1])))
        reach = latest_ends(first, end)
        gap = np.concatenate(([True], start[1:] > reach[:-1])) | first | ~numbered
        begins = np.flatnonzero(gap)
        lasts = np.append(begins[1:], node.size) - 1
        ends = np.where(numbered[begins], reach[lasts], end[begins])
        slots = np.where(numbered, 1, unit)
        size = slots[begins]
        there = np.where(numbered & (-1 - unit >= capacity[node]), 0, slots)[begins]  # slots that the node has
        time = np.concatenate((start[begins], ends))
        nodes = np.concatenate((node[begins], node[begins]))
        change, change_there = np.concatenate((size, -size)), np.concatenate((there, -there))
        order = np.lexsort((change > 0, time, nodes))
        level, level_there = np.cumsum(change[order]), np.cumsum(change_there[order])
        nodes = nodes[order]
        return cls(nodes, time[order], level, level - np.minimum(level_there, capacity[nodes]))

    def over_change(self) -> NDArray[np.int64]:
        """Return the change of the excess at each time."""
        return np.diff(self.over, prepend=0)  # the excess returns to 0 on every node


class SlotSweep:
    """The stays of jobs on a node's slots: ``entry`` used ``slot`` from ``begin_s`` to ``end_s``.

    ``units`` is an entry's number of slots. A negative number is a specific slot: the entry always gets it, and its
    current user moves to another slot.
    """

    def __init__(self, capacity: int, starts: Sequence[float], ends: Sequence[float], units: Sequence[int]) -> None:
        self.entry: list[int] = []
        self.slot: list[int] = []
        self.begin_s: list[float] = []
        self.end_s: list[float] = []
        self._free = list(range(capacity))  # sorted
        self._users = [0] * capacity  # number of jobs that use this specific slot
        self._owner: dict[int, tuple[int, float]] = {}  # entry and start of each other slot in use
        self._held: dict[int, list[int]] = {}
        self._lacking: dict[int, int] = {}
        events = [(time_s, 0, entry) for entry, time_s in enumerate(ends)]
        events += [(time_s, 2 if units[entry] >= 0 else 1, entry) for entry, time_s in enumerate(starts)]
        for time_s, begins, entry in sorted(events):
            count = units[entry]
            if count < 0:
                if -1 - count < capacity:
                    self._numbered(-1 - count, time_s, begins=bool(begins))
                    if begins:
                        self._add(entry, -1 - count, time_s, ends[entry])
            elif begins:
                self._request_slots(entry, count, time_s)
            else:
                self._end(entry, time_s)

    def _add(self, entry: int, slot: int, begin_s: float, end_s: float) -> None:
        if end_s > begin_s:
            self.entry.append(entry)
            self.slot.append(slot)
            self.begin_s.append(begin_s)
            self.end_s.append(end_s)

    def _assign_slot(self, slot: int, entry: int, time_s: float) -> None:
        self._owner[slot] = entry, time_s
        self._held.setdefault(entry, []).append(slot)

    def _request_slots(self, entry: int, count: int, time_s: float) -> None:
        slots = self._free[:count]
        del self._free[:count]
        for slot in slots:
            self._assign_slot(slot, entry, time_s)
        if count > len(slots):
            self._lacking[entry] = self._lacking.get(entry, 0) + count - len(slots)

    def _release(self, slot: int, time_s: float) -> None:
        for entry in self._lacking:
            self._lacking[entry] -= 1
            if not self._lacking[entry]:
                del self._lacking[entry]
            self._assign_slot(slot, entry, time_s)
            return
        insort(self._free, slot)

    def _end(self, entry: int, time_s: float) -> None:
        self._lacking.pop(entry, None)
        for slot in self._held.pop(entry, ()):
            _, begin_s = self._owner.pop(slot)
            self._add(entry, slot, begin_s, time_s)
            self._release(slot, time_s)

    def _numbered(self, slot: int, time_s: float, *, begins: bool) -> None:
        self._users[slot] += 1 if begins else -1
        if not begins:
            if not self._users[slot]:
                self._release(slot, time_s)
        elif slot in self._free:
            self._free.remove(slot)
        elif slot in self._owner:
            entry, begin_s = self._owner.pop(slot)
            self._held[entry].remove(slot)
            self._add(entry, slot, begin_s, time_s)
            self._request_slots(entry, 1, time_s)
