"""The tables: the same rows in CSV and in Parquet, and in the columns that the documents promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyarrow import parquet

import bftrain
from bftrain import Settings, UsageError
from tests.unit.replay.cases import ReplayOutcome, log_of, replayed, rows, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=300.0)
TASKS = [
    task('ev"il, <b>', work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]


TABLES = ("decisions", "tasks", "allocations", "over_time")


def made() -> ReplayOutcome:
    return bftrain.replay(LOG, TASKS, Settings(max_tasks=2))


def test_sizes_are_those_of_tasks_that_hold_nodes(tmp_path: Path) -> None:
    made().write(tmp_path)
    sizes = [json.loads(row["sizes"]) for row in rows(tmp_path / "decisions.csv")]
    used = [int(row["used"]) for row in rows(tmp_path / "decisions.csv")]
    assert [sum(each.values()) for each in sizes] == used
    assert sizes[0] == {'ev"il, <b>': 2}
    assert all(size > 0 for each in sizes for size in each.values())
    assert len({tuple(each.items()) for each in sizes}) > 2


def test_sizes_follow_tasks_that_come_and_go() -> None:
    log = log_of((0.0, "abc", ""), end_s=100.0)
    tasks = [task("x", rate=(10.0,), work_samples=100.0), task("y", rate=(4.0, 7.0), submit_s=5.0)]
    assert [dict(each) for each in replayed(log, tasks).decisions.sizes()] == [{"x": 1}, {"x": 1, "y": 2}, {"y": 2}]


def test_waits_are_counted_and_timed() -> None:
    log = log_of((10.0, "a", ""), (20.0, "", "a"), (50.0, "a", ""), end_s=60.0)
    record, never = replayed(log, [task("x", rate=(1.0,)), task("y", rate=(1.0,), submit_s=55.0)]).tasks
    assert (record.waits, record.waited_s, record.starts) == (2, 40.0, 2)
    assert (never.waits, never.waited_s) == (1, 5.0)
    (at_once,) = replayed(log_of((0.0, "a", ""), end_s=60.0), [task("x", rate=(1.0,))]).tasks
    assert (at_once.waits, at_once.waited_s) == (0, 0.0)


def test_allocations_are_quoted_like_everything_else(tmp_path: Path) -> None:
    done = made()
    done.write(tmp_path)
    allocations = rows(tmp_path / "allocations.csv")
    assert {row["task"] for row in allocations} == {'ev"il, <b>', "u"}
    held_h = sum(float(row["to_s"]) - float(row["from_s"]) for row in allocations) / 3600
    assert held_h == pytest.approx(sum(float(row["node_h"]) for row in rows(tmp_path / "tasks.csv")), rel=1e-12)
    assert held_h == pytest.approx(done.result.used_node_s / 3600, rel=1e-12)


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    made().write(tmp_path)
    read = {name: rows(tmp_path / f"{name}.csv") for name in TABLES}
    made().write(tmp_path, tables="parquet", overwrite=True)
    for name in TABLES:
        assert not (tmp_path / f"{name}.csv").exists()  # never two tables of which one may be old
        table = parquet.read_table(tmp_path / f"{name}.parquet")
        assert table.schema.metadata[b"bftrain.format"] == b"bftrain replay 1"
        assert len(table) == len(read[name])
        assert not read[name] or table.column_names == list(read[name][0])
        for row, text in zip(table.to_pylist(), read[name], strict=True):
            for column, value in row.items():
                cell = text[column]
                if column == "sizes":
                    assert dict(value) == json.loads(cell)
                elif isinstance(value, str):
                    assert value == cell
                else:
                    assert value == (None if cell == "" else float(cell))
    made().write(tmp_path, overwrite=True)
    assert not list(tmp_path.glob("*.parquet"))


def test_parquet_files_have_the_same_bytes_again(tmp_path: Path) -> None:
    for place in ("one", "two"):
        made().write(tmp_path / place, tables="parquet")
    for name in TABLES:
        one, two = ((tmp_path / place / f"{name}.parquet").read_bytes() for place in ("one", "two"))
        assert one == two, name


def test_an_unknown_form_is_rejected_before_a_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no form 'cvs'"):
        made().write(tmp_path / "replay", tables="cvs")
    assert not list(tmp_path.glob("replay/*.cvs"))
    with pytest.raises(UsageError, match="there is no form 'cvs'"):
        bftrain.sweep({"log": "none.npz", "tasks": "none.toml"}, tmp_path / "sweep", tables="cvs")
