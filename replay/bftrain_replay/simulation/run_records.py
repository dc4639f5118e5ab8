"""Records of a run while it runs: decisions and allocations, as append-only columns in bounded memory.

A run may have millions of rows; full blocks go to a temporary file.
"""

from __future__ import annotations

import math
import os
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.actions import Grow, Shrink, Start, Stop
from bftrain.values.decision import Decision
from bftrain.values.solution import Quality, Termination

BLOCK_ROWS: Final = 1 << 16  # read at a time
_MEMORY_BYTES: Final = 1 << 22  # bytes in memory before rows go to a file
STORED_AT_ONCE: Final = 256  # rows
# The columns, the number of rows, and their bytes or the name of their file
_State: TypeAlias = "tuple[np.dtype[Any], int, bytes | str]"


class RowFile:
    """Rows of numbers; each column by name is of floats (``d``) or of whole numbers (``i``)."""

    __slots__ = ("__weakref__", "_dtype", "_file", "_new", "_stored")

    # Whether a pickle refers to the file instead of its content, for a forked child that lives until its parent has
    # read it. The file is unlinked, so it vanishes when both processes exit
    names_its_file: ClassVar[bool] = False

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._dtype: np.dtype[Any] = np.dtype([*columns.items()], align=True)
        self._new: list[tuple[float, ...]] = []  # rows that are still to be stored
        self._stored = 0
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return self._stored + len(self._new)

    def __getstate__(self) -> _State:
        """Return the pickled state."""
        self._store()
        if self._stored < BLOCK_ROWS or not self.names_its_file:
            self._file.seek(0)
            return self._dtype, self._stored, self._file.read()
        self._file.flush()
        return self._dtype, self._stored, f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def __setstate__(self, state: _State) -> None:
        """Continue with the other process's file, or with a new file of the same content."""
        self._dtype, self._stored, file = state
        self._new = []
        if isinstance(file, str):
            self._file = open(file, "r+b")  # noqa: SIM115, PTH123 - open as long as this lives; a path would be resolved
        else:
            self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
            self._file.write(file)
        weakref.finalize(self, self._file.close)

    def add(self, *rows: tuple[float, ...]) -> None:
        """Add rows: a value for each column, in their order."""
        self._new.extend(rows)
        if len(self._new) >= STORED_AT_ONCE:
            self._store()

    def add_columns(self, **columns: NDArray[Any] | Sequence[float]) -> None:
        """Add rows by their columns."""
        self._store()
        rows = np.empty(len(next(iter(columns.values()))), self._dtype)
        for name, column in columns.items():
            rows[name] = column
        self._write(rows)

    def _store(self) -> None:
        if self._new:
            self._write(np.array(self._new, self._dtype))
            self._new.clear()

    def _write(self, rows: NDArray[Any]) -> None:
        self._file.seek(0, os.SEEK_END)
        self._file.write(rows.tobytes())
        self._stored += len(rows)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield all rows, block by block, as structured arrays."""
        self._store()
        size = self._dtype.itemsize
        for first in range(0, self._stored, BLOCK_ROWS):
            self._file.seek(first * size)
            yield np.frombuffer(self._file.read(min(BLOCK_ROWS, self._stored - first) * size), self._dtype)

    def column(self, name: str) -> NDArray[Any]:
        """Return a whole column."""
        found = np.empty(len(self), self._dtype[name])
        end = 0
        for block in self.blocks():
            found[end : end + len(block)] = block[name]
            end += len(block)
        return found


@dataclass(frozen=True, slots=True)
class AllocationBlock:
    """Some rows: indices into the recorder's ``tasks`` and ``nodes``, and seconds since the log's start."""

    task: NDArray[np.int32]
    node: NDArray[np.int32]
    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task)


ALLOCATION_TYPES: Final = {"task": "i", "node": "i", "from_s": "d", "to_s": "d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationTable(AllocationBlock):
    """All rows, with task and node names."""

    tasks: tuple[str, ...]
    nodes: tuple[str, ...]

    def rows_by_task(self) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield each task, and the indices of its rows."""
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
    rows: RowFile
    places: tuple[NDArray[np.int32], NDArray[np.int32]] | None = None  # numbers of stored tasks and nodes among these

    def __len__(self) -> int:
        return len(self.rows)

    def renumbered(self, tasks: Sequence[str], nodes: Sequence[str]) -> AllocationRows:
        """Return the rows with the numbers of these names, which include all of their own."""
        places = _places(self.tasks, tasks), _places(self.nodes, nodes)
        return AllocationRows(tasks=tuple(tasks), nodes=tuple(nodes), rows=self.rows, places=places)

    def blocks(self) -> Iterator[AllocationBlock]:
        """Yield all rows, block by block."""
        for rows in self.rows.blocks():
            task, node, *times_s = (rows[name].copy() for name in ALLOCATION_TYPES)
            if self.places is not None:
                task, node = self.places[0][task], self.places[1][node]
            yield AllocationBlock(task, node, *times_s)

    def table(self) -> AllocationTable:
        """Return all rows in memory."""
        columns = {name: np.empty(len(self), dtype=kind) for name, kind in ALLOCATION_TYPES.items()}
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
    """Records the node allocations of a run from its actions. Rows are ordered by stop time."""

    __slots__ = ("_held", "_places", "_rows", "_tasks")

    def __init__(self, nodes: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(nodes)}
        self._tasks: dict[str, int] = {}
        self._held: dict[str, dict[str, float]] = {}  # task -> node -> since when
        self._rows = RowFile(ALLOCATION_TYPES)

    def __len__(self) -> int:
        return len(self._rows)

    def act(self, action: Start | Grow | Shrink | Stop, now_s: float) -> None:
        """Record an action at ``now_s``."""
        task, nodes = action.task, action.nodes
        if type(action) is Shrink or type(action) is Stop:
            self._add(task, zip(nodes, map(self._held[task].pop, nodes), strict=True), now_s)
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
        self._rows.add_columns(task=task, node=node, from_s=from_s, to_s=to_s)

    def end(self, task: str, now_s: float) -> None:
        """Record that a task has finished and releases all its nodes."""
        self._add(task, self._held.pop(task, {}).items(), now_s)

    def close(self, now_s: float) -> None:
        """Close all allocations at the time the run stopped."""
        for task in list(self._held):
            self.end(task, now_s)

    def rows(self) -> AllocationRows:
        """Return the rows so far."""
        return AllocationRows(tasks=tuple(self._tasks), nodes=tuple(self._places), rows=self._rows)

    def _add(self, task: str, held: Iterable[tuple[str, float]], now_s: float) -> None:
        places, number = self._places, self._tasks.get(task, -1)
        self._rows.add(*[(number, places[node], since_s, now_s) for node, since_s in held])


