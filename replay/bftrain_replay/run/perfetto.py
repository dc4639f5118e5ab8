"""Export a trace for ui.perfetto.dev and chrome://tracing: a track for each task, and idle and used nodes.

A task's track shows its number of nodes. A track for each node would be unreadable and take millions of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.files import head_of
from bftrain.values import wire
from bftrain_datasets.log.log_columns import running_sums
from bftrain_replay.run.run import Run
from bftrain_replay.simulation.run_records import AllocationTable

_BEGIN: Final = b'{"displayTimeUnit":"ms","otherData":'
_TASKS: Final = 1
_NODES: Final = 2


def export(run: Run, file: IO[bytes]) -> int:
    """Write all events; return their number."""
    file.write(_BEGIN)
    file.write(wire.encode({"made_by": run.summary["format"], "solver": run.summary["solver"]}))
    file.write(b',"traceEvents":[\n')
    count = 0
    for event in _events(run):
        file.write((b",\n" if count else b"") + wire.encode(event))
        count += 1
    file.write(b"\n]}\n")
    return count


def is_own(path: Path) -> bool:
    """Return whether a file is a trace that this module wrote."""
    head = head_of(path)
    return head.startswith(_BEGIN) and b'"made_by":"bftrain ' in head


def _events(run: Run) -> Iterator[dict[str, Any]]:
    yield _named("process_name", _NODES, 0, "nodes")
    for time_s, pool, used in run.rows("decisions", "time_s", "pool", "used"):
        for name, value in (("idle nodes", pool), ("used nodes", used)):
            yield _counter(name, time_s, value)
    yield from (_counter(name, run.summary["simulated_s"], 0) for name in ("idle nodes", "used nodes"))
    yield _named("process_name", _TASKS, 0, "tasks")
    places = {name: place for place, (name,) in enumerate(run.rows("tasks", "name"), start=1)}
    holdings = run.content.allocations().table()
    for task, rows in holdings.rows_by_task():
        track = places.get(task)
        if track is None:
            raise BadInput(f"task '{task}' is in the allocation table, but not in the task table")
        yield from _track(task, track, _sizes(holdings, rows))


def _track(task: str, track: int, intervals: Iterable[tuple[float, float, int]]) -> Iterator[dict[str, Any]]:
    """Yield the events of a task's track from its sizes over time."""
    yield _named("thread_name", _TASKS, track, task)
    yield {"ph": "M", "name": "thread_sort_index", "pid": _TASKS, "tid": track, "args": {"sort_index": track}}
    for from_s, to_s, size in intervals:
        begin = _microseconds(from_s)
        about = {"ph": "X", "cat": "task", "name": "1 node" if size == 1 else f"{size} nodes"}
        times = {"ts": begin, "dur": _microseconds(to_s) - begin}
        yield {**about, "pid": _TASKS, "tid": track, **times, "args": {"nodes": size}}


def _counter(name: str, time_s: float, value: int) -> dict[str, Any]:
    at = _microseconds(time_s)
    return {"ph": "C", "name": name, "pid": _NODES, "tid": 0, "ts": at, "args": {"nodes": value}}


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _microseconds(time_s: float) -> int:
    return round(time_s * 1e6)


def _sizes(holdings: AllocationTable, rows: NDArray[np.int64]) -> Iterator[tuple[float, float, int]]:
    """Yield the intervals of constant task size in these rows: start, stop and number of nodes."""
    moments = np.concatenate((holdings.from_s[rows], holdings.to_s[rows]))
    times, held = running_sums(moments, np.repeat((1, -1), len(rows)))
    begins = np.flatnonzero(np.diff(held, prepend=0))  # a swap of nodes at equal size is no change
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        if held[begin]:
            yield float(times[begin]), float(times[end]), int(held[begin])
