"""Run the benchmarks of two commits alternately, and print the figures of both with their ratio.

``tools/compare_benchmarks.py BEFORE TEST...`` compares the working tree with the commit BEFORE. ``release`` means the
newest tag ``v*``, or the commit that set the version if there is no tag. A time or size has regressed if its best run
now is more than a tenth above the best run before, and above every run before; rates likewise. A benchmark is broken if
it fails in all runs now, and in no run before. Each commit runs its own tests, with the packages of this Python.
"""

from __future__ import annotations

import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
RUNS: Final = 3
LOSS: Final = 1.1  # a figure with a ratio above this has regressed
PACKAGES: Final = ("bftrain", "*/bftrain_*")
COMPILES: Final = Path("solvers", "bftrain_solvers", "knapsack", "library_file.py")
LESS_IS_BETTER: Final = frozenset({"s", "ms", "us", "ns", "MB", "GB", "kB", "core s"})
RELEASE: Final = "release"
NO_TESTS, FAILED = 5, 1  # exit codes of pytest

Key = tuple[str, str, str]  # test, quantity, unit


def figures_in(printed: str) -> dict[Key, float]:
    r"""Return the figures that a run of the benchmarks printed.

    >>> figures_in("==== figures ====\ntest_a  one decision, median    1.5 ms\n==== 1 passed ====")
    {('test_a', 'one decision, median', 'ms'): 1.5}
    """
    found: dict[Key, float] = {}
    inside = False
    for line in printed.splitlines():
        if line.startswith("==="):
            inside = line.strip("= ") == "figures"
        elif inside and len(cells := re.split(r"  +", line.strip(), maxsplit=2)) == 3:  # noqa: PLR2004 - columns
            number, _, unit = cells[2].partition(" ")
            found[cells[0], cells[1], unit] = float(number.replace(",", ""))
    return found


@dataclass(frozen=True, slots=True)
class BenchmarkRun:
    """The figures of a single run of a commit's benchmarks, and the failed benchmarks."""

    figures: Mapping[Key, float]
    failed: frozenset[str]


def broken(pairs: Sequence[tuple[BenchmarkRun, BenchmarkRun]]) -> list[str]:
    """Return the benchmarks that fail in all runs now, and in no run before."""
    now = frozenset.intersection(*(now.failed for _, now in pairs))
    return sorted(now.difference(*(before.failed for before, _ in pairs)))


@dataclass(frozen=True, slots=True)
class ComparedBenchmark:
    """A figure in all runs of both commits."""

    key: Key
    before: tuple[float, ...]
    now: tuple[float, ...]

    @property
    def less_is_better(self) -> bool | None:
        """Whether lower is better; ``None`` for figures with no direction."""
        unit = self.key[2]
        return True if unit in LESS_IS_BETTER else False if unit.endswith("/s") or unit == "times" else None

    @property
    def best(self) -> tuple[float, float]:
        """The best runs before and now; the first runs for figures with no direction."""
        if self.less_is_better is None:
            return self.before[0], self.now[0]
        best = min if self.less_is_better else max
        return best(self.before), best(self.now)

    @property
    def ratio(self) -> float:
        """The current value as a multiple of the previous one; NaN if the previous value is 0."""
        before, now = self.best
        return now / before if before else float("nan")

    @property
    def lost(self) -> bool:
        """Whether it is worse now by more than the runs differ among themselves."""
        now = self.best[1]
        if self.less_is_better is None:
            return False
        if self.less_is_better:
            return self.ratio > LOSS and now > max(self.before)
        return self.ratio < 1 / LOSS and now < min(self.before)


def compared(runs: Iterable[tuple[Mapping[Key, float], Mapping[Key, float]]]) -> list[ComparedBenchmark]:
    """Combine the figures of each pair of runs (before, now); skips figures that are missing in a run."""
    pairs = list(runs)
    keys = [key for key in pairs[0][1] if all(key in before and key in now for before, now in pairs)]
    return [
        ComparedBenchmark(key, *zip(*((before[key], now[key]) for before, now in pairs), strict=True)) for key in keys
    ]


