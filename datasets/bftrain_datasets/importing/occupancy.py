"""From jobs to a log: a node is busy while any job holds it, and idle between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.nodesets import natural_order
from bftrain_datasets.importing.repeated_jobs import any_running, first_reports
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import BUSY, IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.job_columns import StayColumns
    from bftrain_datasets.log.eventlog import EventLog

CENSORED_FROM: Final = 0.01  # of the span; a dump of all jobs has its first end soon after its first start
CENSORED_FROM_S: Final = 3600.0
_PAIRS_AT_ONCE: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class _Held:
    """Every (job, node) of a part of the nodes, ordered by node and then by start; ``row`` tells the job."""

    node: NDArray[np.int32]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    row: NDArray[np.int64]


def log_from_jobs(intake: RecordIntake) -> EventLog:
    """Build the log of a machine whose jobs the intake collected."""
    jobs, keep = first_reports(intake)
    begin_s, end_s = observed(jobs, keep, intake)
    names = intake.node_names
    order = _node_order(intake)
    builder = LogBuilder(names[place] for place in order.tolist())
    place_of = np.empty(len(names), dtype=np.int32)
    place_of[order] = np.arange(len(names), dtype=np.int32)
    everyone = np.arange(len(names), dtype=np.int32)
    builder.add_columns(np.full(len(names), begin_s), everyone, np.full(len(names), IDLE, dtype=np.int8))
    last = np.full(len(names), -np.inf)
    for held in _by_nodes(jobs, keep, begin_s, end_s, len(names)):
        node, start, end = _merged(held, jobs, intake)
        np.maximum.at(last, node, end)
        nodes = place_of[node]
        builder.add_columns(start, nodes, np.full(node.size, BUSY, dtype=np.int8))
        ends_inside = end < end_s
        builder.add_columns(end[ends_inside], nodes[ends_inside], np.full(int(ends_inside.sum()), IDLE, dtype=np.int8))
    _note_end(last, intake, end_s, runs_on=any_running(jobs, keep))
    return builder.build(begin_s=begin_s, end_s=end_s)


def _node_order(intake: RecordIntake) -> NDArray[np.int64]:
    """Keep the order that the options give; else sort by name as people do."""
    names = intake.node_names
    if intake.options.nodes is not None:
        return np.arange(len(names))
    intake.tally.note("nodes_inferred", count=len(names), where="")
    return np.array(sorted(range(len(names)), key=lambda place: natural_order(names[place])), dtype=np.int64)


def observed(jobs: StayColumns, keep: NDArray[np.bool_], intake: RecordIntake) -> tuple[float, float]:
    """From when to when the records tell what each node does."""
    begin_s, end_s = intake.options.window
    if not keep.any():
        raise _nothing(intake)
    start, end = jobs.start[keep], jobs.end[keep]
    last_s = max(intake.last_s, float(start.max())) if end_s is None else end_s
    if begin_s is None:
        begin_s = _begin(start, end, last_s, intake)
    if end_s is None:
        end_s = _end(start, end, begin_s, last_s, intake, runs_on=any_running(jobs, keep))
    if not begin_s < end_s:
        raise BadInput(
            f"the records leave nothing between {time_formats.time_text(begin_s)} and {time_formats.time_text(end_s)}",
            where=", ".join(intake.file_names[:3]),
            fix="say with --window A..B for which time they are complete",
        )
    return begin_s, end_s


def _nothing(intake: RecordIntake) -> BadInput:
    aside = intake.tally.aside
    where = ", ".join(intake.file_names[:3])
    if aside["no_nodes"] and not aside["bad_nodes"] and not intake.options.counts:
        return BadInput(
            "no job names its nodes, so it is not known which were idle",
            where=where,
            fix="of SWF logs bftrain schedule simulates which; --counts reads how many nodes were busy",
        )
    fix = "bftrain check explains each"
    begin_s, end_s = intake.options.window
    if aside["outside_window"]:
        edges = ("" if edge_s is None else time_formats.time_text(edge_s) for edge_s in (begin_s, end_s))
        fix = f"--window is {' .. '.join(edges).strip()}; {fix}"
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in aside.most_common()) or "there are none"
    return BadInput(f"no row tells of a node that was held: {reasons}", where=where, fix=fix)


def _begin(start: NDArray[np.float64], end: NDArray[np.float64], end_s: float, intake: RecordIntake) -> float:
    """Begin with the first job; or, where jobs that ended before are plainly missing, when the first one ends.

    They are missing from all dumps of some days, which have the jobs that still ran when these began and no others.
    Records that tell of starts as they happen know all from the first such start on.
    """
    first = float(start.min())
    known_s = min(float(end.min()), intake.open_jobs.first_begun_s)
    before = known_s - first
    if known_s >= end_s or before <= max(CENSORED_FROM * (end_s - first), CENSORED_FROM_S):  # one lone job is no dump
        return first
    intake.tally.note(
        "censored_start",
        count=int((start < known_s).sum()),
        node_s=before * (len(intake.node_names) or intake.options.node_count or intake.capacity or 0),
        where=f"at {time_formats.time_text(first)}",
        done=f"left out: the log begins when the first job ends, {before / 3600:,.1f} h after the first start",
    )
    return known_s


def _end(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    begin_s: float,
    last_s: float,
    intake: RecordIntake,
    *,
    runs_on: bool,
) -> float:
    """End with the records; or, where jobs that ended later are plainly missing, when the last one starts.

    They are missing from all dumps of ended jobs: the machine seems to empty, and nothing starts any more. Records that
    tell of starts as they happen, or of jobs that still run, show what runs at their end.
    """
    started_s = float(start.max())
    after = last_s - started_s
    if intake.options.keep_end or runs_on or intake.open_jobs.any_begun:
        return last_s
    if after <= max(CENSORED_FROM * (last_s - begin_s), CENSORED_FROM_S) or after > (last_s - begin_s) / 2:
        return last_s  # where half of the time would be left out, there are a few jobs and no dump
    intake.tally.note(
        "cut_end",
        count=int((end > started_s).sum()),
        node_s=after * (len(intake.node_names) or intake.options.node_count or intake.capacity or 0),
        where=f"at {time_formats.time_text(started_s)}",
        done=f"left out: the log ends when the last job starts, {after / 3600:,.1f} h before the last end",
    )
    return started_s


def _by_nodes(
    jobs: StayColumns, keep: NDArray[np.bool_], begin_s: float, end_s: float, node_count: int
) -> Iterator[_Held]:
    """Give every (job, node) within the time observed, some nodes at a time so that memory stays small."""
    rows = np.flatnonzero(keep & (jobs.start < end_s) & (jobs.end > begin_s))
    sizes = np.diff(jobs.set_offsets)
    weight = np.zeros(node_count, dtype=np.int64)
    uses = np.bincount(jobs.sets[rows], minlength=sizes.size)
    np.add.at(weight, jobs.set_nodes, np.repeat(uses, sizes))
    part = np.cumsum(weight) // _PAIRS_AT_ONCE
    for number in np.unique(part).tolist():
        low, high = np.searchsorted(part, [number, number + 1]).tolist()
        yield _held_by(jobs, rows, low, high, begin_s, end_s)


def _held_by(jobs: StayColumns, rows: NDArray[np.int64], low: int, high: int, begin_s: float, end_s: float) -> _Held:
    """Pairs of a job and one of the nodes from ``low`` to ``high``."""
    inside = (jobs.set_nodes >= low) & (jobs.set_nodes < high)
    nodes = jobs.set_nodes[inside]
    offsets = np.concatenate(([0], np.cumsum(inside)))[jobs.set_offsets]
    sets = jobs.sets[rows]
    counts = np.diff(offsets)[sets]
    row = np.repeat(rows, counts)
    firsts = np.repeat(offsets[sets] - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    node = nodes[firsts + np.arange(row.size)]
    start = np.maximum(jobs.start[row], begin_s)
    end = np.minimum(jobs.end[row], end_s)
    order = np.lexsort((start, node))
    return _Held(node[order], start[order], end[order], row[order])


def _merged(
    held: _Held, jobs: StayColumns, intake: RecordIntake
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Join stays of one node that overlap or touch: node, start and end of each time that it is busy."""
    if held.node.size == 0:
        return held.node, held.start, held.end
    reach = _running_end(held)
    _note_overlaps(held, reach, jobs, intake)
    new_node = np.ones(held.node.size, dtype=np.bool_)
    new_node[1:] = held.node[1:] != held.node[:-1]
    gap = np.ones(held.node.size, dtype=np.bool_)
    gap[1:] = held.start[1:] > reach[:-1]
    touching = np.flatnonzero(~new_node[1:] & (held.start[1:] == reach[:-1])) + 1
    if touching.size:
        first = intake.where(int(jobs.place[held.row[touching[0]]]))
        intake.tally.note("back_to_back", count=int(touching.size), where=first)
    firsts = np.flatnonzero(new_node | gap)
    lasts = np.append(firsts[1:], held.node.size) - 1
    return held.node[firsts], held.start[firsts], reach[lasts]


