"""How long schedules of archive logs take, whole commands."""

from __future__ import annotations

import json
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import PROGRAM, environment
from tests.helpers.site_data import site_data

pytestmark = pytest.mark.bench


@dataclass(frozen=True)
class Ended:
    """What a command printed, and what it took: by the clock, and of a core.

    The bars are on the second, which other programs on the machine change little; on an idle one both are the same.
    """

    took_s: float
    core_s: float
    output: dict[str, Any]

    def show(self, figures: Figures, what: str) -> None:
        figures.add(what, self.core_s, "s")
        figures.add("by the clock", self.took_s, "s")
        figures.add("of that the simulation", self.output["jobs_per_s"], "jobs/s")


def scheduled(log: Path, folder: Path, *options: str) -> Ended:
    begin, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [PROGRAM, "schedule", str(log), "-o", str(folder), "--json", "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Ended(perf_counter() - begin, core_s, json.loads(done.stdout))


@pytest.mark.parametrize("policy", ["easy", "fairshare", "ostrich"])
def test_theta(figures: Figures, tmp_path: Path, policy: str) -> None:
    ended = scheduled(site_data("swf/theta_2022.swf.gz"), tmp_path, "--nodes", "4392", "--policy", policy)
    ended.show(figures, f"Theta 2022, {policy}")
    assert ended.output["done"] == 23_911
    assert ended.core_s < (15 if policy == "easy" else 30)


@pytest.mark.parametrize("policy", ["fcfs", "easy", "fairshare", "ostrich"])
def test_kth(figures: Figures, tmp_path: Path, policy: str) -> None:
    ended = scheduled(site_data("swf/KTH-SP2-1996-2.swf.gz"), tmp_path, "--policy", policy)
    ended.show(figures, f"KTH-SP2, {policy}")
    assert ended.output["done"] == 28_489
    assert ended.core_s < 10


def test_nasa(figures: Figures, tmp_path: Path) -> None:
    log = site_data("swf/NASA-iPSC-1993-3.1-cln.swf.gz")
    ended = scheduled(log, tmp_path, "--policy", "ostrich", "--first", "3000")
    ended.show(figures, "NASA-iPSC, 3,000 jobs, ostrich")
    assert (ended.output["nodes"], ended.output["done"], ended.output["beyond_bound"]) == (128, 3000, 0)
    assert ended.core_s < 1.5
