"""Shares of a batch: together they are the batch, and count as its mean."""

from __future__ import annotations

import pytest

from bftrain_elastic.worker.batch_shares import BatchShare


@pytest.mark.parametrize("samples", [1, 2, 7, 12])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_shares_are_the_batch_and_their_weighted_means_its_mean(samples: int, workers: int) -> None:
    numbers = [float(number * number) for number in range(samples)]
    shares = [BatchShare.of(samples, rank, workers) for rank in range(workers)]
    assert all(numbers[mine] for mine, _ in shares), "none is empty: its mean would be no number"
    assert sorted(one for mine, weight in shares if weight for one in numbers[mine]) == numbers
    means = [weight * sum(numbers[mine]) / len(numbers[mine]) for mine, weight in shares]
    assert sum(means) / workers == pytest.approx(sum(numbers) / samples, rel=1e-14)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_share_of_an_array_or_a_tensor_is_contiguous(rank: int) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
    mine = BatchShare.of(8, rank, 3).mine
    targets = torch.arange(8 * 5).reshape(8, 5)
    assert targets[mine].view(-1).tolist() == targets.numpy()[mine].ravel().tolist()
    assert targets.numpy()[mine].flags.c_contiguous


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 0 samples"):
        BatchShare.of(0, 0, 2)
