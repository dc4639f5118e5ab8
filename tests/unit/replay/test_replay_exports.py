"""A replay in the formats of other tools, read by parsers that know these formats and nothing of ours."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import bftrain
from bftrain import Settings
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import ReplayOutcome, log_of, task

# n10 comes after n9: numbers are not sorted as text
LOG = log_of((0.0, ("n9", "n10"), ()), (100.0, (), ("n10",)), (120.0, ("n11", "n12"), ()), end_s=300.0)
TASKS = [
    task('a "b", <c>', work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]


@pytest.fixture(scope="module")
def done() -> ReplayOutcome:
    return bftrain.replay(LOG, TASKS, Settings(max_tasks=2))


@pytest.fixture(params=["csv", "parquet"])
def folder(request: pytest.FixtureRequest, done: ReplayOutcome, tmp_path: Path) -> Path:
    done.write(tmp_path, tables=request.param)
    return tmp_path


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


def trace(command: CommandLine, folder: Path) -> list[dict[str, Any]]:
    path = folder.with_name(f"{folder.name}.json")
    ended = command("export", folder, "-o", path)
    assert ended.code == 0, ended.err
    events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return events


def complaint(command: CommandLine, folder: Path) -> str:
    ended = command("export", folder, "-o", folder.with_name("trace.json"))
    assert (ended.code, ended.out) == (3, "")
    return ended.err


def test_a_trace_has_a_track_for_each_task_and_counters(
    command: CommandLine, folder: Path, done: ReplayOutcome
) -> None:
    events = trace(command, folder)
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(tracks.values()) == ['a "b", <c>', "u"]
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"nodes", "tasks"}
    assert [event["args"]["sort_index"] for event in events if event["name"] == "thread_sort_index"] == [1, 2]
    bars = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in bars} == set(tracks)
    node_us = sum(event["dur"] * event["args"]["nodes"] for event in bars)
    assert node_us == pytest.approx(done.result.used_node_s * 1e6)
    first = {"ts": 0, "dur": 100_000_000, "args": {"nodes": 2}}
    assert bars[0] == {"ph": "X", "cat": "task", "name": "2 nodes", "pid": 1, "tid": 1, **first}
    counters = [event for event in events if event["ph"] == "C" and event["name"] == "used nodes"]
    assert [event["args"]["nodes"] for event in counters[:-1]] == [
        decision[3] for decision in done.result.decisions.rows()
    ]
    assert (counters[-1]["ts"], counters[-1]["args"]) == (300_000_000, {"nodes": 0})


def test_a_trace_has_nothing_that_a_viewer_could_not_draw(command: CommandLine, folder: Path) -> None:
    last: dict[int, int] = {}
    for event in trace(command, folder):
        assert {"ph", "name", "pid", "tid", "args"} <= set(event)
        if event["ph"] == "X":
            assert isinstance(event["ts"], int)
            assert event["dur"] > 0
            assert event["ts"] >= last.get(event["tid"], 0)  # bars of a track must not overlap
            last[event["tid"]] = event["ts"] + event["dur"]
        else:
            assert event["ph"] in {"M", "C"}


def test_a_replay_in_which_nothing_ran_has_exports_too(command: CommandLine, tmp_path: Path) -> None:
    bftrain.replay(LOG, [], Settings()).write(tmp_path)
    assert {event["ph"] for event in trace(command, tmp_path)} == {"M", "C"}


def test_a_folder_without_a_replay_is_refused(command: CommandLine, tmp_path: Path) -> None:
    assert "contains no summary.json (name the folder of a run)" in complaint(command, tmp_path)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "summary.json").touch()
    assert f"(name {tmp_path / 'replay'})" in complaint(command, tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("summary.json", '"bftrain replay 1"', '"bftrain replay 9"', "is of the format 'bftrain replay 9'"),
        ("summary.json", '"format"', "format", "not valid JSON"),
        ("allocations.csv", "from_s", "since", "allocations.csv: has no column 'from_s'"),
        ("allocations.csv", ",120.0,", ",,", "a row of the table of allocations has an empty cell"),
        ("allocations.csv", ",120.0,", ",x,", "not the table it should be: In CSV column #2"),
        ("allocations.csv", ",120.0,", ",", "allocations.csv: not the table it should be: "),
        ("tasks.csv", "\nu,", "\nv,", "task 'u' is in the allocation table, but not in the task table"),
    ],
)
def test_what_was_damaged_is_named(
    command: CommandLine, name: str, old: str, new: str, said: str, done: ReplayOutcome, tmp_path: Path
) -> None:
    done.write(tmp_path)
    path = tmp_path / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert said in complaint(command, tmp_path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_results_from_before_a_column_was_added_are_read(
    command: CommandLine, form: str, done: ReplayOutcome, tmp_path: Path
) -> None:
    done.write(tmp_path, tables=form)
    whole = trace(command, tmp_path)
    path = tmp_path / f"tasks.{form}"
    if form == "csv":
        with path.open(encoding="utf-8", newline="") as file:
            table = list(csv.reader(file))
        kept = [place for place, name in enumerate(table[0]) if name not in {"mean_batch", "mean_goodput"}]
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([row[place] for place in kept] for row in table)
    else:
        from pyarrow import parquet  # noqa: PLC0415 - it may not be there

        parquet.write_table(parquet.read_table(path).drop_columns(["mean_batch", "mean_goodput"]), path)
    assert trace(command, tmp_path) == whole


def test_a_missing_or_damaged_parquet_table_is_named(command: CommandLine, done: ReplayOutcome, tmp_path: Path) -> None:
    done.write(tmp_path, tables="parquet")
    (tmp_path / "tasks.parquet").write_bytes(b"PAR1 no more")
    assert "tasks.parquet: not the table it should be" in complaint(command, tmp_path)
    (tmp_path / "tasks.parquet").unlink()
    assert "contains no table of tasks" in complaint(command, tmp_path)
