"""What a command takes before it does anything: the processor time of ``--help``, beside that of importing click."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import children_core_s, environment
from tests.perf.test_bench_report import run

pytestmark = pytest.mark.bench

ROUNDS = 15
LEAST = "import click"  # that no command line built with it can do without
DEMO_CORE_S = 2.0  # of all its processes: a second by the clock on two processors; 1.1 was measured on an idle machine
MOST = {"--help": 1.6, "replay --help": 2.3}  # times as much; 1.27 and 1.75 were measured


def core_s(*words: str) -> float:
    """Return how long a Python with these arguments is on a core."""
    before = children_core_s()
    subprocess.run([sys.executable, *words], env=environment(), stdout=subprocess.DEVNULL, check=True)
    return children_core_s() - before


def test_the_demo(figures: Figures, tmp_path: Path) -> None:
    """Of several, since other programs on the machine make each longer; the first one also writes compiled modules."""
    costs = [run("demo", "--quick", "-o", tmp_path / "demo") for _ in range(6)][1:]
    figures.add("bftrain demo --quick, warm: by the clock", min(cost.wall_s for cost in costs), "s")
    core_s = min(cost.core_s for cost in costs)
    figures.add("bftrain demo --quick, warm: time of a core", core_s, "s")
    assert core_s < DEMO_CORE_S


def test_help_comes_at_once(figures: Figures) -> None:
    taken: dict[str, list[float]] = {LEAST: [], **{words: [] for words in MOST}}
    for _ in range(ROUNDS):  # in turns, so that what else the machine does hits all alike
        taken[LEAST].append(core_s("-c", LEAST))
        for words in MOST:
            taken[words].append(core_s("-m", "bftrain", *words.split()))
    least_s = median(taken[LEAST])
    figures.add(LEAST, least_s * 1000, "ms")
    for words, most in MOST.items():
        ratio = median(one / least for one, least in zip(taken[words], taken[LEAST], strict=True))
        figures.add(f"bftrain {words}", median(taken[words]) * 1000, "ms")
        figures.add(f"bftrain {words}, times {LEAST}", ratio)
        assert ratio < most
