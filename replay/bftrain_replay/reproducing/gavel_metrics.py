"""Metrics of Gavel's figures that no column of a sweep has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from bftrain_replay.rounds.round_result import RoundResult


class ByPriority:
    """Mean completion time of the measured tasks, of those with a weight above 1 and of the others."""

    name: Final = "by-priority"
    figures: Final = ("completion_high_s", "completion_low_s")

    def measure(self, run: RoundResult) -> Mapping[str, float]:
        """Return both means."""
        engine = run.engine
        took_s, high = engine.end_s - engine.gangs.submit_s, engine.gangs.weight > 1.0
        parts = (high & run.measured, ~high & run.measured)
        return {name: float(np.mean(took_s[part])) for name, part in zip(self.figures, parts, strict=True)}
