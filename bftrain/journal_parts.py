"""Parts of a journal: its oldest steps moved to other files, with digests that prove them unchanged.

Each part is a journal that begins with a snapshot. Its digest covers all of its entries and the digest of
the part before, so a later part authenticates all earlier ones, even removed ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bftrain.errors import BadInput

TABLE: Final = """CREATE TABLE IF NOT EXISTS part (
    last INTEGER PRIMARY KEY, first INTEGER NOT NULL, digest TEXT NOT NULL, file TEXT NOT NULL
) STRICT"""
ENTRIES: Final = "SELECT number, step, kind, time_s, body FROM entry WHERE step > ? AND step <= ? ORDER BY number"


class JournalPart(msgspec.Struct, frozen=True, kw_only=True):
    """The steps after ``first`` up to ``last``, in ``file`` beside the journal; "" if unknown."""

    first: int
    last: int
    digest: str
    file: str


def read_parts(read: Callable[[str], Iterable[tuple[Any, ...]]]) -> tuple[JournalPart, ...]:
    """Return the parts that were moved out of a journal, the oldest first."""
    rows = read("SELECT first, last, digest, file FROM part ORDER BY last")
    return tuple(JournalPart(first=first, last=last, digest=digest, file=file) for first, last, digest, file in rows)


def digest_of(rows: Sequence[tuple[Any, ...]], before: str) -> str:
    """Return the SHA-256 of entries, and of the digest of the part before."""
    found = hashlib.sha256(before.encode())
    for number, step, kind, time_s, body in rows:
        found.update(f"{number}|{step}|{kind}|{time_s!r}|{body}\n".encode())
    return found.hexdigest()


def check_digest(rows: Sequence[tuple[Any, ...]], part: JournalPart, before: str, path: Path) -> None:
    """Raise an error for entries that differ from those moved out of the journal."""
    if digest_of(rows, before) != part.digest:
        what = (
            f"is not what was moved there from the journal: steps {part.first + 1} to {part.last} have another digest"
        )
        raise BadInput(what, where=str(path), fix="restore it from a backup")


def remove_steps(last: int, most: int) -> tuple[str, tuple[int, int]]:
    """Return the statement that removes up to ``most`` of the oldest entries up to a step: it must be fast."""
    return (
        "DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE step <= ? ORDER BY number LIMIT ?)",
        (last, most),
    )
