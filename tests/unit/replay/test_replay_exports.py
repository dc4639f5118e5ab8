"""A replay in the formats of other tools, read by parsers that know these formats and nothing of ours."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from bftrain.config import Settings
from bftrain.errors import BadInput
from bftrain_replay import replay_folder
from bftrain_replay.output import batsim, perfetto
from bftrain_replay.output.batsim import intervals
from bftrain_replay.output.read_folder import SavedReplay
from bftrain_replay.study import ReplayStudy, study
from tests.unit.replay.cases import log_of, task

# n10 comes after n9: numbers are not sorted as text
LOG = log_of((0.0, ("n9", "n10"), ()), (100.0, (), ("n10",)), (120.0, ("n11", "n12"), ()), end_s=300.0)
TASKS = [
    task('a "b", <c>', work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]


@pytest.fixture(scope="module")
def done() -> ReplayStudy:
    return study(LOG, TASKS, Settings(max_tasks=2))


@pytest.fixture(params=["csv", "parquet"])
def folder(request: pytest.FixtureRequest, done: ReplayStudy, tmp_path: Path) -> Path:
    if request.param == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install '.[parquet]'")
    replay_folder.write(done, tmp_path, tables=request.param)
    return tmp_path


def jobs(folder: Path) -> list[dict[str, str]]:
    file = io.BytesIO()
    count = batsim.export(SavedReplay(folder), file)
    found = list(csv.DictReader(io.StringIO(file.getvalue().decode(), newline="")))
    assert len(found) == count
    return found


def trace(folder: Path) -> list[dict[str, Any]]:
    file = io.BytesIO()
    count = perfetto.export(SavedReplay(folder), file)
    events: list[dict[str, Any]] = json.loads(file.getvalue())["traceEvents"]
    assert len(events) == count
    return events


def numbers(text: str) -> set[int]:
    parts = (part.split("-") for part in text.split(" "))
    return {number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)}


def test_batsim_jobs_are_stretches_of_tasks(folder: Path) -> None:
    first, second, third, *others = jobs(folder)
    assert tuple(first) == batsim.COLUMNS
    assert (first["job_id"], first["profile"], first["workload_name"]) == ('a "b", <c>.1', 'a "b", <c>', "bftrain")
    assert (first["starting_time"], first["finish_time"], first["allocated_resources"]) == ("0.0", "100.0", "0-1")
    assert (first["success"], first["final_state"]) == ("0", "COMPLETED_KILLED")
    assert (second["job_id"], second["starting_time"], second["allocated_resources"]) == ('a "b", <c>.2', "100.0", "0")
    assert third["submission_time"] == second["finish_time"]
    assert {"u.1"} <= {job["job_id"] for job in others}
    ended = [job for job in jobs(folder) if job["success"] == "1"]
    assert [(job["profile"], job["final_state"]) for job in ended] == [('a "b", <c>', "COMPLETED_SUCCESSFULLY")]


def test_batsim_jobs_keep_the_arithmetic_of_their_columns(folder: Path, done: ReplayStudy) -> None:
    held, waited = 0.0, 0.0
    for job in jobs(folder):
        submitted, started, ended = (float(job[name]) for name in ("submission_time", "starting_time", "finish_time"))
        assert submitted <= started < ended
        assert float(job["execution_time"]) == ended - started
        assert float(job["waiting_time"]) == started - submitted
        assert float(job["turnaround_time"]) == ended - submitted
        assert float(job["stretch"]) == (ended - submitted) / (ended - started)
        nodes = numbers(job["allocated_resources"])
        assert len(nodes) == int(job["requested_number_of_resources"])
        assert nodes <= set(range(4))
        held += len(nodes) * (ended - started)
        waited += started - submitted
    assert held == pytest.approx(done.result.used_node_s, rel=1e-12)
    assert waited <= sum(record.waited_s for record in done.result.tasks)
    assert len({job["job_id"] for job in jobs(folder)}) == len(jobs(folder))


def test_no_node_works_for_two_jobs_at_once(folder: Path) -> None:
    by_node: dict[int, list[tuple[float, float]]] = {}
    for job in jobs(folder):
        for node in numbers(job["allocated_resources"]):
            by_node.setdefault(node, []).append((float(job["starting_time"]), float(job["finish_time"])))
    for stretches in by_node.values():
        stretches.sort()
        assert all(stretches[place][1] <= stretches[place + 1][0] for place in range(len(stretches) - 1))


@pytest.mark.parametrize(
    ("given", "written"), [([], ""), ([3], "3"), ([5, 0, 1, 2], "0-2 5"), ([7, 8, 2, 4], "2 4 7-8"), ([1, 0], "0-1")]
)
def test_intervals(given: list[int], written: str) -> None:
    assert intervals(given) == written


def test_a_trace_has_a_track_for_each_task_and_counters(folder: Path, done: ReplayStudy) -> None:
    events = trace(folder)
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


def test_a_trace_has_nothing_that_a_viewer_could_not_draw(folder: Path) -> None:
    last: dict[int, int] = {}
    for event in trace(folder):
        assert {"ph", "name", "pid", "tid", "args"} <= set(event)
        if event["ph"] == "X":
            assert isinstance(event["ts"], int)
            assert event["dur"] > 0
            assert event["ts"] >= last.get(event["tid"], 0)  # bars of a track must not overlap
            last[event["tid"]] = event["ts"] + event["dur"]
        else:
            assert event["ph"] in {"M", "C"}


def test_a_swap_of_nodes_is_another_job_but_the_same_bar(tmp_path: Path) -> None:
    log = log_of((0.0, "a", ""), (50.0, "b", "a"), end_s=100.0)
    replay_folder.write(study(log, [task("t", rate=(1.0,))], Settings()), tmp_path)
    assert [job["allocated_resources"] for job in jobs(tmp_path)] == ["0", "1"]
    assert [(event["ts"], event["dur"]) for event in trace(tmp_path) if event["ph"] == "X"] == [(0, 100_000_000)]


def test_a_replay_in_which_nothing_ran_has_exports_too(tmp_path: Path) -> None:
    replay_folder.write(study(LOG, [], Settings()), tmp_path)
    assert jobs(tmp_path) == []
    assert {event["ph"] for event in trace(tmp_path)} == {"M", "C"}


def test_a_folder_without_a_replay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"holds no summary.json \(name the folder of a replay\)"):
        SavedReplay(tmp_path)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("summary.json", '"bftrain replay 1"', '"bftrain replay 9"', "is of the format 'bftrain replay 9'"),
        ("summary.json", '"format"', "format", "not valid JSON"),
        ("allocations.csv", "from_s", "since", "allocations.csv:1: has no column 'from_s'"),
        ("allocations.csv", ",120.0,", ",,", "a row of the table of allocations has an empty cell"),
        ("allocations.csv", ",120.0,", ",x,", "not what its column says: could not convert"),
        ("allocations.csv", ",120.0,", ",", "3 cells in a row of 4"),
        ("tasks.csv", "\nu,", "\nv,", "task 'u' is in the table of allocations, but not in that of tasks"),
    ],
)
def test_what_was_damaged_is_named(name: str, old: str, new: str, said: str, done: ReplayStudy, tmp_path: Path) -> None:
    replay_folder.write(done, tmp_path)
    path = tmp_path / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(BadInput, match=said):
        jobs(tmp_path)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_results_from_before_a_column_was_added_are_read(form: str, done: ReplayStudy, tmp_path: Path) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow: pip install '.[parquet]'")
    replay_folder.write(done, tmp_path, tables=form)
    rows = list(SavedReplay(tmp_path).rows("tasks", "name", "starts", "mean_batch"))
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
    assert list(map(list, SavedReplay(tmp_path).rows("tasks", "name", "starts", "mean_batch"))) == list(map(list, rows))


def test_a_missing_or_damaged_parquet_table_is_named(done: ReplayStudy, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow: pip install '.[parquet]'")
    replay_folder.write(done, tmp_path, tables="parquet")
    (tmp_path / "tasks.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(BadInput, match=r"tasks.parquet: not the table it should be"):
        jobs(tmp_path)
    (tmp_path / "tasks.parquet").unlink()
    with pytest.raises(BadInput, match=r"holds no table of tasks"):
        jobs(tmp_path)
