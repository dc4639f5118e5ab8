"""The table of a sweep: its columns, its forms, and what is the same in every run."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet as pyarrow

from bftrain_replay.sweeping.sweep_table import PointRow, PointState, SweptPoints
from tests.unit.replay.sweeping.sweep_case import planned, small, swept


def test_what_is_not_done_has_empty_cells(tmp_path: Path) -> None:
    points = tmp_path / "points.jsonl"
    spec = small(grid={"solver": ["exakt", "exact"]}, yardsticks=False)
    found = swept(spec, tmp_path, stopping=lambda: points.exists() and len(points.read_text().splitlines()) == 2)
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
    found = swept(small(grid={"decision_latency_s": [0, "measured"], "max_tasks": [1, 2]}), tmp_path)
    rows = list(csv.reader((tmp_path / "table.csv").read_text().splitlines()))
    found.write(tmp_path, tables="parquet", overwrite=True)
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


def test_what_a_clock_measured_is_left_out_of_the_digest(tmp_path: Path) -> None:
    spec = small(grid={"max_tasks": [1, 2], "seed": [1, 2]}, baseline="greedy")
    first, second = (swept(spec, tmp_path / name) for name in ("one", "two"))
    assert first.figures_sha256 == second.figures_sha256
    assert first.frame()["wall_s"].tolist() != second.frame()["wall_s"].tolist()
    other = small(grid={"max_tasks": [1, 3], "seed": [1, 2]}, baseline="greedy")
    assert planned(other, tmp_path / "x").figures_sha256 != planned(spec, tmp_path / "y").figures_sha256


def test_a_warning_is_reported_once_with_its_count(tmp_path: Path) -> None:
    sets = {"mix": {"count": 2, "min_nodes": 30, "max_nodes": 30}}
    found = swept(small(grid={"max_tasks": [1, 2]}, task_sets=sets), tmp_path)
    ((words, count),) = found.warnings.items()
    assert "need more nodes than the" in words
    assert count == 2


def test_the_first_warnings_name_the_unit() -> None:
    row = PointRow(None, PointState.DONE, "", {"unit": "gpu"})  # type: ignore[arg-type]  # no point is needed
    warnings = {f"no node is idle on day {day}": day for day in range(1, 10)}
    first, second, *_, last = SweptPoints(None, (row,), warnings).first_warnings()  # type: ignore[arg-type]
    assert (first, second) == ("no GPU is idle on day 1", "no GPU is idle on day 2 (2 replays)")
    assert last == "further warnings, in sweep.json: 1"


@pytest.mark.parametrize(
    ("tasks", "odd"),
    [
        ({"count": 2, "seed": 4}, True),
        ({"count": 3, "max_nodes": 4}, False),
        ({"kind": "trials", "count": 2}, True),
        ({"kind": "trials", "count": 2, "arrivals_per_hour": 2}, False),
    ],
)
def test_a_seed_that_decides_over_nothing_is_odd(tmp_path: Path, tasks: dict[str, object], odd: bool) -> None:  # noqa: FBT001 - a parameter
    words = "the seed is swept, but no log and no tasks are made from it: it has no effect"
    found = planned(small(grid={"seed": [1, 2]}, task_sets={"mix": tasks}), tmp_path)
    assert (words in found.warnings) is odd
