"""Every launcher is put through the conformance suite, with real agents and real training."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bftrain import registry
from bftrain_elastic import conformance
from bftrain_elastic.tryout import sample_script, sample_script_plain
from bftrain_elastic.tryout.local_agents import listening

pytestmark = pytest.mark.torch

SCRIPTS = {
    "torchrun": sample_script_plain
}  # its workers import torch again at each change, which is not what is tried here


@pytest.fixture(scope="module", params=["native", "process", "torchrun", "fake"])
def stage(request: pytest.FixtureRequest) -> Iterator[conformance.LocalStage]:
    script = str(SCRIPTS.get(request.param, sample_script).__file__)
    with conformance.LocalStage(registry.load("launcher", request.param), [script]) as running:
        yield running


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_a_launcher_does_what_its_port_demands(
    case: conformance.ConformanceCase, stage: conformance.LocalStage
) -> None:
    case.check(stage)


def test_torchrun_resizes_a_training_with_torch_and_listens_on_one_address() -> None:
    with conformance.LocalStage(registry.load("launcher", "torchrun")) as stage:
        task = stage.new("--steps", "100000")
        stage.do("start", task, "n1")
        stage.messages.steps(task, 1, 3)
        stage.do("grow", task, "n2")
        stage.messages.steps(task, 2, 3)
        assert {host for host, _ in listening(stage.below())} == {"127.0.0.1"}
        steps = [one["step"] for one in stage.messages.of("report", task)]
        assert steps == list(range(1, len(steps) + 1)), "no step is done again"
        stage.end(task)
