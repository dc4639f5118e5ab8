"""The stream of a live run: at first the whole state, then changes only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bftrain.live.model.schemas import StatusView


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """How far back is remembered, in cells of ``width_s`` seconds."""

    span_s: float
    width_s: float


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of time, on average over the ``known_s`` seconds of it that are known of.

    ``sizes`` has the nodes held by task number; number 0 stands for all tasks of others.
    """

    begin_s: float
    known_s: float
    pool: float
    speed: float  # samples/s
    sizes: Mapping[int, float] = msgspec.field(default_factory=dict)


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, in words. ``kind`` is joined, left, size, task or failed."""

    number: int
    time_s: float
    kind: str
    text: str


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """How things went: cells, the oldest first, the names of the tasks in them, and what happened last.

    As part of an update it holds cells that are new or, the last one, known better.
    """

    span_s: float
    width_s: float
    cells: tuple[Cell, ...] = ()
    names: Mapping[int, str] = msgspec.field(default_factory=dict)
    happened: tuple[Happening, ...] = ()


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task in short; ``since_s`` is when it started or, as long as it waits for the first time, was submitted."""

    number: int
    name: str
    user: str
    state: str
    size: int
    min_nodes: int
    max_nodes: int
    samples: float
    work_samples: float | None
    step: int
    loss: float | None
    speed: float
    since_s: float
    ended_s: float | None
    node_s: float
    rescales: int
    preemptions: int
    failures: int

    @property
    def done(self) -> float | None:
        """The share of its work that is done, if that is known."""
        return min(1.0, self.samples / self.work_samples) if self.work_samples else None


class TaskChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that are new or other than before, and the numbers of those that are no longer shown.

    ``more`` is how many there are besides: of very many only those that run and the first that wait are shown.
    """

    changed: tuple[TaskRow, ...] = ()
    gone: tuple[int, ...] = ()
    more: int = 0


class NodeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are new or other than before, as ``[state, number of the task on it]``.

    The number is 0 where there is none, or it is another user's. ``kinds`` are those of the changed ones that have one.
    """

    changed: Mapping[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    kinds: Mapping[str, str] = msgspec.field(default_factory=dict)
    gone: tuple[str, ...] = ()


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How things stand now, and what changed since the last update; the first one has all.

    ``day`` is today where the live run is, as it names the days of the harvest.
    """

    status: StatusView
    day: str
    tasks: TaskChanges | None = None
    nodes: NodeChanges | None = None
    history: HistoryView | None = None
