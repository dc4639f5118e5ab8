"""Exports read allocations in groups of tasks, so that a large table is never in memory as a whole."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bftrain import Settings
from bftrain_replay import replay_folder
from bftrain_replay.accounting.allocations import StoredAllocations
from bftrain_replay.output.allocations_by_task import groups_of_tasks
from bftrain_replay.study import study
from tests.unit.replay.test_replay_exports import LOG, TASKS, trace


def stored(*, tasks: int, rows: int) -> StoredAllocations:
    found = StoredAllocations.new_rows()
    task = np.random.default_rng(1).integers(max(tasks, 1), size=rows, dtype=np.int32)
    for begin in range(0, rows, 1 << 16):
        part = task[begin : begin + (1 << 16)]
        at_s = np.arange(begin, begin + len(part), dtype=np.float64)
        for name, column in (("task", part), ("node", part % 3), ("from_s", at_s), ("to_s", at_s + 1)):
            found.last[name].frombytes(column.tobytes())
        found.add_block_if_full()
    return StoredAllocations(tasks=tuple(f"t{number}" for number in range(tasks)), nodes=("a", "b", "c"), rows=found)


@pytest.mark.parametrize("at_once", [1, 50, 10_000])
@pytest.mark.parametrize(("tasks", "rows"), [(0, 0), (1, 10), (40, 1000), (500, 200)])
def test_groups_hold_all_rows_of_their_tasks_in_order(tasks: int, rows: int, at_once: int) -> None:
    held = stored(tasks=tasks, rows=rows)
    whole = held.table()
    expected = [
        (task, whole.from_s[found].tolist(), whole.node[found].tolist()) for task, found in whole.rows_by_task()
    ]
    groups = list(groups_of_tasks(held, at_once))
    assert [
        (task, group.from_s[found].tolist(), group.node[found].tolist())
        for group in groups
        for task, found in group.rows_by_task()
    ] == expected
    most = max((len(at_s) for _, at_s, _ in expected), default=0)
    assert all(len(group) < at_once + most for group in groups)


def test_memory_does_not_grow_with_the_table() -> None:
    held = stored(tasks=100, rows=1_000_000)  # 24 MB
    tracemalloc.start()
    try:
        rows = sum(map(len, groups_of_tasks(held)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (rows, peak < 10_000_000) == (len(held), True)


def test_exports_never_hold_the_whole_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay_folder.write(study(LOG, TASKS, Settings(max_tasks=2)), tmp_path)
    monkeypatch.delattr(StoredAllocations, "table")
    assert trace(tmp_path)
