"""Shares of a batch: the samples of each worker, and the weights of losses over shares of unequal sizes."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

BATCH: Final = "BFTRAIN_BATCH"  # decided samples per step over all workers; 0 or unset: the script decides


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
