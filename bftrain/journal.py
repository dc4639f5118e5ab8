"""Journal: the append-only record of events and decisions, in one SQLite file.

What is in it when a step's transaction ends survives ``kill -9``. Reading it back drives a Harvester to the same
decisions, so a live run can be replayed, and a restart continues where the last run stopped.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from bftrain import __version__
from bftrain.config import Settings
from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain.values.decision import Decision
from bftrain.values.events import Event

FORMAT: Final = "1"

_SCHEMA: Final = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'decision')),
    time_s REAL NOT NULL,
    body TEXT NOT NULL
) STRICT;
"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one moment and the decision they led to (``None`` if none was recorded: the run was cut off)."""

    number: int
    events: tuple[Event, ...]
    decision: Decision | None


class Journal:
    """An open journal. Use it in a ``with`` block, and from one thread."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        last = connection.execute("SELECT max(step) FROM entry").fetchone()[0]
        self._step: int = last or 0

    # -- opening

    @classmethod
    def create(cls, path: Path, settings: Settings) -> Journal:
        """Make a new journal that only its owner can read; it remembers the settings decisions are made with."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError as error:
            raise BadInput(
                "is there already", where=str(path), fix="a journal is only added to: name another file"
            ) from error
        except OSError as error:
            raise BadInput(f"cannot be made: {error.strerror}", where=str(path)) from error
        connection = _connect(path)
        with connection:
            connection.executescript(_SCHEMA)
            connection.executemany(
                "INSERT INTO about VALUES (?, ?)",
                [
                    ("format", FORMAT),
                    ("bftrain", __version__),
                    ("settings", wire.encode(settings).decode()),
                ],
            )
        return cls(connection, path)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open a journal that is there, to read it or to add to it."""
        if not path.is_file():
            raise BadInput("there is no such journal", where=str(path))
        connection = _connect(path)
        try:
            found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
        except sqlite3.DatabaseError as error:
            connection.close()
            raise BadInput(f"is no journal: {error}", where=str(path)) from error
        if found is None or found[0] != FORMAT:
            connection.close()
            raise BadInput(
                f"has format {found and found[0]}, and this version reads format {FORMAT}",
                where=str(path),
                fix="use the version of bftrain that wrote it",
            )
        return cls(connection, path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # -- writing

    def append(self, events: Sequence[Event], decision: Decision | None) -> None:
        """Record one step, whole or not at all."""
        with self._connection:
            self._insert(self._step + 1, "event", [(event.time_s, event) for event in events])
            if decision is not None:
                self._insert(self._step + 1, "decision", [(decision.time_s, decision)])
        self._step += 1

    def append_events(self, events: Sequence[Event]) -> None:
        """Begin a step with its events, before anything is decided."""
        self.append(events, None)

    def append_decision(self, decision: Decision) -> None:
        """Complete the step that was begun last."""
        with self._connection:
            self._insert(self._step, "decision", [(decision.time_s, decision)])

    def _insert(self, step: int, kind: str, items: Sequence[tuple[float, object]]) -> None:
        self._connection.executemany(
            "INSERT INTO entry (step, kind, time_s, body) VALUES (?, ?, ?, ?)",
            [(step, kind, time_s, wire.encode(value).decode()) for time_s, value in items],
        )

    # -- reading

    @property
    def settings(self) -> Settings:
        """The settings that the decisions were made with."""
        body = self._connection.execute("SELECT value FROM about WHERE key = 'settings'").fetchone()[0]
        return wire.decode(body, Settings, where=str(self.path))

    def insist_on(self, settings: Settings) -> None:
        """Refuse to go on with other settings than the decisions so far were made with."""
        recorded, asked = wire.plain(self.settings), wire.plain(settings)
        for name, value in asked.items():
            if recorded[name] != value:
                raise BadInput(
                    f"was begun with {name} = {recorded[name]!r}, and {value!r} is asked for",
                    where=str(self.path),
                    fix="use the same settings, or begin a new journal",
                )

    def __len__(self) -> int:
        """Give the number of steps."""
        return self._step

    @property
    def cut_off(self) -> bool:
        """Say whether the last step has events but no decision: whoever wrote it died in between."""
        last = self._connection.execute("SELECT kind FROM entry ORDER BY number DESC LIMIT 1").fetchone()
        return last is not None and last[0] == "event"

    def steps(self) -> Iterator[Step]:
        """All steps in their order, read as they are asked for."""
        with closing(self._connection.cursor()) as cursor:
            rows = cursor.execute("SELECT step, number, kind, body FROM entry ORDER BY number")
            for step, entries in groupby(rows, key=lambda row: row[0]):
                events: list[Event] = []
                decision: Decision | None = None
                for _, number, kind, body in entries:
                    where = f"{self.path}: entry {number}"
                    if kind == "event":
                        events.append(wire.decode(body, Event, where=where))
                    else:
                        decision = wire.decode(body, Decision, where=where)
                yield Step(number=step, events=tuple(events), decision=decision)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    # FULL: a step that was recorded before its actions went out must survive a power cut as well
    connection.execute("PRAGMA synchronous = FULL")
    return connection
