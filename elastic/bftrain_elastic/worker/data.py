"""Training data divided among the workers of the current group: shares of a batch, random numbers, and loaders."""

from __future__ import annotations

import copy
import hashlib
import os
import random
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.lazy_torch import dist, torch

BATCH: Final = "BFTRAIN_BATCH"  # decided samples per step over all workers; 0 or unset: the script decides
_SEEDS: Final = 2**63
_NUMPY_SEEDS: Final = 2**32
_FACTOR: Final = 1_000_003  # a prime, so that mixed seeds hardly ever coincide
_NONE: Final = object()  # the loader has no further batch
_HASH_BYTES: Final = 7
_READ: Final = "bftrain.read"  # key of the number of batches read in this epoch, if the loader's state is not used
_LOADER: Final = "give it a loader with state_dict() and load_state_dict(), such as torchdata's StatefulDataLoader"
_SAME: Final = (
    "let the data depend only on the position: draw no random numbers per "
    "worker, and give the loader neither a rank nor a DistributedSampler"
)


def decided_batch() -> int | None:
    """Return the decided samples per step over all workers of the current group, or ``None``."""
    return int(os.environ.get(BATCH) or 0) or None


class BatchShare(NamedTuple):
    """One worker's part of a batch: ``mine`` is a contiguous slice, ``weight`` multiplies the mean loss over it.

    Workers average their gradients with equal weights. To get the gradient of the mean over all N samples, the mean
    loss over a share of n is multiplied by n W / N on W workers. If a batch has fewer samples than workers, some have
    no share: they take its first sample with a weight of 0, so that all workers take part in the exchange.
    """

    mine: slice
    weight: float

    @classmethod
    def of(cls, samples: int, rank: int, workers: int) -> BatchShare:
        """Divide ``samples`` samples among ``workers``."""
        if samples < 1:
            raise ValueError(f"a batch of {samples} samples cannot be divided")
        start, stop = rank * samples // workers, (rank + 1) * samples // workers
        return cls(slice(start, stop) if start < stop else slice(0, 1), (stop - start) * workers / samples)


def mixed_seed(seed: int, *numbers: int) -> int:
    """Return a seed derived from numbers, such as an epoch and a sample."""
    for number in numbers:
        seed = (seed * _FACTOR + number) % _SEEDS
    return seed


@contextmanager
def random_numbers_of(seed: int) -> Iterator[None]:
    """Draw random numbers from a separate seed on the CPU, then restore the current generators."""
    numpy = sys.modules.get("numpy")
    before, before_numpy = random.getstate(), None if numpy is None else numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # seeding all devices takes far longer
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % _NUMPY_SEEDS)
            yield
    finally:
        random.setstate(before)
        if numpy is not None and before_numpy is not None:
            numpy.random.set_state(before_numpy)


def epoch_order(samples: int, seed: int | None, epoch: int) -> list[int]:
    """Return the sample sequence of an epoch; ``seed`` None: unshuffled."""
    if seed is None:
        return list(range(samples))
    order: list[int] = torch.randperm(
        samples, generator=torch.Generator().manual_seed(mixed_seed(seed, epoch))
    ).tolist()
    return order


class GlobalBatch(NamedTuple):
    """A batch of all workers: its epoch, its position there, and this worker's part."""

    epoch: int
    end: int  # number of samples of the epoch up to and including it
    samples: int
    share: BatchShare


