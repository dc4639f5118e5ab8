"""Strikes: how often a task may die by itself without getting any further."""

from __future__ import annotations

from typing import Final

ALLOWED: Final = 3


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
