"""Journal: the append-only record of events and decisions, in one SQLite file.

A completed transaction survives ``kill -9``. Driving a Harvester with the journal leads to equal
decisions, so a live run can be replayed, and a restart continues at the last step. Snapshots are stored
occasionally, so a restart need not read the full journal.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from bftrain.config import Settings, recorded_settings
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.errors import BadInput, NotAvailable
from bftrain.files import head_of, overwrite_error
from bftrain.values import wire
from bftrain.values.decision import Decision
from bftrain.values.events import Event
from bftrain.version import __version__

FORMAT: Final = "1"
_MOST_PAGES: Final = 16_384  # 64 MB: SQLite itself moves a write-ahead log of this size into the file
_ONE_WRITER: Final = "let only one process write a journal"
_CHECK_SPACE: Final = "check the free space and the permission to write there"

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


_FIRST: Final = "first"  # key in ``about``: the last removed step
_REMOVE: Final = "DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE step <= ? ORDER BY number LIMIT ?)"

# SQLite's codes for temporary failures: no space, read-only for now, disk error
_MAY_PASS: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
)


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state after ``step``, and the settings from there on; ``changed`` if these are new."""

    step: int
    settings: Settings
    changed: bool
    snapshot: HarvesterSnapshot


class JournalStep(msgspec.Struct, frozen=True, kw_only=True):
    """Simultaneous events and the resulting decision; ``None`` if the run or its settings ended before it."""

    number: int
    events: tuple[Event, ...]
    decision: Decision | None


class JournalStalled(NotAvailable):
    """The journal is not writable now (disk full, ...); no part of the step is stored, and a retry may succeed."""


Statement = tuple[str, Sequence[object]]  # SQL, and its parameters


