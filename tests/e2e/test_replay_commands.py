"""``bftrain replay`` and ``bftrain demo`` as a newcomer meets them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from bftrain import generate_log, generate_mix, save_log, save_tasks
from tests.helpers.program import ANSI, bftrain, on_terminal, start
from tests.helpers.slurm import wait_until

FILES = {
    "summary.json",
    "decisions.csv",
    "tasks.csv",
    "allocations.csv",
    "over_time.csv",
    "config.toml",
    "log.npz",
    "report.html",
    "SHA256SUMS",
}

# These hold times that a real clock measured, or their sums
REPEATED = FILES - {"summary.json", "report.html", "SHA256SUMS"}


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_shows_progress_and_a_table_that_fits(tmp_path: Path, columns: int) -> None:
    save_log(generate_log(64, 0.5, 2), tmp_path / "log.npz")
    save_tasks(generate_mix(8, 2), tmp_path / "tasks.toml")
    ended = on_terminal("replay", "log.npz", "--tasks", "tasks.toml", "-o", "seen", columns=columns, cwd=tmp_path)
    assert ended.code == 0
    assert "hours replayed" in ended.out
    plain = ANSI.sub("", ended.out.rsplit("\r", 1)[-1])
    assert "efficiency U" in plain
    assert max(map(len, plain.splitlines())) <= columns


def _cpu_s(process: int) -> float:
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf(
        "SC_CLK_TCK"
    )


def test_ctrl_c_leaves_a_whole_page_and_whole_tables(tmp_path: Path) -> None:
    assert bftrain("generate", "log", "-o", tmp_path / "log.npz", "--nodes", "512", "--days", "60").code == 0
    assert bftrain("generate", "tasks", "-o", tmp_path / "t.toml", "--kind", "trials", "--count", "3000").code == 0
    folder = tmp_path / "out"
    with start("replay", tmp_path / "log.npz", "--tasks", tmp_path / "t.toml", "-o", folder) as running:
        wait_until((folder / ".bftrain.lock").exists, "the log is read")
        read_s = _cpu_s(running.pid)
        wait_until(lambda: _cpu_s(running.pid) > read_s + 0.5, "decisions are made, of many thousands")
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert running.stderr is not None
        said = running.stderr.read().decode()
    assert "bftrain: interrupted" in said
    assert "Traceback" not in said
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["complete"], summary["efficiency"]) == (False, None)
    assert 0.0 < summary["simulated_s"] < 60 * 86400
    assert len((folder / "decisions.csv").read_text(encoding="utf-8").splitlines()) == 1 + summary["decisions"]
    assert len((folder / "tasks.csv").read_text(encoding="utf-8").splitlines()) == 1 + summary["tasks"] == 3001
    assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
