"""How fast the tables of a large replay are written, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from time import perf_counter

import pytest

from bftrain import Start, Stop
from bftrain_replay.accounting.allocations import AllocationRecorder
from bftrain_replay.output.csv_tables import write_allocations
from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

NODES = tuple(f"nid{number:05}" for number in range(4096))


def taken(rows: int) -> AllocationRecorder:
    """Let 64 tasks take turns on all nodes."""
    allocations = AllocationRecorder(NODES)
    share = len(NODES) // 64
    parts = [NODES[begin : begin + share] for begin in range(0, len(NODES), share)]
    for turn in range(rows // len(NODES)):
        for number, part in enumerate(parts):
            allocations.act(Start(task=f"t{(number + turn) % 64}", nodes=part), turn + number / 64)
        for number, part in enumerate(parts):
            allocations.act(Stop(task=f"t{(number + turn) % 64}", nodes=part), turn + 1.0)
    return allocations


def test_allocations(figures: Figures, tmp_path: Path) -> None:
    begin = perf_counter()
    allocations = taken(2_000_000)
    took_s = perf_counter() - begin
    figures.add("allocations taken down", len(allocations) / took_s, "rows/s")
    begin = perf_counter()
    write_allocations(tmp_path / "allocations.csv", allocations)
    rate = len(allocations) / (perf_counter() - begin)
    figures.add("allocations written as CSV", rate, "rows/s")
    assert rate > 100_000


def test_memory_does_not_grow_with_the_rows(figures: Figures, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        allocations = taken(2_000_000)  # 48 MB of columns
        write_allocations(tmp_path / "allocations.csv", allocations)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    figures.add("memory for two million allocations, at most", peak, "MB")
    assert peak < 100
