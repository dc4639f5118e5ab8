"""Allocations: task, node, start and stop time. A run may have many millions of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bftrain.values.actions import Grow, Shrink, Start, Stop
from bftrain_replay.accounting.column_file import BLOCK_ROWS, ColumnFile


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationBlock:
    """Some rows: indices into the recorder's ``tasks`` and ``nodes``, and seconds since the log's start."""

    task: NDArray[np.int32]
    node: NDArray[np.int32]
    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task)


_COLUMNS: Final = tuple(field.name for field in fields(AllocationBlock))
_NO_ROWS: Final = AllocationBlock(
    task=np.empty(0, dtype=np.int32), node=np.empty(0, dtype=np.int32), from_s=np.empty(0), to_s=np.empty(0)
)
_STORED_AT_ONCE: Final = 4096  # finished allocations per stored batch


class AllocationRows(Protocol):
    """Rows to read block by block, with task and node names."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks that ever got a node, by name."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All node names."""

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""

    def table(self) -> AllocationTable:
        """Return all rows in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTable(AllocationBlock):
    """All rows, with task and node names."""

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
        """Yield each task with allocations, and the indices of its rows."""
        if not self.tasks:
            return
        order = np.argsort(self.task, kind="stable")
        ends = np.cumsum(np.bincount(self.task, minlength=len(self.tasks)))
        yield from zip(self.tasks, np.split(order, ends[:-1]), strict=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class RenumberedAllocations:
    """The rows of another table under new numbers: ``task_place`` and ``node_place`` map old to new ones."""

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
        blocks = [_NO_ROWS, *self.blocks()]
        columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in _COLUMNS}
        return AllocationTable(tasks=self.tasks, nodes=self.nodes, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAllocations:
    """Rows in a temporary file, in the columns of ``new_rows``, with task and node names."""

    tasks: tuple[str, ...]
    nodes: tuple[str, ...]
    rows: ColumnFile

    def __len__(self) -> int:
        return len(self.rows)

    @staticmethod
    def new_rows() -> ColumnFile:
        """Return the columns without any row."""
        return ColumnFile({"from_s": "d", "to_s": "d", "task": "i", "node": "i"})

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        return (AllocationBlock(**block) for block in self.rows.blocks())

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        return AllocationTable(
            tasks=self.tasks, nodes=self.nodes, **{name: self.rows.column(name) for name in self.rows.last}
        )


class AllocationRecorder:
    """Records the node allocations of a run from its actions. Rows are ordered by stop time.

    Finished allocations are buffered in lists and stored in batches.
    """

    __slots__ = ("_ended", "_ended_nodes", "_held", "_places", "_rows", "_since_s", "_tasks")

    def __init__(self, nodes: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(nodes)}
        self._tasks: dict[str, int] = {}
        self._held: dict[str, dict[str, float]] = {}  # task -> node -> since when
        self._ended: list[tuple[int, float, int]] = []  # the task, when it lost nodes, and how many
        self._ended_nodes: list[str] = []  # these nodes
        self._since_s: list[float] = []  # start time of each current allocation
        self._rows = StoredAllocations.new_rows()

    def __len__(self) -> int:
        return len(self._rows) + len(self._ended_nodes)

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks that ever got a node, by name."""
        return tuple(self._tasks)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All node names of the log."""
        return tuple(self._places)

    def act(self, action: Start | Grow | Shrink | Stop, now_s: float) -> None:
        """Record an action at ``now_s``."""
        task, nodes = action.task, action.nodes
        if type(action) is Shrink or type(action) is Stop:
            self._add(task, nodes, map(self._held[task].pop, nodes), now_s)
        elif held := self._held.get(task):
            held.update(dict.fromkeys(nodes, now_s))
        else:
            self.number(task)
            self._held[task] = dict.fromkeys(nodes, now_s)

    def number(self, task: str) -> int:
        """Return the number of a task that starts."""
        return self._tasks.setdefault(task, len(self._tasks))

    def add_finished(
        self, task: NDArray[np.int32], node: NDArray[np.int32], from_s: NDArray[np.float64], to_s: NDArray[np.float64]
    ) -> None:
        """Add finished allocations by numbers of tasks and nodes."""
        for name, column in (("task", task), ("node", node), ("from_s", from_s), ("to_s", to_s)):
            self._rows.last[name].frombytes(column.tobytes())
        self._rows.add_block_if_full()

    def end(self, task: str, now_s: float) -> None:
        """Record that a task is over and releases all its nodes."""
        held = self._held.pop(task, None)
        if held:
            self._add(task, held, held.values(), now_s)

    def close(self, now_s: float) -> None:
        """Close all allocations at the time the run stopped."""
        for task in list(self._held):
            self.end(task, now_s)

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        return self._stored.blocks()

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        return self._stored.table()

    @property
    def _stored(self) -> StoredAllocations:
        self._store()
        return StoredAllocations(tasks=self.tasks, nodes=self.nodes, rows=self._rows)

    def _add(self, task: str, nodes: Collection[str], since_s: Iterable[float], now_s: float) -> None:
        self._ended.append((self._tasks[task], now_s, len(nodes)))
        self._ended_nodes.extend(nodes)
        self._since_s.extend(since_s)
        if len(self._ended_nodes) >= _STORED_AT_ONCE:
            self._store()

    def _store(self) -> None:
        """Make rows of the allocations in hand."""
        task, to_s, count = np.array(self._ended, dtype=np.float64).reshape(-1, 3).T
        rows, counts = self._rows.last, count.astype(np.intp)
        rows["node"].fromlist(list(map(self._places.__getitem__, self._ended_nodes)))
        rows["from_s"].fromlist(self._since_s)
        rows["task"].frombytes(np.repeat(task.astype(np.int32), counts).tobytes())
        rows["to_s"].frombytes(np.repeat(to_s, counts).tobytes())
        self._rows.add_block_if_full()
        for kept in (self._ended, self._ended_nodes, self._since_s):
            kept.clear()
