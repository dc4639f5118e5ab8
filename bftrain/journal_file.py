"""The SQLite file of a journal: its format, and how durable its writes are."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from bftrain.errors import BadInput

FORMAT: Final = "1"


def has_journal_header(path: Path) -> bool:
    """Return whether a file begins as SQLite's do."""
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
    """Let writes survive power cuts, or only the end of the process."""
    # A step recorded before its actions are sent must survive even a power cut, unless its writer
    # can reconstruct the events
    connection.execute(f"PRAGMA synchronous = {'FULL' if power_cuts else 'NORMAL'}")
