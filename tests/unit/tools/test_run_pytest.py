"""tools/run_pytest.py: what failed beside other tests runs once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.run_pytest import MOST_AGAIN, run_pytest

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


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # which takes most of the time


def run(folder: Path, program: str) -> int:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_one.py").write_text(program)
    return run_pytest(["-q"], folder)


def test_a_test_that_passes_alone_is_named_and_does_not_fail_the_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, PASSES + DISTURBED) == 0
    printed = capfd.readouterr().out
    assert "passed by themselves; make them sturdier:\ntest_one.py::test_disturbed\n" in printed
    assert "1 failed, 1 passed" in printed
    assert "\n1 passed in" in printed, "the other test does not run again"


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, FAILS + DISTURBED) == 1
    assert "sturdier" not in capfd.readouterr().out


def test_nothing_runs_again_where_all_passes_or_much_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, PASSES) == 0
    many = "".join(FAILS.replace("fails", f"fails_{number}") for number in range(MOST_AGAIN + 1))
    assert run(tmp_path, many) == 1
    assert "Once more" not in capfd.readouterr().out


def test_a_run_that_could_not_begin_keeps_its_exit_code(tmp_path: Path) -> None:
    assert run_pytest(["--no-such-option"], tmp_path) == 4
