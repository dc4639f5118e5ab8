"""New workers that follow a training before they join it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from bftrain_elastic.worker import state_follower, state_stream, state_tree
from bftrain_elastic.worker.process_groups import GroupStore
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_follower import StateFollower
from bftrain_elastic.worker.state_stream import STREAM, StateStream
from bftrain_elastic.worker.state_tree import digest_of
from bftrain_elastic.worker.state_values import capture, inner, keep

pytestmark = pytest.mark.torch

PATIENCE_S = 20.0


def training(seed: int, kind: str = "Adam") -> State:
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), torch.nn.BatchNorm2d(4))
    options = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01, **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    return State(model=model, optimizer=optimizer, schedule=schedule, position=0)


def step(state: State, closure: Callable[[], float] | None = None, *, zero: bool = True) -> None:
    """Make a step, with other gradients each time; the last parameter has none."""
    import torch

    dice = torch.Generator().manual_seed(state.position)
    for one in list(state.model.parameters())[:-1]:
        one.grad = torch.randn(one.shape, generator=dice)
    state.optimizer.step(closure)
    if zero:
        state.optimizer.zero_grad()
    state.schedule.step()
    state.position += 1
    inner(state).step += 1


class Members:
    """A training that can be followed."""

    def __init__(self, kind: str = "Adam") -> None:
        self.state = training(1, kind)
        self.own = inner(self.state)
        self.own.pace_s = 1.0
        self.stream = self.own.stream = StateStream(self.state, "127.0.0.1")
        self.store = GroupStore("127.0.0.1")
        self.stream.publish(self.store.store)
        step(self.state)

    def follower(self, kind: str = "Adam") -> StateFollower:
        """Let a new worker come, and commit until it is served."""
        self.new = training(2, kind)
        found = StateFollower.of_peer(self.new, f"{self.store.host}:{self.store.port}")
        assert found is not None
        for _ in range(1000):
            if self.stream.arrived:
                break
            threading.Event().wait(0.01)
        self.commit()
        return found

    def commit(self, *, leaving: bool = False) -> None:
        keep(self.state)
        self.stream.at_commit(leaving=leaving)

    def equal(self) -> bool:
        """Return whether all tensors of the new worker are those of the members."""
        import torch

        pairs = zip(capture(self.state).tensors, capture(self.new).tensors, strict=True)
        return all(torch.equal(*pair) for pair in pairs)


@pytest.fixture(autouse=True)
def small_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_stream, "_LEAST_BYTES", 0)
    monkeypatch.setattr(state_stream, "_MOST_QUEUED", 1000)


@pytest.mark.parametrize("part_bytes", [1, state_follower._PART_BYTES])  # noqa: SLF001 - how much makes a part
@pytest.mark.parametrize("kind", ["Adam", "SGD", "Adagrad"])
def test_a_new_worker_makes_the_same_steps(kind: str, part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_follower, "_PART_BYTES", part_bytes)
    members = Members(kind)
    follower = members.follower(kind)
    for _ in range(3):
        step(members.state)
        members.commit()
    members.own.asked = lambda: 1
    step(members.state)
    follower.wait()
    members.commit(leaving=True)
    assert follower.reach(members.own.step)
    assert members.equal()
    assert all(one.grad is None for one in members.new.model.parameters())
    follower.set_gradients()
    assert all(one.grad is None for one in members.new.model.parameters()), "nor have those of the others"


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_new_worker_has_the_gradients_that_the_members_keep(*, zeroed: bool) -> None:
    import torch

    members = Members()
    follower = members.follower()
    step(members.state, zero=False)
    if zeroed:
        members.state.optimizer.zero_grad(set_to_none=False)
    members.commit(leaving=True)
    assert follower.reach(members.own.step)
    follower.set_gradients()
    ours, theirs = (list(one.model.parameters()) for one in (members.state, members.new))
    assert theirs[-1].grad is None
    found = [one.grad for one in theirs[1:-1]]  # the first is of another layout
    if zeroed:
        assert found == [None, None], "it does not know them"
    else:
        assert all(torch.equal(one.grad, grad) for one, grad in zip(ours[1:-1], found, strict=True))


def test_memory_of_gradients_that_were_sent_is_used_again() -> None:
    members = Members()
    follower = members.follower()
    for _ in range(8):
        step(members.state)
        members.commit()
        follower.wait()
    assert len(members.stream._rooms) <= 4  # noqa: SLF001 - what it keeps
    members.commit(leaving=True)
    assert follower.reach(members.own.step)
    assert members.equal()


def test_one_that_stays_out_of_a_group_goes_on_to_follow() -> None:
    members = Members()
    follower = members.follower()
    for _ in range(2):
        step(members.state)
        members.commit(leaving=True)
    assert follower.reach(members.own.step)
    assert members.equal()


def test_a_copy_that_is_being_sent_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    goes = threading.Event()
    send = state_stream.pieces

    def late(flat: object) -> Iterator[memoryview]:
        assert goes.wait(PATIENCE_S)
        return send(flat)

    monkeypatch.setattr(state_stream, "pieces", late)
    members = Members()
    follower = members.follower()
    for _ in range(3):
        step(members.state)
        members.commit()
    goes.set()
    members.commit(leaving=True)
    assert follower.reach(members.own.step)
    assert members.equal()


def test_steps_that_are_faster_than_the_network_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    goes = threading.Event()
    monkeypatch.setattr(state_stream, "_MOST_QUEUED", 2)
    monkeypatch.setattr(state_stream, "pieces", lambda _flat: iter([b""][: not goes.wait(PATIENCE_S)]))
    members = Members()
    follower = members.follower()
    for _ in range(20):
        step(members.state)
    assert not members.stream.is_followed
    goes.set()
    follower.wait()
    assert not follower.reach(members.own.step)


@pytest.mark.parametrize("why", ["broken group", "closure", "sparse", "end"])
def test_a_new_worker_learns_that_it_cannot_follow(why: str) -> None:
    import torch

    members = Members()
    follower = members.follower()
    step(members.state)
    follower.wait()
    if why == "broken group":
        members.stream.drop()
    elif why == "closure":
        step(members.state, lambda: 0.5)
    elif why == "sparse":
        members.state.model[0].bias.grad = torch.ones(4).to_sparse()
        with pytest.raises(RuntimeError, match="sparse"):
            members.state.optimizer.step()
    else:
        for one in members.stream.followers:
            one.connection.shutdown(socket.SHUT_RDWR)
    follower.wait()
    assert not follower.reach(members.own.step)
    assert inner(members.new).mixed
    members.commit()
    step(members.state)
    assert not members.stream.is_followed
    assert not members.state.optimizer._optimizer_step_pre_hooks  # noqa: SLF001 - torch has no other way


def test_members_train_on_when_a_new_worker_dies() -> None:
    members = Members()
    follower = members.follower()
    follower.connection.shutdown(socket.SHUT_RDWR)
    assert not follower.reach(99)
    members.stream.joined(0)
    assert not members.stream.is_followed
    step(members.state)
    members.commit()


def test_only_those_are_served_that_know_the_token() -> None:
    members = Members()
    port, token = json.loads(members.store.store.get(STREAM))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
        stranger.sendall(b"x" * len(token))
        assert not stranger.recv(1)
    assert not members.stream.arrived


@pytest.mark.parametrize("why", ["small", "fast", "no optimizer", "in vain", "memory"])
def test_a_state_is_not_sent_ahead_where_that_does_not_help(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    if why == "small":
        monkeypatch.setattr(state_stream, "_LEAST_BYTES", 1 << 30)
    elif why == "fast":
        members.own.pace_s = 1e-9
    elif why == "no optimizer":
        members.state.optimizer = 3
    elif why == "memory":
        monkeypatch.setattr(state_stream, "fits_in_memory", lambda _needed: False)
    else:
        for _ in range(2):
            follower = members.follower()
            members.commit(leaving=True)
            follower.reach(members.own.step)
            members.stream.joined(1 << 30)
    follower = members.follower()
    follower.wait()
    assert not follower.reach(members.own.step)
    assert not inner(members.new).mixed, "nothing of it was touched"


def test_copies_that_are_there_need_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(state_stream, "fits_in_memory", lambda needed: bool(asked.append(needed)))
    members = Members()
    members.follower()
    assert members.own.copy is not None
    members.own.spares = [state_tree.copied(members.own.copy, None)]
    members.follower()
    size = state_tree.size_of(members.own.copy)
    assert asked[0] == asked[1] + size < 3 * size


def test_digests_tell_tensors_apart() -> None:
    import torch

    one = torch.arange(100_000, dtype=torch.float32)
    other = one.clone()
    assert digest_of(one) == digest_of(other)
    other[99_999] += 1
    assert digest_of(one) != digest_of(other)
    rolled = one.roll(128)
    assert digest_of(one) != digest_of(rolled), "blocks in another order"
    other = one.clone()
    other[99_999 // 128 * 128 - 1] += 1
    parts = [digest_of(one, part, 8) != digest_of(other, part, 8) for part in range(8)]
    assert parts.count(True) == 1, "a sample has every eighth block"
    assert digest_of(torch.zeros(0)) == digest_of(torch.empty(0))
    assert digest_of(torch.zeros(9)) != digest_of(torch.ones(9))
    shifted = torch.arange(100_001, dtype=torch.float32)[1:]
    assert digest_of(shifted) == digest_of(shifted.clone()) or shifted.storage_offset() % 2
