"""How long logs take to make, read and replay: a Summit-like machine for two weeks, and a million transitions."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from bftrain import EventLog, generate_log, load_log, save_log
from bftrain_datasets.log.eventlog import LogBuilder
from bftrain_datasets.log.measures import summarise
from tests.helpers.figures import Figures
from tests.perf.test_bench_import import timed

pytestmark = pytest.mark.bench


@pytest.fixture(scope="module")
def summit_like() -> EventLog:
    return generate_log(4734, 15, seed=0)


def test_generating_two_weeks_of_summit(figures: Figures) -> None:
    begin = perf_counter()
    log = generate_log(4734, 15, seed=0)
    took_s = perf_counter() - begin
    figures.add("generate 4,734 nodes x 15 days", took_s, "s")
    figures.add("times in it", len(log))
    figures.add("columns in memory", sum(c.nbytes for c in (log.times, log.offsets, log.nodes, log.states)) / 1e6, "MB")
    assert took_s < 10


GENERATE = """
from bftrain_datasets.log.log_generator import generate_log
generate_log(100_000, 2, 0)
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_generating_two_days_of_a_hundred_thousand_nodes(figures: Figures) -> None:
    took_s, core_s, peak_kb = timed([sys.executable, "-c", GENERATE])
    figures.add("generate 100,000 nodes x 2 days", core_s, "s")
    figures.add("by the clock", took_s, "s")
    figures.add("memory", int(peak_kb) / 1e3, "MB")
    assert int(peak_kb) < 600e3
    assert core_s < 6


@pytest.mark.parametrize(("suffix", "most_s"), [(".npz", 1.0), (".csv", 10.0), (".parquet", 3.0)])
def test_files(figures: Figures, tmp_path: Path, summit_like: EventLog, suffix: str, most_s: float) -> None:
    path = tmp_path / f"log{suffix}"
    begin = perf_counter()
    save_log(summit_like, path)
    saved = perf_counter()
    load_log(path)
    loaded = perf_counter()
    figures.add(f"save {suffix}", saved - begin, "s")
    figures.add(f"load {suffix}", loaded - saved, "s")
    figures.add(f"size {suffix}", path.stat().st_size / 1e6, "MB")
    assert loaded - saved < most_s


def test_inspecting(figures: Figures, summit_like: EventLog) -> None:
    begin = perf_counter()
    summarise(summit_like)
    figures.add("measure it all", perf_counter() - begin, "s")


def test_a_million_transitions_become_a_log_and_events(figures: Figures) -> None:
    rng = np.random.default_rng(0)
    count, nodes = 1_000_000, 100
    builder = LogBuilder(f"n{number}" for number in range(nodes))
    builder.add_columns(np.arange(count, dtype=np.float64), rng.integers(0, nodes, count), rng.integers(0, 3, count))
    begin = perf_counter()
    log = builder.build()
    built = perf_counter()
    events = sum(1 for _ in log.events())
    done = perf_counter()
    figures.add("build from 1 M transitions", built - begin, "s")
    figures.add("time of one event", (done - built) / events * 1e6, "us")
    assert built - begin < 5
    assert (done - built) / events < 20e-6
