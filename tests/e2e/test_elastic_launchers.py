"""Every launcher is put through the conformance suite, with real agents and real training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import registry
from tests.helpers.launcher_conformance import CASES, ConformanceCase, LocalStage
from tests.helpers.pace import busy_s
from tests.helpers.processes import listening
from tests.helpers.sample_scripts import HOROVOD, PLAIN, TORCH
from tests.helpers.saved import saved_tensors
from tests.helpers.stages import NODES, launched
from tests.helpers.storms import assert_never_behind_a_commit, kill_worker, lose_first_workers, planned_change_s, storm

pytestmark = pytest.mark.torch

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"


@pytest.fixture(scope="module")
def plain_stage() -> Iterator[LocalStage]:
    """Yield agents that import nothing, for scripts without torch."""
    with LocalStage(registry.load("launcher", "process"), PLAIN, preload=()) as running:
        yield running


@pytest.fixture(scope="module", params=["native", "process"])
def stage(request: pytest.FixtureRequest) -> Iterator[LocalStage]:
    agents, script = ("torch_stage", TORCH) if request.param == "native" else ("plain_stage", PLAIN)
    with launched(request.getfixturevalue(agents), request.param, script) as running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_launcher_does_what_its_port_demands(case: ConformanceCase, stage: LocalStage) -> None:
    case.check(stage)


def test_a_training_with_torch_is_resized_by_restarts_and_listens_on_one_address(torch_stage: LocalStage) -> None:
    with launched(torch_stage, "process") as stage:
        task = stage.new("--steps", "100000")
        stage.do("start", task, "n1")
        stage.messages.steps(task, 1, 3)
        stage.do("grow", task, "n2")
        stage.messages.steps(task, 2, 3)
        assert {host for host, _ in listening(stage.below())} == {"127.0.0.1"}
        steps = [one["step"] for one in stage.messages.of("report", task)]
        assert steps == list(range(1, len(steps) + 1)), "no step is done again"
        stage.end(task)


@pytest.fixture
def horovod(torch_stage: LocalStage) -> Iterator[LocalStage]:
    with launched(torch_stage, "horovod", HOROVOD) as running:
        yield running


@pytest.mark.horovod
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_horovod_launcher_does_what_its_port_demands(case: ConformanceCase, horovod: LocalStage) -> None:
    case.check(horovod)


@pytest.mark.horovod
def test_two_horovod_workers_go_on_when_the_third_is_killed(horovod: LocalStage) -> None:
    stage, task = horovod, horovod.new("--steps", "100000")
    stage.do("start", task, *NODES[:3])
    stage.messages.steps(task, 3, 20)
    usual_s = planned_change_s(stage, task, NODES[:3])  # long only on a machine that has other work
    safe, since = stage.messages.of("in_memory", task)[-1]["step"], len(stage.messages.all)
    before = set(stage.leftovers())
    killed_at = kill_worker(stage, "n1")
    stage.messages.until(lambda: bool(stage.messages.of("confirmed", task, since)), "the others go on")
    again = stage.messages.of("confirmed", task, since)[0]
    assert again["size"] in {2, 3}, "3 if a busy machine lets the next worker start before the others form again"
    assert len(before & set(stage.leftovers())) >= 2, "the other two are not started again"
    assert again["step"] >= safe
    assert again["t"] - killed_at < busy_s(10.0) + usual_s, "and do not wait for what is dead"
    stage.messages.steps(task, 3)  # and another has taken its place
    stage.end(task)


@pytest.mark.horovod
def test_a_model_of_horovod_is_what_it_would_be_without_resizing(horovod: LocalStage) -> None:
    stage = horovod
    still, moved = stage.new("--steps", "120", "--step-s", "0"), stage.new("--steps", "120", "--step-s", "0.01")
    stage.do("start", moved, "n1")
    stage.messages.steps(moved, 1)
    stage.do("grow", moved, "n2", "n3")
    stage.messages.steps(moved, 3)
    stage.do("shrink", moved, "n1", cause="decided")
    stage.messages.steps(moved, 2)
    stage.messages.until(lambda: bool(stage.messages.of("done", moved)), "it is done")
    stage.do("start", still, "n4")
    stage.messages.until(lambda: bool(stage.messages.of("done", still)), "it is done")
    assert [one["step"] for one in stage.messages.of("report", moved)] == list(range(1, 121))
    one, other = (saved_tensors(stage.folder / task) for task in (still, moved))
    assert len(one) == len(other) >= 4  # weight, bias, and the momentum of both
    for mine, its in zip(one, other, strict=True):
        assert (mine - its).abs().max().item() < 1e-5
    stage.end(still, moved)


@pytest.mark.horovod
def test_horovod_through_random_sizes_and_deaths(horovod: LocalStage) -> None:
    stage, task = horovod, horovod.new("--steps", "100000")
    storm(stage, task, rounds=6)
    stage.do("stop", task, *NODES, cause="decided")
    stage.messages.until(lambda: bool(stage.messages.of("paused", task)), "all is given up, and no worker writes")
    assert not stage.messages.of("failed", task)
    assert_never_behind_a_commit(stage, task)
    losses = [one["loss"] for one in stage.messages.of("report", task)]
    assert losses[-1] < losses[0] / 10
    stage.end(task)


# So many steps that it is not over before it grows
@pytest.mark.horovod
@pytest.mark.parametrize(
    ("name", "steps"), [("cnn_horovod", 600), pytest.param("transformer_horovod", 120, marks=pytest.mark.soak)]
)
def test_examples_for_horovod_are_resized_and_learn(horovod: LocalStage, name: str, steps: int) -> None:
    stage = horovod
    task = stage.new(argv=[str(EXAMPLES / f"{name}.py"), "--steps", str(steps)])
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1)
    stage.do("grow", task, "n2", "n3")
    stage.messages.steps(task, 3)
    stage.do("shrink", task, "n1", cause="decided")
    stage.messages.steps(task, 2)
    stage.messages.until(lambda: bool(stage.messages.of("done", task)), "it is done")
    reports = stage.messages.of("report", task)
    assert [one["step"] for one in reports] == list(range(1, steps + 1))
    assert reports[-1]["loss"] < reports[0]["loss"] / 2
    stage.end(task)


@pytest.mark.horovod
def test_horovod_loses_no_value_with_the_first_worker_in_the_first_step_of_a_group(
    tmp_path: Path, horovod: LocalStage
) -> None:
    assert lose_first_workers(horovod, tmp_path / "record", "written", 2) == 0
