"""Saving: which step of a task is on disk, how long a write takes, and whether writes fail."""

from __future__ import annotations

from typing import Final

from bftrain_elastic.wire.messages import Message

LEAST_S: Final = 60.0  # longer than others may a worker take to leave that writes the state first,
WRITES: Final = 5.0  # or so many times as long as the last write took


class SavingWatch:
    """Follows what the workers of one task say of their writes."""

    def __init__(self) -> None:
        self._step = -1  # on disk; -1: none that is known
        self._took_s = 0.0
        self._fails = False

    def said(self, message: Message) -> str:
        """Take in ``on_disk`` or ``not_on_disk``; return what to tell when writes begin to fail, or work again."""
        if message["type"] == "not_on_disk":
            before, self._fails = self._fails, True
            words = f"the state of step {message['step']} is not on disk: {message['reason']}; it is tried again"
            return "" if before else words
        if message["type"] != "on_disk":
            return ""
        self._step = max(self._step, int(message["step"]))
        self._took_s = float(message.get("took_s") or self._took_s)
        before, self._fails = self._fails, False
        return f"the state is written to disk again, at step {message['step']}" if before else ""

    def lacks(self, step: int) -> bool:
        """Return whether this step is not known to be on disk."""
        return step > self._step

    @property
    def limit_s(self) -> float:
        """How long a worker may take to write the state."""
        return max(LEAST_S, WRITES * self._took_s)

    @property
    def words(self) -> str:
        """Say from where the task goes on if it loses its workers."""
        return f"from step {self._step}" if self._step >= 0 else "from what was written last"
