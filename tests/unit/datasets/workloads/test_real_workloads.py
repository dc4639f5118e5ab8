"""Real traces: what is read is what a few independent lines find in the same file."""

from __future__ import annotations

import csv
import gzip
import json
import math
from ast import literal_eval
from collections import Counter
from itertools import pairwise
from typing import Any, Final

import pytest

from bftrain import WorkloadOptions, import_workload
from tests.helpers.site_data import site_data

SPEEDS: Final = "gavel/simulation_throughputs.json.gz"
TRACES: Final = {"gen_seed0_lam9000_single": 400, "max_min_fairness": 96, "small_test": 20}


def imported(name: str, **options: Any) -> Any:  # noqa: ANN401 - options, a workload
    if name.startswith("gavel/"):
        options["speeds"] = site_data(SPEEDS)
    return import_workload(site_data(name), WorkloadOptions(**options))


def raw_speeds(kind: str) -> dict[tuple[str, int], float]:
    with gzip.open(site_data(SPEEDS), "rt") as file:
        rows = json.load(file)[kind]
    return {literal_eval(key): speeds["null"] for key, speeds in rows.items()}


def raw_rows(name: str) -> list[list[str]]:
    with site_data(name).open(newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


@pytest.mark.parametrize("kind", ["v100", "p100", "k80", "v100_unconsolidated"])
@pytest.mark.parametrize("name", TRACES)
def test_gavels_traces_row_by_row(name: str, kind: str) -> None:
    found = imported(f"gavel/{name}.trace", kinds=(kind,))
    rows, speeds = raw_rows(f"gavel/{name}.trace"), raw_speeds(kind)
    assert found.rows.read == len(rows) == TRACES[name]
    usable = [(number, row) for number, row in enumerate(rows) if speeds[row[0], int(row[6])] > 0]
    assert found.rows.aside == ({"does_not_fit": len(rows) - len(usable)} if len(usable) < len(rows) else {})
    first_s = min(float(row[9]) for _, row in usable)
    for task, (number, row) in zip(found.tasks, usable, strict=True):
        gang = int(row[6])
        assert task.name.endswith(f"-{number}")
        assert (task.min_nodes, task.max_nodes, task.curve.nodes) == (gang, gang, (gang,))
        assert task.curve.rate == (speeds[row[0], gang],)
        assert (task.work_samples, task.weight) == (int(row[5]), float(row[7]))
        assert task.submit_s == float(row[9]) - first_s
        assert task.deadline_s is None  # -1 in all of them
    sums = math.fsum(task.work_samples or 0 for task in found.tasks)
    assert sums == sum(int(row[5]) for _, row in usable)


def test_gavels_durations_are_those_that_its_generator_draws() -> None:
    """The trace was made on V100: durations are 60 * 10^U(1.5, 3) or 60 * 10^U(3, 4) s, less a fraction of a step."""
    tasks = imported("gavel/gen_seed0_lam9000_single.trace").tasks
    powers = [math.log10((task.work_samples or 0) / task.curve.rate[0] / 60) for task in tasks]
    assert min(powers) > 1.499
    assert max(powers) <= 4.0
    assert sum(power >= 3 for power in powers) / len(powers) == pytest.approx(0.2, abs=0.08)
    gaps = [after.submit_s - before.submit_s for before, after in pairwise(tasks)]
    assert sum(gaps) / len(gaps) == pytest.approx(9000, rel=0.2)


@pytest.mark.parametrize("kind", ["v100", "p100", "k80"])
def test_elastic_curves_are_the_tables(kind: str) -> None:
    found = imported("gavel/max_min_fairness.trace", kinds=(kind,), elastic=True)
    rows, speeds = raw_rows("gavel/max_min_fairness.trace"), raw_speeds(kind)
    assert found.rows.used == len(rows)
    for task, row in zip(found.tasks, rows, strict=True):
        points = {gang: rate for (model, gang), rate in sorted(speeds.items()) if model == row[0]}
        assert dict(zip(task.curve.nodes, task.curve.rate, strict=True)) == points
        fitting = [gang for gang, rate in points.items() if rate > 0]
        assert (task.min_nodes, task.max_nodes) == (min(fitting), max(fitting))


def test_curves_that_are_not_monotone_stay_as_they_were_measured() -> None:
    found = imported("gavel/gen_seed0_lam9000_single.trace", elastic=True)
    (dented,) = {task.curve for task in found.tasks if task.name.startswith("lm-b20-")}
    assert [round(rate, 1) for rate in dented.rate] == [64.7, 132.2, 111.0, 497.3]


def test_bloxs_job_list_row_by_row() -> None:
    found = imported("blox/jobs_load4.csv", begin_s=0.0)
    with site_data("blox/jobs_load4.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (found.format, found.rows.read, found.rows.aside) == ("blox", len(rows), {})
    for task, row in zip(found.tasks, rows, strict=True):
        assert task.name == f"job-{row['job_id']}"
        assert (task.submit_s, task.work_samples) == (float(row["arrival_s"]), float(row["duration_s"]))
        assert (task.min_nodes, task.max_nodes, task.curve.rate) == (int(row["gpus"]), int(row["gpus"]), (1.0,))
    assert imported("blox/jobs_load4.csv").begin_s == 130.0
    wide = sum(int(row["gpus"]) > 4 for row in rows)
    assert imported("blox/jobs_load4.csv", nodes=4).rows.aside == ({"does_not_fit": wide} if wide else {})


def test_rounds_on_bloxs_job_list_give_the_published_means() -> None:
    """FIFO in rounds of 300 s on 128 GPUs: what jobs 100 to 200 take, and how long until they are first seen to run."""
    tasks = imported("blox/jobs_load4.csv", begin_s=0.0).tasks
    watched = {task.name: task for task in tasks[100:201]}
    left = {task.name: task.work_samples or 0.0 for task in tasks}
    arrived = [task.submit_s for task in tasks]
    ended, seen, queue, running = dict[str, float](), dict[str, float](), list[Any](), list[Any]()
    now_s, coming = 0.0, 0
    while not watched.keys() <= ended.keys():
        for task in running:
            left[task.name] -= 300
        ended |= {task.name: now_s for task in running if left[task.name] <= 0}
        while arrived[coming] <= now_s:
            queue.append(tasks[coming])
            coming += 1
        queue = [task for task in queue if task.name not in ended]
        free, running = 128, []
        for task in queue:
            if task.min_nodes <= free:
                running.append(task)
                free -= task.min_nodes
                seen.setdefault(task.name, now_s + 300)
        now_s += 300
    mean_s = sum(ended[name] - task.submit_s for name, task in watched.items()) / len(watched)
    response_s = sum(seen[name] - task.submit_s for name, task in watched.items()) / len(watched)
    assert mean_s == pytest.approx(74_403.57426, abs=5e-6)
    assert response_s == pytest.approx(440.20792, abs=5e-6)


def test_phillys_arrivals_as_a_table() -> None:
    found = imported("gpu/philly_jobs.csv.gz")
    with gzip.open(site_data("gpu/philly_jobs.csv.gz"), "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert (found.format, found.rows.read, found.rows.aside) == ("philly", len(rows), {})
    assert Counter(task.min_nodes for task in found.tasks) == Counter(int(row["num_gpus"]) for row in rows)
    # The table has the product too: nodes times seconds
    gpu_s = math.fsum(task.min_nodes * (task.work_samples or 0) for task in found.tasks)
    assert gpu_s == pytest.approx(math.fsum(float(row["gpu_time"]) for row in rows), rel=1e-12)
    assert Counter(task.user for task in found.tasks) == Counter(row["cluster"] for row in rows)


@pytest.mark.parametrize(
    ("name", "jobs", "aside"),
    [
        ("KTH-SP2-1996-2", 28_481, {"no_usage": 8}),
        ("NASA-iPSC-1993-3.1-cln", 18_066, {"no_usage": 173}),
        ("theta_2022", 23_911, {}),
    ],
)
def test_archive_logs_are_counted_and_summed(name: str, jobs: int, aside: dict[str, int]) -> None:
    found = imported(f"swf/{name}.swf.gz")
    assert (len(found.tasks), found.rows.aside) == (jobs, aside)
    with gzip.open(site_data(f"swf/{name}.swf.gz"), "rt", errors="replace") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith(";")]
    ran = [row for row in rows if float(row[3]) > 0]
    assert len(ran) == jobs
    assert math.fsum(task.work_samples or 0 for task in found.tasks) == math.fsum(float(row[3]) for row in ran)
    assert found.tasks[-1].submit_s == max(float(row[1]) for row in ran) - min(float(row[1]) for row in ran)
