"""The table of a sweep: its columns, its forms, and what is the same in every run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.unit.replay.sweeping.sweep_case import Here, OutcomeFile, PreparedSweep, SweepResult, done, known_in, small


def swept(**spec: object) -> SweepResult:
    sweep = PreparedSweep.of(small(**spec))
    return sweep.swept({job.id: done(job) for job in sweep.plan.passes.values()})


def test_what_is_not_done_has_empty_cells(tmp_path: Path) -> None:
    sweep = PreparedSweep.of(small(grid={"solver": ["exakt", "exact"]}))
    with OutcomeFile(tmp_path) as outcomes:
        sweep.run(outcomes, Here(stop_after=1))
    found = sweep.swept(known_in(tmp_path))
    found.write(tmp_path)
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [(row["solver"], row["status"], row["harvested"]) for row in rows] == [
        ("exakt", "failed", ""),
        ("exact", "open", ""),
    ]
    assert rows[0]["error"].startswith("no solver is called 'exakt'")
    assert not found.complete
    frame = found.frame()
    assert frame["harvested"].isna().all()
    assert frame["rescales"].isna().all()


def test_the_same_in_both_forms_and_as_a_frame(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet", reason="pip install '.[parquet]'")
    found = swept(grid={"decision_latency_s": [0, "measured"], "max_tasks": [1, 2]})
    found.write(tmp_path)
    rows = list(csv.reader((tmp_path / "table.csv").read_text().splitlines()))
    found.write(tmp_path, tables="parquet")
    assert not (tmp_path / "table.csv").exists()
    table = pyarrow.read_table(tmp_path / "table.parquet")
    assert table.schema.metadata[b"bftrain.format"] == b"bftrain sweep 1"
    assert table.column_names == rows[0] == [column.name for column in found.columns]
    frame = found.frame()
    for name, *cells in zip(*rows, strict=True):
        parquet = ["" if cell is None else str(cell) for cell in table.column(name).to_pylist()]
        assert parquet == cells, name
        assert frame[name].astype("object").where(frame[name].notna(), "").astype(str).tolist() == cells, name
    assert frame["max_tasks"].dtype == "Int64"
    assert frame["efficiency"].dtype == np.float64


def test_the_order_of_work_does_not_matter_and_what_a_clock_measured_is_left_out() -> None:
    sweep = PreparedSweep.of(small(grid={"max_tasks": [1, 2], "seed": [1, 2]}, baseline="greedy"))
    jobs = list(sweep.plan.passes.values())
    first = sweep.swept({job.id: done(job) for job in jobs})
    second = sweep.swept({job.id: done(job) for job in reversed(jobs)})
    assert first.figures_sha256 == second.figures_sha256
    assert first.frame()["wall_s"].tolist() != second.frame()["wall_s"].tolist()
    other = PreparedSweep.of(small(grid={"max_tasks": [1, 3], "seed": [1, 2]}, baseline="greedy"))
    assert other.swept({}).figures_sha256 != sweep.swept({}).figures_sha256


def test_a_warning_is_reported_once_with_its_count() -> None:
    found = swept(grid={"max_tasks": [1, 2]}, task_sets={"mix": {"count": 2, "min_nodes": 30, "max_nodes": 30}})
    ((words, count),) = found.warnings.items()
    assert "need more nodes than the" in words
    assert count == 2


def test_a_seed_that_decides_over_nothing_is_odd() -> None:
    words = "the seed is swept, but no log and no tasks are made from it: it changes nothing"
    fixed = {"mix": {"count": 2, "seed": 4}}
    assert words in PreparedSweep.of(small(grid={"seed": [1, 2]}, task_sets=fixed)).swept({}).warnings
    assert PreparedSweep.of(small(grid={"seed": [1, 2]})).swept({}).warnings == {}
    alike = {"mix": {"kind": "trials", "count": 2}}
    assert words in PreparedSweep.of(small(grid={"seed": [1, 2]}, task_sets=alike)).swept({}).warnings
    arriving = {"mix": {"kind": "trials", "count": 2, "arrivals_per_hour": 2}}
    assert PreparedSweep.of(small(grid={"seed": [1, 2]}, task_sets=arriving)).swept({}).warnings == {}
