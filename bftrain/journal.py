"""Journal: the append-only record of events and decisions, in one SQLite file.

What is in it when a step's transaction ends survives ``kill -9``. Reading it back drives a Harvester to the same
decisions, so a live run can be replayed, and a restart continues where the last run stopped. Now and then it is written
down where things stand, so that a restart need not read all from the beginning.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from bftrain.config import Settings
from bftrain.deciding.snapshot import HarvesterSnapshot
from bftrain.errors import BadInput, NotAvailable
from bftrain.values import wire
from bftrain.values.decision import Decision
from bftrain.values.events import Event
from bftrain.version import __version__

FORMAT: Final = "1"
_ONE_WRITER: Final = "let only one process write a journal"
_SEE_TO_SPACE: Final = "see to free space and to the right to write there"

_SCHEMA: Final = (
    "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    """CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    step INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'decision')),
    time_s REAL NOT NULL,
    body TEXT NOT NULL
) STRICT""",
)
_STANDING: Final = """CREATE TABLE IF NOT EXISTS standing (
    step INTEGER PRIMARY KEY,
    settings TEXT NOT NULL,
    changed INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT"""
_LAST_ENTRY: Final = "SELECT number, step, kind FROM entry ORDER BY number DESC LIMIT 1"


Statement = tuple[str, Sequence[object]]  # SQL, and what stands for its question marks


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Where things stood after ``step``, and the settings from there on; ``changed`` if these are new."""

    step: int
    settings: Settings
    changed: bool
    standing: HarvesterSnapshot


class JournalStep(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one moment and the decision they led to (``None`` if none was recorded: the run was cut off)."""

    number: int
    events: tuple[Event, ...]
    decision: Decision | None


class Journal:
    """An open journal. Use it in a ``with`` block, and from one thread; only one process may add to it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        self._safe = True
        self._number, self._step, self._kind = self._last_entry()
        self._closed = self._settings_changed_after()

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
        connection = sqlite3.connect(path)
        try:
            _begin(connection, settings)
        except sqlite3.Error as error:
            connection.close()
            path.unlink()
            raise NotAvailable(f"cannot be written: {error}", where=str(path), fix=_SEE_TO_SPACE) from error
        return cls(connection, path)

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open a journal that is there, to read it or to add to it."""
        if not path.is_file():
            raise BadInput("there is no such journal", where=str(path))
        connection = _connect(path)
        try:
            _make_safe(connection)
            _check_format(connection, path)
            return cls(connection, path)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise BadInput(f"is no journal: {error}", where=str(path)) from error
        except BaseException:
            connection.close()
            raise

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
        items: list[tuple[str, Event | Decision]] = [("event", event) for event in events]
        if decision is not None:
            items.append(("decision", decision))
        self._insert(self._step + 1, items)

    def append_events(self, events: Sequence[Event], also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Begin a step with its events, before anything is decided.

        ``also`` is done in the same transaction. Without ``sync`` the step survives us, but perhaps no power cut.
        """
        self._insert(self._step + 1, [("event", event) for event in events], also, sync=sync)

    def append_decision(self, decision: Decision, also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Complete the step that was begun last.

        If it has a decision already, or the settings were changed since, this one is a step without events.
        """
        complete = self._kind != "event" or self._closed == self._step
        self._insert(self._step + complete, [("decision", decision)], also, sync=sync)

    def change(self, *statements: Statement, sync: bool = True) -> None:
        """Change tables that others keep beside the record, in one transaction."""
        self._insert(self._step, (), statements, sync=sync)

    def keep(self, settings: Settings, standing: HarvesterSnapshot) -> None:
        """Write down where things stand after the last step, and the settings from there on.

        Of those with the same settings as before, the last two are kept.
        """
        changed = settings != self.settings_now
        row = (self._step, wire.encode(settings).decode(), changed, wire.encode(standing).decode())
        older = "SELECT step FROM standing ORDER BY step DESC LIMIT 1 OFFSET 1"
        self.change(
            (_STANDING, ()),
            ("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", row),
            (f"DELETE FROM standing WHERE NOT changed AND step < ({older})", ()),  # noqa: S608 - all of it is ours
            sync=changed,
        )
        self._closed = self._step if changed else self._closed

    def _insert(
        self,
        step: int,
        items: Sequence[tuple[str, Event | Decision]],
        also: Sequence[Statement] = (),
        *,
        sync: bool = True,
    ) -> None:
        """Add entries in one transaction; refused when another process has added some meanwhile."""
        rows = [(step, kind, value.time_s, wire.encode(value).decode()) for kind, value in items]
        try:
            self._make_safe(power_cuts=sync)
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._last_entry()[0] != self._number:
                    raise BadInput("another process adds to it too", where=str(self.path), fix=_ONE_WRITER)
                self._connection.executemany("INSERT INTO entry (step, kind, time_s, body) VALUES (?, ?, ?, ?)", rows)
                for statement, values in also:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            fix = _ONE_WRITER if "locked" in str(error) else _SEE_TO_SPACE
            raise NotAvailable(f"cannot be written: {error}", where=str(self.path), fix=fix) from error
        self._number, self._step, self._kind = self._last_entry()

    def _make_safe(self, *, power_cuts: bool) -> None:
        if power_cuts != self._safe:
            _make_safe(self._connection, power_cuts=power_cuts)
            self._safe = power_cuts

    def _last_entry(self) -> tuple[int, int, str]:
        """Number, step and kind of the last entry."""
        last: tuple[int, int, str] | None = self._connection.execute(_LAST_ENTRY).fetchone()
        return last or (0, 0, "")

    # -- reading

    @property
    def settings(self) -> Settings:
        """The settings that the decisions were made with."""
        found = self._connection.execute("SELECT value FROM about WHERE key = 'settings'").fetchone()
        if found is None:
            raise BadInput("has lost its settings", where=str(self.path))
        return wire.decode(found[0], Settings, where=str(self.path))

    @property
    def settings_now(self) -> Settings:
        """The settings that the last decisions were made with: those it began with, unless they were changed since."""
        last = self.stood_last()
        return self.settings if last is None else last.settings

    def insist_on(self, settings: Settings) -> None:
        """Refuse to go on with other settings than the last decisions were made with."""
        recorded, asked = wire.plain(self.settings_now), wire.plain(settings)
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
        """Say whether the last step has events but no decision: its writer died in between."""
        return self._kind == "event"

    def stood_last(self) -> StoredSnapshot | None:
        """Where things stood when that was written down last."""
        return next(self._stood("ORDER BY step DESC LIMIT 1"), None)

    def restart_snapshots(self) -> Iterator[StoredSnapshot]:
        """Where things stood whenever the settings were changed."""
        return self._stood("WHERE changed ORDER BY step")

    def _settings_changed_after(self) -> int:
        """Give the last step after which they were; -1 for none."""
        if not self._has_stood:
            return -1
        return int(self.rows("SELECT coalesce(max(step), -1) FROM standing WHERE changed")[0][0])

    @property
    def _has_stood(self) -> bool:
        return bool(self.rows("SELECT name FROM sqlite_master WHERE name = 'standing'"))

    def _stood(self, which: str) -> Iterator[StoredSnapshot]:
        if not self._has_stood:
            return
        select = f"SELECT step, settings, changed, body FROM standing {which}"  # noqa: S608 - all of it is ours
        for step, settings, changed, body in self.rows(select):
            where = f"{self.path}: standing {step}"
            yield StoredSnapshot(
                step=step,
                settings=wire.decode(settings, Settings, where=where),
                changed=bool(changed),
                standing=wire.decode(body, HarvesterSnapshot, where=where),
            )

    def rows(self, select: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from any table of the file."""
        try:
            with closing(self._connection.execute(select, values)) as cursor:
                return cursor.fetchall()
        except sqlite3.DatabaseError as error:
            raise BadInput(f"is damaged: {error}", where=str(self.path)) from error

    def steps(self, after: int = 0) -> Iterator[JournalStep]:
        """All steps in their order, or those after one, read as they are asked for."""
        for step, entries in groupby(self._entries(after), key=lambda row: row[0]):
            events: list[Event] = []
            decision: Decision | None = None
            for _, number, kind, body in entries:
                where = f"{self.path}: entry {number}"
                if kind == "event":
                    events.append(wire.decode(body, Event, where=where))
                else:
                    decision = wire.decode(body, Decision, where=where)
            yield JournalStep(number=step, events=tuple(events), decision=decision)

    def _entries(self, after: int) -> Iterator[tuple[int, int, str, str]]:
        begin = "(SELECT coalesce(max(number), 0) FROM entry WHERE step <= ?)" if after else "0"
        select = f"SELECT step, number, kind, body FROM entry WHERE number > {begin} ORDER BY number"  # noqa: S608 - all of it is ours
        try:
            with closing(self._connection.cursor()) as cursor:
                yield from cursor.execute(select, (after,) if after else ())
        except sqlite3.DatabaseError as error:
            raise BadInput(f"is damaged: {error}", where=str(self.path)) from error


def _connect(path: Path) -> sqlite3.Connection:
    # To read a file with WAL, SQLite makes others beside it. Where it cannot, such as in an archive or for another
    # user, it reads only a file that is said not to change; one that is being written has a -wal beside it.
    rests = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True) if rests else sqlite3.connect(path)


def _begin(connection: sqlite3.Connection, settings: Settings) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    _make_safe(connection)
    about = [("format", FORMAT), ("bftrain", __version__), ("settings", wire.encode(settings).decode())]
    with connection:
        connection.execute("BEGIN")  # all of it or nothing: a kill leaves no half-made journal
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.executemany("INSERT INTO about VALUES (?, ?)", about)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    if found is None or found[0] != FORMAT:
        raise BadInput(
            f"has format {found and found[0]}, and this version reads format {FORMAT}",
            where=str(path),
            fix="use the version of bftrain that wrote it",
        )


def _make_safe(connection: sqlite3.Connection, *, power_cuts: bool = True) -> None:
    # A step that was recorded before its actions went out must survive a power cut as well, unless its writer
    # can find out again what happened
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_cuts else 'NORMAL'}")
