"""Replicas: what two workers have is compared as they would compare it, and the usual causes are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from bftrain_elastic import State
from bftrain_elastic.errors import BadScript
from bftrain_elastic.wire.misuses import MISUSES, fixes
from bftrain_elastic.worker import replica_check
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.replica_check import ReplicaSample, TrainedParts, comparison_is_due
from bftrain_elastic.worker.state import leave_group
from bftrain_elastic.worker.state_values import inner

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    replica_check.watch_optimizers()
    replica_check.forget_optimizers()
    yield
    replica_check.forget_optimizers()


class TrainingWorker:
    """What one worker trains; a step is the same on all workers that have the same weights and optimizer states."""

    def __init__(self, *, kind: str = "Adam", lr: float = 1e-3, dtype: object = torch.float32) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(9, 40), torch.nn.Linear(40, 3)).to(dtype)
        self.optimizer = getattr(torch.optim, kind)(self.model.parameters(), lr=lr)

    def steps(self, count: int, *, share: float = 1.0) -> TrainingWorker:
        for number in range(count):
            x = torch.randn(5, 9, generator=torch.Generator().manual_seed(number)).to(self.model[0].weight.dtype)
            self.optimizer.zero_grad()
            (self.model(x).pow(2).mean() * share).backward()
            self.optimizer.step()
        return self

    def sample(self, turn: int = 2) -> ReplicaSample:
        replica_check.forget_optimizers()  # each stands for a process of its own
        if self.optimizer.state:
            replica_check.note_step(self.optimizer)
        return ReplicaSample.of(TrainedParts.of([self.model, self.optimizer]), turn)


def difference(one: ReplicaSample, other: ReplicaSample, commits: int = 2) -> tuple[float, list[str]]:
    assert len(one.numbers) == len(other.numbers)
    pairs = [(min(pair), max(pair)) for pair in zip(one.numbers, other.numbers, strict=True)]
    return one.largest_difference(pairs, commits)


def test_the_same_training_is_the_same_to_the_last_bit() -> None:
    assert difference(*(TrainingWorker().steps(7).sample() for _ in range(2))) == (0.0, [])


@pytest.mark.parametrize("lr", [1e-2, 1e-5])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_gradients_that_were_not_exchanged_show_after_two_steps(kind: str, lr: float) -> None:
    pair = [TrainingWorker(kind=kind, lr=lr).steps(2, share=share).sample() for share in (1.0, 3.0)]
    relative, why = difference(*pair)
    if kind == "SGD" and lr == 1e-5:
        assert relative > 0
    else:
        assert why == ["weights"]


def test_another_rounding_of_other_machines_is_no_drift_and_a_flipped_bit_is() -> None:
    one, other = TrainingWorker().steps(2), TrainingWorker().steps(2)
    with torch.no_grad():
        other.model[0].weight.mul_(1 + 2e-7)
    assert difference(one.sample(), other.sample())[1] == []
    with torch.no_grad():
        other.model[0].weight[3, 3] += 0.25
    assert difference(one.sample(), other.sample())[1] == ["weights"]


def test_one_changed_element_of_a_large_tensor_is_seen_in_time() -> None:
    pair = [torch.nn.Linear(100, 200, bias=False) for _ in range(2)]
    pair[1].load_state_dict(pair[0].state_dict())
    with torch.no_grad():
        pair[1].weight[77, 5] += 1.0

    def apart(turn: int) -> bool:
        one, other = (ReplicaSample.of(TrainedParts.of([model]), turn) for model in pair)
        return difference(one, other)[1] == ["weights"]

    assert [apart(turn) for turn in range(5)].count(True) == 1


def test_moments_and_learning_rates_are_compared_too() -> None:
    one, other = TrainingWorker().steps(2), TrainingWorker().steps(2)
    for state in other.optimizer.state.values():
        state["exp_avg"] += 1.0
    assert difference(one.sample(), other.sample())[1] == ["weights"]
    other = TrainingWorker().steps(2)
    other.optimizer.param_groups[0]["lr"] *= 1.5
    assert difference(one.sample(), other.sample()) == (0.0, ["rates"])


def test_members_that_train_different_parameters_are_named() -> None:
    assert difference(TrainingWorker().steps(1).sample(), TrainingWorker().sample())[1] == ["layout"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_any_type_of_number_is_compared(dtype: object) -> None:
    model = torch.nn.Linear(3, 3, dtype=dtype)
    sample = ReplicaSample.of(TrainedParts.of([model]), 2)
    assert difference(sample, sample) == (0.0, [])
    changed = torch.nn.Linear(3, 3, dtype=dtype)
    assert difference(sample, ReplicaSample.of(TrainedParts.of([changed]), 2))[1] == ["weights"]


def test_not_a_number_on_all_members_is_no_drift() -> None:
    worker = TrainingWorker()
    with torch.no_grad():
        worker.model[0].weight.fill_(float("nan"))
    sample = worker.sample()
    assert difference(sample, sample) == (0.0, [])


class Wrapper:
    """As Accelerate wraps an optimizer, or as a script keeps several things in one."""

    def __init__(self, **parts: object) -> None:
        vars(self).update(parts)

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("kept", "missing"),
    [
        (lambda it: {"model": it.model, "optimizer": it.optimizer}, []),
        (lambda it: {"model": it.model}, ["optimizer"]),
        (lambda it: {"optimizer": it.optimizer}, ["model"]),
        (lambda _: {"position": 3}, ["model", "optimizer"]),
        (lambda it: {"both": Wrapper(model=it.model, optimizer=it.optimizer)}, []),
        (lambda it: {"model": it.model, "optimizer": Wrapper(optimizer=it.optimizer)}, []),
        (lambda it: {"models": {"a": it.model}, "optimizers": [it.optimizer]}, []),
    ],
)
def test_what_is_trained_and_not_kept_is_named(
    kept: Callable[[TrainingWorker], dict[str, Any]], missing: list[str]
) -> None:
    worker = TrainingWorker().steps(1)
    assert TrainedParts.of(kept(worker).values()).not_kept() == missing


def test_an_optimizer_without_moments_may_stay_outside() -> None:
    worker = TrainingWorker(kind="SGD").steps(1)
    assert TrainedParts.of([worker.model]).not_kept() == []


def reported(
    state: State, other: ReplicaSample | None = None, samples: float | None = None, seed: float = 0.0
) -> list[dict[str, Any]]:
    """Return what the first of two workers reports, beside one that has drawn ``other``; its own if none."""
    own, said = inner(state), []
    own.commits, own.group.place, own.report = 2, GroupRank(1, 0, 2, 2), said.append

    def spread(numbers: Sequence[float]) -> list[tuple[float, float]]:
        sample, shares = numbers[:-2] if other is None else other.numbers, numbers[-2] if samples is None else samples
        theirs = [*sample, shares, seed]
        return [(min(pair), max(pair)) for pair in zip(numbers, theirs, strict=True)]

    replica_check.compare_states(state, spread)
    return said


def test_the_causes_of_a_drift_are_named_with_their_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    other = TrainingWorker().steps(2, share=2.0).sample()
    worker = TrainingWorker().steps(2)
    worker.sample()
    state = State(model=worker.model, optimizer=worker.optimizer, position=2)
    assert [one["causes"] for one in reported(state, other)] == [["parallel"]]
    inner(state).parallel = object()
    assert [one["causes"] for one in reported(state, other)] == [["weights"]]
    inner(state).parallel = SimpleNamespace(module=worker.model)  # as of other parameters
    assert [one["causes"] for one in reported(state, other)] == [["rewrap"]]
    inner(state).parallel = object()
    monkeypatch.setenv("BFTRAIN_LAUNCHER", "horovod")
    assert [one["causes"] for one in reported(state, other)] == [["horovod"]]
    blind = SimpleNamespace(PartialState=SimpleNamespace(_shared_state={"distributed_type": "NO", "num_processes": 1}))
    monkeypatch.setitem(replica_check.sys.modules, "accelerate.state", blind)
    assert [one["causes"] for one in reported(state, other)] == [["accelerate"]]
    said = reported(State(model=worker.model, position=2), other)
    assert [one["type"] for one in said] == ["misuse", "drift"]
    assert said[1]["causes"] == ["accelerate", "optimizer"]
    assert reported(state) == []


@pytest.mark.parametrize(
    ("other", "used", "causes"), [(4, False, [["shares"]]), (4, True, []), (5, False, []), (9, False, [])]
)
def test_unequal_shares_of_a_batch_that_are_not_weighed_are_named(
    monkeypatch: pytest.MonkeyPatch, other: int, causes: list[list[str]], *, used: bool
) -> None:
    monkeypatch.setattr(replica_check.batch_shares, "used", False)
    state = State(model=torch.nn.Linear(2, 2), position=0)
    replica_check.note_batch(inner(state), (torch.zeros(5, 2),))
    if used:
        state.share(5)
        other = 0
    assert [one["causes"] for one in reported(state, samples=other)] == causes


@pytest.mark.parametrize(
    ("dropout", "seed", "by_sample", "causes"),
    [(0.5, 7, False, [["random"]]), (0.5, 8, False, []), (0.5, 7, True, []), (0.0, 7, False, [])],
)
def test_workers_that_draw_the_same_random_numbers_are_named(
    dropout: float, seed: int, causes: list[list[str]], *, by_sample: bool
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(dropout))
    state = State(model=model, position=0)
    own = inner(state)
    own.commits = 1  # the next one compares
    replica_check.watch_forward(own, model)
    torch.manual_seed(seed)
    if by_sample:
        with state.random_numbers(5):
            model(torch.zeros(5, 2))
    else:
        model(torch.zeros(5, 2))
    theirs = replica_check._hash([7]) if dropout else 0.0  # noqa: SLF001 - another worker's
    assert [one["causes"] for one in reported(state, samples=5, seed=0.0 if by_sample else theirs)] == causes


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (["backward", "step", "commit"], False),
        (["backward", "commit", "backward", "step", "commit"], True),
        (["backward", "step", "commit", "commit"], False),  # as in a validation
        (["backward", "step", "zero", "commit", "commit"], False),
        (["overflow", "commit", "backward", "step", "commit"], False),  # a GradScaler leaves such a step out
    ],
)
@pytest.mark.parametrize("to_none", [True, False])
def test_a_commit_between_the_parts_of_a_step_is_named(parts: list[str], *, named: bool, to_none: bool) -> None:
    worker, said = TrainingWorker(), list[Any]()
    state = State(model=worker.model, optimizer=worker.optimizer, position=0)
    inner(state).report = said.append
    worker.steps(1).optimizer.zero_grad(set_to_none=to_none)

    def backward(factor: float = 1.0) -> None:
        (worker.model(torch.ones(1, 9)).sum() * factor).backward()

    acts: dict[str, Callable[[], object]] = {
        "backward": backward,
        "overflow": lambda: backward(float("inf")),
        "step": worker.optimizer.step,
        "zero": lambda: worker.optimizer.zero_grad(set_to_none=to_none),
        "commit": state.commit,
    }
    for part in ["commit", *parts, "zero", *parts]:
        acts[part]()
    assert [one["causes"] for one in said if one["type"] == "misuse"] == [["pending"]] * named


@pytest.mark.parametrize(
    ("more", "named"), [({}, True), ({"position": 0}, False), ({"data": Wrapper()}, False), ({"schedule": None}, True)]
)
def test_a_state_that_does_not_say_how_far_it_is_is_named(more: dict[str, object], *, named: bool) -> None:
    worker = TrainingWorker()
    if "schedule" in more:
        more = {"schedule": torch.optim.lr_scheduler.ConstantLR(worker.optimizer)}
    state, said = State(model=worker.model, optimizer=worker.optimizer, **more), list[Any]()
    inner(state).report = said.append
    for _ in range(2):
        state.commit()
    assert [one["causes"] for one in said if one["type"] == "misuse"] == [["position"]] * named
    if named:  # a script may go on from the count of steps
        assert state.step == 2
        for _ in range(2):
            state.commit()
        assert len([one for one in said if one["type"] == "misuse"]) == 1


def test_an_optimizer_that_is_divided_belongs_into_a_sharded_training() -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(model.parameters())
    replica_check.note_step(optimizer)
    assert TrainedParts.of([model]).not_kept() == ["divided"]
    assert TrainedParts.of([model, optimizer]).not_kept() == []


def test_every_misuse_says_what_to_do() -> None:
    assert all(one.clause and one.fix in fixes([name]) and " (" not in one.clause for name, one in MISUSES.items())
    assert fixes(["of a later version"]) == ""


def test_comparisons_are_soon_and_then_seldom() -> None:
    due = [number for number in range(2001) if comparison_is_due(number)]
    assert due == [2, 4, 8, 16, 32, 64, 128, 256, 500, 1000, 1500, 2000]


class DTensor(torch.Tensor):
    """Stands for torch's: what is looked at is its type."""


