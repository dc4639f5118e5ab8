"""Archive: copies the oldest steps of a journal into a file of their own, which is a journal too."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from bftrain.errors import NotAvailable
from bftrain.journal import Journal
from bftrain.journal_parts import ENTRIES, JournalPart, digest_of


def archive_part(path: Path, last: int, folder: str) -> JournalPart:
    """Copy the oldest steps of a journal up to ``last`` into a file of their own; from any thread.

    The file lies in ``folder`` beside the journal. It is whole, and on the disk, when this returns.
    """
    with Journal.open(path) as journal:
        parts = journal.parts
        first = parts[-1].last if parts else 0
        settings = journal.snapshot_at(first).settings if first else journal.settings
        name = f"{folder}/{path.stem}-{first + 1:09d}-{last:09d}.db"
        target = path.parent / name
        target.parent.mkdir(mode=0o700, exist_ok=True)
        new = target.with_suffix(".new")
        for file in (new, *(new.with_name(f"{new.name}{end}") for end in ("-wal", "-shm"))):
            file.unlink(missing_ok=True)  # left by an interrupted attempt
        rows = journal.rows(ENTRIES, (first, last))
        standing = journal.rows(
            "SELECT step, settings, changed, body FROM standing WHERE step = ? OR (changed AND step > ? AND step < ?)",
            (first, first, last),
        )
        with Journal.create(new, settings) as part:
            part.fill(rows, standing, parts)
    try:
        os.utime(new, (time.time(), time.time()))  # the modification time is the age of the part
        new.replace(target)
        make_durable(target.parent)
    except OSError as error:
        raise NotAvailable(f"cannot be written: {error.strerror}", where=str(target)) from error
    return JournalPart(first=first, last=last, digest=digest_of(rows, parts[-1].digest if parts else ""), file=name)


def make_durable(folder: Path) -> None:
    """Sync a folder, so that a file moved into it survives a power cut."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def remove_file(path: Path) -> None:
    """Remove the file of a part, with SQLite's files beside it."""
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(f"{path.name}{end}").unlink()


def complete_file(path: Path, *, restart_log: bool = False) -> None:
    """Move SQLite's write-ahead log into the main file as far as possible, so that a copy of that is complete.

    SQLite does so by itself after 4 MB, which may take days. With ``restart_log`` an empty write follows: it restarts
    the log, and waits for the disk in place of the next real write.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if restart_log:
            with connection:
                connection.execute("UPDATE about SET value = value WHERE key = 'format'")
