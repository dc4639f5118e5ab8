"""Storms: sizes that change at random, and workers that die at random."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from bftrain_elastic.processes import descendants, kill

if TYPE_CHECKING:
    from bftrain_elastic.stage import Stage

NODES = ("n1", "n2", "n3", "n4")


def storm(stage: Stage, task: str, *, rounds: int) -> int:
    """Change the nodes of a task so often, until it has trained on each; gives the number of deaths."""
    chance = random.Random(7)  # noqa: S311 - the same storm every time
    kills, held = 0, {"n1"}
    stage.do("start", task, "n1")
    stage.told.steps(task, 1)
    for _ in range(rounds):
        if chance.random() < 0.25:
            kill_worker(stage, chance.choice(sorted(held)))
            kills += 1
        wanted = set(chance.sample(NODES, chance.randint(1, len(NODES))))
        if wanted - held:
            stage.do("grow", task, *sorted(wanted - held))
        if held - wanted:
            stage.do("shrink", task, *sorted(held - wanted), cause=chance.choice(["decided", "decided", "preempted"]))
        held = wanted
        stage.told.steps(task, len(held), 2)
    return kills


def kill_worker(stage: Stage, node: str) -> float:
    """Kill the worker on a node; gives the time."""
    for worker in set(descendants(stage.agents.running[node].pid)) & set(stage.leftovers()):
        kill(worker)
    return time.time()


def assert_never_behind_a_commit(stage: Stage, task: str) -> None:
    """Demand that whatever was told to be on disk is not done again, and no step is left out."""
    safe = 0
    for one in stage.told.all:
        if one.get("task") == task:
            safe = max(safe, one["step"]) if one["told"] == "saved" else safe
            assert one["told"] != "confirmed" or one["step"] >= safe
    steps = [one["step"] for one in stage.told.of("report", task)]
    assert all(later <= earlier + 1 for earlier, later in pairwise(steps))
