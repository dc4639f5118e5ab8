"""Following: what a live run looks like, kept up to date by its updates, with contact lost and found again."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from bftrain.errors import BftrainError
from bftrain.live.client.client import Client
from bftrain.live.model.schemas import StatusView
from bftrain.live.model.stream_schemas import Cell, Happening, TaskRow, Update

_HAPPENED: Final = 200
_YOUNGEST: Final = 10  # no less than this part of a span is looked at
_AGAIN_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


class LiveView:
    """All that is known of a live run, out of its updates, the first of which has everything."""

    def __init__(self, first: Update) -> None:
        self.status: StatusView = first.status
        self.day = first.day
        self.tasks: dict[int, TaskRow] = {}
        self.more = 0
        self.nodes: dict[str, tuple[str, int]] = {}
        self.width_s = 1.0
        self.span_s = 0.0
        self.cells: dict[float, Cell] = {}  # by when they begin
        self.happened: deque[Happening] = deque(maxlen=_HAPPENED)
        self.update(first)

    def update(self, update: Update) -> None:
        """Take an update in."""
        self.status, self.day = update.status, update.day
        if update.tasks is not None:
            self.tasks.update((row.number, row) for row in update.tasks.changed)
            for number in update.tasks.gone:
                self.tasks.pop(number, None)
            self.more = update.tasks.more
        if update.nodes is not None:
            self.nodes.update(update.nodes.changed)
            for name in update.nodes.gone:
                self.nodes.pop(name, None)
        if update.history is not None:
            self.width_s, self.span_s = update.history.width_s, update.history.span_s
            for cell in update.history.cells:
                self.cells.pop(cell.begin_s, None)
                self.cells[cell.begin_s] = cell
            oldest = self.status.now_s - self.span_s - self.width_s
            for begin_s in [begin_s for begin_s in self.cells if begin_s < oldest]:
                del self.cells[begin_s]
            self.happened.extend(update.history.happened)

    @property
    def _since_s(self) -> float:
        """When the time begins that is looked at: of a young run not all of the span, but a part of it at least."""
        now_s = self.status.now_s
        known = max(now_s - self.span_s, min(self.cells, default=now_s))
        return min(now_s - self.span_s / _YOUNGEST, known)

    def sizes(self, task: int, parts: int) -> list[float]:
        """Give the nodes that a task held on average in each part of the time that is looked at."""
        return self._means(parts, lambda cell: cell.sizes.get(task, 0.0))

    def speeds(self, parts: int) -> list[float]:
        """Give the samples/s of all tasks on average in each part of the time that is looked at."""
        return self._means(parts, lambda cell: cell.speed)

    def _means(self, parts: int, value: Callable[[Cell], float]) -> list[float]:
        begin_s = self._since_s
        part_s = (self.status.now_s - begin_s) / parts
        sums, known = [0.0] * parts, [0.0] * parts
        for cell in self.cells.values():
            part = min(parts - 1, int((cell.begin_s + cell.known_s / 2 - begin_s) / part_s))
            if part >= 0:
                sums[part] += cell.known_s * value(cell)
                known[part] += cell.known_s
        return [total / seconds if seconds else 0.0 for total, seconds in zip(sums, known, strict=True)]


class StreamClient:
    """Follows a live run in a thread. ``changed`` is called from there whenever there is something new to see."""

    def __init__(self, client: Client, span_s: float, changed: Callable[[], None]) -> None:
        self._client = client
        self._span_s = span_s
        self._changed = changed
        self.changes = 0  # how often there was something new
        self._ending = threading.Event()
        self._lock = threading.Lock()
        updates = client.updates(span_s)
        self._scene = LiveView(next(updates))  # a run that cannot be reached is an error, and no screen
        self._lost: tuple[float, str] | None = None
        self._thread = threading.Thread(target=self._follow, args=(updates,), name="follower", daemon=True)
        self._thread.start()

    def look(self, draw: Callable[[LiveView, tuple[float, str] | None], None]) -> None:
        """Call ``draw`` with what is known now, and since when and why there is no contact, if there is none."""
        with self._lock:
            draw(self._scene, self._lost)

    def end(self) -> None:
        """Follow no more."""
        self._ending.set()

    def _follow(self, updates: Iterator[Update]) -> None:
        tries = 0
        while not self._ending.is_set():
            try:
                for update in updates:
                    if self._ending.is_set():
                        return
                    tries = 0
                    self._take(update)
                reason = "it ended"
            except BftrainError as error:
                reason = error.what
            with self._lock:
                self._lost = (time.time() if self._lost is None else self._lost[0], reason)
                self.changes += 1
            self._changed()
            self._ending.wait(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
            tries += 1
            updates = self._client.updates(self._span_s)

    def _take(self, update: Update) -> None:
        with self._lock:
            self.changes += 1
            if self._lost is not None:  # the first update after that has all
                self._lost, self._scene = None, LiveView(update)
            else:
                self._scene.update(update)
        self._changed()
