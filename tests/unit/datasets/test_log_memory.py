"""How much memory it takes to go through a long log: what lies beside its own columns does not grow with it."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bftrain import EventLog, save_log
from bftrain_datasets.log.measures import fragments_in_parts

TIMES, NODES = 200_000, 10


@pytest.fixture(scope="module")
def log() -> EventLog:
    """Return a log in which all of some nodes join and leave the pool again and again: two million changes."""
    return EventLog(
        node_names=tuple(f"n{number}" for number in range(NODES)),
        times=np.arange(TIMES),
        offsets=np.arange(0, TIMES * NODES + 1, NODES),
        nodes=np.tile(np.arange(NODES), TIMES),
        states=np.repeat(np.arange(1, TIMES + 1) % 2, NODES),
        end_s=TIMES,
    )


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_it_takes_less_memory_than_a_flag_for_each_change(log: EventLog) -> None:
    changes = log.nodes.size
    assert _peak(lambda: next(iter(log.pool_changes()))) < 2 * changes
    assert _peak(lambda: deque(fragments_in_parts(log, 1 << 13), maxlen=0)) < 2 * changes


def test_saving_it_takes_no_copy_of_its_columns(log: EventLog, tmp_path: Path) -> None:
    assert _peak(lambda: save_log(log, tmp_path / "log.npz")) < 2 * log.nodes.nbytes
