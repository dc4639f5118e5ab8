"""Batches of a loader that keeps its own position, such as torchdata's, divided among the workers of a group."""

from __future__ import annotations

import copy
import hashlib
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker.batch_shares import BatchShare
from bftrain_elastic.worker.elastic_loader import group_rank
from bftrain_elastic.worker.lazy_torch import dist, torch
from bftrain_elastic.worker.random_numbers import mixed_seed, random_numbers_of

_NONE: Final = object()
_HASH_BYTES: Final = 7
_READ: Final = "bftrain.read"  # key of the number of batches read in this epoch, if the loader's state is not used
_LOADER: Final = "give it a loader with state_dict() and load_state_dict(), such as torchdata's StatefulDataLoader"
_SAME: Final = (
    "let the data depend on nothing but its position: draw no random numbers of a worker's own, and give the loader "
    "neither a rank nor a DistributedSampler"
)


class ElasticStream:
    """Batches of a stream, divided among the workers of the current group; pass it to the State.

    Every worker reads the same batches, of all workers' samples together, and takes its part. The loader's position
    belongs to the state, so each sample is trained once in an epoch through all changes of the group.

    Args:
        loader: yields batches, and has ``state_dict()`` and ``load_state_dict()``: torchdata's ``StatefulDataLoader``
            over a data set or a stream of samples, or a data set of batches with these methods.
        epochs: how often the stream is read completely.
        seed: seed of its shuffling: the same on all workers, and a new one in each epoch.

    Example::

        data = ElasticStream(StatefulDataLoader(stream, batch_size=96, num_workers=2), epochs=3)

        def train(state):
            model = state.parallel()
            for x, y in state.data:  # continues after the last committed batch
                loss = state.data.weight * mse_loss(model(x), y)
                ...
                report(samples=state.data.samples, loss=loss)
                state.commit()

    """

    def __init__(self, loader: Any, *, epochs: int = 1, seed: int = 0) -> None:  # noqa: ANN401 - of any package
        if not (hasattr(loader, "__iter__") and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")):
            raise BadScript(
                f"a {type(loader).__name__} does not report its position", where="ElasticStream", fix=_LOADER
            )
        self._loader, self._seed = loader, seed
        self._position: Any = None  # the loader's own state after the current batch; None: at the start of the epoch
        # True: the position is the number of batches read in the epoch
        self._is_counted = _has_no_place(getattr(loader, "dataset", None))
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
                yield _part(batch, share.mine, self.samples)
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
        """Continue from a position."""
        self.epoch, self.ends_epoch, self._position = found["epoch"], found["ends_epoch"], found["position"]


def _has_no_place(dataset: Any) -> bool:  # noqa: ANN401 - the data set of any loader
    """Return whether a loader reads a stream that does not report its position.

    After a resume, torchdata's own position in such a stream is wrong: it skips unread samples.
    """
    torch = sys.modules.get("torch")
    stream = torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)
    return stream and not hasattr(dataset, "state_dict") and not hasattr(iter(dataset), "state_dict")


def _parts(batch: Any) -> Iterator[Any]:  # noqa: ANN401 - what a loader gives
    """Yield the tensors and lists of strings of a batch."""
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if hasattr(batch, "shape") or (isinstance(batch, list | tuple) and batch and isinstance(batch[0], str)):
        yield batch
    elif isinstance(batch, list | tuple):
        for one in batch:
            yield from _parts(one)


def _length(batch: Any) -> int:  # noqa: ANN401 - as above
    lengths = {len(one) for one in _parts(batch)}
    if len(lengths) != 1:
        what = (
            f"a batch of {type(batch).__name__} has tensors of {sorted(lengths)} samples" if lengths else "no tensors"
        )
        raise BadScript(what, where="ElasticStream", fix="let the first dimension of each tensor be the samples")
    return lengths.pop()


def _part(batch: Any, mine: slice, samples: int) -> Any:  # noqa: ANN401 - as above
    """Return some samples of a batch."""
    if isinstance(batch, Mapping):
        return {name: _part(one, mine, samples) for name, one in batch.items()}
    if hasattr(batch, "shape") or (isinstance(batch, list | tuple) and batch and isinstance(batch[0], str)):
        return batch[mine]
    if isinstance(batch, list | tuple):
        found = [_part(one, mine, samples) for one in batch]
        return type(batch)(*found) if hasattr(batch, "_fields") else type(batch)(found)
    return batch


def _require_same(batch: Any) -> None:  # noqa: ANN401 - as above
    """Raise if the workers of a group read different batches; called by all workers."""
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
