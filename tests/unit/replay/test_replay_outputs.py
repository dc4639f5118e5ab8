"""The files of a replay: what is in them, that they are repeatable, and that they lead back to the same result."""

from __future__ import annotations

from pathlib import Path

import pytest

import bftrain
from bftrain import BadInput, ReplaySettings, Settings, config
from tests.unit.replay.cases import ReplayOutcome, log_of, summary_of, task, without_times

LOG = log_of((0.0, "ab", ""), (100.0, "", "b"), (120.0, "cd", ""), end_s=300.0)
TASKS = [
    task("naïve; <b>", work_samples=2500.0, start_cost_s=7.0, shrink_cost_s=3.0),
    task("u", rate=(5.0, 9.0, 12.0), grow_cost_s=2.0, submit_s=50.0),
    task("late", submit_s=1000.0),
]
FILES = {
    "summary.json",
    "decisions.csv",
    "tasks.csv",
    "allocations.csv",
    "over_time.csv",
    "config.toml",
    "log.npz",
    "report.html",
}


@pytest.fixture(autouse=True)
def _inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bftrain.save_log(LOG, Path("a log.npz"))
    bftrain.save_tasks(TASKS, Path("tasks.toml"))


def made() -> ReplayOutcome:
    return bftrain.replay("a log.npz", "tasks.toml", Settings(max_tasks=2), baseline="equal-share")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made().write(tmp_path / "deep" / "result")
    return tmp_path / "deep" / "result"


def test_the_same_inputs_give_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    made().write(tmp_path / "again")
    for name in FILES - {"summary.json", "report.html"}:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    one, two = summary_of(folder), summary_of(tmp_path / "again")
    assert one["wall_s"] != two["wall_s"]
    assert without_times(one) == without_times(two)


def test_the_summary_has_what_was_measured_but_its_sum_leaves_that_out(folder: Path) -> None:
    summary = summary_of(folder)
    for figures in (summary, summary["baseline"], summary["ceiling"]):
        assert figures["wall_s"] > 0.0
        assert 0.0 < figures["solve_ms"]["p50"] <= figures["solve_ms"]["p99"] <= figures["solve_ms"]["max"]
    other = bftrain.replay(LOG, TASKS, max_tasks=1, baseline="equal-share").summary
    assert other["figures_sha256"] != summary["figures_sha256"]


def test_the_configuration_is_read_back_as_it_was(folder: Path) -> None:
    path = folder / "config.toml"
    assert config.load(path, ReplaySettings) == ReplaySettings(max_tasks=2)
    assert path.read_text(encoding="utf-8").startswith(
        "# bftrain replay 'a log.npz' --tasks tasks.toml --baseline equal-share --config THIS_FILE -o NEW_FOLDER\n"
    )


def test_a_partial_result_says_so(tmp_path: Path) -> None:
    part = bftrain.replay(LOG, TASKS, Settings(), watch=lambda _name, _time_s, decisions: decisions < 2)
    part.write(tmp_path / "out")
    summary = summary_of(tmp_path / "out")
    assert (summary["complete"], summary["decisions"], summary["efficiency"]) == (False, 2, None)
    assert "stopped before its end" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_what_decisions_had_to_say_is_kept(tmp_path: Path) -> None:
    bftrain.replay(LOG, [task(max_nodes=9)], Settings()).write(tmp_path / "out")
    summary = summary_of(tmp_path / "out")
    note = "task 't': no measurement beyond 2 nodes: the curve is flat there"
    assert (summary["notes"], summary["first_notes"]) == (1, [{"time_s": 0.0, "note": note}])


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="is a file, not a folder"):
        made().write(tmp_path / "taken")
    assert (tmp_path / "taken").read_text(encoding="utf-8") == "mine"
