"""Who held which node when: by hand, and against the books."""

from __future__ import annotations

import copy
import gc
from itertools import pairwise

import numpy as np
import pytest

from bftrain import Grow, Settings, Shrink, Start, Stop, build_harvester
from bftrain_replay.accounting import allocations, column_file
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.simulation.engine import run
from tests.unit.replay.cases import log_of, task


def rows(taken: AllocationRecorder) -> list[tuple[str, str, float, float]]:
    tasks, nodes = taken.tasks, taken.nodes
    return [
        (tasks[row[0]], nodes[row[1]], row[2], row[3])
        for block in taken.blocks()
        for row in zip(*(column.tolist() for column in (block.task, block.node, block.from_s, block.to_s)), strict=True)
    ]


def test_rows_stand_in_the_order_of_their_end() -> None:
    taken = AllocationRecorder(("a", "b", "c"))
    taken.act(Start(task="t", nodes=("c", "a")), 1.0)
    taken.act(Grow(task="t", nodes=("b",)), 2.0)
    taken.act(Shrink(task="t", nodes=("a",)), 3.0)
    taken.act(Start(task="u", nodes=("a",)), 3.0)
    taken.act(Stop(task="t", nodes=("c", "b")), 4.0)
    taken.end("u", 5.0)
    taken.act(Start(task="t", nodes=("a",)), 6.0)
    taken.close(7.0)
    assert rows(taken) == [
        ("t", "a", 1.0, 3.0),
        ("t", "c", 1.0, 4.0),
        ("t", "b", 2.0, 4.0),
        ("u", "a", 3.0, 5.0),
        ("t", "a", 6.0, 7.0),
    ]
    assert len(taken) == 5


def test_no_task_held_any_node() -> None:
    taken = AllocationRecorder(("a",))
    taken.end("never started", 1.0)
    taken.close(2.0)
    assert (len(taken), taken.tasks, list(taken.blocks())) == (0, (), [])


@pytest.mark.parametrize("memory_bytes", [1 << 25, 1000])
def test_many_rows_go_to_a_file_and_come_back(monkeypatch: pytest.MonkeyPatch, memory_bytes: int) -> None:
    monkeypatch.setattr(column_file, "_MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(column_file, "BLOCK_ROWS", 16)
    monkeypatch.setattr(allocations, "_STORED_AT_ONCE", 16)
    names = tuple(f"n{number}" for number in range(7))
    taken = AllocationRecorder(names)
    expected = []
    for turn in range(50):
        taken.act(Start(task=f"t{turn % 3}", nodes=names), float(turn))
        taken.act(Stop(task=f"t{turn % 3}", nodes=names), turn + 0.5)
        expected += [(f"t{turn % 3}", name, float(turn), turn + 0.5) for name in names]
    assert rows(taken) == expected
    assert rows(taken) == expected  # they can be read again
    assert len(taken) == len(expected)
    assert {len(block) for block in taken.blocks()} == {21, 14}
    assert taken.table().node.tolist() == list(range(7)) * 50
    again = copy.deepcopy(taken)
    assert rows(again) == expected
    assert taken._rows._file._rolled == (memory_bytes == 1000)  # type: ignore[attr-defined]  # noqa: SLF001 - whether it went to a file is the test
    del again
    del taken
    gc.collect()  # closes its file: no warning


def test_they_add_up_to_what_the_tasks_held() -> None:
    log = log_of((0.0, "abcde", ""), (70.0, "fg", "ab"), (140.0, "hi", "c"), (500.0, "", "defghi"), end_s=900.0)
    tasks = [
        task("x", rate=(10.0, 19.0, 25.0), work_samples=5000.0, grow_cost_s=5.0, shrink_cost_s=3.0),
        task("y", rate=(11.3, 16.1, 22.7, 31.0), work_samples=9000.0, start_cost_s=4.0, grow_cost_s=2.0),
        task("z", rate=(7.1, 15.3), submit_s=33.0, shrink_cost_s=8.0),
    ]
    taken = AllocationRecorder(log.node_names)
    done = run(log, tasks, build_harvester(Settings()), allocations=taken)
    held = dict.fromkeys("xyz", 0.0)
    by_node: dict[str, list[tuple[float, float]]] = {}
    for name, node, from_s, to_s in rows(taken):
        assert 0.0 <= from_s < to_s <= 900.0
        held[name] += to_s - from_s
        by_node.setdefault(node, []).append((from_s, to_s))
    assert held == pytest.approx({entry.spec.name: entry.node_s for entry in done.tasks})  # type: ignore[union-attr]  # all arrived
    for stretches in by_node.values():
        stretches.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(stretches))
    ends = np.concatenate([block.to_s for block in taken.blocks()])
    assert (np.diff(ends) >= 0.0).all()
