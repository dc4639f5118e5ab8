"""How long 300,000 rows of PBS's records and of polls take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.figures import Figures
from tests.helpers.scheduler_lines import pbs_end, pbs_start, poll, shown
from tests.perf.test_bench_import import measured

pytestmark = pytest.mark.bench

ROWS = 300_000
NODES = 4_000
BEGIN = 1_600_000_000


def jobs(count: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, start, end, first node and size of jobs of a busy machine, by start."""
    rng = np.random.default_rng(0)
    start = BEGIN + np.sort(rng.integers(0, 30 * 86_400, count))
    run = 1 + rng.exponential(5_000, count).astype(np.int64)
    size = np.minimum(rng.geometric(0.12, count), 64)
    first = rng.integers(0, NODES - 64, count)
    columns = (start.tolist(), (start + run).tolist(), first.tolist(), size.tolist())
    yield from zip(range(count), *columns, strict=True)


def node_set(first: int, size: int) -> str:
    return f"nid[{first:05d}-{first + size - 1:05d}]"


def in_time(events: list[tuple[int, str]]) -> str:
    return "".join(text for _, text in sorted(events, key=lambda event: event[0]))


def pbs() -> str:
    events = []
    for job, start, end, low, size in jobs(ROWS // 2):
        hosts = "+".join(f"nid{node:05d}/0*36" for node in range(low, low + size))
        events += [(start, pbs_start(f"{job}.srv", start, hosts)), (end, pbs_end(f"{job}.srv", start, end, hosts))]
    return in_time(events)


def sinfo() -> str:
    """Write 75,000 polls, 52 days, of a machine of which something changes at most of them."""
    rng = np.random.default_rng(0)
    busy = np.zeros(NODES, dtype=np.bool_)
    polls = []
    for number in range(ROWS // 4):
        low = int(rng.integers(0, NODES - 64))
        busy[low : low + int(rng.integers(0, 64))] = rng.random() < 0.5
        edges = np.flatnonzero(np.diff(busy, prepend=not busy[0], append=not busy[-1])).tolist()
        ranges = [f"{begin:05d}-{end - 1:05d}" for begin, end in pairwise(edges)]
        first, second = ("alloc", "idle") if busy[0] else ("idle", "alloc")
        rows = [
            shown(first, f"nid[{','.join(ranges[::2])}]"),
            shown(second, f"nid[{','.join(ranges[1::2]) or '99999'}]"),
        ]
        debug = [shown("idle", "login1", "debug"), shown("mix", "login2", "debug")]
        polls.append(poll(BEGIN + 60 * number, *rows, *debug))
    return "".join(polls)


@pytest.mark.parametrize(("write", "most_s"), [(pbs, 15), (sinfo, 30)])
def test_rows(figures: Figures, tmp_path: Path, write: Callable[[], str], most_s: float) -> None:
    path = tmp_path / "records"
    path.write_text(write())
    found = measured(path)
    found.show(figures, f"{ROWS:,} rows of {write.__name__}")
    assert found.measured["read"] == ROWS
    assert found.core_s < most_s
