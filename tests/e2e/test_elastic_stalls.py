"""Trainings that hang, diverge or crash are named in words, soon, and give their nodes back by a set time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrain_elastic.manager import launchers
from bftrain_elastic.tryout.local_stage import LocalStage
from tests.helpers.figures import Figures
from tests.helpers.pace import busy_s
from tests.helpers.stalled import PROGRAMS, WORDS, Stalled

pytestmark = pytest.mark.torch

LIMIT_S = 8.0  # so the first look is after 2 s, the restart after 4 s
CRASHES = 6
# tests/soak has all faults; one that waits in a collective is found and named as in a deadlock
FAULTS = {"native": ["deadlock", "one-rank-commit", "nan"], "process": ["deadlock"]}


@pytest.fixture(scope="module", params=["native", "process"])
def stage(request: pytest.FixtureRequest) -> Iterator[LocalStage]:
    make = {"native": launchers.native, "process": launchers.process}[request.param]
    with LocalStage(make, (str(PROGRAMS / "faulty.py"),), nodes=("n1", "n2")) as running:
        yield running


def test_hangs_and_bad_losses_are_named_and_nodes_given_back(stage: LocalStage, figures: Figures) -> None:
    for fault in FAULTS[stage.launcher.name]:
        with Stalled(stage, fault, limit_s=LIMIT_S) as stalled:
            named_s = stalled.demand_it_is_named(WORDS[fault])
            freed_s = stalled.demand_it_lets_go()
            if fault != "nan":
                stalled.demand_stacks(r"faulty\.py\", line \d+ in (stuck_for_ever|train)")
            # A program that is started again counts as one that trains after ten seconds of silence
            assert freed_s < LIMIT_S + busy_s(30), f"{fault}: its nodes were free only after {freed_s:.1f} s"
            figures.add(f"{fault}: named after", named_s, "s")
            figures.add(f"{fault}: nodes free after (set: {LIMIT_S:g} s without a step)", freed_s, "s")


def test_a_stopped_rank_is_named_and_replaced(stage: LocalStage, figures: Figures) -> None:
    with Stalled(stage, "stop", limit_s=LIMIT_S) as stalled:
        figures.add("SIGSTOP of a rank: named after", stalled.demand_it_is_named(WORDS["stop"]), "s")
        stalled.demand_stacks(r"faulty\.py\", line \d+ in train")
        stage.messages.steps(stalled.task, 2)  # it goes on with another process
        assert not stage.messages.of("failed", stalled.task)


def test_each_crash_is_reported_with_the_words_of_the_script(stage: LocalStage) -> None:
    with Stalled(stage, "crash", limit_s=LIMIT_S) as stalled:
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
            10,
        )
        strange = stalled.said("(?i)gloo|connection (closed|reset)|peer")
        assert not strange, f"what follows from a crash is reported beside it: {strange}"
        assert not stage.messages.of("failed", stalled.task), stage.messages.of("failed", stalled.task)