class ElasticLoader:
    """Batches of a data set, divided among the workers of the current group; pass it to the State.

    The sample sequence depends on the seed and the epoch alone, and a batch has ``batch_size`` samples of all workers
    together. So any number of workers trains the same batches, and a change continues with the next one.

    Args:
        dataset: has ``len()`` and returns a sample for each index, as for DataLoader.
        batch_size: samples of all workers together, unless another batch is decided (``State.decided_batch``).
        epochs: how often each sample is trained.
        shuffle: draw a new sequence for each epoch.
        seed: seed of these sequences.
        drop_last: leave out the last batch of an epoch if it is smaller.
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
        **options: Any,  # noqa: ANN401 - of DataLoader
    ) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            fix = "give it a data set with len() and indexed samples, or use ElasticStream for a stream"
            raise BadScript(f"a {type(dataset).__name__} cannot be divided by index", where="ElasticLoader", fix=fix)
        length = len(dataset) - len(dataset) % batch_size if drop_last else len(dataset)
        if batch_size < 1 or length < 1:
            fix = "set batch_size to at least 1, and with drop_last to no more than the data set's length"
            raise BadScript(f"{len(dataset)} samples give no batch", where="ElasticLoader", fix=fix)
        self._dataset, self._length, self._batch_size = dataset, length, batch_size
        self._shuffle, self._seed, self._options = shuffle, seed, options
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
        loader = iter(DataLoader(self._dataset, batch_sampler=self._numbers(given, rank, workers), **self._options))
        try:
            for batch in loader:
                now = given.popleft()
                self.epoch, self.position, self.samples, self.weight = now.epoch, now.end, now.samples, now.share.weight
                yield batch
        finally:
            getattr(loader, "_shutdown_workers", lambda: None)()  # stop its processes now, before garbage collection

    def _numbers(self, given: deque[GlobalBatch], rank: int, workers: int) -> Iterator[list[int]]:
        """Yield the numbers of this worker's samples, batch by batch; the batches are appended to ``given``."""
        position, size = self.position, decided_batch() or self._batch_size
        for epoch in range(self.epoch, self.epochs):
            order = epoch_order(len(self._dataset), self._seed if self._shuffle else None, epoch)
            for begin in range(position, self._length, size):
                numbers = order[begin : min(begin + size, self._length)]
                share = BatchShare.of(len(numbers), rank, workers)
                given.append(GlobalBatch(epoch, begin + len(numbers), len(numbers), share))
                yield numbers[share.mine]
            position = 0

    def state_dict(self) -> dict[str, int]:
        """Return the position in the data."""
        return {"epoch": self.epoch, "position": self.position, "length": self._length}

    def load_state_dict(self, found: Mapping[str, int]) -> None:
        """Continue from the position ``found``, of :meth:`state_dict`."""
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


