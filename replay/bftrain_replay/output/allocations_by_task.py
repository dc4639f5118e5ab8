"""Allocations of one task after the other in bounded memory.

Rows are sorted by their end. A first pass counts those of each task, a second one puts them into a temporary file in
which tasks that follow each other share a group; the groups are read one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Final

import numpy as np

from bftrain_replay.accounting.allocations import AllocationRows, AllocationTable
from bftrain_replay.accounting.column_file import BLOCK_ROWS

_ROW: Final = np.dtype([("task", np.int32), ("node", np.int32), ("from_s", np.float64), ("to_s", np.float64)])


def groups_of_tasks(held: AllocationRows, at_once: int = BLOCK_ROWS) -> Iterator[AllocationTable]:
    """Yield groups of tasks in their order, each with all rows of its tasks: up to ``at_once``, and one more task's."""
    counts = np.zeros(len(held.tasks), dtype=np.int64)
    for block in held.blocks():
        counts += np.bincount(block.task, minlength=len(counts))
    begins = np.cumsum(counts) - counts
    firsts = np.flatnonzero(np.diff(begins // at_once, prepend=-1))  # the first task of each group
    sizes = np.diff(firsts, append=len(counts))
    group_of_task = np.repeat(np.arange(len(firsts)), sizes)
    next_rows = begins[firsts]
    with TemporaryFile() as file:
        for block in held.blocks():
            groups = group_of_task[block.task]
            order = np.argsort(groups, kind="stable")
            rows = np.empty(len(block), dtype=_ROW)
            for name in _ROW.names or ():
                rows[name] = getattr(block, name)[order]
            found, places = np.unique(groups[order], return_index=True)
            for group, part in zip(found.tolist(), np.split(rows, places[1:]), strict=True):
                file.seek(next_rows[group] * _ROW.itemsize)
                file.write(part.tobytes())
                next_rows[group] += len(part)
        file.seek(0)
        counts_of_groups = next_rows - begins[firsts]
        for first, size, count in zip(firsts.tolist(), sizes.tolist(), counts_of_groups.tolist(), strict=True):
            rows = np.frombuffer(file.read(count * _ROW.itemsize), dtype=_ROW)
            yield AllocationTable(
                tasks=held.tasks[first : first + size],
                nodes=held.nodes,
                task=rows["task"] - np.int32(first),
                node=rows["node"],
                from_s=rows["from_s"],
                to_s=rows["to_s"],
            )
