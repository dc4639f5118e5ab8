"""What a change of size costs a task under the horovod launcher, and the death of a worker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from bftrain import registry
from bftrain_elastic.agent.process_tree import descendants, kill
from tests.helpers import launcher_conformance as conformance
from tests.helpers.figures import Figures
from tests.helpers.sample_scripts import HOROVOD
from tests.helpers.stages import NODES
from tests.helpers.storms import assert_never_behind_a_commit, storm

pytestmark = [pytest.mark.bench, pytest.mark.horovod]

ROUNDS = 7


@pytest.fixture(scope="module")
def stage() -> Iterator[conformance.LocalStage]:
    make, script = registry.load("launcher", "horovod"), HOROVOD
    with conformance.LocalStage(make, script, nodes=("n1", "n2", "n3")) as running:
        yield running


def test_from_nothing_to_one_three_and_two_nodes(figures: Figures) -> None:
    """With agents that start for it, and all that they have to import first."""
    begun = time.monotonic()
    make, script = registry.load("launcher", "horovod"), HOROVOD
    with conformance.LocalStage(make, script, nodes=("n1", "n2", "n3")) as stage:
        task = stage.new("--steps", "1000000")
        stage.do("start", task, "n1")
        stage.messages.steps(task, 1)
        stage.do("grow", task, "n2", "n3")
        stage.messages.steps(task, 3)
        stage.do("shrink", task, "n1", cause="decided")
        stage.messages.steps(task, 2)
    took = time.monotonic() - begun
    figures.add("agents, 1 -> 3 -> 2 nodes, and all gone", took, "s")
    assert took < 15


def test_a_hundred_random_resizes_with_random_kills(figures: Figures) -> None:
    make, script = registry.load("launcher", "horovod"), HOROVOD
    with conformance.LocalStage(make, script, nodes=NODES) as stage:
        task = stage.new("--steps", "1000000")
        begun = time.monotonic()
        kills = storm(stage, task, rounds=100)
        took = time.monotonic() - begun
        assert not stage.messages.of("failed", task)
        assert_never_behind_a_commit(stage, task)
        losses = [one["loss"] for one in stage.messages.of("report", task)]
        assert losses[-1] < losses[0] / 100
        stage.end(task)
    figures.add(f"100 random resizes with {kills} kills", took, "s")


def gaps(stage: conformance.LocalStage, task: str, before: int, after: int) -> list[float]:
    """Return the seconds between the last step at one size and the first at the next, less one step."""
    pairs = list(pairwise(stage.messages.of("report", task)))
    step = statistics.median(later["t"] - earlier["t"] for earlier, later in pairs)
    return [
        later["t"] - earlier["t"] - step
        for earlier, later in pairs
        if (earlier["size"], later["size"]) == (before, after)
    ]


def test_growing_and_shrinking(stage: conformance.LocalStage, figures: Figures) -> None:
    task = stage.new("--steps", "1000000")
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 20)
    for _ in range(ROUNDS):
        stage.do("grow", task, "n2", "n3")
        stage.messages.steps(task, 3, 20)
        stage.do("shrink", task, "n3", cause="decided")
        stage.messages.steps(task, 2, 20)
        stage.do("shrink", task, "n2", cause="decided")
        stage.messages.steps(task, 1, 20)
    steps = [one["step"] for one in stage.messages.of("report", task)]
    figures.add("steps redone in 21 changes", sum(later != earlier + 1 for earlier, later in pairwise(steps)))
    up, down = (statistics.median(gaps(stage, task, *sizes)) for sizes in ((1, 3), (3, 2)))
    figures.add("1 -> 3", up, "s")
    figures.add("3 -> 2", down, "s")
    stage.end(task)
    assert up < 0.5
    assert down < 0.3


def test_the_death_of_one_of_three(stage: conformance.LocalStage, figures: Figures) -> None:
    took = []
    task = stage.new("--steps", "1000000")
    stage.do("start", task, "n1", "n2", "n3")
    for node in ("n1", "n2", "n3", "n1", "n2"):
        stage.messages.steps(task, 3, 30)
        since = len(stage.messages.all)
        for worker in set(descendants(stage.agents.running[node].pid)) & set(stage.leftovers()):
            kill(worker)
        killed_at = time.time()
        stage.messages.until(lambda since=since: bool(stage.messages.of("confirmed", task, since)), "the others go on")
        took.append(stage.messages.of("confirmed", task, since)[0]["t"] - killed_at)
    figures.add("the others go on", statistics.median(took), "s")
    stage.end(task)
    assert statistics.median(took) < 2.0
