"""Which nodes jobs hold, the log that follows from it, and what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from ClusterShell.NodeSet import NodeSet
from pyarrow import parquet

from bftrain import BadInput, EventLog, ImportOptions, NodeState, UnknownName, import_logs, load_log, schedule
from tests.helpers.schedules import Row, placed, swf, written

DAY = 1_600_000_000
# Five nodes: a hole in the middle opens at 10, then three nodes are wanted
HOLE = [Row(0, 10, 1), Row(0, 99, 1), Row(0, 20, 2), Row(5, 30, 2), Row(12, 50, 2)]


def pools(log: EventLog) -> list[tuple[float, int]]:
    return list(zip(log.times.tolist(), log.pool_sizes().tolist(), strict=True))


def test_jobs_take_the_first_free_nodes() -> None:
    node_sets, log = placed(HOLE, 5)
    assert node_sets == ["n0001", "n0002", "n[0003-0004]", "n[0001,0005]", "n[0003-0004]"]
    assert pools(log) == [(0, 1), (10, 0), (40, 2), (70, 4), (99, 5)]
    assert log.node_names == ("n0001", "n0002", "n0003", "n0004", "n0005")


def test_a_job_of_no_time_holds_no_node() -> None:
    node_sets, log = placed([Row(0, 0, 2), Row(5, 5, 1)], 2)
    assert node_sets == ["", "n0001"]
    assert pools(log) == [(0, 2), (5, 1), (10, 2)]


def test_a_shared_node_is_idle_while_no_job_holds_any_of_it() -> None:
    # Three nodes of four processors; the third job gets one processor of the first node and one of the second
    rows = [Row(0, 50, 3), Row(0, 20, 2), Row(5, 30, 3), Row(60, 5, 1)]
    node_sets, log = placed(rows, 12, per_node=4)
    assert node_sets == ["n0001", "n[0001-0002]", "n0002", "n0001"]
    assert pools(log) == [(0, 1), (35, 2), (50, 3), (60, 2), (65, 3)]


def test_sharing_leaves_more_nodes_idle_than_whole_nodes(tmp_path: Path) -> None:
    rows = [Row(7 * number, 300, 1 + number % 3, 400, number % 4) for number in range(300)]
    log = swf(tmp_path / "log.swf", rows, "MaxNodes: 40", "MaxProcs: 160")
    whole, shared = schedule(log), schedule(log, sharing="cores")
    assert (whole.summary["unit"], whole.summary["capacity"]) == ("node", 40)
    assert (shared.summary["unit"], shared.summary["capacity"]) == ("processor", 160)
    assert shared.log.idle_share > whole.log.idle_share + 0.1
    folder = written(shared, tmp_path / "out")
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in shared.log.node_names}
    for row in table(folder / "jobs.csv"):
        for node in NodeSet(row["node_set"]):
            held[node].append((float(row["start_s"]), float(row["end_s"])))
    for at_s in np.arange(0.5, shared.log.span_s, 11.0).tolist():
        busy = sum(any(begin <= at_s < end for begin, end in stays) for stays in held.values())
        states = shared.log.states_at(shared.log.start_s + at_s)
        assert int((states == NodeState.IDLE).sum()) == 40 - busy


def test_what_has_not_ended_holds_its_nodes_to_the_end() -> None:
    node_sets, log = placed([Row(0, 50, 2), Row(5, 5, 2)], 2, until_s=30.0)
    assert pools(log) == [(0, 0)]
    assert (log.end_s, node_sets) == (30, ["n[0001-0002]", ""])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    times = np.sort(rng.integers(0, 40_000, 120)).tolist()
    rows = [
        Row(submit, int(rng.integers(1, 3000)), int(rng.integers(1, 9)), int(rng.integers(60, 5000)), number % 5)
        for number, submit in enumerate(times)
    ]
    return swf(tmp_path / "log.swf", [*rows, Row(45_000, 5, 17)], f"UnixStartTime: {DAY}", "MaxNodes: 16")


def changes(log: EventLog) -> list[tuple[float, int]]:
    """Return the times at which the size of the pool changes, not only its nodes."""
    found = pools(log)
    return [step for before, step in zip([(0.0, -1), *found], found, strict=False) if step[1] != before[1]]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_log_is_what_the_table_of_jobs_says(log: Path, tmp_path: Path) -> None:
    folder = written(schedule(log, policy="easy"), tmp_path / "out")
    idle = load_log(folder / "idle.npz")
    held: dict[str, list[tuple[float, float]]] = {name: [] for name in idle.node_names}
    for row in table(folder / "jobs.csv"):
        for node in NodeSet(row["node_set"]):
            held[node].append((float(row["start_s"]), float(row["end_s"])))
    for at_s in np.arange(0.5, idle.span_s, 97.0).tolist():
        busy = {node for node, stays in held.items() if any(begin <= at_s < end for begin, end in stays)}
        states = idle.states_at(idle.start_s + at_s)
        assert {name for name, state in zip(idle.node_names, states, strict=True) if state != NodeState.IDLE} == busy
    node_s = sum(end - begin for stays in held.values() for begin, end in stays)
    assert node_s + idle.idle_node_s == 16 * idle.span_s


def test_the_schedule_read_again_leaves_as_many_nodes_idle(log: Path, tmp_path: Path) -> None:
    result = schedule(log, policy="easy", time_factor=0.7)
    folder = written(result, tmp_path / "out")
    counted = import_logs(folder / "schedule.swf", options=ImportOptions(counts=True)).log
    *ours, last = changes(result.log)
    assert last == (result.log.end_s, 16)  # an import ends before its last time
    assert changes(counted) == ours
    text = (folder / "schedule.swf").read_text()
    assert "; Note: derived: bftrain" in text
    assert "; Note: without 1 job that did not start" in text
    again = schedule(folder / "schedule.swf", policy="easy")
    assert again.schedule.start_s == result.schedule.start_s[:-1]  # all but the refused one


def test_tables_add_up(log: Path, tmp_path: Path) -> None:
    result = schedule(log, policy="ostrich")
    folder = written(result, tmp_path / "out")
    jobs, campaigns, steps = (table(folder / f"{name}.csv") for name in ("jobs", "campaigns", "utilisation"))
    done = [row for row in jobs if row["state"] == "done"]
    assert [row["state"] for row in jobs] == ["done"] * 120 + ["refused"]
    assert (jobs[-1]["start_s"], jobs[-1]["node_set"], jobs[-1]["campaign"]) == ("", "", "")
    assert sum(int(row["jobs"]) for row in campaigns) == len(done)
    work = sum(float(row["work"]) for row in campaigns)
    assert work == sum(float(row["run_s"]) * int(row["size"]) for row in done)
    assert work / 3600 == pytest.approx(result.summary["busy_h"])
    times = [float(row["time_s"]) for row in steps]
    busy = [int(row["busy"]) for row in steps]
    assert times == sorted(set(times))
    assert all(0 <= int(row["free"]) == 16 - int(row["busy"]) for row in steps)
    assert sum(size * (after - at) for size, at, after in zip(busy, times, times[1:], strict=False)) == work
    assert {steps[-1][name] for name in ("busy", "running", "waiting", "wanted")} == {"0"}
    for row in done:
        assert float(row["wait_s"]) == float(row["start_s"]) - float(row["submit_s"]) >= 0
        (campaign,) = (each for each in campaigns if each["campaign"] == row["campaign"])
        assert (row["stretch"], row["user"]) == (campaign["stretch"], campaign["user"])
    for row in campaigns:
        own = [each for each in done if each["campaign"] == row["campaign"]]
        flow = max(float(each["end_s"]) for each in own) - min(float(each["submit_s"]) for each in own)
        least = max(float(row["work"]) / 16, *(float(each["run_s"]) for each in own), 10.0)
        assert float(row["stretch"]) == pytest.approx(max(1.0, flow / least))


def test_the_summary_counts_what_the_tables_hold(log: Path, tmp_path: Path) -> None:
    result = schedule(log, policy="easy")
    folder = written(result, tmp_path / "out")
    summary = json.loads((folder / "summary.json").read_text())
    jobs = [row for row in table(folder / "jobs.csv") if row["state"] == "done"]
    waits = [float(row["wait_s"]) for row in jobs]
    assert summary["wait_s"]["mean"] == pytest.approx(sum(waits) / len(waits))
    assert summary["wait_s"]["max"] == max(waits)
    bounded = [max(1.0, (float(row["wait_s"]) + float(row["run_s"])) / max(10.0, float(row["run_s"]))) for row in jobs]
    assert summary["bounded_slowdown"]["mean"] == pytest.approx(sum(bounded) / len(bounded))
    assert summary["overtook"] == sum(row["overtook"] == "true" for row in jobs) > 0
    assert summary["overran"] == sum(row["overran"] != "0" for row in jobs) > 0
    assert (summary["jobs"], summary["done"], summary["refused"], summary["refused_jobs"]) == (121, 120, 1, ["121"])
    assert summary["idle_log"]["sha256"] == load_log(folder / "idle.npz").sha256
    assert summary["free_h"] == pytest.approx(summary["idle_log"]["idle_node_h"])
    assert summary["utilisation"] == pytest.approx(1 - summary["idle_log"]["idle_share"])
    assert summary["makespan_s"] == max(float(row["end_s"]) for row in jobs)
    assert summary["inputs"]["log"]["name"] == str(log)


def test_the_same_gives_the_same_bytes(log: Path, tmp_path: Path) -> None:
    folders = [written(schedule(log, policy="fairshare"), tmp_path / name) for name in ("one", "two")]
    names = sorted(path.name for path in folders[0].iterdir() if path.name != "SHA256SUMS")
    tables = [f"{name}.csv" for name in ("jobs", "campaigns", "utilisation")]
    assert names == sorted([*tables, "config.toml", "idle.npz", "schedule.swf", "summary.json"])
    for name in names:
        one, two = ((folder / name).read_bytes() for folder in folders)
        if name == "summary.json":
            summaries = [json.loads(each) for each in (one, two)]
            assert summaries[0]["figures_sha256"] == summaries[1]["figures_sha256"]
            assert {key for key in summaries[0] if summaries[0][key] != summaries[1][key]} <= {"wall_s", "jobs_per_s"}
        else:
            assert one == two


def test_parquet_holds_the_same_as_csv(log: Path, tmp_path: Path) -> None:
    result = schedule(log, policy="easy", until=f"{DAY + 20_000}")
    folder = written(result, tmp_path / "out")
    shown = {name: table(folder / f"{name}.csv") for name in ("jobs", "campaigns", "utilisation")}
    written(result, folder, tables="parquet", overwrite=True)
    assert not list(folder.glob("*.csv"))
    for name, rows in shown.items():
        found = parquet.read_table(folder / f"{name}.parquet")
        assert found.schema.metadata[b"bftrain.format"] == b"bftrain schedule 1"
        cells = [{key: as_text(value) for key, value in row.items()} for row in found.to_pylist()]
        assert cells == rows


def as_text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_the_log_says_that_it_is_derived_and_from_what(log: Path) -> None:
    result = schedule(log, policy="easy", estimates="actual", nodes=12)
    story = result.log.provenance
    assert story.made_by == "derived: schedule, easy with estimates actual"
    assert story.options == {"policy": "easy", "estimates": "actual", "nodes": 12}
    assert story.sources[0].name == "log.swf"
    assert story.counts["rows_used"] == 121
    found = {each.name: each for each in story.findings}
    assert found["derived"].count == 12
    assert (found["does_not_fit"].count, found["does_not_fit"].first) == (1, "job 121")
    assert found["drained"].node_s == result.log.select(window=(DAY + 45_000.0, None)).idle_node_s > 0


def test_no_time_after_the_last_submission_is_idle_if_it_ends_there(log: Path) -> None:
    result = schedule(log, until="last-submit", first=100)
    assert result.schedule.end_s == result.workload.jobs.submit_s[-1]
    assert "drained" not in {each.name for each in result.log.provenance.findings}
    assert result.summary["running"] + result.summary["waiting"] > 0


def test_settings_are_checked(log: Path) -> None:
    for field, value in {
        "estimates": "guess",
        "nodes": 0,
        "time_factor": 0.0,
        "first": -1,
        "max_backlog_s": -1.0,
        "half_life_s": -1.0,
        "backfill_depth": -1,
        "policy": "",
    }.items():
        with pytest.raises(BadInput, match=field):
            schedule(log, **{field: value})  # type: ignore[arg-type]  # wrong on purpose


def test_what_is_not_there_is_refused(log: Path) -> None:
    with pytest.raises(UnknownName, match=r"no queue policy is called 'eazy' \(did you mean 'easy'\?\)"):
        schedule(log, policy="eazy")
    with pytest.raises(BadInput, match="is not a time"):
        schedule(log, until="tomorrow")
    with pytest.raises(BadInput, match="not after the first submission"):
        schedule(log, until=f"{DAY - 5}")
