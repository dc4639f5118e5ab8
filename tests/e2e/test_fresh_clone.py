"""What someone does who has just found the repository: clone it, and type ``make demo``, twice."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.program import children_core_s

pytestmark = pytest.mark.soak  # each installs everything again; CI runs on a fresh clone, and begins with the demo

ROOT = Path(__file__).parents[2]
SECOND_RUN_S = 30.0  # of a core: the demo, and nothing is installed


def make_demo(clone: Path) -> tuple[float, str]:
    """Run it as in a fresh shell; gives the seconds it took of a core and what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "VIRTUAL_ENV", "PYTHON"))}
    before_s = children_core_s()
    done = subprocess.run(
        ["make", "demo"], cwd=clone, env=kept, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return children_core_s() - before_s, done.stdout + done.stderr


def fresh_clone(tmp_path: Path) -> Path:
    """Clone the repository as from afar, not as a link into the one that is being tested."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("this is no clone; git clone the repository to run this test")
    clone = tmp_path / "it's a clone"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), clone], check=True, timeout=120)
    return clone


def test_a_fresh_clone_shows_the_demo_again_at_once(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path)
    _, first = make_demo(clone)
    assert "equal-share" in first
    assert "report: demo/report.html" in first
    assert (clone / "demo" / "report.html").is_file()
    log = clone / ".venv" / ".bftrain" / "install.log"
    installed_at = log.stat().st_mtime_ns
    seconds, second = make_demo(clone)
    assert seconds < SECOND_RUN_S
    assert log.stat().st_mtime_ns == installed_at, "nothing changed, so pip has nothing to do"
    assert "Installing" not in second
    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == "", "what make writes, git ignores"


def test_a_broken_environment_is_made_again(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path)
    make_demo(clone)
    # test_make.py tries each kind of damage without a network
    (installed,) = (clone / ".venv" / "lib").glob("python3*/site-packages")
    shutil.rmtree(installed / "msgspec")
    _, third = make_demo(clone)
    assert "Making .venv again: parts of it were removed." in third
    assert "report: demo/report.html" in third
