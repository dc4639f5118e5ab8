"""Allocations: task, node, start and stop time. A run may have many millions of rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.values.actions import Grow, Shrink, Start, Stop
from bftrain_replay.accounting.column_file import ColumnFile


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationBlock:
    """Some rows: indices into the recorder's ``tasks`` and ``nodes``, and seconds since the log's start."""

    task: NDArray[np.int32]
    node: NDArray[np.int32]
    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task)


_TYPES: Final = {"task": "i", "node": "i", "from_s": "d", "to_s": "d"}
_STORED_AT_ONCE: Final = 4096  # finished allocations per stored batch


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTable(AllocationBlock):
    """All rows, with task and node names."""

    tasks: tuple[str, ...]
    nodes: tuple[str, ...]

    def rows_by_task(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield each task with allocations, and the indices of its rows."""
        if not self.tasks:
            return
        order = np.argsort(self.task, kind="stable")
        ends = np.cumsum(np.bincount(self.task, minlength=len(self.tasks)))
        yield from zip(self.tasks, np.split(order, ends[:-1]), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRows:
    """Rows to read block by block: the names of tasks that ever got a node, and of all nodes."""

    tasks: tuple[str, ...]
    nodes: tuple[str, ...]
    count: int
    blocks: Callable[[], Iterator[AllocationBlock]]

    def __len__(self) -> int:
        return self.count

    @staticmethod
    def new_columns() -> ColumnFile:
        """Return the columns of :meth:`stored` without any row."""
        return ColumnFile(_TYPES)

    @classmethod
    def stored(cls, tasks: Iterable[str], nodes: Iterable[str], columns: ColumnFile) -> AllocationRows:
        """Return rows that are stored in a temporary file."""

        def blocks() -> Iterator[AllocationBlock]:
            return (AllocationBlock(**block) for block in columns.blocks())

        return cls(tasks=tuple(tasks), nodes=tuple(nodes), count=len(columns), blocks=blocks)

    def renumbered(self, tasks: Sequence[str], nodes: Sequence[str]) -> AllocationRows:
        """Return the rows with the numbers of these names, which include all of their own."""
        task_place, node_place = _places(self.tasks, tasks), _places(self.nodes, nodes)

        def blocks() -> Iterator[AllocationBlock]:
            for block in self.blocks():
                yield replace(block, task=task_place[block.task], node=node_place[block.node])

        return replace(self, tasks=tuple(tasks), nodes=tuple(nodes), blocks=blocks)

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        columns = {name: np.empty(self.count, dtype=kind) for name, kind in _TYPES.items()}
        begin = 0
        for block in self.blocks():
            for name, column in columns.items():
                column[begin : begin + len(block)] = getattr(block, name)
            begin += len(block)
        return AllocationTable(tasks=self.tasks, nodes=self.nodes, **columns)


def _places(names: Sequence[str], among: Sequence[str]) -> NDArray[np.int32]:
    """Return the index of each name in ``among``."""
    places = {name: place for place, name in enumerate(among)}
    return np.array([places[name] for name in names], dtype=np.int32)


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
        self._rows = AllocationRows.new_columns()

    def __len__(self) -> int:
        return len(self._rows) + len(self._ended_nodes)

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

    def rows(self) -> AllocationRows:
        """Return the rows so far."""
        self._store()
        return AllocationRows.stored(self._tasks, self._places, self._rows)

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
