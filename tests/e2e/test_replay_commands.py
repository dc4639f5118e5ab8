"""``bftrain replay`` and ``bftrain demo`` as a newcomer meets them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with a small log, tasks, and an objective."""
    folder = tmp_path_factory.mktemp("replay")
    made = (
        bftrain("generate", "log", "-o", "log.npz", "--nodes", "64", "--days", "0.5", "--seed", "2", cwd=folder),
        bftrain("tasks", "generate", "-o", "tasks.toml", "--kind", "mix", "--count", "8", "--seed", "2", cwd=folder),
    )
    assert [ended.code for ended in made] == [0, 0], made
    (folder / "mine.py").write_text("def equal(task, sizes):\n    return sizes > 0\n", encoding="utf-8")
    return folder


REPLAY = ("replay", "log.npz", "--tasks", "tasks.toml")


def test_a_replay_writes_its_files_and_prints_a_table(place: Path) -> None:
    ended = bftrain(*REPLAY, "-o", "plain", "--baseline", "equal-share", cwd=place)
    assert ended.code == 0, ended.err
    for words in ("exact", "equal-share", "without costs", "efficiency U", "lost to preemption", "p99"):
        assert words in ended.out
    assert not ANSI.search(ended.out)
    assert ended.err.splitlines()[-1] == "result: plain"
    assert {path.name for path in (place / "plain").iterdir()} == FILES


def test_json_is_the_summary(place: Path) -> None:
    ended = bftrain(*REPLAY, "-o", "json", "--json", "-q", cwd=place)
    assert (ended.code, ended.err) == (0, "")
    said = json.loads(ended.out)
    assert said["wall_s"] > 0.0
    assert said == json.loads((place / "json" / "summary.json").read_text(encoding="utf-8"))


def test_its_configuration_runs_it_again(place: Path) -> None:
    options = ("--max-tasks", "3", "--horizon", "45.5", "--objective", "mine.py:equal", "--solver", "highs")
    assert bftrain(*REPLAY, "-o", "first", *options, cwd=place).code == 0
    assert bftrain(*REPLAY, "-o", "second", "--config", "first/config.toml", cwd=place).code == 0
    for name in REPEATED:
        assert (place / "first" / name).read_bytes() == (place / "second" / name).read_bytes(), name
    first, summary = (
        json.loads((place / name / "summary.json").read_text(encoding="utf-8")) for name in ("first", "second")
    )
    assert first["figures_sha256"] == summary["figures_sha256"]
    assert summary["settings"]["objective"] == "mine.py:equal"
    assert (summary["settings"]["max_tasks"], summary["settings"]["horizon_s"]) == (3, 45.5)


def test_another_objective_leads_to_other_decisions(place: Path) -> None:
    for folder, options in (("speed", ()), ("equal", ("--objective", "mine.py:equal"))):
        assert bftrain(*REPLAY, "-o", folder, *options, cwd=place).code == 0
    speed, equal = ((place / folder / "decisions.csv").read_bytes() for folder in ("speed", "equal"))
    assert speed != equal


def test_a_baseline_that_is_the_solver_itself_is_a_matter_of_usage(place: Path) -> None:
    ended = bftrain(*REPLAY, "-o", "never", "--baseline", "exact", cwd=place)
    assert (ended.code, ended.out) == (2, "")
    assert "is the solver itself" in ended.err
    assert not (place / "never").exists()


@pytest.mark.parametrize("option", ["--solver", "--baseline", "--objective"])
def test_an_unknown_part_is_named_and_nothing_is_left_behind(place: Path, option: str) -> None:
    ended = bftrain(*REPLAY, "-o", "never", option, "exakt", cwd=place)
    assert (ended.code, ended.out) == (3, "")
    assert "exakt" in ended.err
    assert not (place / "never").exists()


def test_warnings_are_said_even_when_quiet(place: Path) -> None:
    text = (place / "tasks.toml").read_text(encoding="utf-8").replace("work_samples", "submit_s = 1e9\nwork_samples")
    (place / "late.toml").write_text(text, encoding="utf-8")
    ended = bftrain("replay", "log.npz", "--tasks", "late.toml", "-o", "late", "-q", cwd=place)
    assert ended.code == 0
    assert ended.err.startswith("warning: 8 tasks (")
    assert "arrive after the log has ended" in ended.err


@pytest.mark.parametrize("columns", [60, 120])
def test_a_terminal_shows_progress_and_a_table_that_fits(place: Path, columns: int) -> None:
    ended = on_terminal(*REPLAY, "-o", f"seen-{columns}", columns=columns, cwd=place)
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


def test_the_demo_shows_what_it_is_for(tmp_path: Path) -> None:
    said = json.loads(bftrain("demo", "-o", tmp_path / "d", "--json", "-q").out)
    assert said["report"] == str(tmp_path / "d" / "report.html")
    assert said["harvested"] > 1.03 * said["baseline"]["harvested"]
    assert said["harvested"] <= said["ceiling_samples"]
    assert said["fallbacks"] == 0


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
