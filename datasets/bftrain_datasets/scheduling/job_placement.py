"""Placing: which nodes each job of a schedule holds, and the log of idle nodes that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.log.eventlog import BUSY, IDLE, EventLog
from bftrain_datasets.scheduling.schedule_settings import CONTIGUOUS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from bftrain_datasets.log.provenance import LogProvenance
    from bftrain_datasets.scheduling.schedule_engine import JobSchedule

    _Choice = Callable[[NDArray[np.bool_], int], NDArray[np.int64]]

_NAME_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJobs:
    """Who holds what: ``node_sets`` by job ("" if it never started), and how many jobs are ``in_pieces``.

    The rest are the columns of the log of idle nodes; ``times`` are seconds since the first submission.
    """

    node_names: tuple[str, ...]
    times: NDArray[np.float64]
    offsets: NDArray[np.int64]
    nodes: NDArray[np.int32]
    states: NDArray[np.int8]
    end_s: float
    node_sets: list[str]
    in_pieces: int

    def idle_node_s(self, from_s: float) -> float:
        """Give the node-seconds that are idle from some time on."""
        joined = np.where(self.states == IDLE, 1, -1)  # the first time lists those that are idle then
        idle = np.concatenate(([0], np.cumsum(joined)))[self.offsets[1:]]
        lasts = np.append(self.times[1:], self.end_s) - np.maximum(self.times, from_s)
        return float((idle * np.maximum(lasts, 0.0)).sum())

    def log(self, begin_s: float, provenance: LogProvenance) -> EventLog:
        """Give the log; the first submission is at ``begin_s`` UTC."""
        return EventLog(
            node_names=self.node_names,
            times=self.times + begin_s,
            offsets=self.offsets,
            nodes=self.nodes,
            states=self.states,
            end_s=self.end_s + begin_s,
            provenance=provenance,
        )


def place(schedule: JobSchedule, placement: str, per_node: int = 1) -> PlacedJobs:
    """Give every job its nodes when it starts: the first free ones, or the first gap that is large enough.

    Where no gap is, a job that wants to be contiguous gets the largest gaps: a schedule says how many nodes are free,
    not whether they lie together. Where nodes are shared, what is given are their processors, ``per_node`` on each,
    and a node is idle while none of its own is held.
    """
    names = _names(schedule.nodes // per_node)
    machine = _Machine(schedule.nodes, per_node, _contiguous if placement == CONTIGUOUS else _first_fit)
    node_sets = [""] * len(schedule.jobs)
    times: list[float] = []
    changes: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    in_pieces = 0
    for time_s, stopped, started in _moments(schedule):
        for job in stopped:
            machine.free(job)
        for job in started:
            given = machine.give(job, schedule.jobs.size[job])
            in_pieces += int(given[-1] - given[0]) >= given.size
            node_sets[job] = _node_set(_nodes_of(given, per_node), len(names[0]) - 1)
        changed = machine.changed()
        if changed[0].size or not times:
            times.append(time_s)
            changes.append(changed)
    nodes, states = (np.concatenate(columns) for columns in zip(*changes, strict=True))
    return PlacedJobs(
        node_names=names,
        times=np.array(times),
        offsets=np.cumsum([0, *(each.size for each, _ in changes)]),
        nodes=nodes.astype(np.int32),
        states=states,
        end_s=schedule.end_s,
        node_sets=node_sets,
        in_pieces=in_pieces,
    )


class _Machine:
    """Nodes, or the processors of shared nodes, and who holds them. All nodes of a log are busy before its begin."""

    def __init__(self, capacity: int, per_node: int, choose: _Choice) -> None:
        self._busy = np.zeros(capacity, dtype=np.bool_)
        self._held: dict[int, NDArray[np.int64]] = {}
        self._per_node = per_node
        self._choose = choose
        self._reported = np.ones(capacity // per_node, dtype=np.bool_)  # whether each was busy at the last report

    def give(self, job: int, size: int) -> NDArray[np.int64]:
        """Let a job hold so many; gives them in order."""
        given = self._held[job] = self._choose(self._busy, size)
        self._busy[given] = True
        return given

    def free(self, job: int) -> None:
        """Take back what a job held."""
        self._busy[self._held.pop(job)] = False

    def changed(self) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Give the nodes whose state differs from the last report, in order, and that state."""
        busy: NDArray[np.bool_] = self._busy
        if self._per_node > 1:
            busy = np.any(busy.reshape(-1, self._per_node), axis=1)
        nodes = np.flatnonzero(busy != self._reported)
        now = busy[nodes]
        self._reported[nodes] = now
        return nodes, np.where(now, BUSY, IDLE).astype(np.int8)


