"""Members train on while a new worker receives the state and follows their steps; all ends as if it had been there."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain_elastic import conformance
from bftrain_elastic.manager import launchers
from tests.helpers.one_node import until

pytestmark = pytest.mark.torch

# Each step changes all numbers of a state of 36 MB; its loss tells whether they are right. While a file "hold" is there
# a new worker stands still in the first step that it follows, and makes a file "follows"; while a file "wait" is there
# members stand still in the first step that two make, and make a file "first"; while a file "wrong" is there a new
# worker changes a number, which is no part of the sample that is compared when it joins.
SCRIPT = """
import sys, time
from pathlib import Path
import torch
from bftrain_elastic import State, report, run

torch.set_num_threads(1)
here, trains = Path(sys.argv[1]), []

class Optimizer(torch.optim.Adam):
    def step(self, closure=None):
        if not trains:
            (here / "follows").touch()
            while (here / "hold").exists():
                time.sleep(0.01)
        super().step(closure)
        if not trains and (here / "wrong").exists():
            with torch.no_grad():
                model[1][40 * 128] += 1

def make_step(model, optimizer, seen, position):
    for number, one in enumerate(model):
        one.grad = torch.full_like(one, 1.0 / (1 + (position + number) % 5))
    optimizer.step()
    seen += position
    return float(sum(one.detach().double().sum() for one in model) + seen.sum())

def train(state):
    trains.append(True)
    while True:
        time.sleep(0.05)
        while state.workers == 2 and (here / "wait").exists():
            (here / "first").touch()
            time.sleep(0.01)
        loss = make_step(model, optimizer, state.seen, state.position)
        state.position += 1
        report(samples=8, loss=loss)
        state.commit()

def made():
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(1_500_000)) for _ in range(2)])
    return model, Optimizer(model.parameters(), lr=1e-3), torch.zeros(20_000)

model, optimizer, seen = made()
if __name__ == "__main__":
    run(State(model=model, optimizer=optimizer, seen=seen, position=0), train)
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[conformance.LocalStage]:
    script = tmp_path_factory.mktemp("followed") / "script.py"
    script.write_text(SCRIPT)
    with conformance.LocalStage(launchers.native, (str(script),), nodes=("n1", "n2", "n3")) as running:
        yield running


def sizes_and_bytes(stage: conformance.LocalStage, task: str) -> list[tuple[int, bool]]:
    """Return the size of each group, and whether more than a hundredth of the state was sent."""
    groups = stage.messages.of("confirmed", task)
    return [(one["size"], one.get("sent_bytes", 0) > one["state_bytes"] / 100) for one in groups]


def assert_as_unresized(stage: conformance.LocalStage, task: str, but: int = 0) -> None:
    """Raise if a step or its loss, ``but`` that of one step, differs from those of a run that was never resized."""
    program: dict[str, object] = {"__name__": "unresized"}
    exec(SCRIPT.replace("Path(sys.argv[1])", "Path()"), program)  # noqa: S102 - it is ours
    program["trains"].append(True)  # type: ignore[attr-defined]
    model, optimizer, seen = program["model"], program["optimizer"], program["seen"]
    lines = stage.messages.of("report", task)
    losses = {one["step"]: one["loss"] for one in lines if one["loss"] is not None}
    for position in range(max(losses)):
        loss = program["make_step"](model, optimizer, seen, position)  # type: ignore[operator]
        assert but == position + 1 or losses.get(position + 1, loss) == pytest.approx(loss, rel=1e-12), position


def test_growth_sends_only_what_no_step_changes(stage: conformance.LocalStage, tmp_path: Path) -> None:
    task = stage.new(str(tmp_path))
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 3)
    stage.do("grow", task, "n2")
    stage.messages.steps(task, 2, 3)
    stage.do("grow", task, "n3")
    stage.messages.steps(task, 3, 3)
    stage.do("shrink", task, "n1", cause="decided")
    stage.messages.steps(task, 2, 3)
    assert sizes_and_bytes(stage, task) == [(1, False), (2, False), (3, False), (2, False)]
    assert (tmp_path / "follows").exists()
    steps = [one["step"] for one in stage.messages.of("report", task)]
    assert all(after == before + 1 for before, after in pairwise(steps)), "no step is done again"
    stage.end(task)
    assert_as_unresized(stage, task)


def test_a_new_worker_that_differs_is_named_and_set_right(stage: conformance.LocalStage, tmp_path: Path) -> None:
    (tmp_path / "wrong").touch()
    task = stage.new(str(tmp_path))
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 3)
    stage.do("grow", task, "n2")
    stage.messages.steps(task, 2, 3)
    assert sizes_and_bytes(stage, task) == [(1, False), (2, False)]
    stage.messages.until(lambda: bool(stage.messages.of("note", task)), "the difference is reported")
    assert "a new worker, which had followed the others" in stage.messages.of("note", task)[0]["text"]
    stage.do("shrink", task, "n1", cause="decided")
    stage.messages.steps(task, 1, 3)
    joined = next(one["step"] for one in stage.messages.of("confirmed", task) if one["size"] == 2)
    stage.end(task)
    assert_as_unresized(stage, task, but=joined + 1)


@pytest.mark.parametrize("who", ["the new one", "one that is followed", "none, but the size falls"])
def test_a_change_in_the_middle_of_a_growth(
    stage: conformance.LocalStage, tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrain_elastic.manager.task_lifecycles.growth_retry.FIRST_S", 0.1)  # the new one is set aside
    (tmp_path / "hold").touch()
    task = stage.new(str(tmp_path))
    stage.do("start", task, "n1", "n2")
    stage.messages.steps(task, 2, 3)
    stage.do("grow", task, "n3")
    stage.messages.until((tmp_path / "follows").exists, "it follows")
    stage.messages.steps(task, 2, 2)  # the others train meanwhile
    if who == "the new one":
        stage.send(signal.SIGKILL, "worker", "n3")
    elif who == "one that is followed":
        stage.send(signal.SIGKILL, "worker", "n1")
    else:
        stage.do("shrink", task, "n1", cause="decided")
        stage.messages.steps(task, 1, 2)
    (tmp_path / "hold").unlink()
    stage.messages.steps(task, 2 if "size" in who else 3, 3)
    stage.end(task)
    assert_as_unresized(stage, task)
    stage.restore()


def test_the_only_one_with_the_state_dies_in_the_first_step_with_a_new_worker(
    stage: conformance.LocalStage, tmp_path: Path
) -> None:
    (tmp_path / "wait").touch()
    task = stage.new(str(tmp_path))
    stage.do("start", task, "n1")
    stage.messages.steps(task, 1, 3)
    stage.do("grow", task, "n2")
    until((tmp_path / "first").exists, "both are in a step")
    stage.send(signal.SIGKILL, "worker", "n1")
    (tmp_path / "wait").unlink()
    stage.messages.steps(task, 2, 3)
    assert sizes_and_bytes(stage, task)[:2] == [(1, False), (2, False)], "the new one followed"
    assert stage.messages.of("confirmed", task)[2]["step"] > 1, "it goes on from what it received"
    stage.end(task)
    assert_as_unresized(stage, task)
    stage.restore()
