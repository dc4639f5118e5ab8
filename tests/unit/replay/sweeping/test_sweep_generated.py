"""What is generated can be swept by its own options, and a cluster's jobs are those of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig
from bftrain_replay.sweeping.sweep_grid import points_of
from bftrain_replay.sweeping.sweep_inputs import ClusterTasks
from bftrain_replay.sweeping.sweep_spec import read_spec
from tests.unit.replay.sweeping.sweep_case import LOGS, Here, OutcomeFile, PreparedSweep, SweepResult, small

JOBS = {"kind": "cluster", "count": 6, "elastic": True, "long_share": 0.0, "users": 2}


def cluster(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    return {"log": "small", "tasks": "jobs", "logs": LOGS, "task_sets": {"jobs": JOBS}, **more}


def swept(folder: Path, given: dict[str, Any]) -> SweepResult:
    sweep = PreparedSweep.of(given)
    with OutcomeFile(folder) as outcomes:
        sweep.run(outcomes, Here())
        return sweep.swept(outcomes.known)


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
        PreparedSweep.of(given, tmp_path)