class ElasticStream:
    """Batches of a stream, divided among the workers of the current group; pass it to the State.

    Every worker reads the same batches, of all workers' samples together, and takes its part. The loader's position
    belongs to the state, so each sample is trained once in an epoch through all changes of the group.

    Args:
        loader: yields batches, and has ``state_dict()`` and ``load_state_dict()``: torchdata's ``StatefulDataLoader``
            over a data set or a stream of samples, or a data set of batches with these methods.
        epochs: how often the stream is read completely.
        seed: seed of its shuffling: the same on all workers, and a new one in each epoch.

    The training loop is that of :class:`ElasticLoader`, with another ``data``::

        data = ElasticStream(StatefulDataLoader(stream, batch_size=96, num_workers=2), epochs=3)

    """

    def __init__(self, loader: Any, *, epochs: int = 1, seed: int = 0) -> None:  # noqa: ANN401 - of any package
        if not (hasattr(loader, "__iter__") and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
            raise BadScript(
                f"a {type(loader).__name__} does not report its position", where="ElasticStream", fix=_LOADER
            )
        self._loader, self._seed = loader, seed
        self._position: Any = None  # the loader's own state after the current batch; None: at the start of the epoch
        # True: the position is the number of batches read in the epoch
        self._is_counted = _lacks_position(getattr(loader, "dataset", None))
        self.epochs = epochs
        self.epoch = 0  # epoch of the current batch, from 0
        self.ends_epoch = False  # whether it is the last batch of its epoch
        self.weight = 1.0  # factor for the mean loss over this worker's part of the batch
        self.samples = 0  # samples of all workers in this batch

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's part of each remaining batch of all epochs.

        A batch counts as done when it is yielded: the next commit makes this permanent.
        """
        rank, workers = group_rank()
        if self.ends_epoch:
            self.epoch, self._position = self.epoch + 1, None
        first = workers > 1
        for epoch in range(self.epoch, self.epochs):
            self.epoch = epoch
            for batch, position, ends in self._batches():
                if first:
                    _require_same(batch)
                first = False
                self._position, self.ends_epoch = position, ends
                self.samples = _length(batch)
                share = BatchShare.of(self.samples, rank, workers)
                self.weight = share.weight
                yield _part(batch, share.mine)
            self._position = None

    def _batches(self) -> Iterator[tuple[Any, Any, bool]]:
        """Yield the remaining batches of an epoch, each with the position after it, and whether it is the last."""
        read = (self._position or {}).get(_READ, 0) if self._is_counted else 0
        counted = self._is_counted and (self._position is None or read)
        with random_numbers_of(mixed_seed(self._seed, self.epoch)):
            if self._position is not None and not read:
                self._loader.load_state_dict(copy.deepcopy(self._position))
            reading = iter(self._loader)
            batch = next(islice(reading, read, None), _NONE)
        try:
            while batch is not _NONE:
                read += 1
                position = {_READ: read} if counted else copy.deepcopy(self._loader.state_dict())
                following = next(reading, _NONE)
                yield batch, position, following is _NONE
                batch = following
        except GeneratorExit:
            getattr(reading, "_shutdown_workers", lambda: None)()  # stop its processes now, before garbage collection
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data."""
        return {"epoch": self.epoch, "ends_epoch": self.ends_epoch, "position": self._position}

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Continue from the position ``found``, of :meth:`state_dict`."""
        self.epoch, self.ends_epoch, self._position = found["epoch"], found["ends_epoch"], found["position"]


def _lacks_position(dataset: Any) -> bool:  # noqa: ANN401 - the data set of any loader
    """Return whether a data set is a stream that does not report its position.

    After a resume, torchdata's own position in such a stream is wrong: it skips unread samples.
    """
    torch = sys.modules.get("torch")
    stream = torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)
    return stream and not hasattr(dataset, "state_dict") and not hasattr(iter(dataset), "state_dict")


def _is_column(part: Any) -> bool:  # noqa: ANN401 - what a loader gives
    """Return whether a part of a batch has one item per sample: a tensor, or a list of strings."""
    return hasattr(part, "shape") or (isinstance(part, list | tuple) and bool(part) and isinstance(part[0], str))


def _parts(batch: Any) -> Iterator[Any]:  # noqa: ANN401 - as above
    """Yield the tensors and lists of strings of a batch."""
    if _is_column(batch):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for one in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _parts(one)


def _length(batch: Any) -> int:  # noqa: ANN401 - as above
    lengths = {len(one) for one in _parts(batch)}
    if len(lengths) != 1:
        parts = f"tensors of {sorted(lengths)} samples" if lengths else "no tensors"
        what = f"a batch of {type(batch).__name__} has {parts}"
        raise BadScript(what, where="ElasticStream", fix="let the first dimension of each tensor be the samples")
    return lengths.pop()


def _part(batch: Any, mine: slice) -> Any:  # noqa: ANN401 - as above
    """Return some samples of a batch."""
    if isinstance(batch, Mapping):
        return {name: _part(one, mine) for name, one in batch.items()}
    if _is_column(batch):
        return batch[mine]
    if isinstance(batch, list | tuple):
        parts = [_part(one, mine) for one in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


def _require_same(batch: Any) -> None:  # noqa: ANN401 - as above
    """Raise ``BadScript`` if the workers of a group read different batches; called by all workers."""
    if not (dist.is_available() and dist.is_initialized()):
        return
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for one in _parts(batch):
        digest.update(repr(one.tolist() if hasattr(one, "tolist") else one).encode())
    number = int.from_bytes(digest.digest(), "little")
    box = torch.tensor([number, -number])
    dist.all_reduce(box, dist.ReduceOp.MAX)
    if int(box[0]) != -int(box[1]):
        raise BadScript("the workers read different batches", where="ElasticStream", fix=_SAME)
