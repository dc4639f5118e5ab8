"""Journal: the append-only record of events and decisions, in one SQLite file.

What is in it when a step's transaction ends survives ``kill -9``. Reading it back drives a Harvester to the same
decisions, so a live run can be replayed, and a restart continues where the last run stopped. Now and then it is written
down where things stand, so that a restart need not read all from the beginning.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from bftrain.config import Settings
from bftrain.deciding.allocation_state import HarvesterSnapshot
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


# SQLite's codes for what may pass: no space, no right to write for now, an error of the disk
_MAY_PASS: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)


class JournalStalled(NotAvailable):
    """A journal cannot be written now, for a full disk perhaps; nothing of the step is in it; a later try may work."""


Statement = tuple[str, Sequence[object]]  # SQL, and what stands for its question marks


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Where things stood after ``step``, and the settings from there on; ``changed`` if these are new."""

    step: int
    settings: Settings
    changed: bool
    snapshot: HarvesterSnapshot


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
        select = "SELECT coalesce(max(step), -1) FROM standing WHERE changed"
        # The last step after which the settings were changed; -1 for none
        self._closed = int(self.rows(select)[0][0]) if self._has_stood else -1

    # -- opening

    @classmethod
    def create(cls, path: Path, settings: Settings) -> Journal:
        """Make a new journal that only its owner can read; it remembers the settings decisions are made with."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError as error:
            fix = "a journal is only added to: name another file"
            raise BadInput("is there already", where=str(path), fix=fix) from error
        except OSError as error:
            raise BadInput(f"cannot be made: {error.strerror}", where=str(path)) from error
        connection = sqlite3.connect(path)
        about = [("format", FORMAT), ("bftrain", __version__), ("settings", wire.encode(settings).decode())]
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            _make_safe(connection)
            with connection:
                connection.execute("BEGIN")  # all of it or nothing: a kill leaves no half-made journal
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.executemany("INSERT INTO about VALUES (?, ?)", about)
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
        # To read a file with WAL, SQLite makes others beside it. Where it cannot, such as in an archive or for another
        # user, it reads only a file that is said not to change; one that is being written has a -wal beside it.
        rests = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
        place = f"{path.absolute().as_uri()}?immutable=1" if rests else path
        connection = sqlite3.connect(place, uri=rests)
        try:
            _make_safe(connection)
            check_format(connection, path)
            return cls(connection, path)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            connection.close()
            fix = repair_of(path) if _begins_as_journal(path) else None
            raise BadInput(f"is no journal: {error}", where=str(path), fix=fix) from error
        except BaseException:
            connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # -- writing

    def append(self, events: Sequence[Event], decision: Decision | None) -> None:
        """Record one step, whole or not at all."""
        self._insert(self._step + 1, [*events, *([] if decision is None else [decision])])

    def append_events(self, events: Sequence[Event], also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Begin a step with its events, before anything is decided.

        ``also`` is done in the same transaction. Without ``sync`` the step survives us, but perhaps no power cut.
        """
        self._insert(self._step + 1, events, also, sync=sync)

    def append_decision(self, decision: Decision, also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Complete the step that was begun last.

        If it has a decision already, or the settings were changed since, this one is a step without events.
        """
        complete = self._kind != "event" or self._closed == self._step
        self._insert(self._step + complete, [decision], also, sync=sync)

    def change(self, *statements: Statement, sync: bool = True) -> None:
        """Change tables that others keep beside the record, in one transaction."""
        self._insert(self._step, (), statements, sync=sync)

    def keep(self, settings: Settings, snapshot: HarvesterSnapshot) -> None:
        """Write down where things stand after the last step, and the settings from there on.

        Of those with the same settings as before, the last two are kept.
        """
        changed = settings != self.settings_now
        row = (self._step, wire.encode(settings).decode(), changed, wire.encode(snapshot).decode())
        older = "SELECT step FROM standing ORDER BY step DESC LIMIT 1 OFFSET 1"
        self.change(
            (_STANDING, ()),
            ("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", row),
            (f"DELETE FROM standing WHERE NOT changed AND step < ({older})", ()),  # noqa: S608 - all of it is ours
            sync=changed,
        )
        self._closed = self._step if changed else self._closed

    def _insert(
        self, step: int, items: Sequence[Event | Decision], also: Sequence[Statement] = (), *, sync: bool = True
    ) -> None:
        """Add entries in one transaction; refused when another process has added some meanwhile."""
        kinds = ("decision" if isinstance(value, Decision) else "event" for value in items)
        rows = [
            (step, kind, value.time_s, wire.encode(value).decode()) for kind, value in zip(kinds, items, strict=True)
        ]
        try:
            if sync != self._safe:
                _make_safe(self._connection, power_cuts=sync)
                self._safe = sync
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._last_entry()[0] != self._number:
                    raise BadInput("another process adds to it too", where=str(self.path), fix=_ONE_WRITER)
                self._connection.executemany("INSERT INTO entry (step, kind, time_s, body) VALUES (?, ?, ?, ?)", rows)
                for statement, values in also:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            fix = _ONE_WRITER if "locked" in str(error) else _SEE_TO_SPACE
            passes = getattr(error, "sqlite_errorcode", 0) & 0xFF in _MAY_PASS  # the rest of it is details
            kind = JournalStalled if passes else NotAvailable
            raise kind(f"cannot be written: {error}", where=str(self.path), fix=fix) from error
        self._number, self._step, self._kind = self._last_entry()

    def _last_entry(self) -> tuple[int, int, str]:
        select = "SELECT number, step, kind FROM entry ORDER BY number DESC LIMIT 1"
        last: tuple[Any, Any, str] | None = self._connection.execute(select).fetchone()
        if last is not None and not (isinstance(last[0], int) and isinstance(last[1], int)):
            raise BadInput("is damaged: its last entry has no number", where=str(self.path), fix=repair_of(self.path))
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
                what = f"was begun with {name} = {recorded[name]!r}, and {value!r} is asked for"
                raise BadInput(what, where=str(self.path), fix="use the same settings, or begin a new journal")

    def __len__(self) -> int:
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

    @property
    def _has_stood(self) -> bool:
        return self.has_table("standing")

    def _stood(self, which: str) -> Iterator[StoredSnapshot]:
        select = f"SELECT step, settings, changed, body FROM standing {which}"  # noqa: S608 - all of it is ours
        for step, settings, changed, body in self.rows(select) if self._has_stood else ():
            where, texts = f"{self.path}: standing {step}", (settings, body)
            if not isinstance(step, int) or step > self._step or not all(isinstance(text, str) for text in texts):
                raise BadInput("is damaged: it is of no step", where=where, fix=repair_of(self.path))
            yield StoredSnapshot(
                step=step,
                settings=wire.decode(settings, Settings, where=where),
                changed=bool(changed),
                snapshot=wire.decode(body, HarvesterSnapshot, where=where),
            )

    def has_table(self, name: str) -> bool:
        """Say whether a table is there: older versions made fewer."""
        return bool(self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def rows(self, select: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Read from any table of the file."""
        return list(self._read(select, values))

    def _read(self, select: str, values: Sequence[object] = ()) -> Generator[tuple[Any, ...]]:
        try:
            with closing(self._connection.execute(select, values)) as cursor:
                yield from cursor
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise BadInput(f"is damaged: {error}", where=str(self.path), fix=repair_of(self.path)) from error

    def steps(self, after: int = 0) -> Iterator[JournalStep]:
        """All steps in their order, or those after one, read as they are asked for."""
        begin = "(SELECT coalesce(max(number), 0) FROM entry WHERE step <= ?)" if after else "0"
        select = f"SELECT step, number, kind, body FROM entry WHERE number > {begin} ORDER BY number"  # noqa: S608 - all of it is ours
        with closing(self._read(select, (after,) if after else ())) as rows:  # so that no reader is left where it ends
            yield from read_steps(rows, self.path, after)


def read_steps(rows: Iterable[tuple[Any, ...]], path: Path, after: int = 0) -> Iterator[JournalStep]:
    """Read steps from rows of step, number, kind and body; raise ``BadInput`` where one is missing or damaged."""
    last_step, last_number = after, 0
    for step, entries in groupby(rows, key=lambda row: row[0]):
        events: list[Event] = []
        decision: Decision | None = None
        for _, number, kind, body in entries:
            where = f"{path}: entry {number}"
            if step != last_step + 1 or (last_number and number != last_number + 1) or decision is not None:
                raise BadInput("entries before it are missing", where=where, fix=repair_of(path))
            last_number = number
            if kind == "event":
                events.append(wire.decode(body, Event, where=where, fix=repair_of(path)))
            else:
                decision = wire.decode(body, Decision, where=where, fix=repair_of(path))
        last_step = step
        yield JournalStep(number=step, events=tuple(events), decision=decision)


def _begins_as_journal(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def repair_of(path: Path) -> str:
    """Return how to go on with a damaged journal."""
    return f"bftrain journal repair {path.name} -o NEW makes a journal of what can be read before the damage"


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a journal of another format than this version reads."""
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    connection.execute("SELECT number, step, kind, time_s, body FROM entry LIMIT 0")
    if found is None or found[0] != FORMAT:
        what = f"has format {found and found[0]}, and this version reads format {FORMAT}"
        raise BadInput(what, where=str(path), fix="use the version of bftrain that wrote it")


def _make_safe(connection: sqlite3.Connection, *, power_cuts: bool = True) -> None:
    # A step that was recorded before its actions went out must survive a power cut as well, unless its writer
    # can find out again what happened
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_cuts else 'NORMAL'}")
