"""Batches of a script's own DataLoader: the same for any number of workers, each sample once an epoch."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import divided_batches

torch = pytest.importorskip("torch", reason="torch is not installed here; install it with: make horovod")
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, WeightedRandomSampler  # noqa: E402 - torch may be missing

pytestmark = pytest.mark.torch


class Seeded:
    """A sampler of a script, which draws from Python's random numbers."""

    def __iter__(self):  # noqa: ANN204
        return iter(random.sample(range(23), 23))

    def __len__(self) -> int:
        return 23


LOADERS = {
    "in order": lambda: DataLoader(range(23), batch_size=5),
    "shuffled": lambda: DataLoader(range(23), batch_size=5, shuffle=True),
    "a generator": lambda: DataLoader(
        range(23),
        batch_size=5,
        shuffle=True,
        generator=torch.Generator().manual_seed(random.randrange(99)),  # noqa: S311
    ),
    "weighted": lambda: DataLoader(range(23), batch_size=5, sampler=WeightedRandomSampler([1.0] * 23, 23)),
    "batches": lambda: DataLoader(range(23), batch_sampler=BatchSampler(Seeded(), 5, drop_last=False)),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("workers", [2, 3, 7])
def test_the_same_batches_come_for_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, kind: str, workers: int
) -> None:
    def batches(of: int, start: int = 0) -> list[list[int]]:
        found = []
        for rank in range(of):
            monkeypatch.setattr(divided_batches, "group_rank", lambda rank=rank: (rank, of))
            loader = divided_batches.divide(LOADERS[kind](), seed=3)
            assert len(loader) == 5
            each = []
            for loader.batch_sampler.epoch in (0, 1):
                loader.batch_sampler.start = start
                for part in loader:
                    given = loader.batch_sampler.given.popleft()
                    each.append((part.tolist() if given.weight else [], given))
            found.append(each)
        for same in zip(*found, strict=True):
            assert sum(len(part) for part, _ in same) == same[0][1].samples
            assert sum(given.weight for _, given in same) == pytest.approx(of)
        return [sorted(number for part, _ in same for number in part) for same in zip(*found, strict=True)]

    whole = batches(1)
    assert batches(workers) == whole
    assert batches(workers, start=3) == [*whole[3:5], *whole[8:]]
    assert (whole[:5] == whole[5:]) == (kind == "in order")
    if kind != "weighted":
        assert sorted(chain(*whole[:5])) == sorted(chain(*whole[5:])) == list(range(23))


def test_orders_leave_the_random_numbers_of_the_script_alone() -> None:
    torch.manual_seed(1), random.seed(1)
    expected = torch.rand(1), random.random()  # noqa: S311 - no secrets
    torch.manual_seed(1), random.seed(1)
    next(iter(divided_batches.divide(LOADERS["batches"](), seed=3).batch_sampler))
    assert (torch.rand(1), random.random()) == expected  # noqa: S311 - no secrets


class Stream(IterableDataset):
    """Samples without numbers."""

    def __iter__(self):  # noqa: ANN204
        return iter(range(4))


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        ([1, 2], "a list cannot be divided"),
        (DataLoader(Stream(), batch_size=2), "batches of a Stream cannot be divided"),
        (DataLoader(range(4), batch_size=None), "batches of a range cannot be divided"),
        (DataLoader(range(4), sampler=DistributedSampler(range(4), 2, 0)), "divides the data once more"),
    ],
)
def test_what_cannot_be_divided_is_refused_in_words(loader: object, words: str) -> None:
    with pytest.raises(BadScript, match=words) as refused:
        divided_batches.divide(loader, seed=0)
    assert refused.value.fix
