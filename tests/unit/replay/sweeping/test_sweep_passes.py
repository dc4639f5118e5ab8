"""What has to be replayed for a sweep: each thing once, and the same figures as a replay by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import bftrain
from bftrain import BadConfig, BadInput, generate_log, save_log
from bftrain_datasets.log.provenance import DoubtfulTime, LogFinding, LogProvenance
from bftrain_replay.sweeping.run_point import work
from bftrain_replay.sweeping.sweep_inputs import InputCache
from bftrain_replay.sweeping.sweep_page import page
from tests.helpers.coupled_objective import COUPLED
from tests.unit.replay.sweeping.sweep_case import LOGS, TASK_SETS, PassStatus, PreparedSweep, done, small


def kinds(sweep: PreparedSweep) -> list[str]:
    return sorted(str(job.kind) for job in sweep.plan.passes.values())


def test_yardsticks_are_shared_where_only_costs_horizon_solver_or_latency_differ() -> None:
    free = {
        "cost_factor": [1.0, 2.0],
        "solver": ["exact", "greedy"],
        "decision_latency_s": [0, 5],
        "start_cost_s": [1, 2],
        "min_interval_s": [0, 60],
        "horizon_s": [60, "auto"],
    }
    for name, values in free.items():
        assert kinds(PreparedSweep.of(small(grid={name: values}))) == ["replay", "replay", "yardsticks"], name
    for name, values in {"max_tasks": [1, 2], "semantics": ["realistic", "published"]}.items():
        assert kinds(PreparedSweep.of(small(grid={name: values}))) == ["replay"] * 2 + ["yardsticks"] * 2, name


@pytest.mark.parametrize("objective", ["max-min", "goodput", COUPLED])
def test_an_objective_that_looks_at_all_tasks_has_yardsticks_of_its_horizon(objective: str) -> None:
    grid = {"horizon_s": [60, 120]}
    assert kinds(PreparedSweep.of(small(fixed={"objective": objective}, grid=grid))).count("yardsticks") == 2


def test_a_baseline_may_be_a_point_of_its_own() -> None:
    sweep = PreparedSweep.of(small(grid={"solver": ["exact", "greedy", "equal-share"]}, baseline="greedy"))
    assert kinds(sweep) == ["replay"] * 3 + ["yardsticks"]
    assert sweep.plan.needs[1].baseline == sweep.plan.needs[1].replay


def test_yardsticks_can_be_left_out() -> None:
    assert kinds(PreparedSweep.of(small(grid={"seed": [1, 2]}, yardsticks=False))) == ["replay"] * 2


@pytest.mark.parametrize(
    "fixed",
    [
        {"max_tasks": 2, "horizon_s": 30.0, "cost_factor": 2.0},
        {"solver": "greedy", "decision_latency_s": 5.0, "checkpoint_interval_s": 300.0, "seed": 4},
        {"semantics": "published", "nodes": "0:8", "skip_events": 3},
        {"objective": COUPLED, "solver": "highs"},
    ],
)
def test_the_figures_are_those_of_a_replay(fixed: dict[str, object]) -> None:
    baseline = "" if COUPLED in fixed.values() else "equal-share"
    sweep = PreparedSweep.of(small(fixed=fixed, baseline=baseline))
    (row,) = sweep.swept({job.id: done(job) for job in sweep.plan.passes.values()}).rows
    point = sweep.points[0]
    inputs, seed = InputCache(), point.settings.seed
    log, tasks = inputs.log(sweep.spec.log("small"), seed), inputs.tasks(sweep.spec.tasks("mix"), seed)
    summary = bftrain.replay(log, tasks, baseline=point.baseline, **fixed).summary
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
    if point.baseline:
        assert row.cells["baseline_efficiency"] == summary["baseline"]["efficiency"]
        assert row.cells["baseline_harvested"] == summary["baseline"]["harvested"]
    assert row.state == "done"


def test_a_pass_is_known_by_what_it_is_made_from_and_not_by_where_that_lies(tmp_path: Path) -> None:
    first = PreparedSweep.of(small(grid={"max_tasks": [1, 2]}))
    log = first.spec.log("small").load(0)
    bftrain.save_log(log, tmp_path / "other.csv")
    bftrain.save_tasks(first.spec.tasks("mix").load(0), tmp_path / "tasks.csv")
    files = {"log": "other.csv", "tasks": "tasks.csv", "grid": {"max_tasks": [2, 3]}}
    second = PreparedSweep.of(files, tmp_path)
    assert first.plan.needs[1] == second.plan.needs[0]
    assert second.plan.needs[1].replay not in first.plan.passes
    other_seed = PreparedSweep.of(small(fixed={"seed": 1, "max_tasks": 2}))
    assert not set(other_seed.plan.passes) & set(first.plan.passes)


def test_what_changed_since_the_sweep_began_is_not_replayed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def mine(task, sizes):\n    return sizes\n")
    sweep = PreparedSweep.of(small(fixed={"objective": "mine.py:mine"}), tmp_path)
    job = next(iter(sweep.plan.passes.values()))
    assert done(job).status is PassStatus.DONE
    (tmp_path / "mine.py").write_text("def mine(task, sizes):\n    return 2 * sizes\n")
    assert done(job).reason.endswith("mine.py: is not any more what it was when the sweep began")
    (tmp_path / "mine.py").unlink()
    assert "is not on this machine (put it where every worker sees it" in done(job).reason
    other = PreparedSweep.of(small(logs={"small": {"nodes": 3, "days": 0.1}}))
    (log,) = {job.log for job in other.plan.passes.values()}
    wrong = work(job, lambda: log.load(0), lambda: job.tasks.load(0), lambda _: True)
    assert wrong.reason == "log of all as fixed: is not any more what it was when the sweep began"


def test_an_error_in_a_solver_or_an_objective_fails_its_own_pass_only(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import sys\ndef exits(task, sizes):\n    sys.exit(3)\ndef nan(task, sizes):\n    return sizes * float('nan')\n"
    )
    grid = {"solver": ["exakt", "exact"], "objective": ["throughput", "bad.py:exits", "bad.py:nan", "bad.py:no", "x"]}
    sweep = PreparedSweep.of(small(grid=grid, yardsticks=False), tmp_path)
    outcomes = {job.id: done(job) for job in sweep.plan.passes.values()}
    rows = sweep.swept(outcomes).rows
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
def test_sets_that_cannot_be_generated_are_refused_with_their_place(sets: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadConfig) as refused:
        PreparedSweep.of(small() | sets)
    assert str(refused.value) == complaint


def test_a_broken_log_is_refused_as_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "log.npz").write_text("no log")
    with pytest.raises(BadInput, match=r"log\.npz.*: not a readable log file"):
        PreparedSweep.of(small(log="log.npz"), tmp_path)


def test_doubts_about_a_log_stand_in_the_table(tmp_path: Path) -> None:
    log = generate_log(12, 0.1, seed=3)
    doubtful = DoubtfulTime(cause="censored_end", of_nodes=12, times=(log.start_s,), nodes=(12,))
    findings = (LogFinding(name="which_unknown", count=1),)
    save_log(replace(log, provenance=LogProvenance(doubtful=(doubtful,), findings=findings)), tmp_path / "log.npz")
    sweep = PreparedSweep.of(small(log=str(tmp_path / "log.npz")))
    found = sweep.swept({job.id: done(job) for job in sweep.plan.passes.values()})
    (row,) = found.rows
    assert (row.cells["doubtful_share"], row.cells["log_source"]) == (1.0, "counts")
    assert {"doubtful_share", "log_source"} <= {column.name for column in found.columns}
    assert any("of which none is sure" in text and "after the last recorded jobs" in text for text in found.warnings)
    assert any("derived from counts" in text for text in page(found).warnings)
