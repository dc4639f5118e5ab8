"""Sums and medians of more numbers than memory should hold at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_AT_ONCE: Final = 1 << 20


def sum_by_key(parts: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct keys of all parts, in order, and the sum of each one's numbers.

    Memory grows with the distinct keys only.
    """
    keys, sums = [np.empty(0)], [np.empty(0, dtype=np.int64)]
    waiting = 0
    for key, numbers in parts:
        keys.append(key)
        sums.append(numbers)
        waiting += key.size
        if waiting > max(_AT_ONCE, keys[0].size):
            merged = _merged(keys, sums)
            keys, sums, waiting = [merged[0]], [merged[1]], 0
    return _merged(keys, sums)


def counted(parts: Iterable[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct numbers of all parts, in order, and how often each occurs."""
    return sum_by_key(np.unique(part, return_counts=True) for part in parts)


def median(parts: Iterable[NDArray[np.float64]]) -> float:
    """Return the median of all numbers of all parts: there is at least one."""
    return median_of(*counted(parts))


def median_of(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Return the median of ordered values, each of which there is as often as ``counts`` says."""
    until = np.cumsum(counts)
    middle = np.searchsorted(until, ((until[-1] - 1) // 2, until[-1] // 2), side="right")
    return float(values[middle].mean())


def _merged(keys: list[NDArray[Any]], sums: list[NDArray[np.int64]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    key, numbers = np.concatenate(keys), np.concatenate(sums)
    if not key.size:
        return key, numbers
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    return key[begins], np.add.reduceat(numbers[order], begins)
