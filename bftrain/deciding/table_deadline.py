"""Tell whether the time for a value table is over, and stop building it then. The core itself has no clock."""

from __future__ import annotations

from collections.abc import Callable


class TableOverdue(Exception):
    """The time for a table was over before it was built."""


Late = Callable[[], bool]  # whether the time is over


def no_limit() -> bool:
    """Say that the time is never over."""
    return False


def in_time(late: Late) -> None:
    """Raise :class:`TableOverdue` if the time is over."""
    if late():
        raise TableOverdue
