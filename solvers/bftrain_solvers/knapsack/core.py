"""The core: sizes that lose so little that they may be part of the best plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.knapsack.stages import Stage

_FEW_ALIKE: Final = 3
_MOST_FREE: Final = 64


@dataclass(frozen=True, slots=True)
class KnapsackCore:
    """Rows with more than one size left, and their stages; the other rows have their ``least`` size."""

    least: NDArray[np.int64]
    rows: NDArray[np.int64]
    stages: list[Stage]


def core_of(losses: NDArray[np.int64], cutoff: int) -> KnapsackCore:
    """Keep the sizes that lose at most ``cutoff``."""
    row, size = (losses <= cutoff).nonzero()
    left = np.bincount(row, minlength=len(losses))
    ends = left.cumsum()
    begins = ends - left
    least = size[begins]
    rows = (left > 1).nonzero()[0]
    nodes = (size - least[row]).tolist()
    loss = losses[row, size].tolist()
    stages = [(nodes[a:b], loss[a:b]) for a, b in zip(begins[rows].tolist(), ends[rows].tolist(), strict=True)]
    return KnapsackCore(least, rows, stages)


def fewer_stages(stages: list[Stage], cutoff: int) -> list[Stage] | None:
    """Fewer stages, which allow only divisions that the given ones allow too, and hardly miss a good one.

    Tasks with the same losses fill up the smallest size ``a`` and the largest ``b`` that lose nothing. Only few of
    them have another size in a good plan, because it loses something, or because several such are as good as
    several at ``a`` and ``b``. So a few keep all their sizes; the others are at ``a`` or ``b``, in bundles of
    1, 2, 4, ... tasks. ``None`` if there are no such many alike.
    """
    if len(stages) <= _FEW_ALIKE:
        return None
    alike: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    for nodes, losses in stages:
        key = (tuple(nodes), tuple(losses))
        alike[key] = alike.get(key, 0) + 1
    if max(alike.values()) <= _FEW_ALIKE:
        return None
    found: list[Stage] = []
    for (at, losing), count in alike.items():
        stage = (list(at), list(losing))
        lossless = [node for node, loss in zip(at, losing, strict=True) if loss == 0]
        a, b = lossless[0], lossless[-1]
        others = [loss for node, loss in zip(at, losing, strict=True) if node not in (a, b)]
        free = count if count <= _FEW_ALIKE else min(count, _free(others, b - a, cutoff))
        found.extend([stage] * free)
        found.extend(_bundles(a, b, count - free))
    return found


def _free(others: list[int], span: int, cutoff: int) -> int:
    """How many of many tasks alike may be at a size other than ``a`` and ``b``."""
    if not others:
        return 0
    by_span = span - 1 if span > 1 else _MOST_FREE
    return by_span if min(others) == 0 else min(by_span, cutoff // min(others))


def _bundles(a: int, b: int, count: int) -> list[Stage]:
    if a == b:
        return [([a * count], [0])] if count else []
    found: list[Stage] = []
    size = 1
    while count > 0:
        size = min(size, count)
        found.append(([a * size, b * size], [0, 0]))
        count -= size
        size *= 2
    return found