class Journal:
    """An open journal. Use it in a ``with`` block, and from one thread; only one process may add to it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path
        self._safe, self._next = True, 0
        self.writes = 0  # count since it was opened
        self.first = self._read_first()  # the last removed step, 0 for none: later steps are readable
        self._number, self._step, self._kind = self._last_entry()
        select = "SELECT coalesce(max(step), -1) FROM standing WHERE changed"
        # The last step with a change of settings; -1 for none
        self._closed = int(self.rows(select)[0][0]) if self.has_table("standing") else -1

    @classmethod
    def create(cls, path: Path, settings: Settings) -> Journal:
        """Create the journal ``path``, readable only by its owner, with the ``settings`` of its decisions."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError as error:
            fix = "journals are append-only: choose another name"
            raise overwrite_error(path, "exists already", fix) from error
        except OSError as error:
            raise BadInput(f"cannot be created: {error.strerror}", where=str(path)) from error
        connection = sqlite3.connect(path)
        about = [("format", FORMAT), ("bftrain", __version__), ("settings", wire.encode(settings).decode())]
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            _set_durability(connection)
            with connection:
                connection.execute("BEGIN")  # atomic: a kill leaves no partial journal
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.executemany("INSERT INTO about VALUES (?, ?)", about)
        except sqlite3.Error as error:
            connection.close()
            path.unlink()
            raise NotAvailable(f"cannot be written: {error}", where=str(path), fix=_CHECK_SPACE) from error
        return cls(connection, path)

    @classmethod
    def open(cls, path: str | Path) -> Journal:
        """Open the existing journal ``path``, to read it or to append."""
        path = Path(path)
        if not path.is_file():
            raise BadInput("no such journal", where=str(path))
        # To read a file with WAL, SQLite creates files next to it. If that fails, for example in an archive or for
        # another user, SQLite reads only files opened as immutable; a journal that is being written has a -wal file
        # next to it.
        immutable = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
        database = f"{path.absolute().as_uri()}?immutable=1" if immutable else path
        connection = sqlite3.connect(database, uri=immutable)
        try:
            _set_durability(connection)
            _check_format(connection, path)
            return cls(connection, path)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            connection.close()
            fix = damage_remedy(path) if head_of(path, 16) == b"SQLite format 3\0" else None
            if not path.stat().st_size:
                fix = "restore a copy that has its tasks, or delete it to start without tasks"
                raise BadInput("is empty, not a journal", where=str(path), fix=fix) from error
            raise BadInput(f"is not a journal: {error}", where=str(path), fix=fix) from error
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

    def prepare_writes(self) -> None:
        """Prepare the file for the writes of a live run; a restored backup may be public and lack a write-ahead log.

        If that log is missing, readers block writes. :func:`complete_file` moves the log into the
        file: SQLite would do so within a write, which would then take up to 40 ms instead of one.
        """
        try:
            for suffix in ("", "-wal", "-shm"):  # SQLite's files next to it
                with suppress(FileNotFoundError):
                    self.path.with_name(f"{self.path.name}{suffix}").chmod(0o600)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")
        except OSError as error:
            fix = "the user of the live run must own the file"
            raise NotAvailable(f"cannot be made private: {error.strerror}", where=str(self.path), fix=fix) from error
        except sqlite3.Error as error:
            fix = "close other programs that have it open"
            raise NotAvailable(f"cannot be written: {error}", where=str(self.path), fix=fix) from error

    def append(self, events: Sequence[Event], decision: Decision | None) -> None:
        """Record one step, its ``events`` and ``decision``, atomically."""
        self._insert(self._step + 1, [*events, *([] if decision is None else [decision])])

    def append_events(self, events: Sequence[Event], also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Start a step with its ``events``, before the decision.

        ``also`` runs in the same transaction. Without ``sync`` the step survives a kill, but not always a power cut.
        """
        self._insert(self._step + 1, events, also, sync=sync)

    def append_decision(self, decision: Decision, also: Sequence[Statement] = (), *, sync: bool = True) -> None:
        """Complete the step started last by its ``decision``; ``also`` and ``sync`` as in :meth:`append_events`.

        If that step has a decision already, or the settings changed since, add a step without events.
        """
        complete = self._kind != "event" or self._closed == self._step
        self._insert(self._step + complete, [decision], also, sync=sync)

    def change(self, *statements: Statement, sync: bool = True) -> None:
        """Run ``statements`` on tables of other modules, in one transaction; ``sync`` as in :meth:`append_events`."""
        self._insert(self._step, (), statements, sync=sync)

    def keep(self, settings: Settings, snapshot: HarvesterSnapshot) -> None:
        """Store a ``snapshot`` after the last step, and the ``settings`` from there on.

        Delete older snapshots with unchanged settings, except the last two, the first and the cut point.
        """
        changed = settings != self.settings_now
        row = (self._step, wire.encode(settings).decode(), changed, wire.encode(snapshot).decode())
        older = "SELECT step FROM standing ORDER BY step DESC LIMIT 1 OFFSET 1"
        clear = f"DELETE FROM standing WHERE NOT changed AND step < ({older}) AND step NOT IN (?, ?)"  # noqa: S608 - ours
        self.change(
            (_STANDING, ()),
            ("INSERT OR REPLACE INTO standing VALUES (?, ?, ?, ?)", row),
            (clear, (self.first, self._next)),
            sync=changed,
        )
        self._closed = self._step if changed else self._closed

    def cut_point(self) -> int:
        """Return the oldest step to cut after, 0 for none; its snapshot is kept from now on."""
        select = "SELECT step FROM standing WHERE NOT changed AND step > ? AND step < ? ORDER BY step LIMIT 1"
        found = self.rows(select, (self.first, self._step)) if self.has_table("standing") else []
        self._next = int(found[0][0]) if found else 0
        return self._next

    def cut(self, last: int) -> None:
        """Let the journal start after step ``last``, a :meth:`cut_point`; :meth:`remove_cut` removes steps up to it."""
        clear = "DELETE FROM standing WHERE NOT changed AND step < ?"
        self.change(("INSERT OR REPLACE INTO about VALUES (?, ?)", (_FIRST, str(last))), (clear, (last,)))
        self.first = last

    def remove_cut(self, most: int) -> bool:
        """Remove up to ``most`` entries before the first step; return whether there were any."""
        if not self.first or not self.rows("SELECT 1 FROM entry WHERE step <= ? LIMIT 1", (self.first,)):
            return False
        self.change((_REMOVE, (self.first, most)), sync=False)
        return True

    def _read_first(self) -> int:
        found = self.rows("SELECT value FROM about WHERE key = ?", (_FIRST,))
        if not found and self.has_table("part"):  # the previous version moved steps into other files
            found = self.rows("SELECT coalesce(max(last), 0) FROM part")
        text = str(found[0][0]) if found else "0"
        if not text.isdecimal():
            raise self._damaged("its first step is not a number")
        return int(text)

    def _damaged(self, what: str) -> BadInput:
        return BadInput(f"is damaged: {what}", where=str(self.path), fix=damage_remedy(self.path))

    def _insert(
        self, step: int, items: Sequence[Event | Decision], also: Sequence[Statement] = (), *, sync: bool = True
    ) -> None:
        """Add entries in one transaction; raise an error if another process has added entries meanwhile."""
        kinds = ("decision" if isinstance(value, Decision) else "event" for value in items)
        rows = [
            (step, kind, value.time_s, wire.encode(value).decode()) for kind, value in zip(kinds, items, strict=True)
        ]
        try:
            if sync != self._safe:
                _set_durability(self._connection, power_cuts=sync)
                self._safe = sync
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                if self._last_entry()[0] != self._number:
                    raise BadInput("another process also writes to it", where=str(self.path), fix=_ONE_WRITER)
                self._connection.executemany("INSERT INTO entry (step, kind, time_s, body) VALUES (?, ?, ?, ?)", rows)
                for statement, values in also:
                    self._connection.execute(statement, values)
        except sqlite3.Error as error:
            fix = _ONE_WRITER if "locked" in str(error) else _CHECK_SPACE
            passes = getattr(error, "sqlite_errorcode", 0) & 0xFF in _MAY_PASS  # the other bits are details
            kind = JournalStalled if passes else NotAvailable
            raise kind(f"cannot be written: {error}", where=str(self.path), fix=fix) from error
        self.writes += 1
        if rows:
            self._number, self._step, self._kind = self._number + len(rows), step, rows[-1][1]
        else:  # perhaps entries were removed
            self._number, self._step, self._kind = self._last_entry()

    def _last_entry(self) -> tuple[int, int, str]:
        select = "SELECT number, step, kind FROM entry ORDER BY number DESC LIMIT 1"
        last: tuple[Any, Any, str] | None = self._connection.execute(select).fetchone()
        if last is not None and not (isinstance(last[0], int) and isinstance(last[1], int)):
            raise self._damaged("its last entry has no number")
        return last or (0, self.first, "")

    @property
    def settings(self) -> Settings:
        """The settings at the beginning of the journal."""
        found = self._connection.execute("SELECT value FROM about WHERE key = 'settings'").fetchone()
        if found is None:
            raise BadInput("has lost its settings", where=str(self.path))
        return recorded_settings(found[0], str(self.path))

    @property
    def settings_now(self) -> Settings:
        """The settings of the last decisions: those at the beginning, unless they changed since."""
        last = self.latest_snapshot()
        return self.settings if last is None else last.settings

    def require_settings(self, settings: Settings) -> None:
        """Raise an error unless ``settings`` equal the settings of the last decisions."""
        recorded, asked = wire.plain(self.settings_now), wire.plain(settings)
        for name, value in asked.items():
            if recorded[name] != value:
                what = f"has {name} = {recorded[name]!r}, but {value!r} is requested"
                raise BadInput(what, where=str(self.path), fix="use the same settings, or start a new journal")

    def __len__(self) -> int:
        return self._step

    @property
    def cut_off(self) -> bool:
        """Whether the last step has events but no decision because its writer died."""
        return self._kind == "event"

    def latest_snapshot(self) -> StoredSnapshot | None:
        """Return the latest snapshot, or ``None``."""
        return next(self._snapshots("ORDER BY step DESC LIMIT 1"), None)

    @property
    def stood_at(self) -> int:
        """The step of the latest snapshot; 0 without one."""
        return int(self.rows("SELECT coalesce(max(step), 0) FROM standing")[0][0]) if self.has_table("standing") else 0

    def restart_snapshots(self) -> Iterator[StoredSnapshot]:
        """Yield the snapshots stored at changes of the settings."""
        return self._snapshots("WHERE changed ORDER BY step")

    def _snapshots(self, which: str) -> Iterator[StoredSnapshot]:
        select = f"SELECT step, settings, changed, body FROM standing {which}"  # noqa: S608 - constant text
        for step, settings, changed, body in self.rows(select) if self.has_table("standing") else ():
            where, texts = f"{self.path}: standing {step}", (settings, body)
            if not isinstance(step, int) or step > self._step or not all(isinstance(text, str) for text in texts):
                raise BadInput("is damaged: no such step", where=where, fix=damage_remedy(self.path))
            yield StoredSnapshot(
                step=step,
                settings=recorded_settings(settings, where),
                changed=bool(changed),
                snapshot=wire.decode(body, HarvesterSnapshot, where=where),
            )

    def has_table(self, name: str) -> bool:
        """Return whether the table ``name`` exists: older versions had fewer."""
        return bool(self.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)))

    def rows(self, select: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of the query ``select`` with these ``values``, on any table of the file."""
        return list(self._read(select, values))

    def _read(self, select: str, values: Sequence[object] = ()) -> Generator[tuple[Any, ...]]:
        try:
            with closing(self._connection.execute(select, values)) as cursor:
                yield from cursor
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from error

    def snapshot_at_first(self) -> StoredSnapshot:
        """Return the snapshot after the last removed step."""
        found = next(self._snapshots(f"WHERE step = {self.first:d}"), None)
        if found is None:
            what = f"has no snapshot after step {self.first}"
            raise BadInput(what, where=str(self.path), fix=damage_remedy(self.path))
        return found

    def check_integrity(self) -> None:
        """Raise an error if SQLite finds damage in the file."""
        ((problem, *_), *_) = self.rows("PRAGMA integrity_check(1)")
        if problem != "ok":
            raise self._damaged(problem)

    def steps(self, after: int = 0) -> Iterator[JournalStep]:
        """Yield all steps in order, or only later ones than ``after``, read on demand."""
        after = max(after, self.first)
        begin = "(SELECT coalesce(max(number), 0) FROM entry WHERE step <= ?)" if after else "0"
        select = f"SELECT step, number, kind, body FROM entry WHERE number > {begin} ORDER BY number"  # noqa: S608 - constant text
        with closing(self._read(select, (after,) if after else ())) as rows:  # closes the cursor early
            last_step, last_number = after, 0
            for step, entries in groupby(rows, key=lambda row: row[0]):
                events: list[Event] = []
                decision: Decision | None = None
                for _, number, kind, body in entries:
                    where = f"{self.path}: entry {number}"
                    if step != last_step + 1 or (last_number and number != last_number + 1) or decision is not None:
                        raise BadInput("entries before it are missing", where=where, fix=damage_remedy(self.path))
                    last_number = number
                    if kind == "event":
                        events.append(wire.decode(body, Event, where=where, fix=damage_remedy(self.path)))
                    else:
                        decision = wire.decode(body, Decision, where=where, fix=damage_remedy(self.path))
                last_step = step
                yield JournalStep(number=step, events=tuple(events), decision=decision)


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    connection.execute("SELECT number, step, kind, time_s, body FROM entry LIMIT 0")
    if found is None or found[0] != FORMAT:
        what = f"has format {found and found[0]}, and this version reads format {FORMAT}"
        raise BadInput(what, where=str(path), fix="use the version of bftrain that wrote it")


def _set_durability(connection: sqlite3.Connection, *, power_cuts: bool = True) -> None:
    """Let writes survive power cuts, or only the exit of the process."""
    # A step recorded before its actions are sent must survive even a power cut, unless its writer
    # can reconstruct the events
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_cuts else 'NORMAL'}")


