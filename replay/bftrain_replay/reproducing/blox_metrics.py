"""Metrics of Blox's figures that no column of a sweep has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from bftrain_replay.rounds.round_result import RoundResult

PERCENTS: Final = tuple(range(2, 101, 2))


class TaskQuantiles:
    """Percentiles of the completion time and the responsiveness of the measured tasks, for distributions."""

    name = "quantiles"
    figures = tuple(f"{what}_p{percent}" for what in ("completion", "responsiveness") for percent in PERCENTS)

    def measure(self, run: RoundResult) -> Mapping[str, float | None]:
        """Return each percentile, as far as it is of finished tasks."""
        engine = run.engine
        submit_s = engine.gangs.submit_s[engine.measured]
        found: dict[str, float | None] = {}
        for what, end_s in (("completion", engine.end_s), ("responsiveness", engine.seen_s)):
            took_s = np.nan_to_num(end_s[engine.measured] - submit_s, nan=np.inf)
            values = np.percentile(took_s, PERCENTS, method="higher").tolist()
            found |= {f"{what}_p{percent}": value for percent, value in zip(PERCENTS, values, strict=True)}
        return {name: None if value == np.inf else value for name, value in found.items()}
