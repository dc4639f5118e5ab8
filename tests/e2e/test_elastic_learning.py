"""A task of unknown speed is given nodes, and its curve and its costs are learned while it trains."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from bftrain import speed_estimates
from bftrain_elastic import conformance
from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement

pytestmark = pytest.mark.torch

NODES = ("n1", "n2", "n3", "n4")


def test_it_is_measured_on_all_it_was_given_then_on_less_and_grows_back() -> None:
    with conformance.LocalStage(launchers.native, nodes=NODES) as stage:
        task = stage.new("--steps", "1000000", "--step-s", "0.003")
        measuring, seen = SpeedMeasurement(), 0
        believed = speed_estimates.first_curve(len(NODES))
        stage.do("start", task, *NODES)
        sizes: list[int] = []
        deadline = time.monotonic() + 120
        while not {1, 2, 4} <= measuring.settled() or sizes[-1] != 4:
            assert time.monotonic() < deadline, (sizes, measuring.settled())
            for message in stage.messages.all[seen:]:
                seen += 1
                if message.get("task") == task:
                    measuring.on_message(message)
            size = speed_estimates.size_to_measure(len(NODES), 1, measuring.settled())
            if [size] != sizes[-1:]:
                sizes.append(size)
                stage.launcher.narrow(task, size)
            time.sleep(0.005)
        stage.messages.steps(task, 4)
        for message in stage.messages.all[seen:]:
            if message.get("task") == task:
                measuring.on_message(message)
        assert sizes == [4, 2, 1, 4]
        confirmed = [one["nodes"] for one in stage.messages.of("confirmed", task)]
        assert confirmed == [list(NODES), ["n1", "n2"], ["n1"], list(NODES)]
        steps = [one["step"] for one in stage.messages.of("report", task)]
        assert all(later == earlier + 1 for earlier, later in pairwise(steps)), "measuring redoes nothing"
        stage.end(task)

    curve = speed_estimates.curve(measuring.speeds(), None, 8)
    assert curve is not None
    assert curve.nodes[:3] == (1, 2, 4)
    assert curve.nodes[-1] == 8, "a guess beyond"
    assert min(curve.rate) > 0
    assert speed_estimates.is_significant_change(believed, curve, 8)
    costs = measuring.costs()
    assert set(costs) == {"start", "shrink", "grow"}
