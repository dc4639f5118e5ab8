"""Columns: what each column of a value table stands for, a number of nodes of one kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bftrain.values.problem import AllocationProblem, CompetingTask

NOWHERE = -1  # the kind of column 0
_KEPT = 64  # columns of one kind: a pool changes by a few nodes, and comes back to the same widths


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Column 0 is no node at all; then comes a block for every kind, of 1, 2, ... nodes of it."""

    kinds: tuple[str, ...]
    widths: tuple[int, ...]  # of the blocks: the most nodes of each kind that any task may have
    nodes: NDArray[np.int64]
    kind_of: NDArray[np.int64]  # place in ``kinds``, by column

    def __len__(self) -> int:
        """Give how many there are."""
        return self.nodes.size

    @property
    def several(self) -> bool:
        """Return whether there is more than one kind."""
        return len(self.kinds) > 1

    def blocks(self) -> Iterable[tuple[str, slice]]:
        """Give every kind with its columns."""
        start = 1
        for kind, width in zip(self.kinds, self.widths, strict=True):
            yield kind, slice(start, start + width)
            start += width

    def at(self, size: int, kind: str) -> int | None:
        """Give the column of ``size`` nodes of ``kind``; with one kind the name does not matter."""
        if size == 0:
            return 0
        start = 0
        for name, width in zip(self.kinds, self.widths, strict=True):
            if name == kind or not self.several:
                return start + size if 0 < size <= width else None
            start += width
        return None

    def present(self, tasks: Sequence[CompetingTask]) -> NDArray[np.int64]:
        """Give the column of what each task holds; one that there is not for what is too much."""
        if not self.several:
            return np.array([task.size for task in tasks], dtype=np.int64)
        found = (self.at(task.size, task.kind) for task in tasks)
        return np.array([len(self) if column is None else column for column in found], dtype=np.int64)


@lru_cache(maxsize=_KEPT)
def of_one_kind(kind: str, width: int) -> Columns:
    """Give the columns for 0 to ``width - 1`` nodes where all are alike."""
    nodes, kind_of = np.arange(width), np.zeros(width, dtype=np.int64)
    kind_of[:1] = NOWHERE
    for shared in (nodes, kind_of):
        shared.setflags(write=False)
    return Columns((kind,), (width - 1,), nodes, kind_of)


def of_kinds(widths: Sequence[tuple[str, int]]) -> Columns:
    """Give the columns for up to so many nodes of each kind."""
    sizes = [np.arange(1, width + 1) for _, width in widths]
    places = [np.full(width, place, dtype=np.int64) for place, (_, width) in enumerate(widths)]
    return Columns(
        kinds=tuple(kind for kind, _ in widths),
        widths=tuple(width for _, width in widths),
        nodes=np.concatenate((np.zeros(1, dtype=np.int64), *sizes)),
        kind_of=np.concatenate((np.full(1, NOWHERE, dtype=np.int64), *places)),
    )


def largest_by_kind(problem: AllocationProblem) -> list[tuple[str, int]]:
    """Give the most nodes of each kind that any task could use, were there enough of them."""
    return [
        (kind, max((task.max_nodes for task in problem.tasks if task.curve_on(kind) is not None), default=0))
        for kind in problem.by_kind
    ]


def columns_of(problem: AllocationProblem) -> Columns:
    """Give the columns of a table for ``problem``."""
    counts = problem.by_kind
    return of_kinds([(kind, min(counts[kind], largest)) for kind, largest in largest_by_kind(problem)])
