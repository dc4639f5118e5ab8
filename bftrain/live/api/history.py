"""LiveHistory: number of nodes, their holders and the speed of all tasks, over minutes, hours and days.

Four levels of cells cover the past, from fine cells for the last minutes to coarse cells for days. Averages are exact,
even for short events. Memory is bounded for runs of any length.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BftrainError
from bftrain.live.model.schemas import Happening, Span
from bftrain.node_units import unit_of, word_of
from bftrain.nodesets import fold
from bftrain.text_formats import counted
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

_log = logging.getLogger(__name__)
# How far back and how finely, in seconds: ten minutes, an hour, a day, ten days
SPANS: Final = tuple(
    Span(span_s=span_s, width_s=width_s)
    for span_s, width_s in ((600, 1.0), (3600, 5.0), (86400, 120.0), (864000, 1200.0))
)
_WIDTHS: Final = tuple(span.width_s for span in SPANS)
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


class HistoryAverages(msgspec.Struct, frozen=True, array_like=True):
    """One cell: its interval, the observed seconds, and averages over these; sizes in two columns."""

    at: int
    known_s: float
    pool: float
    speed: float
    numbers: tuple[int, ...]
    sizes: tuple[float, ...]


class HistoryLevel:
    """Cells of equal width, and the sums of the unfinished cell."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._closed: deque[HistoryAverages] = deque(maxlen=round(span.span_s / span.width_s))
        self._begin_cell(0)

    def add(self, begin_s: float, end_s: float, state: HistorySample) -> None:
        """Add a state that lasted from ``begin_s`` to ``end_s``."""
        width = self.span.width_s
        begin_s = max(begin_s, end_s - self.span.span_s - width)  # older data is dropped
        for index in range(math.floor(begin_s / width), math.floor(end_s / width) + 1):
            if index != self._index:
                if self._known_s > 0:
                    self._closed.append(self._averages())
                self._begin_cell(index)
            self._weigh(*state, min(end_s, (index + 1) * width) - max(begin_s, index * width))

    def cells(self, since_s: float = -math.inf) -> Iterator[HistoryAverages]:
        """Yield the cells that end after ``since_s``, including the unfinished one."""
        newest = (self._index + 1) * self.span.width_s
        oldest = max(since_s, newest - self.span.span_s)
        for cell in self._closed:
            if (cell.at + 1) * self.span.width_s > oldest:
                yield cell
        if self._known_s > 0:
            yield self._averages()

    def load(self, cells: Iterable[HistoryAverages]) -> None:
        """Continue from the cells of an earlier run."""
        self._closed.extend(cell for cell in cells if len(cell.numbers) == len(cell.sizes))

    def _begin_cell(self, index: int) -> None:
        self._index, self._known_s, self._pool, self._speed = index, 0.0, 0.0, 0.0
        self._sizes: dict[int, float] = {}
        if self._closed and self._closed[-1].at == index:  # opened by an earlier run
            cell = self._closed.pop()
            self._weigh(cell.pool, cell.speed, dict(zip(cell.numbers, cell.sizes, strict=True)), cell.known_s)

    def _weigh(self, pool: float, speed: float, sizes: Mapping[int, float], seconds: float) -> None:
        if seconds <= 0:
            return
        self._known_s += seconds
        self._pool += seconds * pool
        self._speed += seconds * speed
        for number, size in sizes.items():
            self._sizes[number] = self._sizes.get(number, 0.0) + seconds * size

    def _averages(self) -> HistoryAverages:
        known_s = self._known_s
        sizes = _largest({number: total / known_s for number, total in self._sizes.items()})
        return HistoryAverages(
            self._index, known_s, self._pool / known_s, self._speed / known_s, tuple(sizes), tuple(sizes.values())
        )


