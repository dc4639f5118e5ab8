"""Growth that failed: its new workers are set aside for a while, so that training goes on without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bftrain_elastic.retry import RetryDelay

FIRST_S: Final = 10.0  # before a growth that failed is tried again; twice as long each time
LONGEST_S: Final = 600.0
_REMARKED: Final = 2  # failures in a row before they are reported


class GrowthRetry:
    """Which workers failed to join a group, and until when it trains without them."""

    def __init__(self) -> None:
        self._delay = RetryDelay(FIRST_S, LONGEST_S)
        self._aside: set[str] = set()
        self._failed = 0  # in a row

    def failed(self, workers: Iterable[str], nodes: Iterable[str], now: float, why: str) -> str:
        """Set new workers aside; return a note from the second failure on."""
        self._delay.failed(now)
        self._aside.update(workers)
        self._failed += 1
        if self._failed < _REMARKED:
            return ""
        which = f"the group did not grow onto {', '.join(sorted(nodes))}, {self._failed} times in a row"
        again_s = self._delay.left_s(now)
        return f"{which}: {why}; the training goes on without, and it is tried again in {again_s:.0f} s"

    def confirmed(self, workers: Iterable[str]) -> None:
        """Record that a group of these trains: if one of them had been set aside, growth works again."""
        if not self._aside.isdisjoint(workers):
            self._delay.succeeded()
            self._aside, self._failed = set(), 0

    def waits(self, worker: str, now: float) -> bool:
        """Return whether a worker is set aside now."""
        return worker in self._aside and self._delay.waits(now)