NOTES_KEPT: Final = 100  # notes on decisions kept as text; all are counted
PROVEN: Final = "exact", Termination.OPTIMAL, Quality.PROVEN


class TimeSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Median, 99th percentile and maximum of measured times, milliseconds."""

    p50: float
    p99: float
    max: float


class DecisionColumns:
    """The decisions of a run: time, nodes, sizes, value, solver, quality and duration."""

    def __init__(self) -> None:
        self._rows = RowFile(
            dict.fromkeys(("time_s", "value", "bound", "solve_s", "decide_s"), "d")
            | dict.fromkeys(("pool", "used", "competing", "kind", "changes"), "i")
        )
        self._kinds: dict[tuple[str, Termination, Quality], int] = {}
        # Sizes are kept as changes, since most tasks keep theirs; a decision stores its number of changes
        self._changes = RowFile({"task": "i", "size": "i"})
        self._tasks: dict[str, int] = {}
        self._sizes: tuple[list[str], list[int]] = [], []  # names and sizes of the last decision
        self.fallbacks: dict[int, str] = {}
        self.fallback_causes: Counter[str] = Counter()  # decisions that are not the solver's, by why it stopped
        self.decided_by: Counter[str] = Counter()
        self.infeasible = 0  # decisions that the solver proved infeasible
        self.notes: list[tuple[float, str]] = []
        self.notes_counted = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def solve_s(self) -> NDArray[np.float64]:
        """The seconds that the solver took for each decision."""
        return self._rows.column("solve_s")

    @property
    def decide_s(self) -> NDArray[np.float64]:
        """The seconds that each decision took."""
        return self._rows.column("decide_s")

    def add(self, decision: Decision, decide_s: float, changes: Collection[tuple[str, int]] | None = None) -> None:
        """Add a decision that took ``decide_s`` seconds; ``changes`` are the sizes that changed, if known."""
        if decision.fallback:
            self.fallbacks[len(self)] = decision.fallback
            self.fallback_causes[str(decision.termination)] += 1
        self.infeasible += decision.termination is Termination.INFEASIBLE
        counts = decision.pool, decision.used, len(decision.sizes)
        kind = decision.solver, decision.termination, decision.quality
        changes = self._changes_to(decision.sizes) if changes is None else changes
        of_decision = decision.time_s, decision.value, decision.bound
        self.add_row(*of_decision, (decision.solve_s, decide_s), counts, kind, changes, decision.decided_by)
        self.add_notes(decision.time_s, decision.notes)

    def add_row(
        self,
        time_s: float,
        value: float,
        bound: float | None,
        times_s: tuple[float, float],
        counts: tuple[int, int, int],
        kind: tuple[str, Termination, Quality],
        changes: Collection[tuple[str, int]],
        decided_by: str,
    ) -> None:
        """Add a row: solver and decision seconds, numbers of idle nodes, used nodes and tasks, and changed sizes."""
        tasks = self._tasks
        self.decided_by[decided_by] += 1
        if changes:
            self._changes.add(*((tasks.setdefault(name, len(tasks)), size) for name, size in changes))
        bound = math.nan if bound is None else bound
        kind_number = self._kinds.setdefault(kind, len(self._kinds))
        self._rows.add((time_s, value, bound, *times_s, *counts, kind_number, len(changes)))

    def add_notes(self, time_s: float, notes: Sequence[str]) -> None:
        """Add the notes of a decision."""
        if notes:
            self.notes_counted += len(notes)
            room = NOTES_KEPT - len(self.notes)
            self.notes.extend((time_s, note) for note in notes[:room])

    def _changes_to(self, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the size changes since the last decision."""
        names, numbers = list(sizes), list(sizes.values())
        names_before, numbers_before = self._sizes
        if names == names_before:
            if numbers == numbers_before:
                return []
            triples = zip(names, numbers, numbers_before, strict=True)
            changed = [(name, size) for name, size, was in triples if size != was]
        else:
            before = dict(zip(names_before, numbers_before, strict=True))
            changed = [(name, 0) for name, size in before.items() if size and name not in sizes]
            changed += [(name, size) for name, size in sizes.items() if before.get(name, 0) != size]
        self._sizes = names, numbers
        return changed

    def sizes(self) -> Iterator[Mapping[str, int]]:
        """Yield the sizes after each decision, without tasks of size 0."""
        names, sizes = list(self._tasks), dict[str, int]()
        changes = (change for block in self._changes.blocks() for change in block.tolist())
        for block in self._rows.blocks():
            for count in block["changes"].tolist():
                if count:
                    sizes = dict(sizes)
                for task, size in islice(changes, count):
                    if size:
                        sizes[names[task]] = size
                    else:
                        sizes.pop(names[task], None)
                yield sizes

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the table's rows; all are independent of machine speed."""
        kinds = [tuple(map(str, kind)) for kind in self._kinds]
        sizes, place = self.sizes(), 0
        for block in self._rows.blocks():
            for *row, bound, kind in block[["time_s", "pool", "used", "competing", "value", "bound", "kind"]].tolist():
                reason = self.fallbacks.get(place, "")
                place += 1
                yield (place, *row, None if math.isnan(bound) else bound, *kinds[kind], reason, next(sizes))


def spread_ms(seconds: NDArray[np.float64]) -> TimeSpread:
    """Summarise measured seconds."""
    if not seconds.size:
        return TimeSpread(p50=0.0, p99=0.0, max=0.0)
    p50, p99, top = (np.percentile(seconds, (50, 99, 100)) * 1000.0).tolist()
    return TimeSpread(p50=p50, p99=p99, max=top)
