"""Native training through kills and a hundred random resizes: nothing behind a commit is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain_elastic import conformance
from bftrain_elastic.manager import launchers
from tests.helpers.saved import saved_step, saved_tensors
from tests.helpers.storms import NODES, lose_first_workers, planned_change_s

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def agents() -> Iterator[conformance.LocalStage]:
    with conformance.LocalStage(launchers.native, nodes=NODES) as running:
        yield running


@pytest.fixture
def stage(agents: conformance.LocalStage) -> Iterator[conformance.LocalStage]:
    yield agents
    agents.restore()  # a test that failed must not fail those after it


def workers(stage: conformance.LocalStage) -> list[int]:
    return stage.leftovers()


def lines(stage: conformance.LocalStage, task: str) -> list[conformance.Message]:
    return stage.messages.of("report", task)


def test_a_killed_worker_is_replaced_and_the_others_go_on_within_two_seconds(stage: conformance.LocalStage) -> None:
    task = stage.new("--steps", "100000")
    stage.do("start", task, "n1", "n2", "n3")
    stage.messages.steps(task, 3)
    usual_s = planned_change_s(stage, task, NODES[:3])  # long only on a machine that has other work
    victim, since = workers(stage)[1], len(stage.messages.all)
    before, safe = len(lines(stage, task)), stage.messages.of("in_memory", task)[-1]["step"]
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    stage.messages.until(lambda: bool(stage.messages.of("confirmed", task, since)), "the others go on")
    again = stage.messages.of("confirmed", task, since)[0]
    assert again["step"] >= safe
    stage.messages.steps(task, 3)  # and another takes its place
    first = next(one for one in lines(stage, task)[before - 1 :] if one["t"] > again["t"])
    assert first["t"] - killed < 2.0 + usual_s
    steps = [one["step"] for one in lines(stage, task)]
    assert all(after >= at for at, after in pairwise(steps)), "one commit a step: at most that step is done again"
    stage.end(task)


@pytest.mark.soak
def test_fifty_random_resizes_with_random_kills(stage: conformance.LocalStage) -> None:
    dice = random.Random(7)  # noqa: S311 - the same storm every time
    task = stage.new("--steps", "1000000", "--step-s", "0.001")
    held = ["n1"]
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 2)
    kills = 0
    for _ in range(50):
        if dice.random() < 0.15:
            os.kill(dice.choice(workers(stage)), signal.SIGKILL)
            kills += 1
        free = [node for node in NODES if node not in held]
        if free and (len(held) == 1 or dice.random() < 0.5):
            new = dice.sample(free, dice.randint(1, len(free)))
            held += new
            stage.do("grow", task, *new)
        else:
            gone = dice.sample(held, dice.randint(1, len(held) - 1))
            held = [node for node in held if node not in gone]
            stage.do("shrink", task, *gone, cause=dice.choice(["decided", "preempted"]))
        stage.messages.steps(task, len(held), 2)
    stage.do("stop", task, *held, cause="decided")
    stage.messages.until(lambda: bool(stage.messages.of("paused", task)), "all is given up")
    assert kills > 2
    safe = 0  # no step behind a saved one is done again
    for one in stage.messages.all:
        if one.get("task") != task:
            continue
        if one["type"] == "on_disk":
            safe = one["step"]
        elif one["type"] == "report":
            assert one["step"] > safe
    reported = lines(stage, task)
    assert reported[-1]["loss"] < reported[0]["loss"] / 100
    assert not stage.messages.of("failed", task)
    folder = stage.folder / task
    assert saved_step(folder) == reported[-1]["step"]
    assert {path.name for path in folder.iterdir()} == {"state", "logs"}, "nothing half written is left"
    stage.end(task)  # nor a process, and when the stage ends no port


def test_resized_or_not_the_model_is_the_same(stage: conformance.LocalStage) -> None:
    quiet, moved = stage.new("--steps", "150"), stage.new("--steps", "150", "--step-s", "0.01")
    stage.do("start", moved, "n1")
    stage.messages.steps(moved, 1, 3)
    stage.do("grow", moved, "n2", "n3")
    stage.messages.steps(moved, 3, 3)
    stage.do("shrink", moved, "n1")
    stage.messages.steps(moved, 2, 3)
    stage.messages.until(lambda: bool(stage.messages.of("done", moved)), "it is done")
    stage.do("start", quiet, "n4")
    stage.messages.until(lambda: bool(stage.messages.of("done", quiet)), "it is done")
    one, other = (saved_tensors(stage.folder / task) for task in (quiet, moved))
    assert len(one) == 4  # weight, bias, and the momentum of each
    for here, there in zip(one, other, strict=True):
        assert (here - there).abs().max().item() < 1e-5
    assert [line["step"] for line in lines(stage, moved)] == list(range(1, 151))
    stage.end(quiet)


@pytest.mark.parametrize("writes", ["written", "crossing", "others", "sharded"])
def test_no_value_is_lost_with_the_first_worker_in_the_first_step_of_a_group(tmp_path: Path, writes: str) -> None:
    assert lose_first_workers(tmp_path / "record", "native", writes, 2) == 0
