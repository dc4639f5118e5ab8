"""Benchmarks and soak tests, which CI does not run: they can be imported at least."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_benchmarks_and_soak_tests_can_be_collected() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-p",
        "no:cacheprovider",
        "tests/perf",
        "tests/soak",
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert found.returncode == 0, found.stdout[-2000:]
    assert "::" in found.stdout
