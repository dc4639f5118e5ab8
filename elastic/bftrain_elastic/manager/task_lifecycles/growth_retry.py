"""Growth that failed: its new workers are set aside for a while, so that training goes on without them.

Workers that did not get into a group are set aside by name. One that died as it joined is gone: its slot is set aside,
and no other worker is started there meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bftrain_elastic.retry import RetryDelay

FIRST_S: Final = 10.0  # before a growth that failed is tried again; twice as long each time
LONGEST_S: Final = 600.0
_REMARKED: Final = 2  # failures in a row before they are reported


class GrowthRetry:
    """Which workers, and slots of workers, failed to join a group, and until when it trains without them."""

    def __init__(self) -> None:
        self._delay = RetryDelay(FIRST_S, LONGEST_S)
        self._aside: set[str] = set()
        self._failed = 0  # in a row

    @property
    def failing(self) -> bool:
        """Whether the last growth failed."""
        return self._failed > 0

    def failed(self, workers: Iterable[str], nodes: Iterable[str], now: float, why: str) -> str:
        """Set new workers aside; return a note from the second failure on. What fails together is one failure."""
        self._aside.update(workers)
        if self._delay.waits(now):
            return ""
        self._delay.failed(now)
        self._failed += 1
        if self._failed < _REMARKED:
            return ""
        which = f"the group did not grow onto {', '.join(sorted(nodes))}, {self._failed} times in a row"
        again_s = self._delay.left_s(now)
        return f"{which}: {why}; the training goes on without, and it is tried again in {again_s:.0f} s"

    def confirmed(self, workers: Iterable[str]) -> None:
        """Record that these train: if one of them had been set aside, growth works again."""
        if not self._aside.isdisjoint(workers):
            self._delay.succeeded()
            self._aside, self._failed = set(), 0

    def waits(self, worker: str, now: float) -> bool:
        """Return whether a worker is set aside now."""
        return worker in self._aside and self._delay.waits(now)
