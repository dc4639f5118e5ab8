"""``bftrain import`` and ``check`` as they are typed: on a narrow terminal, in a pipe, and stopped half-way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.broken_log import BROKEN
from tests.helpers.flood import DAY, flooded
from tests.helpers.program import PROGRAM, environment, start

HEADER = b"JobID|Start|End|NodeList|State\n"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken"
    path.write_bytes(BROKEN)
    return path


def test_what_is_stopped_half_way_leaves_no_file(tmp_path: Path) -> None:
    with start("import", "-", "-o", tmp_path / "log.npz") as running:
        assert running.stdin is not None
        running.stdin.write(HEADER)
        for number in range(50_000):
            running.stdin.write(f"{number}|{DAY}|{DAY + 5}|n{number % 99}|COMPLETED\n".encode())
        running.stdin.flush()
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=180)
        assert running.returncode == 130
    assert err.decode().strip() == "bftrain: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_what_may_not_be_read_is_said(broken: Path) -> None:
    """A file of someone else: root may read everything, so this is tried as an unprivileged user."""
    broken.chmod(0)
    drop = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    if drop and subprocess.run([*drop, PROGRAM, "--version"], check=False, capture_output=True).returncode:
        pytest.skip("an unprivileged user may not run the program here: its folder is not open to all")
    ended = subprocess.run(
        [*drop, PROGRAM, "import", "--dry-run", broken], check=False, capture_output=True, env=environment()
    )
    assert ended.returncode == 2
    assert b"is not readable" in ended.stderr or b"Permission denied" in ended.stderr or b"exist" in ended.stderr


def test_memory_does_not_grow_with_rows_that_are_set_aside(tmp_path: Path) -> None:
    """A hundred megabytes here; tests/perf sends more than a gigabyte."""
    assert flooded(100, 400, tmp_path / "log.npz")["nodes"] == 5008
