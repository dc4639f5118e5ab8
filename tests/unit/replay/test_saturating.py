"""A replay of a log without tasks: trials that its idle nodes cannot do all, and that is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bftrain
from bftrain import generate_log, load_tasks
from tests.helpers.in_process import CommandLine


@pytest.mark.parametrize(("nodes", "days", "max_tasks"), [(1, 0.05, 1), (4, 0.2, 1), (8, 0.1, 50), (64, 0.5, 3)])
def test_the_queue_never_empties(nodes: int, days: float, max_tasks: int) -> None:
    done = bftrain.replay(generate_log(nodes, days, seed=2), max_tasks=max_tasks, solver="greedy")
    assert done.result.unused_node_s["no_task"] == 0.0  # type: ignore[index]  # a StrEnum is its word
    assert done.summary["workload"]["ran_dry"] is False
    assert done.summary["headline"]["tasks_ran_out"] is False


def test_the_command_says_what_it_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(monkeypatch, capfd)
    monkeypatch.chdir(tmp_path)
    bftrain.save_log(generate_log(16, 0.5, seed=3), tmp_path / "log.npz")
    ended = command("replay", "log.npz", "-o", "out", "--nodes", "0:8", "--solver", "greedy")
    assert ended.code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    workload = summary["workload"]
    assert workload["trials"] == summary["tasks"]
    assert summary["inputs"]["tasks"]["name"] == f"{workload['trials']} trials of shufflenet"
    assert f"no --tasks: {workload['sentence']}" in ended.err
    assert "so the queue never empties" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    first = (tmp_path / "out" / "config.toml").read_text(encoding="utf-8").splitlines()[0]
    assert first == "# bftrain replay log.npz --config THIS_FILE -o NEW_FOLDER"
    # The command that it names writes the same tasks
    assert command(*workload["command"].split()[1:]).code == 0
    again = bftrain.replay("log.npz", "tasks.toml", nodes="0:8", solver="greedy")
    assert again.summary["inputs"]["tasks"]["sha256"] == summary["inputs"]["tasks"]["sha256"]
    assert len(load_tasks(tmp_path / "tasks.toml")) == workload["trials"]


def test_with_tasks_there_is_no_such_workload() -> None:
    done = bftrain.replay(generate_log(4, 0.1, seed=2), bftrain.generate_mix(2, seed=1))
    assert done.summary["workload"] is None
