"""Allocations: which task held which node from when to when.

There may be many millions of them. They are kept column by column; what fills a block goes to a temporary file, so
that memory stays bounded however long the log.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from tempfile import SpooledTemporaryFile
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bftrain.values.actions import Grow, Shrink, Start, Stop

BLOCK_ROWS: Final = 1 << 16
_MEMORY_BYTES: Final = 1 << 25  # before blocks go to a file


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationBlock:
    """Some rows: indices into the recorder's ``tasks`` and ``nodes``, and seconds since the log's start."""

    task: NDArray[np.int32]
    node: NDArray[np.int32]
    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task)


class AllocationRows(Protocol):
    """Rows that are read block by block, with the names of tasks and nodes."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that ever held a node."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTable(AllocationBlock):
    """All rows, with the names of tasks and nodes."""

    tasks: tuple[str, ...]
    nodes: tuple[str, ...]

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        for begin in range(0, len(self), BLOCK_ROWS):
            part = slice(begin, begin + BLOCK_ROWS)
            yield AllocationBlock(
                task=self.task[part], node=self.node[part], from_s=self.from_s[part], to_s=self.to_s[part]
            )

    def rows_by_task(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield each task that held a node, with the indices of its rows."""
        if not self.tasks:
            return
        order = np.argsort(self.task, kind="stable")
        ends = np.cumsum(np.bincount(self.task, minlength=len(self.tasks)))
        yield from zip(self.tasks, np.split(order, ends[:-1]), strict=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class RenumberedAllocations:
    """The rows of another table with other names: ``task_place`` and ``node_place`` say which number becomes which."""

    rows: AllocationRows
    tasks: tuple[str, ...]
    nodes: tuple[str, ...]
    task_place: NDArray[np.int32]
    node_place: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        for block in self.rows.blocks():
            yield replace(block, task=self.task_place[block.task], node=self.node_place[block.node])

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        return table_of(self)


def table_of(rows: AllocationRows) -> AllocationTable:
    """Return all rows in memory."""
    blocks = [_block(b"", 0), *rows.blocks()]
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in _ROW.names or ()}
    return AllocationTable(tasks=rows.tasks, nodes=rows.nodes, **columns)


class AllocationRecorder:
    """Records which task holds which node, from the actions of a run. Rows are ordered by their end."""

    __slots__ = ("__weakref__", "_file", "_from_s", "_held", "_lengths", "_node", "_places", "_task", "_tasks", "_to_s")

    def __init__(self, nodes: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(nodes)}
        self._tasks: dict[str, int] = {}
        self._held: dict[str, dict[str, float]] = {}  # task -> node -> since when
        self._task, self._node, self._from_s, self._to_s = array("i"), array("i"), array("d"), array("d")
        self._lengths: list[int] = []  # rows of the blocks in the file
        self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return sum(self._lengths) + len(self._task)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that ever held a node."""
        return tuple(self._tasks)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes of the log."""
        return tuple(self._places)

    def act(self, action: Start | Grow | Shrink | Stop, now_s: float) -> None:
        """Record an action at ``now_s``."""
        if isinstance(action, Start | Grow):
            self._tasks.setdefault(action.task, len(self._tasks))
            self._held.setdefault(action.task, {}).update(dict.fromkeys(action.nodes, now_s))
        else:
            held = self._held[action.task]
            self._add(action.task, action.nodes, map(held.pop, action.nodes), now_s)

    def end(self, task: str, now_s: float) -> None:
        """Record that a task is over and releases all its nodes."""
        held = self._held.pop(task, {})
        self._add(task, held, held.values(), now_s)

    def close(self, now_s: float) -> None:
        """Record the end of the run, which ends all allocations."""
        for task in list(self._held):
            self.end(task, now_s)

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        begin = 0
        for rows in self._lengths:
            self._file.seek(begin)
            content = self._file.read(rows * _ROW.itemsize)
            begin += len(content)
            yield _block(content, rows)
        if self._task:
            yield _block(self._content(), len(self._task))

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        return table_of(self)

    def _add(self, task: str, nodes: Iterable[str], since_s: Iterable[float], now_s: float) -> None:
        before = len(self._node)
        self._node.extend(map(self._places.__getitem__, nodes))
        self._from_s.extend(since_s)
        count = len(self._node) - before
        self._task.extend([self._tasks[task]] * count if count else ())
        self._to_s.extend([now_s] * count)
        if len(self._node) >= BLOCK_ROWS:
            self._file.write(self._content())
            self._lengths.append(len(self._node))
            self._task, self._node, self._from_s, self._to_s = array("i"), array("i"), array("d"), array("d")

    def _content(self) -> bytes:
        return b"".join(column.tobytes() for column in (self._from_s, self._to_s, self._task, self._node))


# Not how rows lie in the file, where one column follows the other; only how large they are
_ROW: Final = np.dtype([("from_s", "f8"), ("to_s", "f8"), ("task", "i4"), ("node", "i4")])


def _block(content: bytes, rows: int) -> AllocationBlock:
    floats = np.frombuffer(content, dtype=np.float64, count=2 * rows)
    numbers = np.frombuffer(content, dtype=np.int32, offset=floats.nbytes)
    return AllocationBlock(task=numbers[:rows], node=numbers[rows:], from_s=floats[:rows], to_s=floats[rows:])
