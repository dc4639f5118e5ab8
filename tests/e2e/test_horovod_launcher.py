"""The horovod launcher, with real agents and Horovod itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import registry
from bftrain_elastic import conformance
from bftrain_elastic.tryout import sample_script_horovod
from tests.helpers.pace import busy_s
from tests.helpers.saved import saved_tensors
from tests.helpers.storms import (
    NODES,
    assert_never_behind_a_commit,
    kill_worker,
    lose_first_workers,
    planned_change_s,
    storm,
)

pytestmark = pytest.mark.horovod

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"


@pytest.fixture(scope="module")
def agents() -> Iterator[conformance.LocalStage]:
    make, script = registry.load("launcher", "horovod"), (str(sample_script_horovod.__file__),)
    with conformance.LocalStage(make, script, nodes=NODES) as running:
        yield running


@pytest.fixture
def stage(agents: conformance.LocalStage) -> Iterator[conformance.LocalStage]:
    yield agents
    agents.restore()  # a test that failed must not fail those after it


@pytest.mark.parametrize("case", conformance.CASES, ids=lambda case: case.name)
def test_it_does_what_its_port_demands(case: conformance.ConformanceCase, stage: conformance.LocalStage) -> None:
    case.check(stage)


def test_it_talks_on_loopback_only(stage: conformance.LocalStage) -> None:
    import psutil  # noqa: PLC0415 - comes with Horovod

    task = stage.new("--steps", "100000")
    stage.do("start", task, *NODES[:3])
    stage.messages.steps(task, 3)
    connections = [one for pid in stage.leftovers() for one in psutil.Process(pid).net_connections("inet")]
    listening = {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
    assert {one.raddr.ip for one in connections if one.raddr} == {"127.0.0.1"}
    stage.end(task)


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_two_workers_go_on_when_the_third_is_killed(stage: conformance.LocalStage, node: str) -> None:
    task = stage.new("--steps", "100000")
    stage.do("start", task, *NODES[:3])
    stage.messages.steps(task, 3, 20)
    usual_s = planned_change_s(stage, task, NODES[:3])  # long only on a machine that has other work
    safe, since = stage.messages.of("in_memory", task)[-1]["step"], len(stage.messages.all)
    before = set(stage.leftovers())
    killed_at = kill_worker(stage, node)
    stage.messages.until(lambda: bool(stage.messages.of("confirmed", task, since)), "the others go on")
    again = stage.messages.of("confirmed", task, since)[0]
    assert again["size"] in {2, 3}, "3 if a busy machine lets the next worker start before the others form again"
    assert len(before & set(stage.leftovers())) >= 2, "the other two are not started again"
    assert again["step"] >= safe
    assert again["t"] - killed_at < busy_s(2.0) + usual_s
    stage.messages.steps(task, 3)  # and another has taken its place
    stage.end(task)


def test_the_model_is_what_it_would_be_without_resizing(stage: conformance.LocalStage) -> None:
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
    stage.end(still)
    stage.end(moved)


def test_random_sizes_and_deaths(stage: conformance.LocalStage) -> None:
    task = stage.new("--steps", "100000")
    storm(stage, task, rounds=12)
    stage.do("stop", task, *NODES, cause="decided")
    stage.messages.until(lambda: bool(stage.messages.of("paused", task)), "all is given up, and no worker writes")
    assert not stage.messages.of("failed", task)
    assert_never_behind_a_commit(stage, task)
    losses = [one["loss"] for one in stage.messages.of("report", task)]
    assert losses[-1] < losses[0] / 10
    assert {path.name for path in (stage.folder / task).iterdir()} == {"state", "logs"}
    stage.end(task)


# So many steps that it is not over before it grows
@pytest.mark.parametrize(("name", "steps"), [("cnn_horovod", 600), ("transformer_horovod", 120)])
def test_examples_are_resized_and_learn(stage: conformance.LocalStage, name: str, steps: int) -> None:
    task, argv = f"example {name}", [str(EXAMPLES / f"{name}.py"), "--steps", str(steps)]
    stage.launcher.add(task, {"argv": argv, "folder": str(stage.folder / name)})
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


def test_no_value_is_lost_with_the_first_worker_in_the_first_step_of_a_group(tmp_path: Path) -> None:
    assert lose_first_workers(tmp_path / "record", "horovod", "written", 2) == 0
