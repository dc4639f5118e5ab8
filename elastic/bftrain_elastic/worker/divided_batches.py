"""Batches of a DataLoader of the script, divided among the workers of the present group."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.batch_shares import BatchShare
from bftrain_elastic.worker.elastic_loader import group_rank
from bftrain_elastic.worker.random_numbers import SeededSamples, mixed_seed, random_numbers_of

_NUMBERED: Final = "give it a data set with len() and numbered samples, and a batch_size"


class GivenBatch(NamedTuple):
    """A batch of all workers, of which this one has its share."""

    samples: int
    share: BatchShare = BatchShare(slice(0, 1), 1.0)

    @property
    def weight(self) -> float:
        """The factor for the mean loss over this worker's part."""
        return self.share.weight


class DividedBatches:
    """A batch sampler that gives this worker's share of each batch of another one.

    Their order is drawn from the seed and the epoch alone, so that all workers have the same, also those that come
    later. ``given`` holds the batches that the loader has asked for, in order; it reads ahead.
    """

    def __init__(self, batch_sampler: Any, seed: int, *, by_epoch: bool) -> None:  # noqa: ANN401 - lists of numbers
        self.batch_sampler = batch_sampler
        self.epoch = 0
        self.start = 0  # batches of the epoch that are done
        self.given: deque[GivenBatch] = deque()
        self._seed, self._by_epoch = seed, by_epoch  # whether samples are asked for by epoch and number
        self._drawn: tuple[int, list[list[int]]] = (-1, [])

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield this worker's numbers of each batch of the epoch that is left."""
        rank, workers = group_rank()
        self.given.clear()
        for batch in self._batches()[self.start :]:
            share = BatchShare.of(len(batch), rank, workers)
            self.given.append(GivenBatch(len(batch), share))
            yield [(self.epoch, number) for number in batch[share.mine]] if self._by_epoch else batch[share.mine]

    def _batches(self) -> list[list[int]]:
        if self._drawn[0] != self.epoch:
            seed = mixed_seed(self._seed, self.epoch)
            samplers: list[Any] = [self.batch_sampler, getattr(self.batch_sampler, "sampler", None)]
            for one in samplers:
                if hasattr(one, "set_epoch"):
                    one.set_epoch(self.epoch)
                if getattr(one, "generator", None) is not None:
                    one.generator.manual_seed(seed)
            with random_numbers_of(seed):
                self._drawn = (self.epoch, [list(batch) for batch in self.batch_sampler])
        return self._drawn[1]


def divide(loader: Any, seed: int, *, seed_samples: bool = False) -> Any:  # noqa: ANN401 - a DataLoader of torch
    """Return a copy of a DataLoader whose ``batch_sampler`` is a :class:`DividedBatches` of the loader's own.

    With ``seed_samples`` the random numbers of a sample depend on the seed, its epoch and its number.
    """
    from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

    kind = type(loader).__name__
    if not isinstance(loader, DataLoader):
        raise BadScript(f"a {kind} cannot be divided by number", where="the training data", fix=_NUMBERED)
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        what = f"batches of a {type(loader.dataset).__name__} cannot be divided by number"
        raise BadScript(what, where="the training data", fix=_NUMBERED)
    if isinstance(loader.sampler, DistributedSampler):
        what = "a DistributedSampler divides the data once more, for a number of workers that will change"
        raise BadScript(what, where="the training data", fix="leave it out: batches are divided anyway")
    divided = copy.copy(loader)
    vars(divided)["_iterator"] = None  # this way, because DataLoader forbids to set the others
    vars(divided)["batch_sampler"] = DividedBatches(loader.batch_sampler, seed, by_epoch=seed_samples)
    if seed_samples:
        vars(divided)["dataset"] = SeededSamples(loader.dataset, seed)
    return divided
