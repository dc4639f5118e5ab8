"""StatusStream: records the history of a live run, and streams changes as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bftrain.deciding.harvester import Harvester
from bftrain.live import timeouts
from bftrain.live.api.history import EventFeed, FeedChange, HistoryAverages, HistorySample, LiveHistory
from bftrain.live.api.owned_tasks import task_figures
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.task_manager import TaskManager
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.model.background_thread import run_in_daemon_thread
from bftrain.live.model.callers import Caller
from bftrain.live.model.schemas import (
    Cell,
    HistoryView,
    NodeChanges,
    NodeView,
    NotNow,
    StatusView,
    TaskChanges,
    TaskRow,
    Update,
)
from bftrain.live.model.task_record import LiveTaskRecord
from bftrain.values import wire
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskSubmitted

WATCHERS: Final = 100  # concurrent streams
_OF_ONE: Final = 20  # streams per user; operators have no limit
LONGEST_S: Final = 864_000.0
_SAVE_EVERY: Final = 120  # beats
_NODES_EVERY: Final = 3  # beats, for changes of nodes without events
_AWAY: Final = ("away", 0)
_OVER: Final = 20  # number of finished tasks shown


class StatusStream:
    """Observes the run in its event loop. ``status_of`` and ``views_of`` return the data a caller may see."""

    def __init__(
        self,
        folder: Path,
        harvester: Harvester,
        store: TaskStore,
        tasks: TaskManager,
        nodes: NodeManager,
        status_of: Callable[[Caller], StatusView],
        views_of: Callable[[Caller], tuple[NodeView, ...]],
    ) -> None:
        self._harvester, self._store, self._tasks, self._nodes = harvester, store, tasks, nodes
        self._status_of, self._views_of = status_of, views_of
        self.feed = EventFeed(lambda number: self._name(number, None))
        self.history = LiveHistory(lambda: self._numbers.values())  # noqa: PLW0108 - there will be other ones
        self._path = folder / "history.json"
        self.history.load(self._path)
        self._numbers = {record.name: record.number for record in store.unfinished}
        self._sizes: Mapping[int, int] = {}
        self._watchers: set[_Watcher] = set()
        self._beats = 0
        self._loop = asyncio.get_running_loop()
        # Departed nodes, and since when: watchers see them at their index for a while
        self._left: dict[str, float] = {}
        self._saving: asyncio.Task[None] | None = None
        self._soon: asyncio.Handle | None = None
        self._seen: list[tuple[float, HistorySample]] = []  # states at departures of nodes, until the next decision
        self._nodes_of: dict[int, dict[str, tuple[str, int]]] = {}  # cache by caller, cleared when nodes change
        for record in store.unfinished:
            self._know(record)
        self._next_beat = self._loop.call_soon(self._beat)

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - events, a decision, or a message
        """Record an event; the rest is done after the orders that follow from it are sent."""
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
        self._catch_up()  # keeps the record in chronological sequence
        for event in events:
            if isinstance(event, TaskSubmitted):
                self._know(self._store.get(event.spec.name))
            elif isinstance(event, NodesJoined | NodesLeft):
                for node in event.nodes:
                    self._left.pop(node, None)
                    if isinstance(event, NodesLeft):
                        self._left[node] = event.time_s
            given_back = isinstance(event, NodesLeft) and not self._nodes.preempted(event.nodes)
            pool = self._harvester.pool_size
            self.feed.on_event(event, pool, lambda name: self._numbers.get(name, 0), given_back=given_back)
        if any(isinstance(event, NodesLeft) for event in events):  # these change sizes immediately
            self._seen.append(self._sample())

    def _know(self, record: LiveTaskRecord | None) -> None:
        if record is not None:
            self._numbers[record.name] = record.number
            self.history.name(record.number, record.name, record.uid)

    def _sample(self) -> tuple[float, HistorySample]:
        now = self._tasks.now
        sizes: dict[int, int] = {}
        speed = 0.0
        for track in self._tasks.tracks.values():
            if track.held:
                number = track.record.number
                sizes[number] = len(track.held)
                speed += track.speed(now)
                if number not in self._sizes:
                    self._know(track.record)
        return now, HistorySample(self._harvester.pool_size, speed, sizes)

    def _look(self) -> None:
        self._soon = None
        self._catch_up()
        self._record(*self._sample())
        for watcher in self._watchers:
            watcher.news.set()

    def _catch_up(self) -> None:
        """Record events that arrived while a decision was pending."""
        seen, self._seen = self._seen, []
        for sample in seen:
            self._record(*sample)

    def _record(self, now: float, sample: HistorySample) -> None:
        self.history.look(now, sample)
        sizes = sample.sizes
        if sizes != self._sizes:
            before, self._sizes = self._sizes, sizes
            pairs = ((number, before.get(number, 0), sizes.get(number, 0)) for number in {**before, **sizes})
            self.feed.resized(now, [FeedChange(*pair) for pair in pairs if pair[1] != pair[2]])

    def _beat(self) -> None:
        """Sample once a second, because speeds change without events; save the history now and then."""
        self._next_beat = self._loop.call_later(timeouts.TIMEOUTS.update_s, self._beat)
        self._beats += 1
        if self._beats % _NODES_EVERY == 0:
            self._nodes_of.clear()
            old_s = self._tasks.now - timeouts.TIMEOUTS.away_node_s
            while self._left and next(iter(self._left.values())) < old_s:
                del self._left[next(iter(self._left))]
        self._look()
        if self._beats % _SAVE_EVERY == 0:
            if self._saving is None or self._saving.done():
                self._saving = self._loop.create_task(run_in_daemon_thread(self.history.saving(self._path)))
            self._numbers = {record.name: record.number for record in self._store.unfinished}

    def close(self) -> None:
        """Stop, and save the history for the next run."""
        for handle in (self._soon, self._next_beat):
            if handle is not None:
                handle.cancel()
        if self._saving is not None and not self._saving.done():  # the disk may hang
            self._saving.cancel()
        else:
            self.history.saving(self._path)()

    def history_of(self, caller: Caller, span_s: float) -> HistoryView:
        """Return the history for a caller."""
        self._catch_up()
        self.history.look(self._tasks.now)
        return self._history(_Watcher(caller, span_s))

    def updates(self, caller: Caller, span_s: float, most: int) -> AsyncGenerator[bytes, None]:
        """Yield updates as server-sent events, after each event and each second; stop after ``most`` (0: never)."""
        if len(self._watchers) >= WATCHERS:
            raise NotNow(f"{WATCHERS} watch already", fix="close a page, or wait")
        if not caller.operator and sum(one.caller.uid == caller.uid for one in self._watchers) >= _OF_ONE:
            raise NotNow(f"you watch {_OF_ONE} times already", fix="close a page, or wait")
        return self._updates(_Watcher(caller, span_s), most)

    async def _updates(self, watcher: _Watcher, most: int) -> AsyncGenerator[bytes, None]:
        self._watchers.add(watcher)
        try:
            while True:
                watcher.news.clear()
                now = self._tasks.now
                self._catch_up()
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

    def _row(self, record: LiveTaskRecord) -> TaskRow:
        track, progress, figures = task_figures(record, self._tasks)
        figures |= {"speed": _rounded(figures["speed"]), "node_s": round(progress.node_s, 1)}
        since_s = record.submitted_s if progress.started_s is None else progress.started_s
        return TaskRow(**figures, size=0 if track is None else len(track.held), since_s=since_s)

    def _node_changes(self, watcher: _Watcher) -> NodeChanges | None:
        key = -1 if watcher.caller.operator else watcher.caller.uid
        if key not in self._nodes_of:
            views, number_of = self._views_of(watcher.caller), self._numbers.get
            known = {view.name: (view.state, number_of(view.task, 0)) for view in views}
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
        width_s = level.span.width_s
        cells = tuple(self._cell(cell, width_s, watcher.caller) for cell in level.cells(watcher.since_s))
        if cells:
            watcher.since_s = cells[-1].begin_s
        happened = tuple(self.feed.since(watcher.happened, lambda number: self._name(number, watcher.caller)))
        watcher.happened = self.feed.last
        seen = {number for cell in cells for number in cell.sizes} - watcher.named
        watcher.named |= seen
        names = {number: name for number in sorted(seen) if (name := self._name(number, watcher.caller)) is not None}
        return HistoryView(span_s=level.span.span_s, width_s=width_s, cells=cells, names=names, happened=happened)

    def _cell(self, cell: HistoryAverages, width_s: float, caller: Caller) -> Cell:
        sizes: dict[int, float] = {}
        for number, size in zip(cell.numbers, cell.sizes, strict=True):
            message = number if self._name(number, caller) is not None else 0
            sizes[message] = sizes.get(message, 0.0) + size
        return Cell(
            begin_s=cell.at * width_s,
            known_s=round(cell.known_s, 3),
            pool=round(cell.pool, 3),
            speed=_rounded(cell.speed),
            sizes={number: round(size, 3) for number, size in sizes.items()},
        )

    def _name(self, number: int, caller: Caller | None) -> str | None:
        """Return the name of a task that a caller may see; ``None`` is an operator."""
        named = self.history.names.get(number)
        sees = named is not None and (caller is None or caller.operator or caller.uid == named.uid)
        return named.name if named is not None and sees else None


@dataclass(eq=False)
class _Watcher:
    caller: Caller
    span_s: float
    # The state that was sent already
    news: asyncio.Event = field(default_factory=asyncio.Event)
    sent: int = 0
    tasks: dict[int, TaskRow] = field(default_factory=dict)
    more: int = 0
    nodes: dict[str, tuple[str, int]] = field(default_factory=dict)
    since_s: float = float("-inf")
    happened: int = 0
    named: set[int] = field(default_factory=set)


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")  # the digits that are shown
