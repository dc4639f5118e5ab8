"""Members compare the whole state of a new worker beside their first step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from bftrain_elastic.worker import join_check
from bftrain_elastic.worker.join_check import JoinCheck
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_stream import stepped
from bftrain_elastic.worker.state_values import capture

pytestmark = pytest.mark.torch


class PairOfMembers:
    """The first member and a new one; another member is there and has no digests."""

    def __init__(self) -> None:
        import torch

        self.states, self.numbers = [], []
        for _ in range(2):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.BatchNorm1d(200))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            self.states.append(State(model=model, optimizer=optimizer))
        self.step()

    def step(self) -> None:
        for state in self.states:
            for one in state.model.parameters():
                one.grad = one.detach() + 1
            state.optimizer.step()

    def checks(self) -> list[JoinCheck]:
        places = capture(self.states[0])
        computing = [JoinCheck(one, places, stepped(one), computes=True) for one in self.states]
        return [*computing, JoinCheck(self.states[0], places, (), computes=False)]

    def largest_each(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the largest of those that were given until now."""
        self.numbers.append(numbers)
        return [max(column) for column in zip(*self.numbers, strict=True)]

    def differ(self, checks: Sequence[JoinCheck]) -> bool:
        """Return what the last of the members finds, when it has the numbers of all."""
        for check in checks:
            check.close()
        return [check.differs(self) for check in (*checks, checks[-1])][-1]  # type: ignore[arg-type]


def test_equal_members_are_equal() -> None:
    pair = PairOfMembers()
    assert not pair.differ(pair.checks())


@pytest.mark.parametrize("what", ["weight", "momentum"])
def test_one_number_that_differs_is_found(what: str) -> None:
    pair = PairOfMembers()
    weight = pair.states[1].model[0].weight
    changed = weight.detach() if what == "weight" else pair.states[1].optimizer.state[weight]["momentum_buffer"]
    changed[100, 7] += 1
    assert pair.differ(pair.checks())


def test_what_no_optimizer_steps_was_compared_before() -> None:
    pair = PairOfMembers()
    pair.states[1].model[1].running_mean[3] += 1
    assert not pair.differ(pair.checks())


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Semaphore, threading.Event]:
    begun, goes = threading.Semaphore(0), threading.Event()
    digest: Callable[[object], int] = join_check.digest_of

    def late(tensor: object) -> int:
        begun.release()
        assert goes.wait(20)
        return digest(tensor)

    monkeypatch.setattr(join_check, "digest_of", late)
    return begun, goes


def test_optimizers_wait_for_the_digests(slow: tuple[threading.Semaphore, threading.Event]) -> None:
    pair = PairOfMembers()
    before = pair.states[0].model[0].weight.detach().clone()
    checks = pair.checks()
    thread = threading.Thread(target=pair.step)
    thread.start()
    assert all(slow[0].acquire(timeout=20) for _ in pair.states)
    assert pair.states[0].model[0].weight.equal(before)
    slow[1].set()
    thread.join()
    assert not pair.states[0].model[0].weight.equal(before)
    assert not pair.differ(checks)


def test_what_a_script_changes_before_its_step_is_left_out(slow: tuple[threading.Semaphore, threading.Event]) -> None:
    import torch

    pair = PairOfMembers()
    checks = pair.checks()
    assert all(slow[0].acquire(timeout=20) for _ in pair.states)
    with torch.no_grad():
        pair.states[1].model[0].weight.clamp_(-0.01, 0.01)
    slow[1].set()
    assert not pair.differ(checks)
