"""Write the message for a plan whose optimality is not proven."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Final

_WORTH_TELLING: Final = 1e-9  # relative


def at_most(words: str, more: float, done: float) -> str:
    """Say by how much more than what is done could be done, if that is not nothing."""
    if more <= _WORTH_TELLING * abs(done):
        return ""
    by = f"{_rounded_up(100.0 * more / abs(done))} %" if done else _rounded_up(more)
    return f"{words} {by} more could be done, at most"


def _rounded_up(number: float) -> str:
    """Give two digits, never less than there is."""
    unit = 10.0 ** (floor(log10(number)) - 1)
    return f"{ceil(number / unit) * unit:.2g}"
