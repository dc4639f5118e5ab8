"""Retry delays that grow with every failure."""

from __future__ import annotations


class RetryDelay:
    """A delay that doubles with every consecutive failure, from ``first_s`` up to ``longest_s`` seconds."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures = 0
        self._until = 0.0

    def failed(self, now: float) -> None:
        """Record one more failure."""
        self._until = now + min(self._longest_s, self._first_s * 2**self._failures)
        self._failures = min(self._failures + 1, 32)

    def succeeded(self) -> None:
        """Reset to the first delay."""
        self._failures = 0

    def left_s(self, now: float) -> float:
        """Return the seconds until the next try."""
        return max(0.0, self._until - now)

    def waits(self, now: float) -> bool:
        """Return whether the next try must wait."""
        return now < self._until
