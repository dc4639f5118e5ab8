"""Random numbers that are the same for any number of workers: of samples, and of what a model drops."""

from __future__ import annotations

import random

import pytest

from bftrain_elastic import ElasticLoader, State
from bftrain_elastic.worker import elastic_loader
from bftrain_elastic.worker.batch_shares import BatchShare
from bftrain_elastic.worker.random_numbers import random_numbers_by_sample, random_numbers_of

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
pytestmark = pytest.mark.torch
SAMPLES = 7


class Noisy(torch.nn.Module):
    """Draws in the ways of models: dropout, rows of several samples, noise in place and of a like shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.dropout(self.layer(x).flatten(0, 1), 0.5).reshape(x.shape)
        return y + torch.rand_like(x) + torch.empty_like(x).normal_()


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_each_sample_has_the_numbers_that_it_has_on_one_worker(workers: int) -> None:
    torch.manual_seed(1)
    model, x = Noisy(), torch.randn(SAMPLES, 5, 8)

    def trained(of: int) -> tuple[torch.Tensor, torch.Tensor]:
        out, gradient = torch.zeros_like(x), torch.zeros_like(x)
        for rank in range(of):
            share = BatchShare.of(SAMPLES, rank, of)
            mine = x[share.mine].clone().requires_grad_()
            with random_numbers_by_sample(3, SAMPLES, share):
                found = model(mine)
                found.pow(2).sum().backward()
            if share.weight:
                out[share.mine], gradient[share.mine] = found.detach(), mine.grad
        return out, gradient

    for pair in zip(trained(workers), trained(1), strict=True):
        torch.testing.assert_close(*pair)
    with random_numbers_by_sample(4, SAMPLES, BatchShare.of(SAMPLES, 0, 1)):
        assert not torch.equal(model(x), trained(1)[0])


def test_the_numbers_of_a_state_depend_on_its_step() -> None:
    state = State(position=0)

    def drawn() -> list[float]:
        with state.random_numbers(4):
            return torch.empty(4).uniform_().tolist()

    first = drawn()
    assert drawn() == first
    state.commit()
    assert drawn() != first


class Cropped(torch.utils.data.Dataset):
    """Changes its samples at random."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.tensor([number, random.random(), float(torch.rand(()))])  # noqa: S311 - no secrets


@pytest.mark.parametrize("workers", [2, 3])
def test_random_changes_of_a_sample_are_the_same_at_any_size(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def samples(of: int) -> list[list[float]]:
        found = []
        for rank in range(of):
            monkeypatch.setattr(elastic_loader, "group_rank", lambda rank=rank: (rank, of))
            loader = ElasticLoader(Cropped(), batch_size=5, epochs=2, seed_samples=True)
            found += [[loader.epoch, *one] for part in loader if loader.weight for one in part.tolist()]
        return sorted(found)

    assert samples(workers) == samples(1)
    assert len({tuple(one[2:]) for one in samples(1)}) == 46, "each sample has numbers of its own in each epoch"


def test_what_the_script_draws_goes_on_where_it_was() -> None:
    torch.manual_seed(1), random.seed(1)
    expected = [float(torch.rand(())), random.random()]  # noqa: S311 - no secrets
    torch.manual_seed(1), random.seed(1)
    with random_numbers_of(5):
        torch.rand(()), random.random()  # noqa: S311 - no secrets
    assert [float(torch.rand(())), random.random()] == expected  # noqa: S311 - no secrets
