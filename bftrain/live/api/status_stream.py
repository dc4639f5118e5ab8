"""StatusStream: records the history of a live run, and streams changes as server-sent events.

LiveHistory keeps the number of nodes, the size of each task, and the speed of all tasks since the start of this run.
Four levels of cells cover the past, from fine cells for ten minutes to coarse cells for ten days. Averages are exact,
even for short events, and memory is bounded for runs of any length. EventFeed has the latest events.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from bftrain.live import timeouts
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.startup import LiveResources
from bftrain.live.daemon.task_manager import TaskManager, TaskProgressTrack
from bftrain.live.model.schemas import (
    Caller,
    Cell,
    Happening,
    HistoryView,
    LiveTaskRecord,
    NodeChanges,
    NodeView,
    NotNow,
    Progress,
    StatusView,
    TaskChanges,
    TaskFigures,
    Update,
    state_of,
)
from bftrain.node_units import unit_of, word_of
from bftrain.nodesets import fold
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain.values.events import (
    Event,
    NodesJoined,
    NodesLeft,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskPaused,
    TaskResumed,
    TaskSubmitted,
)

WATCHERS: Final = 100  # concurrent streams
_STREAMS_PER_USER: Final = 20  # streams per user; operators have no limit
LONGEST_S: Final = 864_000.0  # the longest span of the history
_NODES_EVERY: Final = 3  # beats between two looks for node changes without events, such as expected departures
_AWAY: Final = ("away", 0)
_OVER: Final = 20  # number of finished tasks shown


def task_figures(
    record: LiveTaskRecord, tasks: TaskManager
) -> tuple[TaskProgressTrack | None, Progress, dict[str, Any]]:
    """Return a task's track (if unfinished), its current progress, and its fields of TaskFigures."""
    track = tasks.tracks.get(record.name) if record.unfinished else None
    progress = record.progress if track is None else track.advance_to(tasks.now)
    size = 0 if track is None else len(track.held)
    return (
        track,
        progress,
        {
            "number": record.number,
            "name": record.name,
            "user": record.user,
            "state": state_of(record, size),
            "size": size,
            "min_nodes": record.spec.min_nodes,
            "max_nodes": record.spec.max_nodes,
            "since_s": record.submitted_s if progress.started_s is None else progress.started_s,
            "ended_s": record.ended_s,
            "work_samples": record.spec.work_samples,
            "samples": progress.samples,
            "done_samples": progress.done_samples,
            "step": progress.step,
            "loss": progress.loss,
            "speed": 0.0 if track is None else track.speed(tasks.now),
            "node_s": progress.node_s,
            "rescales": progress.rescales,
            "preemptions": progress.preemptions,
            "failures": progress.failures,
        },
    )


