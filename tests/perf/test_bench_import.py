"""How long records take to become a log, and how much memory: each import has a process of its own."""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.helpers.figures import Figures
from tests.helpers.scheduler_lines import pbs_end, pbs_start, poll, shown
from tests.helpers.site_data import site_data

pytestmark = pytest.mark.bench

# The peak is that of the process itself: ru_maxrss would also know what its parent needed
PROGRAM = """
import json, sys
from pathlib import Path
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.log_files import save_log
found = import_files([Path(sys.argv[1])], ImportOptions(**json.loads(sys.argv[2])))
peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
if len(sys.argv) > 3:
    save_log(found.log, Path(sys.argv[3]))
done = {each.name: each.done for each in found.findings}
print(json.dumps({"nodes": len(found.log.node_names), "times": len(found.log), "idle": found.log.idle_share,
                  "used": found.rows.used, "read": found.rows.read, "peak_mb": peak_kb / 1e3, "done": done}))
"""


# Fixed work whose CPU time is the unit of the bars, because machines differ: sorting, and a loop of Python
YARDSTICK = """
import numpy as np
values = np.random.default_rng(0).random(10_000_000)
for _ in range(3):
    np.sort(values)
total = 0
for number in range(10_000_000):
    total += number % 7
"""


@cache
def yardstick_s() -> float:
    """Return the CPU time of the fixed work in a process of its own."""
    return timed([sys.executable, "-c", YARDSTICK])[1]


@dataclass(frozen=True)
class Import:
    """The result of an import, and the wall time and CPU time of the whole process."""

    took_s: float
    core_s: float
    measured: dict[str, Any]

    @property
    def yardsticks(self) -> float:
        """The CPU time as a multiple of the fixed work, measured in the same run."""
        return self.core_s / yardstick_s()

    def show(self, figures: Figures, what: str) -> None:
        figures.add(what, self.core_s, "s")
        figures.add("yardsticks", self.yardsticks, "")
        figures.add("by the clock", self.took_s, "s")
        figures.add("memory", self.measured["peak_mb"], "MB")


def measured(path: Path, *, log: Path | None = None, **options: object) -> Import:
    """Import a file in a process of its own, and write the log if that is asked for."""
    written = [] if log is None else [str(log)]
    took_s, core_s, out = timed([sys.executable, "-c", PROGRAM, str(path), json.dumps(options), *written])
    return Import(took_s, core_s, json.loads(out))


def timed(command: list[str]) -> tuple[float, float, str]:
    """Run a command; give what it took by the clock and of a core, and what it printed."""
    begin, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return perf_counter() - begin, core_s, done.stdout


BEGIN = 1_600_000_000
Jobs = Iterator[tuple[int, int, int, int, int]]  # number, start, end, first node and size


def busy_jobs(jobs: int, nodes: int) -> Jobs:
    """Yield the jobs of a busy machine in a month, by start."""
    rng = np.random.default_rng(0)
    start = BEGIN + np.sort(rng.integers(0, 30 * 86_400, jobs))
    end = start + 1 + rng.exponential(5_000, jobs).astype(np.int64)
    columns = (start, end, rng.integers(0, nodes - 160, jobs), np.minimum(rng.geometric(0.12, jobs), 64))
    yield from zip(range(jobs), *(column.tolist() for column in columns), strict=True)


def node_set(first: int, size: int) -> str:
    return f"nid[{first:05d}-{first + size - 1:05d}]"


def sacct_rows(path: Path, jobs: int, nodes: int) -> None:
    """Write what sacct says of a busy machine: sets of all sizes, half of them in several pieces, hardly one twice."""
    with path.open("w") as file:
        file.write("JobID|Partition|Submit|Start|End|NNodes|NodeList|State|JobName\n")
        for job, begin, end, low, size in busy_jobs(jobs, nodes):
            held, half = node_set(low, size), size // 2
            if size == 1:
                held = f"nid{low:05d}"
            elif job % 2:
                held = f"{node_set(low, half)[:-1]},{low + 90:05d}-{low + 89 + size - half:05d}]"
            file.write(f"{job}|batch|{begin - 60}|{begin}|{end}|{size}|{held}|COMPLETED|a name\n")


