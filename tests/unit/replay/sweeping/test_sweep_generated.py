"""What is generated can be swept by its own options, and a cluster's jobs are those of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import BadConfig
from tests.unit.replay.sweeping.sweep_case import LOGS, planned, small, swept

JOBS = {"kind": "cluster", "count": 6, "elastic": True, "long_share": 0.0, "users": 2}


def cluster(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    return {"log": "small", "tasks": "jobs", "logs": LOGS, "task_sets": {"jobs": JOBS}, **more}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"task_sets": {"jobs": {"count": 0x7FFFFFFF}}}, r"jobs: count must not exceed 500,000, but is 2,147"),
        ({"logs": {"small": {"nodes": 0x7FFFFFFF, "days": 1}}}, r"small: nodes must not exceed 1,000,000, but is"),
    ],
)
def test_inputs_that_no_memory_holds_are_refused_before_they_are_made(
    more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig, match=says):
        planned(cluster(**more), tmp_path)


def test_options_of_what_is_generated_make_other_inputs(tmp_path: Path) -> None:
    grid = {"tasks": {"arrivals_per_hour": [1, 2.5], "count": [4, 6]}, "log.nodes": [8, 10], "seed": [1, 2]}
    found = swept(cluster(grid=grid, yardsticks=False), tmp_path)
    assert [row.point.options["tasks.arrivals_per_hour"] for row in found.rows] == [1] * 8 + [2.5] * 8
    assert all(row.cells["task_count"] == row.point.options["tasks.count"] for row in found.rows)
    idle_node_h = {row.point.options["log.nodes"]: row.cells["idle_node_h"] for row in found.rows}
    assert len(idle_node_h) == len(set(idle_node_h.values())) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[grid]\ntasks.cuont = [1]\n", r"sweep.toml:\d+: grid.tasks.cuont: 'jobs' has no such option.*'count'"),
        ('[grid]\ntasks.count = ["many"]\n', r"sweep.toml:\d+: grid.tasks.count: .*whole number"),
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
        planned(path, tmp_path / "out")


def test_a_file_has_no_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bftrain.save_tasks(bftrain.generate_mix(3, seed=0), tmp_path / "tasks.toml")
    given = {**small(), "tasks": "tasks.toml", "grid": {"tasks.count": [1, 2]}}
    with pytest.raises(BadConfig, match=r"'tasks\.toml' is a file, which has no such option"):
        planned(given, tmp_path / "out")


def test_tasks_of_a_file_arrive_at_another_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mix = bftrain.generate_mix(3, seed=0)
    for name, gap_s in (("slow", 600.0), ("fast", 150.0)):
        bftrain.save_tasks([replace(task, submit_s=gap_s * place) for place, task in enumerate(mix)], f"{name}.toml")
    slow, faster, fast = (
        swept({**small(), "tasks": f"{name}.toml", **options}, tmp_path / f"out-{place}").rows[0].cells["waited_s_mean"]
        for place, (name, options) in enumerate([("slow", {}), ("slow", {"grid": {"tasks.rate": [4]}}), ("fast", {})])
    )
    assert faster == fast != slow
    with pytest.raises(BadConfig, match=r"tasks.rate.*finite number above 0"):
        planned({**small(), "tasks": "slow.toml", "grid": {"tasks.rate": [0]}}, tmp_path / "out")
