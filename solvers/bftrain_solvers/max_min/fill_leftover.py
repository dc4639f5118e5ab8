"""Give nodes that no level needs to the tasks that do most with them, on one kind of nodes."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.knapsack.search import best_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bftrain.values.table import ValueTable

    Entries = NDArray[np.float64]


def filled(
    table: ValueTable, scores: Entries, spare: Entries, floors: Mapping[int, float], stop_at: float
) -> list[int]:
    """Choose the sizes with most of ``spare`` that leave every task at or above its floor."""
    values = np.where(np.isfinite(table.values), spare, -inf)
    for place, floor in floors.items():
        values[place, scores[place] < floor] = -inf
    least = np.isfinite(values).argmax(axis=1)
    rows, columns = np.ogrid[: values.shape[0], : values.shape[1]]
    shifted = columns + least[:, None]
    inside = shifted < values.shape[1]
    values = np.where(inside, values[rows, np.where(inside, shifted, 0)], -inf)
    present = np.array([task.size for task in table.problem.tasks], dtype=np.int64) - least
    present[present < 0] = values.shape[1]
    found = best_sizes(values, present, table.problem.pool - int(least.sum()), stop_at)
    return [size + int(start) for size, start in zip(found.sizes, least, strict=True)]
