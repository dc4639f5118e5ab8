"""Node-hours by kind, idle and held, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain_replay.metrics.fair_time import IdlePools
from bftrain_replay.metrics.kind_figures import KindFigures, cost_of, kind_figures
from tests.unit.replay.cases import progress, task

POOLS = IdlePools(
    np.array([0.0, 1800.0]), {"fast": np.array([2, 1]), "slow": np.array([0, 4]), "none": np.array([0, 0])}, 3600.0
)


def test_a_task_knows_how_long_it_held_nodes_of_which_kind() -> None:
    moving = progress(task(rate=(1.0, 2.0)))
    moving.go_by([0.0, 1.0, 2.0], "fast")
    moving.start(10.0, 2)
    moving.stop(30.0, preempted=False)
    moving.go_by([0.0, 1.0], "slow")
    moving.start(40.0, 1)
    moving.stop(45.0, preempted=True)
    moving.go_by([0.0, 1.0, 2.0], "fast")
    moving.start(50.0, 1)
    moving.settle(51.0)
    assert moving.node_s_by_kind == {"fast": 41.0, "slow": 5.0}
    assert moving.node_s == 46.0
    still = progress(task())
    assert still.node_s_by_kind == {}
    still.start(0.0, 2)
    still.settle(3.0)
    assert still.node_s_by_kind == {"": 6.0}


def test_every_kind_has_its_node_hours() -> None:
    figures = kind_figures(POOLS, {"fast": 2700.0})
    assert figures["fast"] == KindFigures(idle_node_h=1.5, used_node_h=0.75, coverage=pytest.approx(0.5))
    assert figures["slow"] == KindFigures(idle_node_h=2.0, used_node_h=0.0, coverage=0.0)
    assert figures["none"].coverage is None


def test_a_kind_without_a_price_costs_1_and_without_prices_nothing_is_told() -> None:
    figures = kind_figures(POOLS, {"fast": 3600.0, "slow": 1800.0})
    assert cost_of(figures, {"fast": 2.5}) == pytest.approx(2.5 + 0.5)
    assert cost_of(figures, {}) is None