def test_sacct_rows(figures: Figures, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    sacct_rows(path, 300_000, 4_000)
    found = measured(path)
    found.show(figures, "300,000 rows of sacct")
    assert found.measured["read"] == 300_000
    assert found.yardsticks < 2
    assert found.measured["peak_mb"] < 500


def test_summit(figures: Figures) -> None:
    found = measured(site_data("summit/ndstat-10sdn6-evt.tar.gz"))
    found.show(figures, "the published Summit log")
    assert (found.measured["nodes"], found.measured["times"]) == (4734, 23_883)
    assert found.yardsticks < 1.3
    assert found.measured["peak_mb"] < 600


def test_theta_as_counts(figures: Figures) -> None:
    found = measured(site_data("swf/theta_2022.swf.gz"), counts=True)
    found.show(figures, "Theta 2022 as counts")
    assert found.measured["used"] == 23_911
    assert "461.4 h" in found.measured["done"]["suspected_downtime"]
    assert found.yardsticks < 1


def swf_like_curie(path: Path) -> None:
    """Write a log of the size and shape of CEA Curie's in the archive: eight months, most jobs small."""
    jobs, nodes, cores, days = 312_826, 5_544, 16, 250
    rng = np.random.default_rng(0)
    size = np.minimum(rng.lognormal(2.0, 1.9, jobs), 4_000)  # nodes; the first fifth of the jobs do not fill theirs
    procs = np.where(rng.random(jobs) < 0.2, np.ceil(size * cores * 0.7), np.ceil(size) * cores).astype(int)
    submit = np.sort(rng.integers(0, days * 86_400, jobs))
    wait, run = rng.exponential(3_000, jobs).astype(int), np.minimum(rng.lognormal(7.6, 1.6, jobs), 86_400).astype(int)
    status = rng.choice((0, 1, 5), jobs, p=(0.1, 0.8, 0.1))
    columns = zip(*(each.tolist() for each in (submit, wait, run, procs, status)), strict=True)
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(f"; UnixStartTime: 1296687301\n; MaxNodes: {nodes}\n; MaxProcs: {nodes * cores}\n")
        for job, (at, waited, ran, held, ended) in enumerate(columns, start=1):
            user = job % 582
            times = f"{job:6d} {at:9d} {waited:6d} {ran:6d} {held:6d}"
            file.write(f"{times} -1 -1 {held:6d} 86400 -1 {ended} {user:4d} -1 -1 1 4 -1 -1\n")


def test_curie_as_counts_and_inspected(figures: Figures, tmp_path: Path) -> None:
    path, log = tmp_path / "curie.swf.gz", tmp_path / "log.npz"
    swf_like_curie(path)
    found = measured(path, log=log, counts=True)
    found.show(figures, "a log like Curie's as counts")
    assert (found.measured["read"], found.measured["nodes"]) == (312_826, 5_544)
    assert found.yardsticks < 2.5
    assert found.measured["peak_mb"] < 600
    took_s, core_s, out = timed([sys.executable, "-m", "bftrain", "inspect", str(log), "--json"])
    figures.add("inspected", core_s, "s")
    figures.add("by the clock", took_s, "s")
    assert json.loads(out)["nodes"] == 5_544
    assert core_s < 2 * yardstick_s()


def table_columns(jobs: int, nodes: int) -> dict[str, Any]:
    """Return jobs of a busy machine as columns, in the names of PM100; sets of nodes as Slurm writes them."""
    number, start, end, first, size = map(np.array, zip(*busy_jobs(jobs, nodes), strict=True))
    return {
        "job_id": number,
        "start_time": start,
        "end_time": end,
        "num_nodes_alloc": size,
        "num_gpus_alloc": size * 4,
        "nodes": list(map(node_set, first.tolist(), size.tolist())),
        "job_state": ["COMPLETED"] * jobs,
    }


def test_parquet_table(figures: Figures, tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    parquet.write_table(pa.table(table_columns(3_000_000, 4_000)), path, compression="zstd")
    found = measured(path)
    found.show(figures, "3 million jobs of a Parquet table")
    assert found.measured["read"] == 3_000_000
    assert found.yardsticks < 6
    assert found.measured["peak_mb"] < 700


def test_many_sacct_rows(figures: Figures, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    sacct_rows(path, 3_000_000, 4_000)
    for reader in ("sacct", "jobs"):
        found = measured(path, format=reader)
        found.show(figures, f"3 million rows of sacct by the reader {reader}")
        assert found.measured["read"] == 3_000_000
        assert found.measured["peak_mb"] < 700
        assert found.yardsticks < 10


ROWS, NODES = 300_000, 4_000


def pbs() -> str:
    """Write the starts and ends of 150,000 jobs in order of time."""
    events = []
    for job, start, end, low, size in busy_jobs(ROWS // 2, NODES):
        hosts = "+".join(f"nid{node:05d}/0*36" for node in range(low, low + size))
        events += [(start, pbs_start(f"{job}.srv", start, hosts)), (end, pbs_end(f"{job}.srv", start, end, hosts))]
    return "".join(text for _, text in sorted(events, key=itemgetter(0)))


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
