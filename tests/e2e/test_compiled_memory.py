"""Compiled code under the sanitizers of the compiler: no access beyond its memory, and no overflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bftrain_solvers.knapsack.library_file import SOURCES

ROOT = Path(__file__).parents[2]
SCRIPT = """
import ctypes, sys
import numpy as np
from bftrain_solvers.knapsack.compiled_knapsack import CompiledKnapsack
from tests.helpers.knapsack_problems import random_problem

rng, library, solved = np.random.default_rng(int(sys.argv[2])), ctypes.PyDLL(sys.argv[1]), [0, 0]
for _ in range(60):
    knapsack = CompiledKnapsack(library, room=int(2 ** rng.uniform(4, 16)))
    for _ in range(50):
        solved[knapsack.best_sizes(*random_problem(rng)) is not None] += 1
row = np.zeros(33)
row[16], row[32] = 0.3, 1.0  # a thousand alike rows hold a size whose losses are more than 64 bits together
CompiledKnapsack(library).best_sizes(np.tile(row, (1000, 1)), [16] * 1000, 16_031)

from bftrain_replay.simulation import compiled_core
from bftrain_solvers.knapsack import compiled_allocation
from tests.helpers.core_storms import outcome, storm

compiled_core.compiled_library = compiled_allocation.compiled_library = lambda: library
for seed in range(16):
    assert len(outcome(*storm(seed), compiled=True)) > 1
print(*solved)
"""


def test_no_access_beyond_its_memory_and_no_overflow(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc, whose sanitizers this needs")
    library = tmp_path / "knapsack.so"
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=off")
    sources = sorted(SOURCES.glob("*.c"))
    command = [compiler, "-std=c99", "-O1", "-g", "-fPIC", "-shared", *sanitizers, "-o", library, *sources, "-lm"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0 and "libasan" in made.stderr:
        pytest.skip("this gcc comes without its sanitizers' libraries")
    assert made.returncode == 0, made.stderr
    address = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": address.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, library, "7"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    declined, solved = map(int, done.stdout.split())
    assert declined > 300  # for want of memory
    assert solved > 300
