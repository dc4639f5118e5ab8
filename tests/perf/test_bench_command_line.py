"""What a command takes before it does anything: the processor time of ``--help``, beside that of importing click."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

import pytest

from tests.helpers.figures import Figures
from tests.helpers.program import children_core_s, environment

pytestmark = pytest.mark.bench

ROUNDS = 15
LEAST = "import click"  # that no command line built with it can do without
MOST = {"--help": 1.6, "replay --help": 2.3}  # times as much; 1.27 and 1.75 were measured


def core_s(*words: str) -> float:
    """Return how long a Python with these arguments is on a core."""
    before = children_core_s()
    subprocess.run([sys.executable, *words], env=environment(), stdout=subprocess.DEVNULL, check=True)
    return children_core_s() - before


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
