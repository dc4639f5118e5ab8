"""LiveHistory: number of nodes, their holders and the speed of all tasks, over minutes, hours and days.

Four levels of cells cover the past, from fine cells for the last minutes to coarse cells for days. Averages are exact,
even for short events. Memory is bounded for runs of any length.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bftrain.errors import BftrainError
from bftrain.live.model.schemas import Happening, Span
from bftrain.node_units import unit_of, word_of
from bftrain.nodesets import fold
from bftrain.values import wire
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)

# How far back and how finely, in seconds: ten minutes, an hour, a day, ten days
SPANS: Final = tuple(
    Span(span_s=span_s, width_s=width_s)
    for span_s, width_s in ((600, 1.0), (3600, 5.0), (86400, 120.0), (864000, 1200.0))
)
_MOST_TASKS: Final = 64  # tasks in a cell with figures of their own
_KNOWN: Final = 4096  # names that are remembered before old ones are forgotten


class HistorySample(NamedTuple):
    """The state at one time: allocated nodes, samples/s of all tasks, and node counts by task number."""

    pool: int
    speed: float
    sizes: Mapping[int, int]


class Named(msgspec.Struct, frozen=True):
    """The name and owner of a task, kept after it has finished."""

    name: str
    uid: int


class HistoryAverages(NamedTuple):
    """One cell: its interval, the observed seconds, and averages over these; sizes in two columns."""

    at: int
    known_s: float
    pool: float
    speed: float
    numbers: array[int]
    sizes: array[float]


class HistoryLevel:
    """Cells of equal width."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._closed: deque[HistoryAverages] = deque(maxlen=round(span.span_s / span.width_s))
        self._begin_cell(0)

    def add(self, begin_s: float, end_s: float, state: HistorySample) -> None:
        """Add a state that lasted from ``begin_s`` to ``end_s``."""
        width = self.span.width_s
        begin_s = max(begin_s, end_s - self.span.span_s - width)  # older data is dropped
        last = math.floor(end_s / width)
        index = math.floor(begin_s / width)
        if index != self._index:
            self._close()
            self._begin_cell(index)
        if index < last:
            self._weigh(state, (index + 1) * width - begin_s)
            self._close()
            if index + 1 < last:
                numbers, sizes = _columns(state.sizes)  # equal for all cells filled with it
                whole = (width, float(state.pool), state.speed, numbers, sizes)
                self._closed.extend(HistoryAverages(between, *whole) for between in range(index + 1, last))
            self._begin_cell(last)
            begin_s = last * width
        self._weigh(state, end_s - begin_s)

    def cells(self, since_s: float = -math.inf) -> Iterator[HistoryAverages]:
        """Yield the cells that end after ``since_s``, including the unfinished one."""
        newest = (self._index + 1) * self.span.width_s
        oldest = max(since_s, newest - self.span.span_s)
        for cell in self._closed:
            if (cell.at + 1) * self.span.width_s > oldest:
                yield cell
        if self._known_s > 0:
            yield self._averages()

    def put(self, cell: HistoryAverages) -> None:
        """Add a cell of an earlier run."""
        if not self._closed or self._closed[-1].at < cell.at:
            self._closed.append(cell)

    def _begin_cell(self, index: int) -> None:
        self._index, self._known_s, self._pool, self._speed = index, 0.0, 0.0, 0.0
        self._sizes: dict[int, float] = {}
        if self._closed and self._closed[-1].at == index:  # opened by an earlier run
            cell = self._closed.pop()
            self._known_s, self._pool, self._speed = cell.known_s, cell.pool * cell.known_s, cell.speed * cell.known_s
            self._sizes = {number: size * cell.known_s for number, size in zip(cell.numbers, cell.sizes, strict=True)}

    def _weigh(self, state: HistorySample, seconds: float) -> None:
        if seconds <= 0:
            return
        self._known_s += seconds
        self._pool += seconds * state.pool
        self._speed += seconds * state.speed
        for number, size in state.sizes.items():
            self._sizes[number] = self._sizes.get(number, 0.0) + seconds * size

    def _averages(self) -> HistoryAverages:
        known_s = self._known_s
        numbers, sizes = _columns({number: total / known_s for number, total in self._sizes.items()})
        return HistoryAverages(self._index, known_s, self._pool / known_s, self._speed / known_s, numbers, sizes)

    def _close(self) -> None:
        if self._known_s > 0:
            self._closed.append(self._averages())


