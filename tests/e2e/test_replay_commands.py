"""``bftrain replay`` and ``bftrain demo`` as a newcomer meets them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from bftrain.taskfiles.files import save_tasks
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.log.log_generator import generate_log
from bftrain_datasets.workloads.task_generators import generate_mix
from tests.helpers.program import ANSI, bftrain, children_core_s, on_terminal, start
from tests.helpers.slurm import wait_until

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


def test_the_demo_shows_all_in_a_few_seconds(tmp_path: Path) -> None:
    before_s = children_core_s()
    ended = bftrain("demo", cwd=tmp_path)
    took_s = children_core_s() - before_s
    assert ended.code == 0, ended.err
    for words in ("harvest", "efficiency U", "equal-share", "without costs", "lost to rescaling, start-up", "median"):
        assert words in ended.out
    assert ended.err.splitlines()[-1] == "report: demo/report.html"
    assert {path.name for path in (tmp_path / "demo").iterdir()} == {
        "log.npz",
        "tasks.toml",
        "report.html",
        "replay",
        "SHA256SUMS",
    }
    assert took_s < 30.0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL]
)
def test_what_was_interrupted_or_killed_goes_on_to_the_same_files(number: signal.Signals, tmp_path: Path) -> None:
    made = (
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "128", "--days", "0.2", cwd=tmp_path),
        bftrain("tasks", "generate", "-o", "t.toml", "--kind", "trials", "--count", "30", cwd=tmp_path),
    )
    assert [ended.code for ended in made] == [0, 0]
    command = ("replay", "log.npz", "--tasks", "t.toml", "--solver", "highs", "--max-tasks", "4", "-o")
    assert bftrain(*command, "whole", cwd=tmp_path).code == 0
    unfinished = tmp_path / "part" / "unfinished.jsonl"
    for _ in range(2):
        answers = 10 + _lines(unfinished)
        with start(*command, "part", "--resume", cwd=tmp_path) as running:
            deadline = time.monotonic() + 60.0
            while time.monotonic() < deadline and running.poll() is None:
                if _lines(unfinished) > answers:
                    break
                time.sleep(0.02)
            running.send_signal(number)
            assert running.wait(timeout=60) == (-number if number == signal.SIGKILL else 130)
        assert unfinished.exists()
    refused = bftrain(*command, "part", "--resume", "--horizon", "60", cwd=tmp_path)
    assert refused.code == 3
    assert "horizon_s (give the same inputs and options" in refused.err
    ended = bftrain(*command, "part", "--resume", cwd=tmp_path)
    assert ended.code == 0
    assert {path.name for path in (tmp_path / "part").iterdir()} == FILES
    for name in REPEATED:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "part" / name).read_bytes(), name
    whole, part = (
        json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8")) for name in ("whole", "part")
    )
    assert whole["figures_sha256"] == part["figures_sha256"]


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def test_ctrl_c_leaves_a_whole_page_and_whole_tables(tmp_path: Path) -> None:
    assert bftrain("generate", "log", "-o", tmp_path / "log.npz", "--nodes", "256", "--days", "15").code == 0
    assert bftrain("tasks", "generate", "-o", tmp_path / "t.toml", "--kind", "trials", "--count", "300").code == 0
    folder = tmp_path / "out"
    answers = folder / "unfinished.jsonl"
    with start("replay", tmp_path / "log.npz", "--tasks", tmp_path / "t.toml", "-o", folder) as running:
        wait_until(lambda: answers.exists() and answers.stat().st_size > 1000, "decisions are made, of many thousands")
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130
        assert running.stderr is not None
        said = running.stderr.read().decode()
    assert "bftrain: interrupted" in said
    assert "Traceback" not in said
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["complete"], summary["efficiency"]) == (False, None)
    assert 0.0 < summary["simulated_s"] < 15 * 86400
    assert len((folder / "decisions.csv").read_text(encoding="utf-8").splitlines()) == 1 + summary["decisions"]
    assert len((folder / "tasks.csv").read_text(encoding="utf-8").splitlines()) == 1 + summary["tasks"] == 301
    assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
