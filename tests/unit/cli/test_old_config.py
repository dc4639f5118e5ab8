"""A ``config.toml`` of a version that did not know ``progress``: replaying with it says what differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.in_process import CommandLine, Ended

NOTE = (
    "warning: old.toml: these settings are of an earlier version and do not say how progress is kept: it was as the "
    "tasks say, and is now in memory (--progress memory), so the figures differ; --progress task gives those of then"
)


@pytest.fixture
def replay(bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    monkeypatch.chdir(tmp_path)
    save_log(generate_log(12, 0.2, 3), tmp_path / "log.npz")
    save_tasks(generate_mix(5, 3), tmp_path / "tasks.toml")
    return lambda *more: bftrain("replay", "log.npz", "--tasks", "tasks.toml", *more, "-o", "out", "--overwrite", "-q")


def without_progress(folder: Path, more: str = "") -> None:
    """Write the settings of a replay as a version without ``progress`` did."""
    lines = (folder / "out" / "config.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "old.toml").write_text("".join(line for line in lines if not line.startswith("progress")) + more)


def test_settings_of_before_progress_are_replayed_with_a_warning(replay: Callable[..., Ended], tmp_path: Path) -> None:
    assert replay("--progress", "task").code == 0
    figures = json.loads((tmp_path / "out" / "summary.json").read_text())["figures_sha256"]
    without_progress(tmp_path)
    assert NOTE in replay("--config", "old.toml").err
    ended = replay("--config", "old.toml", "--progress", "task")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["figures_sha256"] == figures


def test_settings_that_decide_it_or_leave_it_to_the_version_have_no_warning(
    replay: Callable[..., Ended], tmp_path: Path
) -> None:
    assert replay().code == 0
    (tmp_path / "new.toml").write_text((tmp_path / "out" / "config.toml").read_text())
    without_progress(tmp_path, "checkpoint_interval_s = 300.0\n")
    (tmp_path / "by-hand.toml").write_text('solver = "greedy"\n')
    assert [replay("--config", f"{name}.toml").err for name in ("new", "old", "by-hand")] == ["", "", ""]
    assert replay("--semantics", "published").code == 0
    without_progress(tmp_path)
    assert replay("--config", "old.toml").err == ""
