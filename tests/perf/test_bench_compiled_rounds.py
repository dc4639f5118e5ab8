"""How much time compiled rounds save, and what shares without pairs cost; all as ratios within one run."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest

from bftrain import TaskSpec, rounds
from bftrain_replay.rounds.compiled_rounds import CompiledRounds
from tests.helpers.figures import Figures
from tests.helpers.round_cases import gang

pytestmark = pytest.mark.bench

NODES = {"v100": 12, "p100": 12, "k80": 12}


def stream(count: int) -> list[TaskSpec]:
    """Draw tasks of 26 models that keep most nodes busy."""
    rng = np.random.default_rng(0)
    models = [dict(zip(NODES, row, strict=True)) for row in rng.lognormal(0.0, 0.5, (26, 3)).tolist()]
    arrivals = np.cumsum(rng.exponential(600.0, count)).tolist()
    return [
        gang(f"m{number % 26}-{number}", float(rng.lognormal(9.0, 1.0)), submit_s=at_s, speeds=models[number % 26])
        for number, at_s in enumerate(arrivals)
    ]


def core_s(tasks: list[TaskSpec], policy: str) -> float:
    begin = process_time()
    assert rounds(NODES, tasks, policy=policy, round_s=360.0, like="gavel").ended == "all_done"
    return process_time() - begin


def test_rounds_by_shares(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = stream(1000)
    core_s(tasks[:50], "allox")  # imports
    compiled_s, allox_s = core_s(tasks, "max-min"), core_s(tasks, "allox")
    monkeypatch.setattr(CompiledRounds, "of", lambda *_: None)
    plain_s = core_s(tasks, "max-min")
    figures.add("max-min like gavel, 1,000 tasks", compiled_s, "s")
    figures.add("as a multiple of rounds without compiled code", compiled_s / plain_s)
    figures.add("AlloX as a multiple of max-min", allox_s / compiled_s)
    assert compiled_s < 0.8 * plain_s
    assert allox_s < 3.0 * compiled_s
