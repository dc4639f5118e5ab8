"""Benchmarks of two commits: figures are read as they are printed, and only a loss beyond the runs' spread is one."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tools import compare_benchmarks as benchmarks


def test_figures_are_read_as_they_are_printed() -> None:
    figures = Figures(test="test_one")
    figures.add("the whole command, 3 nodes", 12345.6, "s")
    figures.add("a ratio, as a multiple of one", 1.04)
    figures.of("test_two[exact]").add("a decision", 0.25, "ms")
    figures.of("test_two[exact]").add("written", 900_000.0, "rows/s")
    printed = "\n".join(["....", "===== figures =====", *figures.lines(), "===== 4 passed in 2 s =====", "a  b  1 s"])
    assert benchmarks.figures_in(printed) == {
        ("test_one", "the whole command, 3 nodes", "s"): 12346.0,
        ("test_one", "a ratio, as a multiple of one", ""): 1.04,
        ("test_two[exact]", "a decision", "ms"): 0.25,
        ("test_two[exact]", "written", "rows/s"): 900000.0,
    }


@pytest.mark.parametrize(
    ("unit", "before", "now", "lost"),
    [
        ("s", (1.0, 1.05, 1.02), (1.2, 1.3, 1.15), True),
        ("s", (1.0, 1.3, 1.02), (1.2, 1.3, 1.15), False),  # before was as slow once
        ("s", (1.0, 1.05, 1.02), (1.08, 9.0, 9.0), False),  # within a tenth
        ("MB", (100.0,), (50.0,), False),
        ("rows/s", (100.0, 101.0), (80.0, 85.0), True),
        ("rows/s", (100.0, 101.0), (180.0, 85.0), False),
        ("times", (2000.0, 1900.0), (1500.0, 1600.0), True),
        ("", (1.0,), (5.0,), False),  # a count is neither
    ],
)
def test_a_loss_is_more_than_a_tenth_and_more_than_chance(
    unit: str, before: tuple[float, ...], now: tuple[float, ...], *, lost: bool
) -> None:
    assert benchmarks.ComparedBenchmark(("test", "figure", unit), before, now).lost is lost


def test_only_figures_of_every_run_are_compared() -> None:
    key, other = ("t", "a", "s"), ("t", "b", "s")
    found = benchmarks.compared([({key: 1.0, other: 1.0}, {key: 2.0}), ({key: 1.5}, {key: 2.5, other: 1.0})])
    assert [(each.key, each.before, each.now, each.ratio) for each in found] == [(key, (1.0, 1.5), (2.0, 2.5), 2.0)]
    lines = list(benchmarks.table(found))
    assert lines[-1].split() == ["t", "a", "1", "2", "2.00", "s", "LOST"]


def test_a_benchmark_is_broken_if_it_fails_in_all_runs_now_and_in_none_before() -> None:
    def failed(*tests: str) -> benchmarks.BenchmarkRun:
        return benchmarks.BenchmarkRun({}, frozenset(tests))

    runs = [(failed(), failed("a", "busy", "always")), (failed("always"), failed("a", "always"))]
    assert benchmarks.broken(runs) == ["a"]


def test_what_is_no_commit_is_said_in_one_line() -> None:
    with pytest.raises(SystemExit, match="'no-such-commit' is no commit here"):
        benchmarks.commit_of("no-such-commit")


def test_nothing_before_gives_no_ratio() -> None:
    assert math.isnan(benchmarks.ComparedBenchmark(("t", "a", "s"), (0.0,), (1.0,)).ratio)


def test_the_last_release_is_the_newest_tag_or_the_commit_that_set_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    monkeypatch.setattr(benchmarks, "ROOT", tmp_path)
    git("init", "-q")
    (tmp_path / "bftrain").mkdir()
    for line in ('__version__ = "1"\n', '__version__ = "1"\n# a remark\n'):
        (tmp_path / "bftrain" / "version.py").write_text(line)
        git("add", "-A")
        git("commit", "-qm", "one")
    assert benchmarks.commit_of("release") == git("rev-parse", "--short", "HEAD~1").strip()
    git("tag", "other")
    git("tag", "v1.0.0", "HEAD")
    assert (benchmarks.commit_of("release"), benchmarks.commit_of("other")) == ("v1.0.0", "other")


def test_code_of_a_checkout_is_compiled_where_it_has_some(tmp_path: Path) -> None:
    benchmarks.compile_code(tmp_path)  # of a commit without any
    source = tmp_path / benchmarks.COMPILES
    source.parent.mkdir(parents=True)
    source.write_text("def compile_library():\n    open(__file__ + '.done', 'w').close()\n")
    benchmarks.compile_code(tmp_path)
    assert Path(f"{source}.done").exists()
