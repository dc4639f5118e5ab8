"""How fast time is shared over node kinds, beside one plain programme of the solver that is used."""

from __future__ import annotations

from functools import cache
from runpy import run_path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain.solving import share
from bftrain.values.sharing import Entity, Inside, SharingProblem
from bftrain_solvers.sharing import rising
from bftrain_solvers.sharing.arrays import ShareColumns
from tests.helpers.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

BARS = {"max-min": 0.1, "hierarchical": 5.0}


@cache
def drawn() -> Callable[[int, int], SharingProblem]:
    """Give what draws tasks of all kinds of speeds, six times as many as there is room for, of sixteen groups."""
    script = run_path(str(ROOT / "docs" / "scripts" / "policy_times.py"))
    found: Callable[[int, int], SharingProblem] = script["sharing"]
    return found


def problem(count: int, seed: int) -> SharingProblem:
    """Give such tasks, and what their groups are worth."""
    inside = (Inside.FAIR, Inside.FIFO)
    entities = {f"group{place}": Entity(weight=1.0 + place % 3, inside=inside[place % 2]) for place in range(16)}
    return replace(drawn()(count, seed), entities=entities)


@pytest.mark.parametrize("count", [512, 2048])
def test_policies(count: int, figures: Figures) -> None:
    share(problem(200, 0), "max-min")  # what is slow to import
    for policy in ("max-min", "water-filling", "hierarchical", "makespan", "finish-time", "throughput"):
        took = []
        for seed in range(3):
            given = problem(count, seed)
            took.append(share(given, policy).wall_s)
        figures.add(f"{policy}, {count} tasks on three kinds, best of 3", 1e3 * min(took), "ms")
        assert count < 2048 or min(took) < BARS.get(policy, 5.0)


def test_one_plain_programme(figures: Figures, monkeypatch: pytest.MonkeyPatch) -> None:
    share(problem(200, 0), "max-min")  # what is slow to import
    columns = ShareColumns.of(problem(2048, 0))
    rate, level = columns.weights * columns.fair, np.zeros(2048)
    took = {}
    for what in ("as we do it", "as one plain programme"):
        if what == "as one plain programme":
            monkeypatch.setattr(rising, "_if_all_find_room", lambda *_: None)
            monkeypatch.setattr(rising, "_SMALL", 10_000)
        begun = perf_counter()
        height = rising.rise(columns.market, level, rate).height
        took[what] = perf_counter() - begun, height
        figures.add(f"max-min of 2,048 tasks {what}", 1e3 * took[what][0], "ms")
    (ours, found), (plain, same) = took.values()
    figures.add("times as fast", plain / ours)
    assert found == pytest.approx(same, rel=1e-7)
    assert ours < plain