def _columns(sizes: Mapping[int, float]) -> tuple[array[int], array[float]]:
    """Return numbers and sizes; only the largest of very many tasks, and the sum of the remainder as number 0."""
    if len(sizes) > _MOST_TASKS:
        largest = dict(nlargest(_MOST_TASKS, sizes.items(), key=itemgetter(1)))
        sizes = {0: sum(sizes.values()) - sum(largest.values()), **largest}
    return array("Q", sizes), array("f", sizes.values())


class LiveHistory:
    """All levels, and the names of their tasks. Times must not decrease."""

    def __init__(self, unfinished: Callable[[], Iterable[int]] = tuple) -> None:
        """``unfinished`` returns the numbers of tasks whose names are kept even if they never had nodes."""
        self._unfinished = unfinished
        self.levels = tuple(map(HistoryLevel, SPANS))
        self.names: dict[int, Named] = {}
        self._state = HistorySample(0, 0.0, {})
        self._at_s: float | None = None
        self._prune_at = _KNOWN

    def look(self, time_s: float, state: HistorySample | None = None) -> None:
        """Record the state from ``time_s`` on; without ``state`` it is unchanged."""
        if self._at_s is not None and time_s > self._at_s:
            for level in self.levels:
                level.add(self._at_s, time_s, self._state)
        self._at_s = time_s if self._at_s is None else max(self._at_s, time_s)
        if state is not None:
            self._state = state

    def name(self, number: int, name: str, uid: int) -> None:
        """Record the name of a task."""
        named = self.names.get(number)
        if named is None or named.name != name:
            self.names[number] = Named(name, uid)
            if len(self.names) > self._prune_at:  # forget names of tasks without cells
                used = {number for level in self.levels for cell in level.cells() for number in cell.numbers}
                used.update(self._state.sizes, self._unfinished())
                self.names = {number: named for number, named in self.names.items() if number in used}
                self._prune_at = max(_KNOWN, 2 * len(self.names))

    def level(self, span_s: float) -> HistoryLevel:
        """Return the finest level that covers ``span_s``, or the level with the longest span."""
        return next((level for level in self.levels if level.span.span_s >= span_s), self.levels[-1])

    def saving(self, path: Path) -> Callable[[], None]:
        """Return a function that saves the present history for the next run; it may be called in another thread."""
        levels, names = [list(level.cells()) for level in self.levels], dict(self.names)  # cells never change

        def save() -> None:
            columns = [
                [(cell.at, cell.known_s, cell.pool, cell.speed, list(cell.numbers), list(cell.sizes)) for cell in cells]
                for cells in levels
            ]
            text = wire.encode(_Saved(widths=tuple(span.width_s for span in SPANS), levels=columns, names=names))
            new = path.with_suffix(".new")
            with suppress(OSError):  # an error is harmless: the history is for display only
                new.touch(mode=0o600)
                new.write_bytes(text)
                new.replace(path)

        return save

    def load(self, path: Path) -> None:
        """Continue from the saved history of an earlier run.

        Unreadable parts are ignored, as the history is for display only.
        """
        try:
            saved = wire.decode(path.read_bytes(), _Saved)
        except (OSError, BftrainError):
            return
        if saved.widths != tuple(span.width_s for span in SPANS):
            return
        for level, cells in zip(self.levels, saved.levels, strict=False):
            for index, known_s, pool, speed, numbers, sizes in cells:
                if len(numbers) == len(sizes):
                    level.put(HistoryAverages(index, known_s, pool, speed, array("Q", numbers), array("f", sizes)))
        self.names = dict(saved.names)


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    widths: tuple[float, ...]
    levels: list[list[tuple[int, float, float, float, list[int], list[float]]]]
    names: dict[int, Named]


