"""What has to be replayed for a sweep: each thing once, and the same figures as a replay by itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import bftrain
from bftrain import BadConfig, BadInput, generate_log, generate_mix, save_log, save_tasks
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance
from tests.helpers.coupled_objective import COUPLED
from tests.unit.replay.sweeping.sweep_case import LOGS, TASK_SETS, counted, planned, small, swept


def kinds(spec: dict[str, object], folder: Path) -> list[str]:
    """Return the kinds of the passes that a sweep needs."""
    swept(spec, folder)
    lines = (folder / "points.jsonl").read_text().splitlines()[1:]
    return sorted(json.loads(line)["made_from"]["kind"] for line in lines)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("cost_factor", [1.0, 2.0]),
        ("solver", ["exact", "greedy"]),
        ("decision_latency_s", [0, 5]),
        ("start_cost_s", [1, 2]),
        ("min_interval_s", [0, 60]),
        ("horizon_s", [60, "auto"]),
    ],
)
def test_yardsticks_are_shared_where_only_costs_horizon_solver_or_latency_differ(
    tmp_path: Path, name: str, values: list[object]
) -> None:
    assert kinds(small(grid={name: values}), tmp_path) == ["replay", "replay", "yardsticks"]


@pytest.mark.parametrize(("name", "values"), [("max_tasks", [1, 2]), ("semantics", ["realistic", "published"])])
def test_elsewhere_each_point_has_its_yardsticks(tmp_path: Path, name: str, values: list[object]) -> None:
    assert kinds(small(grid={name: values}), tmp_path) == ["replay"] * 2 + ["yardsticks"] * 2


@pytest.mark.parametrize("objective", ["max-min", "goodput", COUPLED])
def test_an_objective_that_looks_at_all_tasks_has_yardsticks_of_its_horizon(tmp_path: Path, objective: str) -> None:
    spec = small(fixed={"objective": objective, "solver": "highs"}, grid={"horizon_s": [60, 120]})
    assert kinds(spec, tmp_path).count("yardsticks") == 2


def test_a_baseline_may_be_a_point_of_its_own(tmp_path: Path) -> None:
    spec = small(grid={"solver": ["exact", "greedy", "equal-share"]}, baseline="greedy")
    assert kinds(spec, tmp_path) == ["replay"] * 3 + ["yardsticks"]


def test_yardsticks_can_be_left_out(tmp_path: Path) -> None:
    assert kinds(small(grid={"seed": [1, 2]}, yardsticks=False), tmp_path) == ["replay"] * 2


@pytest.mark.parametrize(
    "fixed",
    [
        {"max_tasks": 2, "horizon_s": 30.0, "cost_factor": 2.0},
        {"solver": "greedy", "decision_latency_s": 5.0, "progress": "disk:300", "seed": 4},
        {"semantics": "published", "nodes": "0:8", "skip_events": 3},
        {"objective": COUPLED, "solver": "highs"},
    ],
)
def test_the_figures_are_those_of_a_replay(tmp_path: Path, fixed: dict[str, object]) -> None:
    baseline = "" if COUPLED in fixed.values() else "equal-share"
    save_log(generate_log(12, 0.1, seed=3), tmp_path / "log.npz")
    save_tasks(generate_mix(3, seed=3), tmp_path / "tasks.toml")
    files = {"log": str(tmp_path / "log.npz"), "tasks": str(tmp_path / "tasks.toml")}
    (row,) = swept({**files, "fixed": fixed, "baseline": baseline}, tmp_path / "out").rows
    summary = bftrain.replay(*files.values(), baseline=baseline, **fixed).summary
    same = (
        "harvested",
        "efficiency",
        "ceiling_efficiency",
        "dedicated_nodes",
        "ceiling_samples",
        "coverage",
        "rescales",
    )
    assert {name: row.cells[name] for name in same} == {name: summary[name] for name in same}
    assert row.cells["lost_preemption_samples"] == summary["lost"]["preemption"]["samples"]
    assert row.cells["unused_node_h_task_cap"] == summary["unused_node_h"]["task_cap"]
    if baseline:
        assert row.cells["baseline_efficiency"] == summary["baseline"]["efficiency"]
        assert row.cells["baseline_harvested"] == summary["baseline"]["harvested"]
    assert row.state == "done"


def test_a_pass_is_known_by_what_it_is_made_from_and_not_by_where_that_lies(tmp_path: Path) -> None:
    log, tasks, out = generate_log(12, 0.1, seed=3), generate_mix(3, seed=3), tmp_path / "out"
    for folder, log_name, tasks_name in (("a", "log.npz", "tasks.toml"), ("b", "other.csv", "tasks.csv")):
        (tmp_path / folder).mkdir()
        save_log(log, tmp_path / folder / log_name)
        save_tasks(tasks, tmp_path / folder / tasks_name)
    first = {"log": str(tmp_path / "a" / "log.npz"), "tasks": str(tmp_path / "a" / "tasks.toml")}
    second = {"log": str(tmp_path / "b" / "other.csv"), "tasks": str(tmp_path / "b" / "tasks.csv")}
    assert counted({**first, "grid": {"max_tasks": [1, 2]}}, out)[0] == 4
    assert counted({**second, "grid": {"max_tasks": [2, 3]}}, out)[0] == 2
    assert counted({**second, "grid": {"max_tasks": [2, 3]}, "fixed": {"cost_factor": 2.0}}, out)[0] == 2


def test_what_changed_since_the_sweep_began_is_not_replayed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def mine(task, sizes):\n    return sizes\n")

    def edit(_: object) -> None:
        mine.write_text("def mine(task, sizes):\n    return 2 * sizes\n")

    spec = small(fixed={"objective": f"{mine}:mine"}, yardsticks=False)
    (row,) = swept(spec, tmp_path / "edited", watch=edit).rows
    assert row.error.endswith("mine.py: has changed since the sweep started")
    (row,) = swept(spec, tmp_path / "gone", watch=lambda _: mine.unlink(missing_ok=True)).rows
    assert "is not on this machine (put it where every worker sees it" in row.error


def test_an_error_in_a_solver_or_an_objective_fails_its_own_pass_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(
        "import sys\ndef exits(task, sizes):\n    sys.exit(3)\ndef nan(task, sizes):\n    return sizes * float('nan')\n"
    )
    grid = {"solver": ["exakt", "exact"], "objective": ["throughput", "bad.py:exits", "bad.py:nan", "bad.py:no", "x"]}
    rows = swept(small(grid=grid, yardsticks=False), tmp_path / "out").rows
    assert [row.error for row in rows[:5]] == ["no solver is called 'exakt' (did you mean 'exact'?)"] * 5
    assert [row.state for row in rows[5:]] == ["done", "failed", "failed", "failed", "failed"]
    assert "3" in rows[6].error
    assert rows[7].error.startswith("objective 'bad.py:nan', task ")
    assert str(tmp_path) not in rows[7].error
    assert rows[8].error.startswith("objective 'bad.py:no': no function or class in the file is called 'no'")


@pytest.mark.parametrize(
    ("sets", "complaint"),
    [
        ({"logs": LOGS | {"small": {"nodes": 0, "days": 1}}}, "sweep: logs.small: nodes must be at least 1, not 0"),
        ({"task_sets": TASK_SETS | {"mix": {"count": 0}}}, "sweep: task_sets.mix: count must be at least 1, not 0"),
    ],
)
def test_sets_that_cannot_be_generated_are_refused_with_their_place(
    sets: dict[str, object], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig) as refused:
        planned(small() | sets, tmp_path)
    assert str(refused.value) == complaint


def test_a_broken_log_is_refused_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "log.npz").write_text("no log")
    with pytest.raises(BadInput, match=r"log\.npz.*: not a readable log file"):
        planned(small(log=str(tmp_path / "log.npz")), tmp_path / "out")


def test_doubts_about_a_log_stand_in_the_table(tmp_path: Path) -> None:
    log = generate_log(12, 0.1, seed=3)
    doubtful = DoubtfulTime(cause="censored_end", of_nodes=12, times=(log.start_s,), nodes=(12,))
    findings = (LogFinding(name="which_unknown", count=1),)
    save_log(replace(log, provenance=LogProvenance(doubtful=(doubtful,), findings=findings)), tmp_path / "log.npz")
    found = swept(small(log=str(tmp_path / "log.npz")), tmp_path / "out")
    (row,) = found.rows
    assert (row.cells["doubtful_share"], row.cells["log_source"]) == (1.0, "counts")
    assert {"doubtful_share", "log_source"} <= {column.name for column in found.columns}
    assert any("of which none is sure" in text and "after the last recorded jobs" in text for text in found.warnings)
    assert any("derived from counts" in text for text in found.warnings)
    assert "derived from counts" in (tmp_path / "out" / "report.html").read_text()
