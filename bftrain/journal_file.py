"""The SQLite file of a journal: its format, durability and copies."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput, NotAvailable

FORMAT: Final = "1"


def has_journal_header(path: Path) -> bool:
    """Return whether a file has SQLite's header."""
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raise an error unless this version reads the journal's format."""
    found = connection.execute("SELECT value FROM about WHERE key = 'format'").fetchone()
    connection.execute("SELECT number, step, kind, time_s, body FROM entry LIMIT 0")
    if found is None or found[0] != FORMAT:
        what = f"has format {found and found[0]}, and this version reads format {FORMAT}"
        raise BadInput(what, where=str(path), fix="use the version of bftrain that wrote it")


def set_durability(connection: sqlite3.Connection, *, power_cuts: bool = True) -> None:
    """Let writes survive power cuts, or only the exit of the process."""
    # A step recorded before its actions are sent must survive even a power cut, unless its writer
    # can reconstruct the events
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_cuts else 'NORMAL'}")


def make_private(path: Path) -> None:
    """Restrict a journal and SQLite's files next to it to the owner."""
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{suffix}").chmod(0o600)


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
        fix = "check the free space and the permission to write there"
        raise NotAvailable(f"the journal cannot be copied: {error}", where=str(target), fix=fix) from error


def _sync_folder(folder: Path) -> None:
    """Wait until a folder's file names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def complete_file(path: Path, *, restart_log: bool = False) -> None:
    """Move SQLite's write-ahead log into the main file as far as possible, to make a copy of that file complete.

    SQLite does so automatically after 4 MB, which may take days. With ``restart_log`` an empty write follows: it
    restarts the log, and waits for the disk in place of the next real write.
    """
    with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        if restart_log:
            with connection:
                connection.execute("UPDATE about SET value = value WHERE key = 'format'")