class StatusStream:
    """Observes the run in its event loop. ``status_of`` and ``views_of`` return the status and nodes for a caller."""

    def __init__(
        self,
        opened: LiveResources,
        tasks: TaskManager,
        nodes: NodeManager,
        status_of: Callable[[Caller], StatusView],
        views_of: Callable[[Caller], tuple[NodeView, ...]],
    ) -> None:
        self._harvester, self._store, self._tasks, self._nodes = opened.harvester, opened.task_store, tasks, nodes
        self._status_of, self._views_of = status_of, views_of
        self.feed = EventFeed(lambda number: self._name(number, None))
        self.history = LiveHistory()
        self._name_and_owner = lru_cache(_KNOWN)(self._read_name_and_owner)
        self._sizes: Mapping[int, int] = {}
        self._watchers: set[_Watcher] = set()
        self._beats = 0
        self._loop = asyncio.get_running_loop()
        # Departed nodes, and since when: the page keeps their squares for a while
        self._left: dict[str, float] = {}
        self._soon: asyncio.Handle | None = None
        self._nodes_of: dict[int, dict[str, tuple[str, int]]] = {}  # cache by caller, cleared when nodes change
        self._next_beat = self._loop.call_soon(self._beat)

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        """Record events; sample after their decision, or after ``update_decision_s`` without one."""
        if what == "events":
            self._observe_events(value)
        elif what == "message" and value["type"] not in {"registered", "gone", "vacated"}:
            return
        self._nodes_of.clear()
        if what == "decision" and self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._soon is None and what == "events":
            self._soon = self._loop.call_later(timeouts.TIMEOUTS.update_decision_s, self._look)
        elif self._soon is None:
            self._soon = self._loop.call_soon(self._look)

    def _observe_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, NodesJoined | NodesLeft):
                for node in event.nodes:
                    self._left.pop(node, None)
                    if isinstance(event, NodesLeft):
                        self._left[node] = event.time_s
            given_back = isinstance(event, NodesLeft) and not self._nodes.preempted(event.nodes)
            pool = self._harvester.pool_size
            self.feed.on_event(event, pool, self._number_of, given_back=given_back)
        if any(isinstance(event, NodesLeft) for event in events):  # these change sizes immediately
            self._record(*self._sample())

    def _number_of(self, name: str) -> int:
        """Return the number of a task; 0 for an empty or unknown name."""
        record = self._store.find(name) if name else None
        return 0 if record is None else record.number

    def _sample(self) -> tuple[float, HistorySample]:
        now = self._tasks.now
        sizes: dict[int, int] = {}
        speed = 0.0
        for track in self._tasks.tracks.values():
            if track.held:
                sizes[track.record.number] = len(track.held)
                speed += track.speed(now)
        return now, HistorySample(self._harvester.pool_size, speed, sizes)

    def _look(self) -> None:
        self._soon = None
        self._record(*self._sample())
        for watcher in self._watchers:
            watcher.news.set()

    def _record(self, now: float, sample: HistorySample) -> None:
        self.history.look(now, sample)
        sizes = sample.sizes
        if sizes != self._sizes:
            before, self._sizes = self._sizes, sizes
            changes = ((number, before.get(number, 0), sizes.get(number, 0)) for number in {**before, **sizes})
            self.feed.resized(now, [change for change in changes if change[1] != change[2]])

    def _beat(self) -> None:
        """Sample once a second, because speeds change without events."""
        self._next_beat = self._loop.call_later(timeouts.TIMEOUTS.update_s, self._beat)
        self._beats += 1
        if self._beats % _NODES_EVERY == 0:
            self._nodes_of.clear()
            old_s = self._tasks.now - timeouts.TIMEOUTS.away_node_s
            while self._left and next(iter(self._left.values())) < old_s:
                del self._left[next(iter(self._left))]
        self._look()

    def close(self) -> None:
        """Stop."""
        for handle in (self._soon, self._next_beat):
            if handle is not None:
                handle.cancel()

    def updates(self, caller: Caller, span_s: float, most: int) -> AsyncGenerator[bytes, None]:
        """Yield updates as server-sent events, after each event and each second; stop after ``most`` (0: never)."""
        if len(self._watchers) >= WATCHERS:
            raise NotNow(f"{WATCHERS} watch already", fix="close a page, or wait")
        if not caller.operator and sum(one.caller.uid == caller.uid for one in self._watchers) >= _STREAMS_PER_USER:
            raise NotNow(f"you have {_STREAMS_PER_USER} open streams already", fix="close a page, or wait")
        return self._updates(_Watcher(caller, span_s), most)

    async def _updates(self, watcher: _Watcher, most: int) -> AsyncGenerator[bytes, None]:
        self._watchers.add(watcher)
        try:
            while True:
                watcher.news.clear()
                now = self._tasks.now
                self.history.look(now)
                update = Update(
                    status=self._status_of(watcher.caller),
                    day=time.strftime("%Y-%m-%d", time.localtime(now)),
                    tasks=self._task_changes(watcher),
                    nodes=self._node_changes(watcher),
                    history=self._history(watcher),
                )
                yield b"data: " + wire.encode(update) + b"\n\n"
                watcher.sent += 1
                if watcher.sent == most:
                    return
                await asyncio.sleep(timeouts.TIMEOUTS.update_gap_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeouts.TIMEOUTS.update_s - timeouts.TIMEOUTS.update_gap_s):
                        await watcher.news.wait()
        finally:
            self._watchers.discard(watcher)

    def _task_changes(self, watcher: _Watcher) -> TaskChanges | None:
        store, may_touch = self._store, watcher.caller.may_touch
        unfinished = [record for record in store.unfinished if may_touch(record)]
        unfinished.sort(key=lambda record: (record.number not in self._sizes, record.number))
        over = [record for record in store.finished[-timeouts.LIMITS.shown_tasks :] if may_touch(record)][-_OVER:]
        rows = {record.number: self._row(record) for record in (*unfinished[: timeouts.LIMITS.shown_tasks], *over)}
        before, watcher.tasks = watcher.tasks, rows
        changed = tuple(row for number, row in rows.items() if before.get(number) != row)
        gone = tuple(number for number in before if number not in rows)
        more = max(0, len(unfinished) - timeouts.LIMITS.shown_tasks)
        if not changed and not gone and more == watcher.more:
            return None
        watcher.more = more
        return TaskChanges(changed=changed, gone=gone, more=more)

    def _row(self, record: LiveTaskRecord) -> TaskFigures:
        _, progress, figures = task_figures(record, self._tasks)
        return TaskFigures(**figures | {"speed": _rounded(figures["speed"]), "node_s": round(progress.node_s, 1)})

    def _node_changes(self, watcher: _Watcher) -> NodeChanges | None:
        key = -1 if watcher.caller.operator else watcher.caller.uid
        if key not in self._nodes_of:
            views = self._views_of(watcher.caller)
            known = {view.name: (view.state, self._number_of(view.task)) for view in views}
            self._nodes_of[key] = {**dict.fromkeys(self._left, _AWAY), **known}
        before, nodes = watcher.nodes, self._nodes_of[key]
        watcher.nodes = nodes
        if before is nodes or (before == nodes and watcher.sent):
            return None
        changed = {name: node for name, node in nodes.items() if before.get(name) != node}
        kinds = {name: kind for name in changed if (kind := self._nodes.kinds.of(name))}
        return NodeChanges(changed=changed, kinds=kinds, gone=tuple(name for name in before if name not in nodes))

    def _history(self, watcher: _Watcher) -> HistoryView:
        level = self.history.level(watcher.span_s)
        cells = tuple(self._cell(cell, watcher.caller) for cell in level.cells(watcher.since_s))
        if cells:
            watcher.since_s = cells[-1].begin_s
        happened = tuple(self.feed.since(watcher.happened, lambda number: self._name(number, watcher.caller)))
        watcher.happened = self.feed.last
        seen = {number for cell in cells for number in cell.sizes} - watcher.named
        watcher.named |= seen
        names = {number: name for number in sorted(seen) if (name := self._name(number, watcher.caller)) is not None}
        span = level.span
        return HistoryView(span_s=span.span_s, width_s=span.width_s, cells=cells, names=names, happened=happened)

    def _cell(self, cell: Cell, caller: Caller) -> Cell:
        """Return a cell with the digits that are shown, and with hidden tasks as number 0."""
        sizes: dict[int, float] = {}
        for number, size in cell.sizes.items():
            shown = number if self._name(number, caller) is not None else 0
            sizes[shown] = sizes.get(shown, 0.0) + size
        return replace(
            cell,
            known_s=round(cell.known_s, 3),
            pool=round(cell.pool, 3),
            speed=_rounded(cell.speed),
            sizes={number: round(size, 3) for number, size in sizes.items()},
        )

    def _name(self, number: int, caller: Caller | None) -> str | None:
        """Return the name of a task that a caller may see; ``None`` is an operator."""
        name, uid = self._name_and_owner(number)
        return name if caller is None or caller.operator or caller.uid == uid else None

    def _read_name_and_owner(self, number: int) -> tuple[str | None, int]:
        """Return the name and the owner of a task; they never change."""
        record = self._store.find(f"#{number}")
        return (None, -1) if record is None else (record.name, record.uid)


