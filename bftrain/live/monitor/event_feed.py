"""EventFeed: what happened last, in words, for those who may know of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from bftrain.live.model.stream_schemas import Happening
from bftrain.nodesets import fold
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

KEPT: Final = 200
_LONGEST: Final = 90  # letters of a node set
_SIZES: Final = 6  # changes of size in one line
_WHAT: Final[dict[type, str]] = {
    TaskSubmitted: "submitted",
    TaskFinished: "finished",
    TaskCancelled: "cancelled",
    TaskPaused: "paused",
    TaskResumed: "resumed",
    TaskFailed: "failed",
}


class FeedChange(NamedTuple):
    """A task, by its number, went from one size to another."""

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
    """The last things that happened. Taking them in costs nearly nothing; texts are made on request."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque(maxlen=KEPT)
        self._number = 0
        self._folded: dict[int, str] = {}  # number of an entry -> its nodes in words

    def happened(self, event: Event, pool: int, number_of: Callable[[str], int]) -> None:
        """Take in an event after which there are ``pool`` nodes."""
        match event:
            case NodesJoined() if event.nodes:
                self._add(event.time_s, "joined", nodes=event.nodes, pool=pool)
            case NodesLeft() if event.nodes:
                self._add(event.time_s, "left", nodes=event.nodes, pool=pool)
            case TaskSubmitted():
                self._add(event.time_s, "task", task=number_of(event.spec.name), what="submitted")
            case TaskFailed():
                self._add(event.time_s, "failed", task=number_of(event.task), what="failed")
            case TaskFinished() | TaskCancelled() | TaskPaused() | TaskResumed():
                self._add(event.time_s, "task", task=number_of(event.task), what=_WHAT[type(event)])

    def resized(self, time_s: float, changes: Sequence[FeedChange]) -> None:
        """Take in that tasks hold other numbers of nodes."""
        self._add(time_s, "size", changes=tuple(changes))

    def since(self, number: int, name_of: Callable[[int], str | None]) -> Iterable[Happening]:
        """Give what came after entry ``number``. Tasks that ``name_of`` has no name for are not spoken of."""
        for entry in self._entries:
            if entry.number > number:
                text = self._words(entry, name_of)
                if text:
                    yield Happening(number=entry.number, time_s=entry.time_s, kind=entry.kind, text=text)

    @property
    def last(self) -> int:
        """The number of the last entry."""
        return self._number

    def _add(
        self,
        time_s: float,
        kind: str,
        *,
        nodes: tuple[str, ...] = (),
        pool: int = 0,
        task: int = 0,
        what: str = "",
        changes: tuple[FeedChange, ...] = (),
    ) -> None:
        self._number += 1
        self._entries.append(_Entry(self._number, time_s, kind, nodes, pool, task, what, changes))
        self._folded.pop(self._number - KEPT, None)

    def _words(self, entry: _Entry, name_of: Callable[[int], str | None]) -> str:
        if entry.nodes:
            became = "became idle" if entry.kind == "joined" else "left"
            pool = f"{entry.pool} node" if entry.pool == 1 else f"{entry.pool} nodes"
            return f"{self._set(entry)} {became}: {pool} ours"
        if entry.changes:
            known = [(name, one) for one in entry.changes if (name := name_of(one.number)) is not None]
            more = f" and {len(known) - _SIZES} other tasks" if len(known) > _SIZES else ""
            return ", ".join(f"{name} {one.before} → {one.after}" for name, one in known[:_SIZES]) + more
        name = name_of(entry.task)
        return "" if name is None else f"{name} {entry.what}"

    def _set(self, entry: _Entry) -> str:
        """Write nodes as a node set; of many sets only the beginning."""
        if entry.number not in self._folded:
            text = fold(entry.nodes)
            if len(text) > _LONGEST:
                text = f"{len(entry.nodes)} nodes"
            self._folded[entry.number] = text
        return self._folded[entry.number]
