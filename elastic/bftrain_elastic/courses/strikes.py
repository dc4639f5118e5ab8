"""Strikes: how often a task may die by itself without getting any further, and how a death is told."""

from __future__ import annotations

import signal
from typing import Final

ALLOWED: Final = 3
_LETTERS: Final = 200


class Strikes:
    """Counts deaths; each step further wipes the slate clean."""

    def __init__(self) -> None:
        self._count = 0
        self._step = -1

    def another(self, step: int) -> bool:
        """Count a death after ``step``; tell whether it was one too many."""
        if step > self._step:
            self._step, self._count = step, 0
        self._count += 1
        return self._count >= ALLOWED


def told_how(worker: str, code: int) -> str:
    """Say how a worker ended."""
    return f"{worker} ended with {code}" if code >= 0 else f"{worker} was killed by {_signal(-code)}"


def last_word(tail: str) -> str:
    """Give the last line of what a worker wrote, to be put behind how it ended."""
    last = tail.strip().rpartition("\n")[2].strip()
    return f" ({last[:_LETTERS]})" if last else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
