"""Two replays at once in one folder, and one that is killed while it replaces a finished result."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from tests.helpers.program import bftrain, start
from tests.helpers.slurm import wait_until


def test_two_at_once_and_a_kill_in_the_middle(tmp_path: Path) -> None:
    made = (
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "128", "--days", "0.4", cwd=tmp_path),
        bftrain("generate", "tasks", "-o", "t.toml", "--kind", "trials", "--count", "30", cwd=tmp_path),
    )
    assert [ended.code for ended in made] == [0, 0]
    command = ("replay", "log.npz", "--tasks", "t.toml", "-o", "out", "--overwrite")
    assert bftrain(*command, "--max-tasks", "1", cwd=tmp_path).code == 0
    folder = tmp_path / "out"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = (*command, "--max-tasks", "4", "--solver", "highs")  # which takes its time
    with start(*again, cwd=tmp_path) as running:
        wait_until((folder / ".bftrain.lock").exists, "the replay has begun")
        second = bftrain(*again, cwd=tmp_path)
        assert (second.code, second.out) == (2, "")
        assert second.err.startswith(f"bftrain: out: is in use by process {running.pid} on ")
        assert "bftrain replay log.npz --tasks t.toml" in second.err
        running.send_signal(signal.SIGKILL)
        assert running.wait(timeout=60) == -signal.SIGKILL
    assert {name: (folder / name).read_bytes() for name in before} == before
    third = bftrain(*command, "--max-tasks", "4", cwd=tmp_path)
    assert third.code == 0, third.err
    assert {path.name for path in folder.iterdir()} == before.keys()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["complete"], summary["settings"]["max_tasks"]) == (True, 4)