class ZeroRedundancyOptimizer(torch.optim.SGD):
    """Stands for torch's."""


@pytest.mark.parametrize("late", [False, True])
def test_what_is_divided_among_workers_is_refused_in_words(*, late: bool) -> None:
    model = torch.nn.Linear(2, 2)
    if late:
        state = State(model=model)
    model.weight = torch.nn.Parameter(torch.zeros(2, 2).as_subclass(DTensor))
    with pytest.raises(BadScript, match=r"a Linear is divided among the workers \(DTensor\).*state.parallel\(\)"):
        _ = state.commit() if late else State(model=model)
    optimizer = ZeroRedundancyOptimizer(torch.nn.Linear(2, 2).parameters())
    with pytest.raises(BadScript, match="ZeroRedundancyOptimizer"):
        State(optimizer=optimizer)


def test_in_a_group_a_model_is_wrapped_again_once_other_parameters_are_trained() -> None:
    state = State(model=torch.nn.Linear(2, 1))
    group = inner(state).group
    group.form_alone()
    group.place = GroupRank(1, 0, 2, 2)
    try:
        state.model.weight.requires_grad = False
        before = state.parallel()
        assert state.parallel() is before
        state.model.weight.requires_grad = True
        after = state.parallel()
        assert after is not before
        after(torch.ones(1, 2)).sum().backward()
        assert state.model.weight.grad is not None
    finally:
        leave_group(state)


def test_alone_a_model_offers_what_it_offers_in_a_group() -> None:
    state = State(model=torch.nn.Linear(2, 1).eval())
    parallel = state.parallel()
    with parallel.no_sync():
        parallel(torch.ones(1, 2)).sum().backward()
    assert parallel.module is state.model
    assert state.model.weight.grad is not None
    assert parallel.in_features == 2
    assert not parallel.training
    with pytest.raises(AttributeError, match="out_feature"):
        _ = parallel.out_feature