def table(figures: Sequence[ComparedBenchmark]) -> Iterator[str]:
    """Lay the figures out, a line each."""
    wide = max((len(f"{test}  {what}") for (test, what, _) in (each.key for each in figures)), default=0)
    yield f"{'':{wide}}  {'before':>12} {'now':>12} {'ratio':>7}"
    for each in figures:
        test, what, unit = each.key
        before, now = each.best
        mark = "  LOST" if each.lost else ""
        yield f"{f'{test}  {what}':{wide}}  {before:12,.6g} {now:12,.6g} {each.ratio:7.2f} {unit}{mark}".rstrip()


def commit_of(before: str) -> str:
    """Return the commit to compare with; finds the commit that set the version by the line in ``version.py``."""
    if before != RELEASE:
        git = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{before}^{{commit}}"]
        if subprocess.run(git, stdout=subprocess.DEVNULL, check=False).returncode:
            raise SystemExit(f"'{before}' is no commit here: git log --oneline lists them")
        return before
    for command in (
        ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"],
        ["log", "-1", "--format=%h", "-G", "^__version__", "--", "bftrain/version.py"],
    ):
        git = ["git", "-C", str(ROOT), *command]
        done = subprocess.run(git, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    raise SystemExit("No release is known here: name a commit, make bench BEFORE=COMMIT")


def compile_code(tree: Path) -> None:
    """Compile the same code as an installation of the tree, so that both commits are measured as they are used."""
    if (tree / COMPILES).exists():
        runpy.run_path(str(tree / COMPILES))["compile_library"]()


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Give a folder with the files of a commit."""
    with tempfile.TemporaryDirectory(prefix="bftrain-before-") as temporary:
        folder = Path(temporary) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
        try:
            compile_code(folder)
            yield folder
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=False)


def run(tree: Path, tests: Sequence[str], name: str) -> BenchmarkRun:
    """Run the benchmarks of a tree, called ``name``, with its own code; prints missed bars."""
    with tempfile.TemporaryDirectory(prefix="bftrain-packages-") as packages:
        for pattern in PACKAGES:
            for package in tree.glob(pattern):
                (Path(packages) / package.name).symlink_to(package)
        environment = {**os.environ, "PYTHONPATH": packages}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "bench", *tests]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, FAILED):
        where = "has no such benchmarks" if done.returncode == NO_TESTS else "does not run"
        raise SystemExit(f"{name} {where}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    for line in failed:
        sys.stderr.write(f"{name}: {line}\n")
    return BenchmarkRun(figures_in(done.stdout), frozenset(line.split()[1] for line in failed))


def main(before: str, tests: Sequence[str]) -> int:
    """Compare, print, and return 1 if a figure has regressed or a benchmark is broken."""
    before = commit_of(before)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # remove the other tree on exit
    pairs = []
    with checked_out(before) as tree:
        there = [test for test in tests if (tree / test.partition("::")[0]).exists()]
        for test in sorted(set(tests) - set(there)):
            sys.stderr.write(f"{before} has no {test}, which is left out\n")
        if not there:
            raise SystemExit(f"{before} has none of these benchmarks")
        for number in range(RUNS):
            sys.stderr.write(f"Run {number + 1} of {RUNS}: {before}, then the working tree ...\n")
            pairs.append((run(tree, there, before), run(ROOT, there, "the working tree")))
    figures = compared((before.figures, now.figures) for before, now in pairs)
    worse = broken(pairs)
    if not figures and not worse:
        raise SystemExit(f"{before} and the working tree have no figure in common")
    sys.stdout.write("\n".join(table(figures)) + "\n")
    lost = sum(each.lost for each in figures)
    sys.stderr.write(f"{len(figures)} figures, of which {lost} have lost more than a tenth since {before}\n")
    sys.stderr.writelines(f"{test} fails in all runs now, and in none of {before}\n" for test in worse)
    return int(lost > 0 or bool(worse))


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[1]:  # noqa: PLR2004 - BEFORE and a test
        raise SystemExit("Say what to compare with: make bench BEFORE=COMMIT (TESTS=tests/perf/... for some of it)")
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
