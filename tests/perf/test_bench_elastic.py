"""What a change of size costs under each launcher, what a report costs, and how soon an agent is there and gone."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from statistics import median

import pytest

from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement
from tests.helpers import launcher_conformance as conformance
from tests.helpers.figures import Figures

pytestmark = [pytest.mark.bench, pytest.mark.torch]


def changes(stage: conformance.LocalStage, rounds: int) -> tuple[str, SpeedMeasurement]:
    """Grow 1 -> 3, shrink 3 -> 2 and 2 -> 1, so often."""
    task = stage.new("--steps", "1000000")
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 12)
    for _ in range(rounds):
        stage.do("grow", task, "n2", "n3")
        stage.messages.steps(task, 3, 12)
        stage.do("shrink", task, "n2", cause="decided")
        stage.messages.steps(task, 2, 12)
        stage.do("shrink", task, "n3", cause="decided")
        stage.messages.steps(task, 1, 12)
    measuring = SpeedMeasurement()
    for message in stage.messages.of("report", task):
        measuring.on_message(message)
    return task, measuring


@pytest.mark.parametrize(("name", "rounds", "bar_s"), [("native", 10, 0.15), ("process", 3, None)])
def test_a_change_of_size_costs(name: str, rounds: int, bar_s: float | None, figures: Figures) -> None:
    with conformance.LocalStage(getattr(launchers, name)) as stage:
        task, measuring = changes(stage, rounds)
        steps = [one["step"] for one in stage.messages.of("report", task)]
    assert all(after == before + 1 for before, after in pairwise(steps)), "no step is done again"
    for kind, found in measuring.changes().items():
        figures.add(f"{name}: {kind}, median of {len(found)}", median(found), "s")
        figures.add(f"{name}: {kind}, worst", max(found), "s")
        assert bar_s is None or median(found) < bar_s


@pytest.mark.parametrize("name", ["native", "process"])
def test_from_nothing_to_one_three_and_two_nodes(name: str, figures: Figures) -> None:
    """With agents that start for it, and torch that they have to import first."""
    begun = time.monotonic()
    with conformance.LocalStage(getattr(launchers, name), nodes=("n1", "n2", "n3")) as stage:
        task = stage.new("--steps", "1000000")
        stage.do("start", task, "n1")
        stage.messages.steps(task, 1)
        stage.do("grow", task, "n2", "n3")
        stage.messages.steps(task, 3)
        stage.do("shrink", task, "n1", cause="decided")
        stage.messages.steps(task, 2)
    took = time.monotonic() - begun
    figures.add(f"{name}: agents, 1 -> 3 -> 2 nodes, and all gone", took, "s")
    assert took < 15


def test_a_killed_worker_costs(figures: Figures) -> None:
    took = []
    with conformance.LocalStage(launchers.native) as stage:
        for _ in range(5):
            task = stage.new("--steps", "1000000")
            stage.do("start", task, "n1", "n2", "n3")
            stage.messages.steps(task, 3)
            killed = time.time()
            os.kill(stage.leftovers()[1], signal.SIGKILL)
            stage.messages.until(lambda task=task: len(stage.messages.of("confirmed", task)) > 1, "the others go on")
            again = stage.messages.of("confirmed", task)[1]["t"]
            stage.messages.steps(task, 3)
            took.append(next(one["t"] for one in stage.messages.of("report", task) if one["t"] > again) - killed)
            stage.end(task)
    figures.add("native: kill -9 of one of three until the next step, median", median(took), "s")
    figures.add("native: kill -9 of one of three until the next step, worst", max(took), "s")
    assert max(took) < 2.0


def test_an_agent_is_there_and_gone(figures: Figures) -> None:
    came, went = [], []
    with conformance.LocalStage(launchers.native, preload=()) as stage:
        for number in range(10):
            node, begun = f"m{number}", time.time()
            stage.agents.start(node)
            stage.messages.until(lambda node=node: node in stage.hub_nodes(), "registered")
            came.append(next(one["t"] for one in stage.messages.all if one.get("node") == node) - begun)
            begun = time.monotonic()
            stage.agents.terminate(node)
            went.append(time.monotonic() - begun)
    figures.add("an agent, from its start to registered, median", 1e3 * median(came), "ms")
    figures.add("an agent, from SIGTERM to gone, worst of 10", 1e3 * max(went), "ms")
    assert median(came) < 0.15
    assert max(went) < 0.2
