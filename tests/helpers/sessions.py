"""Detects processes that a test left behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def alive_in_session(session: int) -> bool:
    """Return whether a process of this session still runs; zombies do not count."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, belongs_to = path.read_text().rpartition(") ")[2].split()[:4]
            if int(belongs_to) == session and state != "Z":
                return True
    return False
