"""How long records take to become a log, and how much memory: each import has a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.helpers.site_data import site_data

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

# The peak is that of the process itself: ru_maxrss would also know what its parent needed
PROGRAM = """
import json, sys
from pathlib import Path
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.pipeline import import_files
found = import_files([Path(sys.argv[1])], ImportOptions(**json.loads(sys.argv[2])))
peak_kb = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
told = {each.name: each.done for each in found.findings}
print(json.dumps({"nodes": len(found.log.node_names), "times": len(found.log), "idle": found.log.idle_share,
                  "used": found.rows.used, "read": found.rows.read, "peak_mb": peak_kb / 1e3, "type": told}))
"""


@dataclass(frozen=True)
class Import:
    """What an import gave, and what the whole process took: by the clock, and of a core.

    The bars are on the second, which other programs on the machine change little; on an idle one both are the same.
    """

    took_s: float
    core_s: float
    told: dict[str, Any]

    def show(self, figures: Figures, what: str) -> None:
        """Print what it took."""
        figures.add(what, self.core_s, "s")
        figures.add("by the clock", self.took_s, "s")
        figures.add("memory", self.told["peak_mb"], "MB")


def measured(path: Path, **options: object) -> Import:
    """Import a file in a process of its own."""
    begin, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Import(perf_counter() - begin, core_s, json.loads(done.stdout))


def sacct_rows(path: Path, jobs: int, nodes: int) -> None:
    """Write what sacct says of a busy machine: sets of all sizes, half of them in several pieces, hardly one twice."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(rng.geometric(0.12, jobs), 64)
    first = rng.integers(0, nodes - 160, jobs)
    start = 1_600_000_000 + np.sort(rng.integers(0, 30 * 86_400, jobs))
    run = rng.exponential(5_000, jobs).astype(np.int64)
    shapes = rng.random(jobs)
    with path.open("w") as file:
        file.write("JobID|Partition|Submit|Start|End|NNodes|NodeList|State|JobName\n")
        for job in range(jobs):
            size, low = int(sizes[job]), int(first[job])
            if size == 1:
                held = f"nid{low:05d}"
            elif shapes[job] < 0.5:
                held = f"nid[{low:05d}-{low + size - 1:05d}]"
            else:
                half = size // 2
                held = f"nid[{low:05d}-{low + half - 1:05d},{low + 90:05d}-{low + 89 + size - half:05d}]"
            begin, end = int(start[job]), int(start[job] + run[job])
            file.write(f"{job}|batch|{begin - 60}|{begin}|{end}|{size}|{held}|COMPLETED|a name\n")


def test_sacct_rows(figures: Figures, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    sacct_rows(path, 300_000, 4_000)
    found = measured(path)
    found.show(figures, "300,000 rows of sacct")
    assert found.told["read"] == 300_000
    assert found.core_s < 6


def test_summit(figures: Figures) -> None:
    found = measured(site_data("summit/ndstat-10sdn6-evt.tar.gz"))
    found.show(figures, "the published Summit log")
    assert (found.told["nodes"], found.told["times"]) == (4734, 23_883)
    assert found.core_s < 5
    assert found.told["peak_mb"] < 600


def test_theta_as_counts(figures: Figures) -> None:
    found = measured(site_data("swf/theta_2022.swf.gz"), counts=True)
    found.show(figures, "Theta 2022 as counts")
    assert found.told["used"] == 23_911
    assert "461.4 h" in found.told["tooltip"]["suspected_downtime"]
    assert found.core_s < 3
