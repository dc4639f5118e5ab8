"""Placement: the nodes of each job in a schedule, and the resulting log of idle nodes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.log.eventlog import BUSY, IDLE, EventLog
from bftrain_datasets.log.provenance import LogProvenance
from bftrain_datasets.scheduling.schedule_engine import JobSchedule

_NAME_DIGITS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJobs:
    """Nodes by job: ``node_sets``, "" if the job never started.

    The other fields are columns of the log of idle nodes; ``times`` are seconds since the first submission.
    """

    node_names: tuple[str, ...]
    times: NDArray[np.float64]
    offsets: NDArray[np.int64]
    nodes: NDArray[np.int32]
    states: NDArray[np.int8]
    end_s: float
    node_sets: list[str]

    def idle_node_s(self, from_s: float) -> float:
        """Return the idle node-seconds from ``from_s``."""
        joined = np.where(self.states == IDLE, 1, -1)  # the first time lists the idle nodes
        idle = np.concatenate(([0], np.cumsum(joined)))[self.offsets[1:]]
        lasts = np.append(self.times[1:], self.end_s) - np.maximum(self.times, from_s)
        return float((idle * np.maximum(lasts, 0.0)).sum())

    def log(self, begin_s: float, provenance: LogProvenance) -> EventLog:
        """Return the log with the first submission at ``begin_s`` (seconds UTC)."""
        return EventLog(
            node_names=self.node_names,
            times=self.times + begin_s,
            offsets=self.offsets,
            nodes=self.nodes,
            states=self.states,
            end_s=self.end_s + begin_s,
            provenance=provenance,
        )


def place(schedule: JobSchedule, per_node: int = 1) -> PlacedJobs:
    """Assign the first free nodes to every job at its start.

    With shared nodes, processors are assigned, ``per_node`` on each node, and a node is idle while all its processors
    are free.
    """
    count = schedule.nodes // per_node
    digits = max(_NAME_DIGITS, len(str(count)))
    names = tuple(f"n{number:0{digits}d}" for number in range(1, count + 1))
    busy = np.zeros(schedule.nodes, dtype=np.bool_)  # nodes, or the processors of shared nodes
    reported = np.ones(count, dtype=np.bool_)  # whether each node was last reported busy; all are busy before the log
    held: dict[int, NDArray[np.int64]] = {}
    node_sets = [""] * len(schedule.jobs)
    times: list[float] = []
    changes: list[tuple[NDArray[np.int64], NDArray[np.int8]]] = []
    for time_s, (stopped, started) in _moments(schedule):
        for job in stopped:
            busy[held.pop(job)] = False
        for job in started:
            given = held[job] = np.flatnonzero(~busy)[: schedule.jobs.size[job]]
            busy[given] = True
            node_sets[job] = _node_set(given if per_node == 1 else np.unique(given // per_node), digits)
        now = busy if per_node == 1 else np.any(busy.reshape(-1, per_node), axis=1)
        changed = np.flatnonzero(now != reported)
        reported[changed] = now[changed]
        if changed.size or not times:
            times.append(time_s)
            changes.append((changed, np.where(now[changed], BUSY, IDLE).astype(np.int8)))
    all_nodes, states = (np.concatenate(columns) for columns in zip(*changes, strict=True))
    return PlacedJobs(
        node_names=names,
        times=np.array(times),
        offsets=np.cumsum([0, *(each.size for each, _ in changes)]),
        nodes=all_nodes.astype(np.int32),
        states=states,
        end_s=schedule.end_s,
        node_sets=node_sets,
    )


def _moments(schedule: JobSchedule) -> Iterator[tuple[float, tuple[list[int], list[int]]]]:
    """Yield at each time the jobs that stop and the jobs that start, beginning at time 0.

    Jobs of zero length are omitted, and so are all events after the schedule stops.
    """
    found: defaultdict[float, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []), {0.0: ([], [])})
    for job, start_s in enumerate(schedule.start_s):
        if start_s < math.inf and schedule.jobs.run_s[job] > 0:
            found[schedule.stop_s(job)][0].append(job)
            found[start_s][1].append(job)
    return takewhile(lambda moment: moment[0] <= max(schedule.end_s, 0.0), sorted(found.items()))


def _node_set(nodes: NDArray[np.int64], digits: int) -> str:
    breaks = np.flatnonzero(nodes[1:] - nodes[:-1] > 1)
    firsts = [int(nodes[0]), *nodes[breaks + 1].tolist()]
    lasts = [*nodes[breaks].tolist(), int(nodes[-1])]
    parts = [
        f"{first + 1:0{digits}d}" if first == last else f"{first + 1:0{digits}d}-{last + 1:0{digits}d}"
        for first, last in zip(firsts, lasts, strict=True)
    ]
    return f"n{parts[0]}" if len(parts) == 1 and "-" not in parts[0] else f"n[{','.join(parts)}]"
