"""Deadline for building a value table. The core has no clock: callers pass a function that checks the time."""

from __future__ import annotations

from collections.abc import Callable


class TableOverdue(Exception):
    """The time for building a table has run out."""


Late = Callable[[], bool]  # whether the deadline has passed


def no_limit() -> bool:
    """Return that the time is never over."""
    return False


def in_time(late: Late) -> None:
    """Raise :class:`TableOverdue` if the deadline has passed."""
    if late():
        raise TableOverdue
