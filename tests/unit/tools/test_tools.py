"""Tools of developers: comparing benchmarks, seeded faults, and tests that run once more or not in CI."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.figures import Figures
from tools import compare_benchmarks as benchmarks
from tools import mutants
from tools.run_pytest import MOST_AGAIN, run_pytest

ROOT = mutants.ROOT
FAULTS = mutants.read_faults()


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which takes most of the time


@pytest.mark.parametrize(
    "path", [path for room in ("perf", "soak") for path in sorted((ROOT / "tests" / room).glob("test_*.py"))],
    ids=lambda path: path.stem,
)  # fmt: skip
def test_benchmarks_and_soak_tests_which_ci_does_not_run_can_be_imported(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(f"imported_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # which dataclasses look for
    spec.loader.exec_module(module)
    assert any(name.startswith("test_") for name in vars(module))


def test_figures_are_read_as_they_are_printed() -> None:
    figures = Figures(test="test_one")
    figures.add("the whole command, 3 nodes", 12345.6, "s")
    figures.add("a ratio, as a multiple of one", 1.04)
    figures.of("test_two[exact]").add("written", 900_000.0, "rows/s")
    printed = "\n".join(["....", "===== figures =====", *figures.lines(), "===== 4 passed in 2 s =====", "a  b  1 s"])
    assert benchmarks.figures_in(printed) == {
        ("test_one", "the whole command, 3 nodes", "s"): 12346.0,
        ("test_one", "a ratio, as a multiple of one", ""): 1.04,
        ("test_two[exact]", "written", "rows/s"): 900000.0,
    }


@pytest.mark.parametrize(
    ("unit", "before", "now", "lost"),
    [
        ("s", (1.0, 1.05, 1.02), (1.2, 1.3, 1.15), True),
        ("s", (1.0, 1.3, 1.02), (1.2, 1.3, 1.15), False),  # before was as slow once
        ("s", (1.0, 1.05, 1.02), (1.08, 9.0, 9.0), False),  # within a tenth
        ("rows/s", (100.0, 101.0), (80.0, 85.0), True),
        ("rows/s", (100.0, 101.0), (180.0, 85.0), False),
        ("", (1.0,), (5.0,), False),  # a count is neither
    ],
)
def test_a_loss_is_more_than_a_tenth_and_more_than_chance(
    unit: str, before: tuple[float, ...], now: tuple[float, ...], *, lost: bool
) -> None:
    assert benchmarks.ComparedBenchmark(("test", "figure", unit), before, now).lost is lost


def test_a_benchmark_is_broken_if_it_fails_in_all_runs_now_and_in_none_before() -> None:
    def failed(*tests: str) -> benchmarks.BenchmarkRun:
        return benchmarks.BenchmarkRun({}, frozenset(tests))

    runs = [(failed(), failed("a", "busy", "always")), (failed("always"), failed("a", "always"))]
    assert benchmarks.broken(runs) == ["a"]


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
    git("tag", "v1.0.0", "HEAD")
    assert benchmarks.commit_of("release") == "v1.0.0"
    with pytest.raises(SystemExit, match="'no-such-commit' is no commit here"):
        benchmarks.commit_of("no-such-commit")


@pytest.mark.parametrize("path", sorted({fault.file for fault in FAULTS}))
def test_the_text_of_each_fault_occurs_once(path: str) -> None:
    source = (ROOT / path).read_text()
    for fault in FAULTS:
        if fault.file == path:
            assert source.count(fault.text) == 1, f"{fault.fault}: adapt tests/mutations.toml"
            compile(source.replace(fault.text, fault.replacement), path, "exec")


def test_the_tests_of_each_fault_exist() -> None:
    missing = {test for fault in FAULTS for test in fault.tests if not (ROOT / test.partition("::")[0]).exists()}
    assert not missing
    assert len({fault.fault for fault in FAULTS}) == len(FAULTS)


def test_faults_are_tried_in_a_copy(tmp_path: Path) -> None:
    package, imports, tests = tmp_path / "double", tmp_path / mutants.IMPORTS, tmp_path / "tests"
    for folder in (package, imports, tests):
        folder.mkdir(parents=True)
    source = "def double(number):\n    return 2 * number\n"
    (package / "__init__.py").write_text(source)
    (imports / "double").symlink_to("../../double")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tests / "test_good.py").write_text("from double import double\n\ndef test_two():\n    assert double(1) == 2\n")
    (tests / "test_poor.py").write_text("from double import double\n\ndef test_none():\n    assert double(0) == 0\n")
    (tests / "test_red.py").write_text("def test_red():\n    assert False\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)

    def fault(text: str, test: str) -> mutants.Fault:
        return mutants.Fault(
            fault="triples", file="double/__init__.py", text=text, replacement="3 *", tests=(f"tests/{test}",)
        )

    faults = [
        fault("2 *", "test_good.py"),
        fault("2 *", "test_poor.py"),
        fault("4 *", "test_poor.py"),
        fault("2 *", "test_red.py"),
        fault("2 *", "test_good.py"),
    ]
    found = [(verdict, test) for _, verdict, test, _ in mutants.try_faults(tmp_path, faults, count=2)]
    assert found == [
        (mutants.CAUGHT, "tests/test_good.py::test_two"),
        (mutants.ESCAPED, ""),
        (mutants.STALE, ""),
        (mutants.BROKEN, "tests/test_red.py::test_red"),
        (mutants.CAUGHT, "tests/test_good.py::test_two"),
    ]
    assert (package / "__init__.py").read_text() == source


PASSES = "def test_passes(): pass\n"
DISTURBED = """
from pathlib import Path

def test_disturbed():
    ran = Path("ran")
    before = ran.exists()
    ran.touch()
    assert before
"""
FAILS = "def test_fails(): assert False\n"


@pytest.mark.parametrize(
    ("program", "code", "again", "sturdier"),
    [
        (PASSES, 0, False, False),
        (PASSES + DISTURBED, 0, True, True),  # it passes alone
        (FAILS + DISTURBED, 1, True, False),
        ("".join(FAILS.replace("fails", f"fails_{number}") for number in range(MOST_AGAIN + 1)), 1, False, False),
    ],
    ids=["passes", "disturbed", "fails twice", "much fails"],
)
def test_what_failed_beside_other_tests_runs_once_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], program: str, code: int, *, again: bool, sturdier: bool
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_one.py").write_text(program)
    assert run_pytest(["-q"], tmp_path) == code
    printed = capfd.readouterr().out
    assert ("Once more" in printed, "sturdier:\ntest_one.py::test_disturbed\n" in printed) == (again, sturdier)
