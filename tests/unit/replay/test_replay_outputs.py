"""The files of a replay: what is in them, that they are repeatable, and that they lead back to the same result."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from bftrain import BadInput, BatchScaling, ReplaySettings, Settings, config, load_tasks, save_tasks, summaries
from bftrain.files import prepare_folder
from bftrain.values import wire
from bftrain_replay import replay_folder
from bftrain_replay.output import summary_json
from bftrain_replay.provenance import FORMAT, InputSource, tasks_sha256
from bftrain_replay.study import ReplayStudy, study
from tests.unit.replay.cases import log_of, task

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=300.0)
TASKS = [
    task("naïve; <b>", work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]
SOURCE = InputSource(log="a log.npz", tasks="tasks.toml", baseline="equal-share")
FILES = {
    "summary.json",
    "decisions.csv",
    "tasks.csv",
    "allocations.csv",
    "over_time.csv",
    "campaigns.csv",
    "config.toml",
    "log.npz",
    "report.html",
}


def made() -> ReplayStudy:
    return study(LOG, TASKS, Settings(max_tasks=2), baseline="equal-share")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    replay_folder.write(made(), tmp_path / "deep" / "result", SOURCE)
    return tmp_path / "deep" / "result"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_nothing_but_the_files_that_are_documented(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == FILES


def test_the_same_inputs_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    replay_folder.write(made(), tmp_path / "again", SOURCE)
    for name in FILES - {"summary.json", "report.html"}:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    one, two = (
        json.loads((place / "summary.json").read_text(encoding="utf-8")) for place in (folder, tmp_path / "again")
    )
    assert one["wall_s"] != two["wall_s"]
    assert summaries.without_measured(one, summary_json.MEASURED) == summaries.without_measured(
        two, summary_json.MEASURED
    )
    assert one["figures_sha256"] == two["figures_sha256"]


def test_the_summary_has_the_figures_and_where_they_come_from(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    result = made().result
    assert summary["format"] == FORMAT
    assert summary["complete"] is True
    assert summary["decisions"] == len(result.decisions)
    assert summary["harvested"] == result.harvested_samples
    assert summary["efficiency"] == result.efficiency
    assert summary["lost"]["preemption"] == {"samples": 54.0, "node_h": 5.4 / 3600}
    idle = summary["used_node_h"] + sum(summary["unused_node_h"].values())
    assert idle == pytest.approx(summary["idle_node_h"], rel=1e-12)
    assert summary["baseline"]["solver"] == "equal-share"
    assert summary["inputs"]["log"] == {"name": "a log.npz", "sha256": LOG.sha256}
    assert summary["warnings"] == ["task 'late' arrives after the log has ended"]
    assert (summary["notes"], summary["first_notes"]) == (0, [])
    assert summary["settings"]["max_tasks"] == 2
    assert summary["versions"]["bftrain"]


def test_the_summary_has_what_was_measured_but_its_sum_leaves_that_out(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    for figures in (summary, summary["baseline"], summary["ceiling"]):
        assert figures["wall_s"] > 0.0
        assert 0.0 < figures["solve_ms"]["p50"] <= figures["solve_ms"]["p99"] <= figures["solve_ms"]["max"]
        assert set(figures) >= summary_json.MEASURED
    kept = summaries.without_measured(summary, summary_json.MEASURED)
    assert "wall_s" not in {*kept, *kept["baseline"], *kept["ceiling"]}
    assert summary_json.summary(made(), SOURCE)["figures_sha256"] == summary["figures_sha256"]
    assert summary_json.summary(made(), InputSource())["figures_sha256"] != summary["figures_sha256"]


def test_one_row_a_decision_and_one_a_task(folder: Path) -> None:
    result = made().result
    decisions, tasks = rows(folder / "decisions.csv"), rows(folder / "tasks.csv")
    assert [int(row["number"]) for row in decisions] == list(range(1, len(result.decisions) + 1))
    first = decisions[0]
    assert (first["time_s"], first["pool"], first["used"], first["competing"]) == ("0.0", "2", "2", "1")
    assert (first["termination"], first["quality"], first["fallback"]) == ("optimal", "proven", "")
    assert first["value"] == first["bound"]
    assert [row["name"] for row in tasks] == ["naïve; <b>", "u", "late"]
    assert float(tasks[0]["done_samples"]) == result.tasks[0].done_samples
    assert (tasks[2]["state"], tasks[2]["finish_s"]) == ("not_arrived", "")


def test_the_configuration_is_read_back_as_it_was(folder: Path) -> None:
    path = folder / "config.toml"
    assert config.load(path, ReplaySettings) == ReplaySettings(max_tasks=2)
    assert path.read_text(encoding="utf-8").startswith(
        "# bftrain replay 'a log.npz' --tasks tasks.toml --baseline equal-share --config THIS_FILE -o NEW_FOLDER\n"
    )


@pytest.mark.parametrize("name", ["", "two\nlines = 1"])
def test_a_name_that_fits_no_line_leaves_the_command_out(name: str, tmp_path: Path) -> None:
    replay_folder.write(made(), tmp_path, InputSource(log=name, tasks="tasks.toml"))
    assert (tmp_path / "config.toml").read_text(encoding="utf-8").startswith("solver = ")
    assert config.load(tmp_path / "config.toml", ReplaySettings) == ReplaySettings(max_tasks=2)


def test_equal_tasks_have_equal_sums_wherever_they_come_from(tmp_path: Path) -> None:
    save_tasks(TASKS, tmp_path / "tasks.toml")
    assert tasks_sha256(load_tasks(tmp_path / "tasks.toml")) == tasks_sha256(TASKS)
    assert tasks_sha256(TASKS[:1]) != tasks_sha256(TASKS)
    scaling = [replace(task, batch=BatchScaling(initial=8, noise_scale=1.0)) for task in TASKS]
    assert tasks_sha256(scaling) != tasks_sha256(TASKS)
    fields = [name for name in asdict(TASKS[0]) if name not in {"batch", "spread", "resources"}]
    before = [{name: getattr(task, name) for name in fields} for task in TASKS]
    assert tasks_sha256(TASKS) == hashlib.sha256(wire.encode(before)).hexdigest()  # as when tasks had neither


def test_a_partial_result_says_so(tmp_path: Path) -> None:
    part = study(LOG, TASKS, Settings(), watch=lambda _name, _time_s, decisions: decisions < 2)
    replay_folder.write(part, tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert (summary["complete"], summary["decisions"], summary["efficiency"]) == (False, 2, None)
    assert "stopped before its end" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_what_decisions_had_to_say_is_kept(tmp_path: Path) -> None:
    replay_folder.write(study(LOG, [task(max_nodes=9)], Settings()), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    note = "task 't': nothing measured beyond 2 nodes, taken as flat there"
    assert (summary["notes"], summary["first_notes"]) == (1, [{"time_s": 0.0, "note": note}])


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="is a file, not a folder"):
        replay_folder.write(made(), tmp_path / "taken")
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_takes_no_file_is_refused_before_any_work() -> None:
    with pytest.raises(BadInput, match=r"^/proc/self: cannot be written to: .* \(name another folder\)$"):
        prepare_folder(Path("/proc/self"))  # not even root makes a file there