KEPT: Final = 200
_LONGEST: Final = 90  # letters of a node set
_SIZES: Final = 6  # changes of size in one line


class FeedChange(NamedTuple):
    """A change in size of a task, by its number."""

    number: int
    before: int
    after: int


class _Entry(NamedTuple):
    number: int
    time_s: float
    kind: str
    nodes: tuple[str, ...] = ()
    pool: int = 0
    task: int = 0
    what: str = ""
    changes: tuple[FeedChange, ...] = ()


class EventFeed:
    """The latest events. Adding one is cheap; texts are made on request."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque(maxlen=KEPT)
        self.last = 0  # the number of the last entry
        self._folded: dict[int, str] = {}  # number of an entry -> text of its nodes

    def on_event(self, event: Event, pool: int, number_of: Callable[[str], int], *, given_back: bool = False) -> None:
        """Add an event that leaves ``pool`` nodes; set ``given_back`` if we released the departed nodes."""
        match event:
            case NodesJoined() | NodesLeft() if event.nodes:
                kind = "joined" if isinstance(event, NodesJoined) else "left"
                self._add(event.time_s, kind, nodes=event.nodes, pool=pool, what="given back" if given_back else "left")
            case TaskSubmitted():
                self._add(event.time_s, "task", task=number_of(event.spec.name), what="submitted")
            case TaskFinished() | TaskCancelled() | TaskPaused() | TaskResumed() | TaskEdited() | TaskFailed():
                what = str(event.__struct_config__.tag).removeprefix("task_")
                kind = "failed" if isinstance(event, TaskFailed) else "task"
                self._add(event.time_s, kind, task=number_of(event.task), what=what)

    def resized(self, time_s: float, changes: Sequence[FeedChange]) -> None:
        """Add changes of tasks' sizes."""
        self._add(time_s, "size", changes=tuple(changes))

    def since(self, number: int, name_of: Callable[[int], str | None]) -> Iterable[Happening]:
        """Return the entries after ``number``, except for tasks missing from ``name_of``."""
        for entry in self._entries:
            if entry.number > number:
                text = self._words(entry, name_of)
                if text:
                    yield Happening(number=entry.number, time_s=entry.time_s, kind=entry.kind, text=text)

    def _add(self, time_s: float, kind: str, **more: Any) -> None:  # noqa: ANN401 - the other fields of an entry
        self.last += 1
        self._entries.append(_Entry(self.last, time_s, kind, **more))
        self._folded.pop(self.last - KEPT, None)

    def _words(self, entry: _Entry, name_of: Callable[[int], str | None]) -> str:
        if entry.nodes:
            became = "became idle" if entry.kind == "joined" else entry.what
            unit = word_of(unit_of(entry.nodes))
            pool = f"{entry.pool} {unit}" if entry.pool == 1 else f"{entry.pool} {unit}s"
            if entry.number not in self._folded:  # a node set; of many sets only how many nodes
                text = fold(entry.nodes)
                self._folded[entry.number] = text if len(text) <= _LONGEST else f"{len(entry.nodes)} {unit}s"
            return f"{self._folded[entry.number]} {became}: {pool} ours"
        if entry.changes:
            known = [(name, one) for one in entry.changes if (name := name_of(one.number)) is not None]
            more = f" and {len(known) - _SIZES} other tasks" if len(known) > _SIZES else ""
            return ", ".join(f"{name} {one.before} → {one.after}" for name, one in known[:_SIZES]) + more
        name = name_of(entry.task)
        return "" if name is None else f"{name} {entry.what}"
