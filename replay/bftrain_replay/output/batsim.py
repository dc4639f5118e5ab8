"""Export of ``jobs.csv`` as Batsim writes and Evalys reads it. One job is an interval of a task on fixed nodes.

https://batsim.readthedocs.io describes the columns (Output files, Jobs).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.files import head_of
from bftrain_replay.accounting.allocations import AllocationTable
from bftrain_replay.output.allocations_by_task import groups_of_tasks
from bftrain_replay.output.read_folder import SavedReplay

COLUMNS: Final = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
    "consumed_energy",
    "metadata",
)
_WORKLOAD: Final = "bftrain"
_UNKNOWN: Final = -1  # what Batsim writes where there is no wall time and no measured energy


class NodeInterval(NamedTuple):
    """An interval with fixed nodes; ``nodes`` are places in ``AllocationTable.nodes``."""

    from_s: float
    to_s: float
    nodes: frozenset[int]


def export(saved: SavedReplay, file: IO[bytes]) -> int:
    """Write all intervals, task by task; return their number."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    count = 0
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in _rows(saved):
            writer.writerow(row)
            count += 1
    finally:
        text.detach()
    return count


def is_own(path: Path) -> bool:
    """Return whether this module wrote a file: Batsim's own has other names of workloads."""
    header, _, rows = head_of(path).partition(b"\n")
    return header == ",".join(COLUMNS).encode() and (not rows or f",{_WORKLOAD},".encode() in rows)


def _rows(saved: SavedReplay) -> Iterator[tuple[object, ...]]:
    ends = {
        name: (submit_s, finish_s) for name, submit_s, finish_s in saved.rows("tasks", "name", "submit_s", "finish_s")
    }
    held = saved.holdings()
    numbers = _numbers(held.nodes)
    for holdings in groups_of_tasks(held):
        for task, rows in holdings.rows_by_task():
            if task not in ends:
                raise BadInput(f"task '{task}' is in the table of allocations, but not in that of tasks")
            yield from _jobs_of(task, *ends[task], stretches(holdings, rows), numbers)


def _jobs_of(
    task: str, submit_s: float, finish_s: float | None, parts: Iterable[NodeInterval], numbers: Sequence[int]
) -> Iterator[tuple[object, ...]]:
    """Yield the jobs of a task; ``numbers`` are those of nodes by their places."""
    ready_s = max(submit_s, 0.0)
    for place, (from_s, to_s, nodes) in enumerate(parts, start=1):
        finished = to_s == finish_s
        yield (
            f"{task}.{place}",
            _WORKLOAD,
            task,
            ready_s,
            len(nodes),
            _UNKNOWN,
            int(finished),
            "COMPLETED_SUCCESSFULLY" if finished else "COMPLETED_KILLED",
            from_s,
            to_s - from_s,
            to_s,
            from_s - ready_s,
            to_s - ready_s,
            (to_s - ready_s) / (to_s - from_s),
            intervals(numbers[node] for node in nodes),
            _UNKNOWN,
            "",
        )
        ready_s = to_s


def _numbers(nodes: Iterable[str]) -> list[int]:
    """Number nodes from 0 in natural order of their names."""
    names = list(nodes)
    parts = [
        [(int(part), part) if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)] for name in names
    ]
    numbers = [0] * len(names)
    for number, place in enumerate(sorted(range(len(names)), key=parts.__getitem__)):
        numbers[place] = number
    return numbers


def intervals(numbers: Iterable[int]) -> str:
    """Write a set of numbers as intervals: ``0-3 5``."""
    written = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        written.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return " ".join(written)


def stretches(holdings: AllocationTable, rows: NDArray[np.int64]) -> Iterator[NodeInterval]:
    """Yield the intervals in which the task of these rows held the same nodes, in order."""
    rows = rows[holdings.to_s[rows] > holdings.from_s[rows]]
    times = np.concatenate((holdings.from_s[rows], holdings.to_s[rows]))
    nodes = np.concatenate((holdings.node[rows], holdings.node[rows]))
    taken = np.repeat((True, False), len(rows))
    order = np.lexsort((taken, times))  # at one time nodes are given back before others are taken
    held: set[int] = set()
    since_s = -np.inf
    for time_s, node, is_taken in zip(times[order].tolist(), nodes[order].tolist(), taken[order].tolist(), strict=True):
        if time_s > since_s:
            if held:
                yield NodeInterval(since_s, time_s, frozenset(held))
            since_s = time_s
        if is_taken:
            held.add(node)
        else:
            held.discard(node)
