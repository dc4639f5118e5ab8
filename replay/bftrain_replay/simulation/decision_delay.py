"""Pace: when a decision takes effect after something happened, and how often there may be one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from bftrain_replay.simulation.replay_settings import MEASURED

if TYPE_CHECKING:
    from bftrain_replay.simulation.replay_settings import ReplaySettings


class DecisionDelay:
    """Counts from the event that calls for a decision, and from the decision before.

    ``due_s`` is when the next decision takes effect; infinity if nothing calls for one.
    """

    __slots__ = ("_last_s", "_latency_s", "_measured", "_min_interval_s", "due_s")

    def __init__(self, latency_s: float = 0.0, min_interval_s: float = 0.0, *, measured: bool = False) -> None:
        self._latency_s = latency_s
        self._min_interval_s = min_interval_s
        self._measured = measured
        self._last_s = -math.inf
        self.due_s = math.inf

    @classmethod
    def of(cls, settings: ReplaySettings) -> DecisionDelay:
        """Build the pace that ``settings`` describe."""
        latency_s = settings.decision_latency_s
        if isinstance(latency_s, str):
            return cls(0.0, settings.min_interval_s, measured=latency_s == MEASURED)
        return cls(latency_s, settings.min_interval_s)

    def call(self, now_s: float) -> None:
        """Something happened that calls for a decision; one that is on its way takes it into account."""
        if self.due_s == math.inf:
            self.due_s = max(now_s, self._last_s + self._min_interval_s) + self._latency_s

    def decided(self, now_s: float, took_s: float) -> None:
        """Take in that a decision took effect, and how long the solver was busy with it."""
        self._last_s = now_s
        self.due_s = math.inf
        if self._measured:
            self._latency_s = took_s