def _running_end(held: _Held) -> NDArray[np.float64]:
    """For each stay the latest end of it and all before it on the same node.

    Ends are replaced by their rank and lifted node by node, so that one running maximum serves all nodes.
    """
    values, rank = np.unique(held.end, return_inverse=True)
    group = np.cumsum(np.concatenate(([0], held.node[1:] != held.node[:-1])))
    lift = group * values.size
    reach: NDArray[np.float64] = values[np.maximum.accumulate(lift + rank) - lift]
    return reach


def _note_overlaps(held: _Held, reach: NDArray[np.float64], jobs: StayColumns, intake: RecordIntake) -> None:
    """Count stays that begin while the node is still held: by another job, or by the same one."""
    over = np.flatnonzero((held.node[1:] == held.node[:-1]) & (held.start[1:] < reach[:-1])) + 1
    if over.size == 0:
        return
    both_s = np.minimum(held.end[over], reach[over - 1]) - held.start[over]
    twice = jobs.job[held.row[over]] == jobs.job[held.row[over - 1]]
    for name, these in (("shared", ~twice), ("held_twice", twice)):
        if these.any():
            first = intake.where(int(jobs.place[held.row[over[these][0]]]))
            intake.tally.note(name, count=int(these.sum()), node_s=float(both_s[these].sum()), where=first)


def _note_end(last: NDArray[np.float64], intake: RecordIntake, end_s: float, *, runs_on: bool) -> None:
    """Count what is idle after each node's last job, unless the records or the options reach to the end."""
    held = np.isfinite(last)
    tail_s = float((end_s - last[held]).sum())
    if intake.options.window[1] is None and not runs_on and tail_s > 0:
        where = f"at {time_formats.time_text(float(last[held].min()))}"
        intake.tally.note("censored_end", count=int((last[held] < end_s).sum()), node_s=tail_s, where=where)
