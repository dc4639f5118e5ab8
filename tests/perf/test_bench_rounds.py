"""How long sharing in rounds takes: whole commands on published traces, and rounds of many tasks."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pytest

from bftrain import (
    NodesJoined,
    TaskSpec,
    TaskSubmitted,
    WorkloadOptions,
    build_harvester,
    import_workload,
    rounds,
    save_tasks,
)
from bftrain.config import LiveSettings
from tests.helpers.figures import Figures
from tests.helpers.program import PROGRAM, environment
from tests.helpers.round_cases import gang
from tests.helpers.site_data import site_data

pytestmark = pytest.mark.bench

KINDS = ("v100", "p100", "k80")
ROUND_S = 20.0


def replayed(figures: Figures, what: str, tasks: Path, *words: str) -> float:
    """Run the whole command; gives the seconds that it was on a core, which other programs change little."""
    begin, before = perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [PROGRAM, "rounds", "--tasks", str(tasks), "--json", "-q", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    core_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    output: dict[str, Any] = json.loads(done.stdout)
    figures.add(f"{what}, the whole command", core_s, "s")
    figures.add("by the clock", perf_counter() - begin, "s")
    figures.add("of that the simulation", output["wall_s"], "s")
    figures.add("mean completion", output["completion_s"]["mean"], "s")
    return core_s


@pytest.mark.parametrize("policy", ["fifo", "las"])
def test_blox(figures: Figures, tmp_path: Path, policy: str) -> None:
    path = tmp_path / "blox.csv"
    save_tasks(import_workload(site_data("blox/jobs_load4.csv"), WorkloadOptions(begin_s=0.0)).tasks, path)
    words = ("--cluster", "128", "--round", "300", "--finish", "boundary", "--set", "measure=100:200")
    assert replayed(figures, f"jobs_load4 on 128, {policy}", path, *words, "--policy", policy) < 1.0


@pytest.mark.parametrize("policy", ["fifo", "isolated", "las", "max-min"])
def test_gavel(figures: Figures, tmp_path: Path, policy: str) -> None:
    path = tmp_path / "gavel.csv"
    speeds = site_data("gavel/simulation_throughputs.json.gz")
    trace = site_data("gavel/gen_seed0_lam9000_single.trace")
    save_tasks(import_workload(trace, WorkloadOptions(speeds=speeds, kinds=KINDS)).tasks, path)
    words = ("--cluster", "v100=4,p100=4,k80=4", "--round", "360", "--set", "measure=50:149")
    assert replayed(figures, f"gen_seed0_lam9000_single, {policy}", path, *words, "--policy", policy) < 5.0


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
def test_many_tasks_at_once(figures: Figures, policy: str) -> None:
    """2,000 tasks of 26 models at once on 300 nodes of three kinds: twelve times as many nodes are wanted."""
    rng = np.random.default_rng(0)
    models = [dict(zip(KINDS, row, strict=True)) for row in rng.lognormal(0.0, 0.5, (26, 3)).tolist()]
    tasks = [
        gang(
            f"t{number}",
            float(rng.lognormal(9.0, 1.0)),
            int(rng.choice([1, 2, 4, 8], p=[0.7, 0.1, 0.15, 0.05])),
            speeds=models[number % len(models)],
        )
        for number in range(2000)
    ]
    begin = process_time()
    result = rounds(dict.fromkeys(KINDS, 100), tasks, policy=policy, round_s=360.0)
    took_s = process_time() - begin
    assert (result.ended, result.task_figures.tasks_unfinished) == ("all_done", 0)
    all_s = process_time() - begin
    figures.add(f"{policy}, 2,000 tasks on 300 nodes", took_s, "s")
    figures.add("a round", 1e3 * took_s / result.summary["rounds"], "ms")
    figures.add("with all figures", all_s, "s")
    assert took_s < 5.0
    assert all_s < 10.0


def static_tasks(count: int) -> list[TaskSpec]:
    """Return tasks of 26 models that all come at time 0 and do not end within a day."""
    rng = np.random.default_rng(0)
    models = [dict(zip(KINDS, row, strict=True)) for row in rng.lognormal(0.0, 0.5, (26, 3)).tolist()]
    return [gang(f"t{number}", 1e6, speeds=models[number % len(models)]) for number in range(count)]


def step_s(policy: str, *, count: int = 1000, rounds_: int = 240, like: str = "gavel") -> tuple[float, float]:
    """Return the processor time of one step with these tasks, and the time of one computation of shares."""
    tasks, took = static_tasks(count), []
    for _ in range(2):
        begin = process_time()
        result = rounds(
            dict.fromkeys(KINDS, 36), tasks, policy=policy, round_s=360.0, like=like, until_s=360.0 * rounds_
        )
        took.append((process_time() - begin) / len(result.engine.steps))
    return min(took), result.shares_wall_s / max(1, result.shares_computed)


def test_a_step_as_a_multiple_of_its_parts(figures: Figures) -> None:
    """Steps of 1,000 waiting tasks, as multiples of sorting them once: numpy's sort stands for the machine."""
    values = np.random.default_rng(0).random((1000, 3))
    begin = process_time()
    for _ in range(200):
        np.argsort(-values, axis=0, kind="stable")
    sort_s = (process_time() - begin) / 200
    step, _ = step_s("max-min-blind")
    figures.add("a step with 1,000 tasks, shares like Gavel's", 1e3 * step, "ms")
    figures.add("as a multiple of sorting the tasks once", step / sort_s)
    assert step < 12.0 * sort_s  # a ratio within one run: machines differ


def test_shares_like_gavels_as_a_multiple_of_a_linear_programme(figures: Figures) -> None:
    """The shares of 1,000 tasks of 26 models, compared with the exact shares of the same tasks by HiGHS."""
    _, central_s = step_s("max-min", rounds_=1)
    _, exact_s = step_s("max-min", rounds_=1, like="")
    figures.add("shares like Gavel's, 1,000 tasks, one computation", 1e3 * central_s, "ms")
    figures.add("as a multiple of exact shares", central_s / exact_s)
    assert central_s < 0.5 * exact_s


@pytest.mark.parametrize("policy", ["fifo", "las", "max-min", "finish-time"])
def test_an_unchanged_round_of_a_live_run(figures: Figures, policy: str) -> None:
    harvester = build_harvester(LiveSettings(policy=policy, round_s=ROUND_S))
    nodes = {kind: tuple(f"{kind}-{number}" for number in range(32)) for kind in ("v100", "k80")}
    harvester.absorb(*(NodesJoined(time_s=0.0, nodes=names, kind=kind) for kind, names in nodes.items()))
    tasks = [gang(f"t{number}", 1e6, 1, 0.0, speeds={"v100": 4.0, "k80": 1.0 + number % 3}) for number in range(60)]
    harvester.absorb(*(TaskSubmitted(time_s=0.0, spec=task) for task in tasks))
    harvester.decide(0.0)
    took_s = []
    for number in range(1, 31):
        begin = process_time()
        harvester.decide(number * ROUND_S)
        took_s.append(process_time() - begin)
    share = median(took_s) / ROUND_S
    figures.add(f"{policy}: an unchanged round of 60 tasks on 64 nodes", 1e3 * median(took_s), "ms")
    figures.add("share of a round of 20 s", 100.0 * share, "%")
    assert share < 0.001
