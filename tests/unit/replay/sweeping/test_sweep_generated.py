"""What is generated can be swept by its own options, and a cluster's jobs are those of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig
from bftrain_datasets.workloads.generator import ClusterShape, generate_cluster
from bftrain_datasets.workloads.task_generators import TaskArrivals
from bftrain_replay.sweeping.sweep import PreparedSweep, SweepResult
from bftrain_replay.sweeping.sweep_charts import spreads
from bftrain_replay.sweeping.sweep_grid import points_of
from bftrain_replay.sweeping.sweep_inputs import ClusterTasks
from bftrain_replay.sweeping.sweep_page import page
from bftrain_replay.sweeping.sweep_runs import OutcomeFile
from bftrain_replay.sweeping.sweep_spec import read_spec
from bftrain_replay.sweeping.sweep_table import metric_of
from tests.unit.replay.sweeping.sweep_case import LOGS, Here, small

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "sweeps" / "load.toml"
JOBS = {"kind": "cluster", "count": 6, "elastic": True, "long_share": 0.0, "users": 2}


def cluster(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    return {"log": "small", "tasks": "jobs", "logs": LOGS, "task_sets": {"jobs": JOBS}, **more}


def swept(folder: Path, given: dict[str, Any]) -> SweepResult:
    sweep = PreparedSweep.of(given)
    with OutcomeFile(folder) as outcomes:
        sweep.run(outcomes, Here())
        return sweep.swept(outcomes.known)


def test_a_cluster_of_jobs_is_the_one_of_the_command() -> None:
    source = ClusterTasks(
        count=9, gangs="1:0.5,4:0.5", deadlines="1.5,4", users=3, arrivals_per_hour=2.0, burst_share=0.5
    )
    shape = ClusterShape(gangs={1: 0.5, 4: 0.5}, deadlines=(1.5, 4.0), users=3, burst_share=0.5, burst_size=10)
    assert source.load(7) == generate_cluster(9, 7, arrivals=TaskArrivals(per_hour=2.0), shape=shape)
    assert source.uses_seed
    fixed = ClusterTasks(count=2, seed=5)
    assert not fixed.uses_seed
    assert fixed.load(1) == fixed.load(2) == generate_cluster(2, 5)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"task_sets": {"jobs": {"count": 0x7FFFFFFF}}}, r"jobs: count must be at most 500,000, not 2,147"),
        ({"logs": {"small": {"nodes": 0x7FFFFFFF, "days": 1}}}, r"small: nodes must be at most 1,000,000, not"),
    ],
)
def test_inputs_that_no_memory_holds_are_refused_before_they_are_made(more: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        PreparedSweep.of(cluster(**more))


def test_options_of_what_is_generated_make_other_inputs() -> None:
    spec = read_spec(cluster(grid={"tasks": {"arrivals_per_hour": [1, 2.5]}, "log.nodes": [8, 10], "seed": [1, 2]}))
    points = points_of(spec)
    assert len(points) == 8
    assert [point.options["tasks.arrivals_per_hour"] for point in points[::4]] == [1, 2.5]
    last = points[-1]
    tasks = spec.tasks(last.tasks, last.changes)
    assert isinstance(tasks, ClusterTasks)
    assert (tasks.arrivals_per_hour, tasks.count, tasks.long_share) == (2.5, 6, 0.0)
    assert len(spec.log(last.log, last.changes).load(2).node_names) == 10
    assert spec.tasks("jobs") == ClusterTasks(**{name: value for name, value in JOBS.items() if name != "kind"})  # type: ignore[arg-type]  # the fields' own types


def test_ranges_of_counts_are_whole_and_cases_may_hold_them_too() -> None:
    spec = read_spec(cluster(grid={"tasks.count": {"from": 2, "to": 4}}))
    assert [point.options["tasks.count"] for point in points_of(spec)] == [2, 3, 4]
    spec = read_spec(cluster(cases=[{"tasks": {"count": 2}, "max_tasks": 1}, {"tasks.count": 3, "max_tasks": 2}]))
    assert [point.changes for point in points_of(spec)] == [{"tasks.count": 2}, {"tasks.count": 3}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[grid]\ntasks.cuont = [1]\n", r"sweep.toml:\d+: grid.tasks.cuont: 'jobs' has no such option.*'count'"),
        ('[grid]\ntasks.count = ["many"]\n', r"sweep.toml:\d+: grid.tasks.count: .*int"),
        ("[fixed]\ntasks.count = 1\n", r"sweep.toml:\d+: fixed.tasks.count: is no setting .*generated"),
        ("[grid]\nbaseline.count = [1]\n", r"grid.baseline: a range has no 'count'"),
        ('[grid]\ntasks.gangs = ["1:x"]\n', r"gangs is '1:x'"),
        ('[grid]\ntasks.deadlines = ["soon"]\n', r"deadlines is 'soon'"),
    ],
)
def test_complaints_name_line_and_option(text: str, complaint: str, tmp_path: Path) -> None:
    inputs = 'log = "small"\ntasks = "jobs"\n[logs]\nsmall = { nodes = 8, days = 0.1, seed = 3 }\n'
    path = tmp_path / "sweep.toml"
    path.write_text(f'{inputs}[task_sets]\njobs = {{ kind = "cluster", count = 2 }}\n{text}')
    with pytest.raises(BadConfig, match=complaint):
        PreparedSweep.of(path)


def test_a_file_has_no_options(tmp_path: Path) -> None:
    import bftrain  # noqa: PLC0415 - to write a task file

    spec = read_spec(small())
    bftrain.save_tasks(spec.tasks("mix").load(0), tmp_path / "tasks.toml")
    given = {**small(), "tasks": "tasks.toml", "grid": {"tasks.count": [1, 2]}}
    with pytest.raises(BadConfig, match=r"'tasks\.toml' is a file, which has no options"):
        points_of(read_spec(given, tmp_path))


def test_tasks_slow_down_as_more_of_them_come(tmp_path: Path) -> None:
    plot = ["completion_s_mean", "response_s_mean", "slowdown_mean", "rho_mean"]
    done = swept(tmp_path, cluster(grid={"tasks.arrivals_per_hour": [0.5, 500], "seed": [1, 2, 3]}, plot=plot))
    slowdown = metric_of("slowdown_mean")
    found = spreads(done.rows, slowdown, ["tasks.arrivals_per_hour"])
    calm, full = found[(0.5,)], found[(500,)]
    assert calm.mean < full.mean
    assert calm.count == 3  # a band over the seeds
    assert calm.ends[0] < calm.mean < calm.ends[1]
    made = page(done)
    names = {figure.name for figure in made.figures}
    assert {f"{column}-by-tasks-arrivals_per_hour" for column in plot} <= names
    picture = next(figure for figure in made.figures if figure.name == "completion_s_mean-by-tasks-arrivals_per_hour")
    assert [layer["mark"]["type"] for layer in picture.spec["layer"]] == ["area", "line", "point"]
    header = [column.name for column in done.columns]
    assert {"tasks.arrivals_per_hour", "completion_s_count", "late_s_p95", "tasks_unfinished"} <= set(header)
    unfinished = [row for row in done.rows if row.cells["tasks_unfinished"]]
    assert any("had not finished" in warning for warning in made.warnings) == bool(unfinished)


def test_the_example_is_small_and_on_the_page_as_it_is() -> None:
    spec = read_spec(EXAMPLE)
    assert len(points_of(spec)) == 27
    assert EXAMPLE.read_text() in (ROOT / "docs" / "sweeps.md").read_text()
    assert metric_of(spec.plot[0]).title == "completion time, mean"
