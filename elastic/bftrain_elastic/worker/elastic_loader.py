"""A data loader that continues its epochs across changes of the group: every sample once in an epoch."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.batch_shares import BatchShare, decided_batch
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.random_numbers import SeededSamples, mixed_seed


class GlobalBatch(NamedTuple):
    """A batch of all workers: its epoch, its position there, and this worker's part."""

    epoch: int
    end: int  # samples of the epoch that are done after it
    samples: int
    share: BatchShare


class ElasticLoader:
    """Batches of a data set, divided among the workers of the current group; pass it to the State.

    The sample sequence depends on the seed and the epoch alone, and a batch has ``batch_size`` samples of all workers
    together. So any number of workers trains the same batches, and a change continues with the next one.

    Args:
        dataset: has ``len()`` and returns a sample for each number, as for DataLoader.
        batch_size: samples of all workers together, unless another batch is decided (``State.decided_batch``).
        epochs: how often each sample is trained.
        shuffle: draw a new sequence for each epoch.
        seed: seed of these sequences.
        drop_last: leave out the last batch of an epoch if it is smaller.
        seed_samples: draw the random numbers of each sample from the seed, its epoch and its number, so that random
            changes to it are the same for any number of workers and of ``num_workers``.
        options: further options of ``torch.utils.data.DataLoader``, such as ``num_workers``.

    Example::

        def train(state):
            model = state.parallel()
            for x, y in state.data:  # continues after the last committed batch
                loss = state.data.weight * mse_loss(model(x), y)
                ...
                report(samples=state.data.samples, loss=loss)
                state.commit()

        run(State(model=model, optimizer=optimizer, data=ElasticLoader(dataset, batch_size=96, epochs=3)), train)

    """

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - torch.utils.data.Dataset, or a list
        *,
        batch_size: int,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        seed_samples: bool = False,
        **options: Any,  # noqa: ANN401 - of DataLoader
    ) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            fix = "give it a data set with len() and numbered samples, or keep in the State how far a stream was read"
            raise BadScript(f"a {type(dataset).__name__} cannot be divided by number", where="ElasticLoader", fix=fix)
        length = len(dataset) - len(dataset) % batch_size if drop_last else len(dataset)
        if batch_size < 1 or length < 1:
            fix = "make batch_size at least 1, and at most as large as the data set if drop_last is set"
            raise BadScript(f"{len(dataset)} samples give no batch", where="ElasticLoader", fix=fix)
        self._dataset, self._length, self._batch_size = dataset, length, batch_size
        self._shuffle, self._seed, self._options, self._seed_samples = shuffle, seed, options, seed_samples
        self.epochs = epochs
        self.epoch = 0  # epoch of the current batch, from 0
        self.position = 0  # samples of this epoch up to and including the current batch
        self.weight = 1.0  # factor for the mean loss over this worker's part of the batch
        self.samples = 0  # samples of all workers in this batch

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(range(0, self._length, decided_batch() or self._batch_size))

    @property
    def ends_epoch(self) -> bool:
        """Whether the current batch is the last of its epoch."""
        return self.position >= self._length

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's part of each remaining batch of all epochs.

        A batch counts as done when it is yielded. The next commit makes this permanent, and a rollback to the previous
        commit undoes it.
        """
        from torch.utils.data import DataLoader

        given: deque[GlobalBatch] = deque()  # DataLoader reads ahead
        rank, workers = group_rank()
        dataset = SeededSamples(self._dataset, self._seed) if self._seed_samples else self._dataset
        loader = iter(DataLoader(dataset, batch_sampler=self._numbers(given, rank, workers), **self._options))
        try:
            for batch in loader:
                now = given.popleft()
                self.epoch, self.position, self.samples, self.weight = now.epoch, now.end, now.samples, now.share.weight
                yield batch
        finally:
            getattr(loader, "_shutdown_workers", lambda: None)()  # stop its processes now, before garbage collection

    def _numbers(self, given: deque[GlobalBatch], rank: int, workers: int) -> Iterator[list[Any]]:
        """Yield the numbers of this worker's samples, batch by batch; the batches are appended to ``given``."""
        position, size = self.position, decided_batch() or self._batch_size
        for epoch in range(self.epoch, self.epochs):
            order = self._order(epoch) if position < self._length else []
            for begin in range(position, self._length, size):
                numbers = order[begin : min(begin + size, self._length)]
                share = BatchShare.of(len(numbers), rank, workers)
                given.append(GlobalBatch(epoch, begin + len(numbers), len(numbers), share))
                mine = numbers[share.mine]
                yield [(epoch, number) for number in mine] if self._seed_samples else mine
            position = 0

    def _order(self, epoch: int) -> list[int]:
        if not self._shuffle:
            return list(range(len(self._dataset)))
        dice = torch.Generator().manual_seed(mixed_seed(self._seed, epoch))
        order: list[int] = torch.randperm(len(self._dataset), generator=dice).tolist()
        return order

    def state_dict(self) -> dict[str, int]:
        """Return the position in the data."""
        return {"epoch": self.epoch, "position": self.position, "length": self._length}

    def load_state_dict(self, found: Mapping[str, int]) -> None:
        """Continue from a position."""
        if found["length"] != self._length:
            what = f"the data set has {self._length} samples, and had {found['length']} when the state was kept"
            raise BadScript(what, where="ElasticLoader", fix="give it the same data, or start in a new folder")
        self.epoch, self.position = found["epoch"], found["position"]


def group_rank() -> tuple[int, int]:
    """Return this worker's rank and the number of workers in the current group of torch or Horovod."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    hvd = sys.modules.get("horovod.torch")
    if hvd is not None and hvd.is_initialized():
        return hvd.rank(), hvd.size()
    return 0, 1