def _moments(schedule: JobSchedule) -> Iterator[tuple[float, list[int], list[int]]]:
    """Give at each time the jobs that stop and those that start, the begin first.

    Those that hold nodes for no time are left out, and so is what lies after the end.
    """
    starts = [
        (start_s, job)
        for job, start_s in enumerate(schedule.start_s)
        if start_s < math.inf and schedule.jobs.run_s[job] > 0
    ]
    starts.sort()
    stops = sorted((schedule.stop_s(job), job) for _, job in starts)
    at_start = at_stop = 0
    now_s = 0.0
    while True:
        stopped, started = [], []
        while at_stop < len(stops) and stops[at_stop][0] <= now_s:
            stopped.append(stops[at_stop][1])
            at_stop += 1
        while at_start < len(starts) and starts[at_start][0] <= now_s:
            started.append(starts[at_start][1])
            at_start += 1
        yield now_s, stopped, started
        if at_stop == len(stops):
            return
        now_s = stops[at_stop][0]
        if at_start < len(starts):
            now_s = min(now_s, starts[at_start][0])
        if now_s > schedule.end_s:
            return


def _first_fit(busy: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Choose the free nodes that come first."""
    return np.flatnonzero(~busy)[:size]


def _contiguous(busy: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Choose the first gap that is large enough; else the largest gaps, so that the pieces are few."""
    free = np.flatnonzero(~busy)
    firsts = np.flatnonzero(np.diff(free, prepend=-2) > 1)  # places in ``free`` where a gap begins
    lengths = np.diff(firsts, append=free.size)
    enough = np.flatnonzero(lengths >= size)
    if enough.size:
        first = int(firsts[enough[0]])
        return free[first : first + size]
    chosen: list[NDArray[np.int64]] = []
    for gap in np.argsort(-lengths, kind="stable").tolist():
        piece = free[firsts[gap] : firsts[gap] + min(int(lengths[gap]), size)]
        chosen.append(piece)
        size -= piece.size
        if size == 0:
            break
    return np.sort(np.concatenate(chosen))


def _nodes_of(given: NDArray[np.int64], per_node: int) -> NDArray[np.int64]:
    """Give the nodes of sorted processors, once each."""
    if per_node == 1:
        return given
    nodes = given // per_node
    return nodes[np.diff(nodes, prepend=-1) > 0]


def _names(count: int) -> tuple[str, ...]:
    digits = max(_NAME_DIGITS, len(str(count)))
    return tuple(f"n{number:0{digits}d}" for number in range(1, count + 1))


def _node_set(nodes: NDArray[np.int64], digits: int) -> str:
    """Write sorted nodes as a node set."""
    breaks = np.flatnonzero(nodes[1:] - nodes[:-1] > 1)
    firsts = [int(nodes[0]), *nodes[breaks + 1].tolist()]
    lasts = [*nodes[breaks].tolist(), int(nodes[-1])]
    parts = [
        f"{first + 1:0{digits}d}" if first == last else f"{first + 1:0{digits}d}-{last + 1:0{digits}d}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return f"n{parts[0]}" if len(parts) == 1 and "-" not in parts[0] else f"n[{','.join(parts)}]"
