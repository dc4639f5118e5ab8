"""``bftrain sweep`` as a function of its file."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.in_process import CommandLine

INPUTS = """\
log = "small"
tasks = "mix"
yardsticks = false
logs = { small = { nodes = 12, days = 0.1, seed = 3 } }
task_sets = { mix = { count = 3, max_nodes = 4, work_samples = 1e7 } }
"""
GRID = "[grid]\nmax_tasks = [1, 3]\ncost_factor = [1, 2.5]\n"
SWEEP = ("sweep", "mine.toml", "--jobs", 1, "-o")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(INPUTS + GRID)


def test_a_sweep_prints_its_figures_and_writes_its_files(bftrain: CommandLine, terminal: Callable[[int], None]) -> None:
    ended = bftrain(*SWEEP, "out")
    lines = ended.out.strip().splitlines()
    assert (ended.code, ended.err, lines[0]) == (0, "result: out\n", "mine: 4 points")
    assert lines[2].split()[:2] == ["max_tasks", "cost_factor"]
    assert [line.split()[:2] for line in lines[4:]] == [["1", "1"], ["1", "2.5"], ["3", "1"], ["3", "2.5"]]
    assert {"table.csv", "sweep.json", "points.jsonl", "report.html"} <= {path.name for path in Path("out").iterdir()}
    again = bftrain(*SWEEP, "out", "--json", "-q")  # nothing is replayed
    output, written = json.loads(again.out), json.loads(Path("out/sweep.json").read_text())
    assert ({name: output[name] for name in written}, again.err) == (written, "")
    assert [row["max_tasks"] for row in output["rows"]] == [1, 1, 3, 3]
    terminal(40)
    narrow = re.sub(r"\x1b\[[0-9;]*m", "", bftrain(*SWEEP, "out").out)
    assert max(map(len, narrow.splitlines())) <= 40
    words = [{word.strip(",") for word in text.split() if "─" not in word} for text in (ended.out, narrow)]
    assert words[0] - words[1] == set()


def test_in_a_pipe_a_line_now_and_then_tells_how_far_it_is(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: 500.0 * really())
    ended = bftrain(*SWEEP, "out")
    assert ended.code == 0, ended.err
    assert re.search(r"^\d of 4 replays, \d at work", ended.err, re.MULTILINE)


def test_what_compares_is_reported_where_the_tasks_ran_out(bftrain: CommandLine) -> None:
    Path("mine.toml").write_text((INPUTS + GRID).replace("work_samples = 1e7", "work_samples = 1000"))
    ended = bftrain(*SWEEP, "out")
    note = "In 4 of 4 points the tasks ran out"
    assert f"warning: {note}" in ended.err
    assert note in Path("out/report.html").read_text()


def test_a_dry_run_counts_what_there_is_to_do(bftrain: CommandLine) -> None:
    ended = bftrain(*SWEEP, "out", "--dry-run")
    assert (ended.code, ended.err, ended.out.splitlines()[0]) == (
        *(0, "", "mine: 4 points; 4 of 4 replays are still to be done"),
    )
    assert not Path("out").exists()
    assert bftrain(*SWEEP, "out").code == 0
    Path("mine.toml").write_text((INPUTS + GRID).replace("[1, 3]", "[1, 3, 2]"))
    assert json.loads(bftrain(*SWEEP, "out", "--dry-run", "--json").out)["to_do"] == 2
    Path("mine.toml").write_text(f"{INPUTS}[grid]\nseed = {{ from = 1, to = 60 }}\n")
    ended = bftrain(*SWEEP, "other", "--dry-run")
    assert ended.out.startswith("mine: 60 points, the first 50 of them; 60 of 60 replays")
    assert len(ended.out.strip().splitlines()) == 4 + 50  # a longer table is cut


def test_points_that_fail_are_reported_and_the_rest_is_done(bftrain: CommandLine) -> None:
    solvers = ["exact", "exakt", *(f"no-{number}" for number in range(6))]
    Path("mine.toml").write_text(f"{INPUTS}[grid]\nsolver = {solvers}\n")
    ended = bftrain(*SWEEP, "out")
    lines = ended.err.splitlines()
    assert (ended.code, "solver = exakt" in lines[0], "did you mean 'exact'?" in lines[0]) == (1, True, True)
    assert "warning: further reasons, in the table: 2" in lines
    assert lines[-1].startswith("bftrain: out: 7 of 8 points failed")
    assert [line.split()[-1] for line in ended.out.strip().splitlines()[4:]] == ["done"] + ["failed"] * 7


def test_what_was_computed_before_is_reported_and_gives_the_same(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BFTRAIN_NO_CACHE", "0")
    cache = tmp_path / "cache" / "bftrain" / "replays"

    def sweep(folder: str, *options: str) -> tuple[str, dict[str, Any]]:
        ended = bftrain(*SWEEP, folder, "--json", *options)
        assert ended.code == 0, ended.err
        return ended.err, json.loads(ended.out)

    Path("mine.toml").write_text(f"{INPUTS}[grid]\nmax_tasks = [1, 3]\n")
    first, second = sweep("one"), sweep("two")
    assert ("computed before" in first[0], first[1]["computed_before"]) == (False, 0)
    assert f"computed before: 2 of 2 points (2 of 2 replays; 2 of these from {cache})" in second[0]
    assert (second[1]["computed_before"], second[1]["rows"]) == (2, first[1]["rows"])
    assert [sweep("new", "--dry-run", *more)[1]["to_do"] for more in ((), ("--no-cache",))] == [0, 2]
    for name in ("table.csv", "sweep.json"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()
    (damaged, *_) = sorted(cache.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-2])
    third = sweep("three")
    assert ("1 earlier result damaged" in third[0], third[1]["figures_sha256"]) == (True, first[1]["figures_sha256"])