def _largest(sizes: dict[int, float]) -> dict[int, float]:
    """Return the sizes; only the largest of very many tasks, and the sum of the remainder as number 0."""
    if len(sizes) <= _MOST_TASKS:
        return sizes
    largest = dict(nlargest(_MOST_TASKS, sizes.items(), key=itemgetter(1)))
    return {0: sum(sizes.values()) - sum(largest.values()), **largest}


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
        levels = tuple(tuple(level.cells()) for level in self.levels)
        saved = _Saved(widths=_WIDTHS, levels=levels, names=dict(self.names))

        def save() -> None:
            text, new = wire.encode(saved), path.with_suffix(".new")
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
        if saved.widths == _WIDTHS:
            for level, cells in zip(self.levels, saved.levels, strict=False):
                level.load(cells)
            self.names = dict(saved.names)


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    widths: tuple[float, ...]
    levels: tuple[tuple[HistoryAverages, ...], ...]
    names: dict[int, Named]


KEPT: Final = 200
_LONGEST: Final = 90  # letters of a node set
_SIZES: Final = 6  # changes of size in one line


class FeedChange(NamedTuple):
    """A change in size of a task, by its number."""

    number: int
    before: int
    after: int


NameOf = Callable[[int], str | None]  # the name of a task by its number; None if it must not be shown


class _Entry(NamedTuple):
    number: int
    time_s: float
    kind: str
    text: Callable[[NameOf], str]


class EventFeed:
    """The latest events. Adding one is cheap; texts are made on request, and for the log."""

    def __init__(self, name_of: NameOf = str) -> None:
        self._name_of = name_of  # for the log
        self._entries: deque[_Entry] = deque(maxlen=KEPT)
        self.last = 0  # the number of the last entry

    def on_event(self, event: Event, pool: int, number_of: Callable[[str], int], *, given_back: bool = False) -> None:
        """Add an event that leaves ``pool`` nodes; set ``given_back`` if we released the departed nodes."""
        match event:
            case NodesJoined() if event.nodes:
                self._add(event.time_s, "joined", lambda _: _nodes_in_words(event.nodes, "became idle", pool))
            case NodesLeft() if event.nodes:
                what = "given back" if given_back else "taken back"
                level = logging.DEBUG if given_back else logging.INFO
                self._add(event.time_s, "left", lambda _: _nodes_in_words(event.nodes, what, pool), level)
            case TaskSubmitted():
                self._add_task(event.time_s, number_of(event.spec.name), "submitted")
            case TaskFinished() | TaskCancelled() | TaskPaused() | TaskResumed() | TaskEdited() | TaskFailed():
                what = str(event.__struct_config__.tag).removeprefix("task_")
                kind = "failed" if isinstance(event, TaskFailed) else "task"
                self._add_task(event.time_s, number_of(event.task), what, kind)

    def resized(self, time_s: float, changes: Sequence[FeedChange]) -> None:
        """Add changes of tasks' sizes."""

        def text(name_of: NameOf) -> str:
            known = [(name, one) for one in changes if (name := name_of(one.number)) is not None]
            more = f" and {len(known) - _SIZES} other tasks" if len(known) > _SIZES else ""
            return ", ".join(f"{name} {one.before} → {one.after}" for name, one in known[:_SIZES]) + more

        self._add(time_s, "size", text)

    def since(self, number: int, name_of: NameOf) -> Iterable[Happening]:
        """Return the entries after ``number``, except for tasks missing from ``name_of``."""
        for entry in self._entries:
            if entry.number > number and (text := entry.text(name_of)):
                yield Happening(number=entry.number, time_s=entry.time_s, kind=entry.kind, text=text)

    def _add_task(self, time_s: float, task: int, what: str, kind: str = "task") -> None:
        self._add(time_s, kind, lambda name_of: "" if (name := name_of(task)) is None else f"{name} {what}")

    def _add(self, time_s: float, kind: str, text: Callable[[NameOf], str], level: int = logging.DEBUG) -> None:
        self.last += 1
        self._entries.append(_Entry(self.last, time_s, kind, text))
        if _log.isEnabledFor(level) and (words := text(self._name_of)):
            _log.log(level, "%s", words)


def _nodes_in_words(nodes: tuple[str, ...], what: str, pool: int) -> str:
    return f"{_folded(nodes)} {what}: {counted(pool, word_of(unit_of(nodes)))} ours"


@lru_cache(maxsize=KEPT)
def _folded(nodes: tuple[str, ...]) -> str:
    """Return a node set as text; of many sets only the number of nodes."""
    text = fold(nodes)
    return text if len(text) <= _LONGEST else counted(len(nodes), word_of(unit_of(nodes)))
