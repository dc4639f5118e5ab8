"""Levels that differ by rounding only are one level: else noise decides who is worst off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Entries = NDArray[np.float64]

_ROUNDING: Final = 1e-12  # relative; some thousand times what a few operations on floats are off


def alike(levels: Entries) -> Entries:
    """Give the same levels, each that is within rounding of the next lower one in its place."""
    found, places = np.unique(levels, return_inverse=True)
    finite = np.isfinite(found)
    values = np.where(finite, found, 0.0)
    apart = np.diff(values) > _ROUNDING * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
    begins = np.concatenate((np.ones(min(1, len(found)), dtype=bool), apart | ~finite[1:] | ~finite[:-1]))
    first = np.maximum.accumulate(np.where(begins, np.arange(len(found)), 0))
    merged: Entries = found[first][places.reshape(-1)].reshape(levels.shape)
    return merged
