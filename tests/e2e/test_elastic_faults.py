"""Native training through kills, resizes, hangs and crashes, and of an unknown speed: nothing committed is lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain import speed_estimates
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement
from tests.helpers.figures import Figures
from tests.helpers.launcher_conformance import LocalStage, Message
from tests.helpers.pace import busy_s
from tests.helpers.saved import saved_tensors
from tests.helpers.stages import NODES, launched
from tests.helpers.stalled import WORDS, Stalled
from tests.helpers.storms import lose_first_workers, planned_change_s

pytestmark = pytest.mark.torch

LIMIT_S = 8.0  # so the first look is after 2 s, the restart after 4 s
CRASHES = 6


@pytest.fixture
def stage(torch_stage: LocalStage) -> Iterator[LocalStage]:
    with launched(torch_stage, "native") as running:
        yield running


def lines(stage: LocalStage, task: str) -> list[Message]:
    return stage.messages.of("report", task)


def test_a_killed_worker_is_replaced_and_the_others_go_on_soon(stage: LocalStage) -> None:
    task = stage.new("--steps", "100000")
    stage.do("start", task, "n1", "n2", "n3")
    stage.messages.steps(task, 3)
    usual_s = planned_change_s(stage, task, NODES[:3])  # long only on a machine that has other work
    victim, since = stage.leftovers()[1], len(stage.messages.all)
    before, safe = len(lines(stage, task)), stage.messages.of("in_memory", task)[-1]["step"]
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    stage.messages.until(lambda: bool(stage.messages.of("confirmed", task, since)), "the others go on")
    again = stage.messages.of("confirmed", task, since)[0]
    assert again["step"] >= safe
    stage.messages.steps(task, 3)  # and another takes its place
    first = next(one for one in lines(stage, task)[before - 1 :] if one["t"] > again["t"])
    assert first["t"] - killed < busy_s(10.0) + usual_s, "they do not wait for what is dead"
    steps = [one["step"] for one in lines(stage, task)]
    assert all(after >= at for at, after in pairwise(steps)), "one commit a step: at most that step is done again"
    stage.end(task)


def test_resized_or_not_the_model_is_the_same(stage: LocalStage) -> None:
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


# The other ways to write are in tests/soak
def test_no_value_is_lost_with_the_first_worker_in_the_first_step_of_a_group(tmp_path: Path, stage: LocalStage) -> None:
    assert lose_first_workers(stage, tmp_path / "record", "crossing", 2) == 0


def test_a_task_of_unknown_speed_is_measured_on_all_it_was_given_then_on_less_and_grows_back(stage: LocalStage) -> None:
    task = stage.new("--steps", "1000000", "--step-s", "0.003")
    measuring, seen = SpeedMeasurement(), 0
    believed = speed_estimates.first_curve(len(NODES))
    stage.do("start", task, *NODES)
    sizes: list[int] = []
    deadline = time.monotonic() + busy_s(120)
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
    assert confirmed[-4:] == [list(NODES), ["n1", "n2"], ["n1"], list(NODES)]
    steps = [one["step"] for one in stage.messages.of("report", task)]
    assert all(later == earlier + 1 for earlier, later in pairwise(steps)), "measuring redoes nothing"
    stage.end(task)
    curve = speed_estimates.curve(measuring.speeds(), None, 8)
    assert curve is not None
    assert {1, 2, 4} <= set(curve.nodes)
    assert curve.nodes[-1] == 8, "a guess beyond"
    assert min(curve.rate) > 0
    assert speed_estimates.is_significant_change(believed, curve, 8)
    costs = measuring.costs()
    assert set(costs) == {"start", "shrink", "grow"}


# tests/soak has all faults; one that waits in a collective is found and named as in a deadlock
@pytest.mark.parametrize(
    ("launcher", "fault"),
    [
        ("native", "deadlock"),
        ("native", "one-rank-commit"),
        ("native", "nan"),
        pytest.param("process", "deadlock", marks=pytest.mark.soak),
    ],
)
def test_hangs_and_bad_losses_are_named_and_nodes_given_back(
    torch_stage: LocalStage, launcher: str, fault: str, figures: Figures
) -> None:
    limit_s = busy_s(LIMIT_S)
    with launched(torch_stage, launcher) as stage, Stalled(stage, fault, limit_s=limit_s) as stalled:
        named_s = stalled.demand_it_is_named(WORDS[fault])
        freed_s = stalled.demand_it_lets_go()
        if fault != "nan":
            stalled.demand_stacks(r"faulty\.py\", line \d+ in (stuck_for_ever|train)")
        # A program that is started again counts as one that trains after ten seconds of silence
        assert freed_s < limit_s + busy_s(60), f"{fault}: its nodes were free only after {freed_s:.1f} s"
        figures.add(f"{fault}: named after", named_s, "s")
        figures.add(f"{fault}: nodes free after (set: {limit_s:g} s without a step)", freed_s, "s")


def test_a_stopped_rank_is_named_and_replaced(stage: LocalStage, figures: Figures) -> None:
    with Stalled(stage, "stop", limit_s=busy_s(LIMIT_S)) as stalled:
        figures.add("SIGSTOP of a rank: named after", stalled.demand_it_is_named(WORDS["stop"]), "s")
        stalled.demand_stacks(r"faulty\.py\", line \d+ in train")
        stage.messages.steps(stalled.task, 2)  # it goes on with another process
        assert not stage.messages.of("failed", stalled.task)


def test_each_crash_is_reported_with_the_words_of_the_script(stage: LocalStage) -> None:
    with Stalled(stage, "crash", limit_s=busy_s(LIMIT_S)) as stalled:
        stage.messages.until(lambda: bool(stage.messages.of("failed", stalled.task)), "it is given up")
        crashes, reports = stalled.record("crash"), stalled.said("ValueError: a batch of the wrong form")
        # Both ranks crash in the end: what one of them does while the task is given up need not be reported
        assert len(reports) >= max(3, len(crashes) - 1), f"{len(crashes)} crashes, and these were reported: {reports}"
        reason = stage.messages.of("failed", stalled.task)[0]["reason"]
        assert reason.strip().endswith("ValueError: a batch of the wrong form"), reason


def test_every_crash_of_one_rank_is_reported_though_the_others_notice_it_first(stage: LocalStage) -> None:
    with Stalled(stage, "crashes", limit_s=60.0) as stalled:
        stage.messages.until(lambda: len(stalled.record("crash")) >= CRASHES, f"it crashes {CRASHES} times")
        crashes = len(stalled.record("crash")) - 1  # the last one may still be on its way
        reports = stage.messages.of("note", stalled.task)
        stage.messages.until(
            lambda: len(stalled.said("ValueError: a batch of the wrong form")) >= crashes,
            f"each of {crashes} crashes is reported; so far: {[one['text'] for one in reports]}",
        )
        strange = stalled.said("(?i)gloo|connection (closed|reset)|peer")
        assert not strange, f"what follows from a crash is reported beside it: {strange}"
        assert not stage.messages.of("failed", stalled.task), stage.messages.of("failed", stalled.task)