@dataclass(eq=False)
class _Watcher:
    caller: Caller
    span_s: float
    news: asyncio.Event = field(default_factory=asyncio.Event)
    # The state that was sent already
    sent: int = 0
    tasks: dict[int, TaskFigures] = field(default_factory=dict)
    more: int = 0
    nodes: dict[str, tuple[str, int]] = field(default_factory=dict)
    since_s: float = float("-inf")
    happened: int = 0
    named: set[int] = field(default_factory=set)


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")  # the digits that are shown


_log = logging.getLogger(__name__)


class Span(NamedTuple):
    """The time that a level of the history covers, and the width of its cells."""

    span_s: float
    width_s: float


# Ten minutes, an hour, a day, ten days
SPANS: Final = (Span(600, 1.0), Span(3600, 5.0), Span(86400, 120.0), Span(864_000, 1200.0))
_MOST_TASKS: Final = 64  # tasks in a cell with figures of their own
_KNOWN: Final = 4096  # task names in memory


class HistorySample(NamedTuple):
    """The state at one time: pool size, samples/s of all tasks, and node counts by task number."""

    pool: int
    speed: float
    sizes: Mapping[int, int]


class HistoryLevel:
    """Cells of equal width, and the sums of the unfinished cell."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self._closed: deque[Cell] = deque(maxlen=round(span.span_s / span.width_s))
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

    def cells(self, since_s: float = -math.inf) -> Iterator[Cell]:
        """Yield the cells that end after ``since_s``, including the unfinished one."""
        newest = (self._index + 1) * self.span.width_s
        oldest = max(since_s, newest - self.span.span_s)
        for cell in self._closed:
            if cell.begin_s + self.span.width_s > oldest:
                yield cell
        if self._known_s > 0:
            yield self._averages()

    def _begin_cell(self, index: int) -> None:
        self._index, self._known_s, self._pool, self._speed = index, 0.0, 0.0, 0.0
        self._sizes: dict[int, float] = {}

    def _weigh(self, pool: float, speed: float, sizes: Mapping[int, float], seconds: float) -> None:
        if seconds <= 0:
            return
        self._known_s += seconds
        self._pool += seconds * pool
        self._speed += seconds * speed
        for number, size in sizes.items():
            self._sizes[number] = self._sizes.get(number, 0.0) + seconds * size

    def _averages(self) -> Cell:
        known_s = self._known_s
        return Cell(
            begin_s=self._index * self.span.width_s,
            known_s=known_s,
            pool=self._pool / known_s,
            speed=self._speed / known_s,
            sizes=_largest({number: total / known_s for number, total in self._sizes.items()}),
        )


def _largest(sizes: dict[int, float]) -> dict[int, float]:
    """Return the sizes; only the largest of very many tasks, and the sum of the remainder as number 0."""
    if len(sizes) <= _MOST_TASKS:
        return sizes
    largest = dict(nlargest(_MOST_TASKS, sizes.items(), key=itemgetter(1)))
    return {0: sum(sizes.values()) - sum(largest.values()), **largest}


class LiveHistory:
    """All levels. Times must not decrease."""

    def __init__(self) -> None:
        self.levels = tuple(map(HistoryLevel, SPANS))
        self._state = HistorySample(0, 0.0, {})
        self._at_s: float | None = None

    def look(self, time_s: float, state: HistorySample | None = None) -> None:
        """Record the state from ``time_s`` on; without ``state`` it is unchanged."""
        if self._at_s is not None and time_s > self._at_s:
            for level in self.levels:
                level.add(self._at_s, time_s, self._state)
        self._at_s = time_s if self._at_s is None else max(self._at_s, time_s)
        if state is not None:
            self._state = state

    def level(self, span_s: float) -> HistoryLevel:
        """Return the finest level that covers ``span_s``, or the level with the longest span."""
        return next((level for level in self.levels if level.span.span_s >= span_s), self.levels[-1])


KEPT: Final = 200
_LONGEST: Final = 90  # letters of a node set
_SIZES: Final = 6  # changes of size in one line


NameOf = Callable[[int], str | None]  # the name of a task by its number; None if it must not be shown


class _Entry(NamedTuple):
    number: int
    time_s: float
    kind: str
    text: Callable[[NameOf], str]


class EventFeed:
    """The latest events. Adding one is cheap; texts are made on request, and for the log by ``name_of``."""

    def __init__(self, name_of: NameOf = str) -> None:
        self._name_of = name_of
        self._entries: deque[_Entry] = deque(maxlen=KEPT)
        self.last = 0  # the number of the last entry

    def on_event(self, event: Event, pool: int, number_of: Callable[[str], int], *, given_back: bool = False) -> None:
        """Add an event with ``pool`` nodes after it; set ``given_back`` if we released the departed nodes."""
        match event:
            case NodesJoined() if event.nodes:
                self._add(event.time_s, "joined", lambda _: _nodes_in_words(event.nodes, "became idle", pool))
            case NodesLeft() if event.nodes:
                what = "given back" if given_back else "taken back"
                level = logging.DEBUG if given_back else logging.INFO
                self._add(event.time_s, "left", lambda _: _nodes_in_words(event.nodes, what, pool), level)
            case TaskSubmitted():
                self._add_task(event.time_s, number_of(event.spec.name), "submitted")
            case TaskFinished() | TaskCancelled() | TaskPaused() | TaskResumed() | TaskFailed():
                what = str(event.__struct_config__.tag).removeprefix("task_")
                kind = "failed" if isinstance(event, TaskFailed) else "task"
                self._add_task(event.time_s, number_of(event.task), what, kind)

    def resized(self, time_s: float, changes: Sequence[tuple[int, int, int]]) -> None:
        """Add changes of sizes: number of the task, size before, size after."""

        def text(name_of: NameOf) -> str:
            known = [
                f"{name} {before} → {after}"
                for number, before, after in changes
                if (name := name_of(number)) is not None
            ]
            more = f" and {len(known) - _SIZES} other tasks" if len(known) > _SIZES else ""
            return ", ".join(known[:_SIZES]) + more

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
    return f"{_folded(nodes)} {what}: {counted(pool, word_of(unit_of(nodes)))} available"


@lru_cache(maxsize=KEPT)
def _folded(nodes: tuple[str, ...]) -> str:
    """Return a node set as text; of a long one only the number of nodes."""
    text = fold(nodes)
    return text if len(text) <= _LONGEST else counted(len(nodes), word_of(unit_of(nodes)))
