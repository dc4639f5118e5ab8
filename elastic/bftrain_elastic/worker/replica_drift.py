"""Drift: replicas of a model that should be the same, and are not.

Every member sums up its parameters in a few numbers, and the smallest and largest of each number are compared. A sample
of each tensor is enough: replicas differ where a gradient was not exchanged or a worker began from other weights, and
that shows in all elements of a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bftrain_elastic.worker.state_tree import Tensor

TOLERATED: Final = 1e-4  # relative: what other machines may compute differently
_FIRST: Final = 3  # the commit of a group at which replicas are compared,
_EVERY: Final = 500  # and then each time after so many
_ELEMENTS: Final = 65536  # of a tensor that are looked at, at most
_PLACES: Final = 32  # among which tensors are divided; as many on all members, so that their sums can be compared
_NOT_FINITE: Final = 1e300  # stands for a sum that is no number


def is_due(commits: int) -> bool:
    """Return whether replicas are to be compared at this commit of a group."""
    return commits == _FIRST or commits % _EVERY == 0


def summary(models: Iterable[Any]) -> list[float]:
    """Sum up the parameters of models: for each place the sum of the sizes of their elements, and of the elements."""
    import torch

    sums: list[Tensor] = [torch.zeros(2, dtype=torch.float64) for _ in range(_PLACES)]
    tensors = [one.detach() for model in models for one in model.parameters()]
    with torch.no_grad():
        for number, tensor in enumerate(one for one in tensors if type(one).__name__ != "DTensor" and one.numel()):
            sample = _sample(tensor).to(torch.float64)
            found = torch.stack((sample.abs().sum(), sample.sum()))
            place = number % _PLACES
            sums[place] = sums[place].to(found.device) + found
    return [_finite(number) for pair in sums for number in pair.tolist()]


def relative(spread: Sequence[tuple[float, float]]) -> float:
    """Return how far members are apart, relative to the size of their parameters, where they are furthest apart."""
    found = 0.0
    for sizes, elements in zip(spread[::2], spread[1::2], strict=True):
        size = max(abs(sizes[0]), abs(sizes[1]))
        if size:
            found = max(found, (sizes[1] - sizes[0]) / size, (elements[1] - elements[0]) / size)
    return min(found, 1.0)


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.contiguous().reshape(-1)
    return flat[:: math.ceil(flat.numel() / _ELEMENTS)]


def _finite(number: float) -> float:
    return number if math.isfinite(number) else _NOT_FINITE
