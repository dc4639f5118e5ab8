"""Build a log from counts: the number of busy nodes is known, but not which.

Nodes are numbered, and the first ``active`` nodes are busy: this assignment has the fewest changes. The rest up to
``total`` are idle; nodes beyond ``total`` are down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import NODE, in_words_of, slot_name
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.occupancy import any_running, first_reports, observed
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import BUSY, DOWN, IDLE, EventLog
from bftrain_datasets.log.idle_doubts import OVER_CAPACITY, POLL_GAP, curve_of
from bftrain_datasets.log.log_columns import running_sums

MOST_CHANGES: Final = 1 << 26  # node state changes in a log; building it takes some gigabytes of memory
UNKNOWN_TOTAL: Final = -1  # the total is not recorded
_REGULAR: Final = 0.9  # fraction of the gaps between counts that must be equal before longer ones are doubtful
_POLL_GAP: Final = 3  # times the usual interval
_ROUNDING: Final = 1e-9  # tolerance of a quotient that should be whole
_NAME_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class _Steps:
    """``active[i]`` of ``total[i]`` nodes are busy from ``times[i]``; the last values apply until ``end_s``.

    ``runs_on`` means that a job is still running at ``end_s``.
    """

    times: NDArray[np.float64]
    active: NDArray[np.int64]
    total: NDArray[np.int64]
    end_s: float
    runs_on: bool = False


def log_from_counts(intake: RecordIntake) -> EventLog:
    """Build the log of numbered nodes; the first ``active`` nodes are busy."""
    steps = _cut_to_window(_sorted_counts(intake), intake) if intake.count_times else _sums_of_jobs(intake)
    names = _node_names(intake, int(max(steps.active.max(), steps.total.max())))
    # Limit counts to the number of nodes, and count how often this happens
    capacity = len(names)
    reported = np.where(steps.total < 0, capacity, steps.total)
    total = np.minimum(reported, capacity)
    over = np.maximum(steps.active, reported) - total
    active = np.minimum(steps.active, total)
    places = np.flatnonzero(over > 0)
    if places.size:
        lasting = np.diff(steps.times, append=steps.end_s)
        intake.note(
            "over_capacity",
            count=int(places.size),
            node_s=float((over * lasting)[places].sum()),
            where=f"at {time_formats.time_text(steps.times[places[0]])}",
        )
        intake.doubtful.append(curve_of(OVER_CAPACITY, steps.times, np.maximum(over, 0), capacity))
    steps = replace(steps, active=active, total=total)
    intake.note("which_unknown", count=len(steps.times), where="")
    if not intake.count_times:
        _note_censored(steps, len(names), intake)
    return _expanded(steps, names, intake.file_names[0])


def _sums_of_jobs(intake: RecordIntake) -> _Steps:
    """Add the sizes of all jobs running at each time."""
    jobs, keep = first_reports(intake)
    begin_s, end_s = observed(jobs, keep, intake)
    runs_on = any_running(jobs, keep)
    keep &= (jobs.start < end_s) & (jobs.end > begin_s)
    start, end, count = np.maximum(jobs.start[keep], begin_s), jobs.end[keep], jobs.count[keep].astype(np.int64)
    inside = end < end_s
    times, active = running_sums(
        np.concatenate(([begin_s], start, end[inside])), np.concatenate(([0], count, -count[inside]))
    )
    if intake.cores_per_node > 1:  # sizes are cores
        active = np.ceil(active / intake.cores_per_node - _ROUNDING).astype(np.int64)
    return _Steps(times, active, np.full(times.size, UNKNOWN_TOTAL), end_s, runs_on=runs_on)


def _sorted_counts(intake: RecordIntake) -> _Steps:
    """Sort the counts by time; of several counts at the same time, the last wins."""
    times = np.array(intake.count_times, dtype=np.float64)
    falls = np.flatnonzero(np.diff(times) < 0) + 1
    if falls.size:
        intake.note("notation", count=int(falls.size), where=f"at {time_formats.time_text(times[falls[0]])}")
    order = np.argsort(times, kind="stable")
    times = times[order]
    last = np.append(times[1:] != times[:-1], [True])
    if not last.all():
        first_s = float(times[~last][0])
        intake.unuse("repeated", f"at {time_formats.time_text(first_s)}", int((~last).sum()), 0.0)
    active = np.array(intake.count_active, dtype=np.int64)[order][last]
    total = np.array(intake.count_total, dtype=np.int64)[order][last]
    steps = _Steps(times[last], active, total, max(intake.last_s, float(times[-1])))
    # Count the gaps in an otherwise regular series
    gaps = np.diff(steps.times)
    if gaps.size != 0:
        usual = float(np.median(gaps))
        long = np.flatnonzero(gaps > _POLL_GAP * usual)
        if long.size and float(np.mean(np.abs(gaps - usual) <= usual / 10)) >= _REGULAR:
            node_s = float((gaps[long] * np.maximum(steps.total[long], steps.active[long])).sum())
            where = f"at {time_formats.time_text(steps.times[long[0]])}"
            intake.doubtful_stays.add(POLL_GAP, steps.times[long], steps.times[long + 1], MOST_NODES)
            intake.note("poll_gap", count=int(long.size), node_s=node_s, where=where)
    return steps


def _cut_to_window(steps: _Steps, intake: RecordIntake) -> _Steps:
    low, high = intake.within_window(float(steps.times[0]), steps.end_s)
    first = int(np.searchsorted(steps.times, low, side="right")) - 1
    last = max(first + 1, int(np.searchsorted(steps.times, high, side="left")))
    times = steps.times[first:last].copy()
    times[0] = low
    return _Steps(times, steps.active[first:last], steps.total[first:last], high)


def _node_names(intake: RecordIntake, largest: int) -> tuple[str, ...]:
    """Return node or slot names; the options, the records or the largest count set the number of nodes, in this order.

    Without ``--nodes``, the names are numbers.
    """
    options, where = intake.options, intake.file_names[0]
    slots_per_node = 1 if options.unit == NODE else options.node_units
    if slots_per_node is None:
        what = f"the records do not contain the number of {in_words_of(options.unit, 'nodes')} of a node"
        raise BadInput(what, where=where, fix=f"set it by --node-{options.unit}s N")
    nodes = options.nodes
    count = len(nodes) if nodes is not None else options.node_count or intake.capacity or 0
    if not count:
        count = max(1, -(-largest // slots_per_node))
        done = f"{count:,} nodes are assumed: enough for the largest number in use"
        intake.note("nodes_inferred", count=count, where="", done=done)
    slots = count * slots_per_node
    if slots > MOST_NODES:
        what = in_words_of(options.unit, f"a machine of {slots:,} nodes is beyond the limit of {MOST_NODES:,}")
        raise BadInput(what, where=where, fix="set the number of nodes by --nodes")
    if nodes is None:
        digits = max(_NAME_DIGITS, len(str(count)))
        nodes = tuple(f"n{number:0{digits}d}" for number in range(1, count + 1))
    if options.unit == NODE:
        return nodes
    return tuple(slot_name(name, options.unit, slot) for name in nodes for slot in range(slots_per_node))


def _note_censored(steps: _Steps, node_count: int, intake: RecordIntake) -> None:
    """Count idle time after the last start: jobs that finish later may be missing."""
    if intake.options.window[1] is not None or steps.runs_on:
        return
    rises = np.flatnonzero(np.diff(steps.active, prepend=0) > 0)
    first = int(rises[-1]) if rises.size else 0
    idle = (node_count - steps.active)[first:]
    node_s = float((idle * np.diff(steps.times[first:], append=steps.end_s)).sum())
    if node_s > 0:
        done = "idle after the last start counts as idle"
        where = f"at {time_formats.time_text(float(steps.times[first]))}"
        intake.note("censored_end", count=int(idle.max()), node_s=node_s, where=where, done=done)


def _expanded(steps: _Steps, names: tuple[str, ...], where: str) -> EventLog:
    counts, nodes, states, before = _changes_of(steps, len(names), where)
    kept = counts > 0
    kept[0] = True
    return EventLog(
        node_names=names,
        times=steps.times[kept],
        offsets=np.concatenate(([0], np.cumsum(counts[kept]))),
        nodes=nodes,
        states=states,
        end_s=steps.end_s,
        known_before=before,
    )


def _changes_of(
    steps: _Steps, capacity: int, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int8], NDArray[np.int8]]:
    """Return the number of changing nodes at each step, their indices, and their new and previous states."""
    # All nodes are busy before the first step
    before, before_total = (np.concatenate(([capacity], column[:-1])) for column in (steps.active, steps.total))
    # Nodes between the old and the new ``active`` change; others change between the old and the new ``total``
    low, high = np.minimum(steps.active, before), np.maximum(steps.active, before)
    low_total, high_total = np.minimum(steps.total, before_total), np.maximum(steps.total, before_total)
    lows = np.stack((low, np.maximum(low_total, high)), axis=1).ravel()
    sizes = np.stack((high, np.maximum(high_total, high)), axis=1).ravel() - lows
    counts = sizes[::2] + sizes[1::2]
    if int(counts.sum()) > MOST_CHANGES:
        what = f"the counts lead to more than {MOST_CHANGES:,} changes of nodes"
        raise BadInput(what, where=where, fix="import it in parts, with --window A:B")
    filled = sizes > 0
    nodes = np.arange(int(counts.sum()), dtype=np.int32)  # the index of each change, later the node in its range
    nodes += np.repeat((lows - np.cumsum(sizes) + sizes)[filled].astype(np.int32), sizes[filled])

    def states(is_busy: NDArray[np.bool_], total: NDArray[np.int64]) -> NDArray[np.int8]:
        """Return each change's state.

        It is busy in the steps of ``is_busy`` for nodes between both ``active``; otherwise idle below ``total`` and
        down above.
        """
        found = np.where(nodes < np.repeat(total.astype(np.int32), counts), np.int8(IDLE), np.int8(DOWN))
        found[np.repeat(np.stack((is_busy, np.zeros_like(is_busy)), axis=1).ravel(), sizes)] = BUSY
        return found

    return counts, nodes, states(steps.active > before, steps.total), states(steps.active < before, before_total)