def damage_remedy(path: Path) -> str:
    """Return how to recover from a damaged journal."""
    recover = f"umask 077; sqlite3 {shlex.quote(str(path))} .recover | sqlite3 NEW"
    return f"stop the live run, then put back a backup, or: {recover}"


def copy_journal(path: Path, target: Path) -> None:
    """Copy a journal with all its tables into a file that only its owner can read; from any thread.

    The copy is whole, and on the disk under its name, when this returns: its caller then removes steps.
    """
    draft = target.with_suffix(".new")
    try:
        target.parent.mkdir(mode=0o700, exist_ok=True)
        for stale in target.parent.glob(f"{path.stem}-*.new"):  # left by a copy that was killed
            stale.unlink()
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        try:
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(draft),))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(target)
        _sync_folder(target.parent)
    except (sqlite3.Error, OSError) as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise NotAvailable(f"the journal cannot be copied: {error}", where=str(target), fix=_CHECK_SPACE) from error


def _sync_folder(folder: Path) -> None:
    """Wait until a folder's file names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def complete_file(path: Path, *, restart_log: bool = False) -> None:
    """Move SQLite's write-ahead log into the main file as far as possible, to make a copy of that file complete.

    SQLite itself does so only once the log is large, which may take days. With ``restart_log`` an empty write follows:
    it restarts the log, and waits for the disk in place of the next real write.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if restart_log:
            with connection:
                connection.execute("UPDATE about SET value = value WHERE key = 'format'")
