"""Random numbers that are independent of the group's size: per sample, per step, and for sample sequences."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bftrain_elastic.worker.batch_shares import BatchShare
from bftrain_elastic.worker.lazy_torch import torch

_SEEDS: Final = 2**63
_NUMPY_SEEDS: Final = 2**32
_FACTOR: Final = 1_000_003  # a prime, so that mixed seeds hardly ever coincide


def mixed_seed(seed: int, *numbers: int) -> int:
    """Return a seed derived from numbers, such as an epoch and a sample."""
    for number in numbers:
        seed = (seed * _FACTOR + number) % _SEEDS
    return seed


def seed_all(seed: int) -> None:
    """Seed the random numbers of PyTorch, Python, and NumPy if the script uses it."""
    random.seed(seed)
    torch.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % _NUMPY_SEEDS)


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


class SeededSamples:
    """A data set indexed by epoch and number; each sample is drawn with its own random numbers."""

    def __init__(self, dataset: Any, seed: int) -> None:  # noqa: ANN401 - torch.utils.data.Dataset, or a list
        self._dataset, self._seed = dataset, seed

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._dataset)

    def __getitem__(self, place: tuple[int, int]) -> Any:  # noqa: ANN401 - a sample
        """Return a sample of an epoch."""
        epoch, number = place
        with random_numbers_of(mixed_seed(self._seed, epoch, number)):
            return self._dataset[number]


@contextmanager
def random_numbers_by_sample(seed: int, samples: int, share: BatchShare) -> Iterator[None]:
    """Draw a step's random numbers for the whole batch on each worker, which uses its own samples' numbers.

    The output of a random operation counts as a part of the batch if its first dimension is a multiple of this worker's
    number of samples; otherwise all workers draw the same.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class DrawForBatch(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
        """Intercepts PyTorch's operations below autograd."""

        def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - as torch calls it
            return _draw(func, args, kwargs or {}, samples, share.mine)

    seed_all(seed)
    with DrawForBatch():
        yield


def _draw(func: Any, args: Any, kwargs: Any, samples: int, mine: slice) -> Any:  # noqa: ANN401 - an operation of torch
    """Run an operation; random operations run for the whole batch."""
    first, count = args[0] if args else None, len(range(samples)[mine])
    if (
        torch.Tag.nondeterministic_seeded not in func.tags
        or not isinstance(first, torch.Tensor)
        or any(isinstance(one, torch.Tensor) for one in args[1:])
        or not (first.dim() and first.shape[0])
        or first.shape[0] % count
    ):
        return func(*args, **kwargs)
    each, rest = first.shape[0] // count, tuple(first.shape[1:])
    whole = first.new_empty((samples * each, *rest))

    def own(drawn: Any) -> Any:  # noqa: ANN401 - a tensor
        return drawn.reshape(samples, each, *rest)[mine].reshape(first.shape)

    name = func.overloadpacket.__name__
    if name == "native_dropout":
        chance = args[1]
        mask = own(whole.bernoulli_(1 - chance))
        return first * mask / (1 - chance), mask.bool()
    if name.endswith("_like"):
        return own(func(whole, *args[1:], **kwargs))
    if name.endswith("_"):
        func(whole, *args[1:], **kwargs)
        return first.copy_(own(whole))
    return func(*args, **kwargs)
