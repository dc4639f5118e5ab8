"""How well a sweep uses its workers: a hundred points on one process, on two, through Dask, and stopped half-way."""

from __future__ import annotations

import json
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import bftrain, start
from tests.helpers.sweeping import outcomes, repeatable

pytestmark = pytest.mark.bench

SPEC = """\
log = "log"
tasks = "mix"
logs = { log = { nodes = 64, days = 0.5, seed = 3 } }
task_sets = { mix = { count = 40, max_nodes = 16, work_samples = 1.3e8 } }

[grid]
max_tasks = [5, 10, 15, 20, 25]
horizon_s = [30, 60, 120, 240, 480]
seed = { from = 1, to = 4 }
"""
POINTS, PASSES = 100, 120  # all horizons share their yardsticks
_PATIENCE_S = 900.0


class Swept:
    """One run of the sweep."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        begun_s = time.monotonic()
        running = start("sweep", "sweep.toml", "-o", name, "-q", "--json", *options, cwd=folder)
        out, err = running.communicate(timeout=_PATIENCE_S)
        self.wall_s = time.monotonic() - begun_s
        assert running.returncode == 0, err
        output: dict[str, Any] = json.loads(out)
        assert (output["points"], output["passes"], output["done"]) == (POINTS, PASSES, POINTS)
        self.table = repeatable(folder / name)
        self.passes_s = sum(outcome["wall_s"] for outcome in outcomes(folder / name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sweep")
    (made / "sweep.toml").write_text(SPEC)
    return made


@pytest.fixture(scope="module")
def one(folder: Path) -> Swept:
    return Swept(folder, "one", "--jobs", "1")


def test_a_hundred_points_on_two_processes(figures: Figures, folder: Path, one: Swept) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes are no faster than one on a single processor")
    two = Swept(folder, "two", "--jobs", "2")
    figures.add("100 points on one process", one.wall_s, "s")
    figures.add("of it anything but replaying", one.wall_s - one.passes_s, "s")
    figures.add("on two processes", two.wall_s, "s")
    figures.add("times faster", one.wall_s / two.wall_s)
    # What other programs take from both workers alike does not change this
    figures.add("of the time of both, spent replaying", 100 * two.passes_s / (2 * two.wall_s), "%")
    assert two.table == one.table
    assert one.wall_s / two.wall_s >= 1.7


def test_the_same_through_dask(figures: Figures, folder: Path, one: Swept) -> None:
    if find_spec("distributed") is None:
        pytest.skip("Dask is not installed: pip install '.[dask]'")
    from distributed import LocalCluster  # noqa: PLC0415 - it may not be there

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        dask = Swept(folder, "dask", "--dask", cluster.scheduler_address)
    figures.add("100 points on two workers of Dask", dask.wall_s, "s")
    assert dask.table == one.table


def test_stopped_half_way_and_run_again(figures: Figures, folder: Path, one: Swept) -> None:
    begun_s = time.monotonic()
    running = start("sweep", "sweep.toml", "-o", "stopped", "-q", "--jobs", "2", cwd=folder)
    while len(outcomes(folder / "stopped")) < PASSES // 2:
        assert running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    pressed_s = time.monotonic()
    running.communicate(timeout=60)
    stopped_s = time.monotonic() - pressed_s
    half_s = time.monotonic() - begun_s
    assert running.returncode == 130
    again = Swept(folder, "stopped", "--jobs", "2")
    figures.add("from Ctrl-C to the end", stopped_s, "s")
    figures.add("100 points, stopped half-way and run again", half_s + again.wall_s, "s")
    assert stopped_s < 2.0
    assert again.table == one.table
    begun_s = time.monotonic()
    nothing = bftrain("sweep", "sweep.toml", "-o", "stopped", "-q", cwd=folder)
    figures.add("a sweep that is done, once more", time.monotonic() - begun_s, "s")
    assert nothing.code == 0


def test_yardsticks_that_are_shared(figures: Figures, folder: Path) -> None:
    """Costs do not change them, so a sweep of costs makes them once."""
    text = SPEC[: SPEC.index("[grid]")] + "[grid]\ncost_factor = { from = 0.25, to = 4, step = 0.25 }\n"
    (folder / "costs.toml").write_text(text)
    (folder / "costs-alone.toml").write_text(text.replace("[grid]", "yardsticks = false\n[grid]"))
    spent = {}
    for name in ("costs", "costs-alone"):
        ended = bftrain("sweep", f"{name}.toml", "-o", name, "-q", "--jobs", "1", cwd=folder)
        assert ended.code == 0, ended.err
        spent[name] = sum(outcome["wall_s"] for outcome in outcomes(folder / name))
    (yardsticks,) = (one["wall_s"] for one in outcomes(folder / "costs") if one["made_from"]["kind"] == "yardsticks")
    replays = spent["costs"] - yardsticks
    figures.add("16 replays of a sweep of costs", replays, "s")
    figures.add("their yardsticks, made once", yardsticks, "s")
    figures.add("all of it if each had its own", replays + 16 * yardsticks, "s")
