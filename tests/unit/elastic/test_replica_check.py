"""Replicas: two workers, each in a thread, compare what they train as the members of a group do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from bftrain_elastic import State
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.process_groups import GroupRank
from bftrain_elastic.worker.replica_check import compare_replicas, comparison_is_due
from bftrain_elastic.worker.state import leave_group
from bftrain_elastic.worker.state_values import StateInternals, inner

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch


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

    @property
    def values(self) -> Sequence[Any]:
        return self.model, self.optimizer


def drift(one: Sequence[Any], other: Sequence[Any], commits: int = 2) -> float | None:
    """Return the difference that the first of two workers reports; ``None`` if it reports none."""
    met, given, reports = Barrier(2, timeout=60), [[0.0], [0.0]], list[dict[str, Any]]()

    def compare(rank: int, values: Sequence[Any]) -> None:
        def spread(numbers: Sequence[float]) -> list[tuple[float, float]]:
            given[rank] = list(numbers)
            met.wait()
            pairs = [(min(pair), max(pair)) for pair in zip(*given, strict=True)]
            met.wait()
            return pairs

        own = StateInternals()
        own.commits, own.group.place, own.report = commits, GroupRank(1, rank, 2, 2), reports.append
        compare_replicas(own, values, spread)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(compare, (0, 1), (one, other)))
    assert [one["type"] for one in reports] in ([], ["drift"])
    return reports[0]["relative"] if reports else None


def test_the_same_training_is_no_drift() -> None:
    assert drift(TrainingWorker().steps(7).values, TrainingWorker().steps(7).values) is None


@pytest.mark.parametrize(("kind", "lr"), [("SGD", 1e-2), ("Adam", 1e-2), ("Adam", 1e-5)])
def test_gradients_that_were_not_exchanged_show_after_two_steps(kind: str, lr: float) -> None:
    one, other = (TrainingWorker(kind=kind, lr=lr).steps(2, share=share) for share in (1.0, 3.0))
    assert drift(one.values, other.values)


def test_another_rounding_of_other_machines_is_no_drift_and_a_flipped_bit_is() -> None:
    one, other = TrainingWorker().steps(2), TrainingWorker().steps(2)
    with torch.no_grad():
        other.model[0].weight.mul_(1 + 2e-7)
    assert drift(one.values, other.values) is None
    with torch.no_grad():
        other.model[0].weight[3, 3] += 0.25
    assert drift(one.values, other.values)


def test_one_changed_element_of_a_large_tensor_is_seen_in_time() -> None:
    pair = [torch.nn.Linear(100, 200, bias=False) for _ in range(2)]
    pair[1].load_state_dict(pair[0].state_dict())
    with torch.no_grad():
        pair[1].weight[77, 5] += 1.0
    found = [drift([pair[0]], [pair[1]], commits) for commits in (2, 4, 8, 16, 32)]
    assert len([one for one in found if one]) == 1


def test_moments_and_learning_rates_are_compared_too() -> None:
    one, other = TrainingWorker().steps(2), TrainingWorker().steps(2)
    for state in other.optimizer.state.values():
        state["exp_avg"] += 1.0
    assert drift(one.values, other.values)
    other = TrainingWorker().steps(2)
    other.optimizer.param_groups[0]["lr"] *= 1.5
    assert drift(one.values, other.values) == pytest.approx(0.5 / 1.5)


def test_members_that_train_different_parameters_differ_wholly() -> None:
    one, other = TrainingWorker(), TrainingWorker()
    assert drift(one.values, [other.model, torch.nn.Linear(2, 2)]) == 1.0
    assert drift(one.steps(1).values, other.values), "one of them alone has made a step"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_any_type_of_number_is_compared(dtype: object) -> None:
    one, other = torch.nn.Linear(3, 3, dtype=dtype), torch.nn.Linear(3, 3, dtype=dtype)
    assert drift([one], [one]) is None
    assert drift([one], [other])


def test_not_a_number_on_all_members_is_no_drift() -> None:
    worker = TrainingWorker()
    with torch.no_grad():
        worker.model[0].weight.fill_(float("nan"))
    assert drift(worker.values, worker.values) is None


class Wrapper:
    """As Accelerate wraps an optimizer, or as a script keeps several things in one."""

    def __init__(self, **parts: object) -> None:
        vars(self).update(parts)

    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    "kept",
    [
        lambda it: [Wrapper(model=it.model, optimizer=it.optimizer)],
        lambda it: [Wrapper(optimizer=it.optimizer)],
        lambda it: [{"a": it.model}, [it.optimizer], "a text", 3],
    ],
)
def test_parts_of_values_are_compared(kept: Callable[[TrainingWorker], Sequence[Any]]) -> None:
    one, other = TrainingWorker().steps(2), TrainingWorker().steps(2, share=2.0)
    assert drift(kept(one), kept(other))


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
