"""How long a trace of GPUs as large as Philly's takes from records to a page: 117,325 jobs, 2,490 GPUs, 552 nodes."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pytest

from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

JOBS: Final = 117_325
LARGE, NODES, DAYS = 231, 552, 75  # nodes of eight GPUs; the others have two
SIZES, WEIGHTS = (1, 2, 4, 8, 16), (70, 8, 10, 10, 2)
BASE: Final = datetime(2017, 8, 7, tzinfo=UTC)
IMPORT_BAR_S: Final = 15.0
REPLAY_BAR_S: Final = 6.0  # of six hours, twice what it took beside many other programs
WHOLE_BAR_S: Final = 180.0  # of the whole trace: 90 s by the clock on two processors


def stamp(at_s: float) -> str:
    return f"{BASE + timedelta(seconds=int(at_s)):%Y-%m-%d %H:%M:%S}"


def philly_sized() -> list[dict[str, Any]]:
    """Draw jobs in the form of Philly's cluster_job_log, each on the first nodes from a random one on with room."""
    chance = random.Random(1)  # noqa: S311 - the same trace every time
    free = [set(range(8 if node < LARGE else 2)) for node in range(NODES)]
    ends: list[tuple[float, int, list[int]]] = []
    records, now_s = [], 0.0
    for job in range(JOBS):
        now_s += chance.expovariate(JOBS / (DAYS * 86_400))
        while ends and ends[0][0] <= now_s:
            _, node, given = heappop(ends)
            free[node].update(given)
        need, first = chance.choices(SIZES, WEIGHTS)[0], chance.randrange(NODES)
        end_s = now_s + 60 * 10 ** chance.uniform(0, 3.4)
        detail = []
        for node in (*range(first, NODES), *range(first)):
            if need and len(free[node]) >= min(need, 8):
                given = sorted(free[node])[:need]
                free[node].difference_update(given)
                need -= len(given)
                heappush(ends, (end_s, node, given))
                detail.append({"ip": f"m{node}", "gpus": [f"gpu{slot}" for slot in given]})
        attempts = [{"start_time": stamp(now_s), "end_time": stamp(end_s), "detail": detail}] if detail else []
        who = {"jobid": f"application_{job}", "vc": f"v{job % 14}", "user": f"u{job % 300}", "status": "Pass"}
        records.append({**who, "submitted_time": stamp(now_s), "attempts": attempts})
    return records


def core_s(*arguments: object) -> float:
    """Run a command in a process of its own; return what it took of a core."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "bftrain", *map(str, arguments), "-q"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("philly") / "cluster_job_log"
    path.write_text(json.dumps(philly_sized()))
    return path


def test_the_whole_trace_from_records_to_a_page(figures: Figures, records: Path, tmp_path: Path) -> None:
    log, out, begin = tmp_path / "log.npz", tmp_path / "out", perf_counter()
    whole_s = core_s("import", records, "--unit", "gpu", "-o", log)
    whole_s += core_s("replay", log, "--max-tasks", 100, "--quick", "--no-cache", "-o", out)
    whole_s += core_s("report", out, "-o", tmp_path / "report.html")
    figures.add("import, replay and report of the whole trace, by the clock", perf_counter() - begin, "s")
    figures.add("import, replay and report of the whole trace, of a core", whole_s, "s")
    assert json.loads((out / "summary.json").read_text())["decisions"] > 200_000
    assert whole_s < WHOLE_BAR_S


def test_from_records_to_a_page(figures: Figures, records: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log.npz", tmp_path / "out"
    import_s = core_s("import", records, "--unit", "gpu", "-o", log)
    window = ("--window", "2017-08-12T00:00:2017-08-12T06:00")
    replay_s = core_s("replay", log, "--max-tasks", 100, "--quick", *window, "-o", out)
    found = json.loads((out / "summary.json").read_text())
    report_s = core_s("report", out, "-o", tmp_path / "report.html")
    figures.add("import --unit gpu", import_s, "s")
    figures.add("replay of six hours, 100 compete, with its yardsticks", replay_s, "s")
    figures.add("decisions", found["decisions"])
    figures.add("report", report_s, "s")
    assert found["unit"] == "gpu"
    assert import_s < IMPORT_BAR_S
    assert replay_s < REPLAY_BAR_S
