"""Metrics of Gavel's and Blox's figures that no column of a sweep has; sweeps load them from this file before a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from bftrain_replay.rounds.round_result import RoundResult
from bftrain_solvers.sharing.linear import LinearRows, maximise

PERCENTS: Final = tuple(range(2, 101, 2))


class ByPriority:
    """Mean completion time of the measured tasks, by weight: above 1, and the other tasks."""

    name: Final = "by-priority"
    figures: Final = ("completion_high_s", "completion_low_s")

    def measure(self, run: RoundResult) -> Mapping[str, float]:
        """Return both means."""
        engine = run.engine
        took_s, high = engine.end_s - engine.gangs.submit_s, engine.gangs.weight > 1.0
        parts = (high & run.measured, ~high & run.measured)
        return {name: float(np.mean(took_s[part])) for name, part in zip(self.figures, parts, strict=True)}


class TaskQuantiles:
    """Percentiles of the completion time and the responsiveness of the measured tasks, for distributions."""

    name: Final = "quantiles"
    figures: Final = tuple(f"{time}_p{percent}" for time in ("completion", "responsiveness") for percent in PERCENTS)

    def measure(self, run: RoundResult) -> Mapping[str, float | None]:
        """Return each percentile; ``None`` for percentiles of unfinished tasks."""
        engine = run.engine
        submit_s = engine.gangs.submit_s[engine.measured]
        percentiles: list[float] = []
        for end_s in (engine.end_s, engine.seen_s):
            took_s = np.nan_to_num(end_s[engine.measured] - submit_s, nan=np.inf)
            percentiles += np.percentile(took_s, PERCENTS, method="higher").tolist()
        finite = (None if value == np.inf else value for value in percentiles)
        return dict(zip(self.figures, finite, strict=True))


class AfterFirstSolve:
    """Empty metric: solves a small problem before the run, to exclude the solver import from run times."""

    name: Final = "after-first-solve"
    figures: Final = ()

    def __init__(self) -> None:
        one = np.ones(1)
        maximise(
            one, LinearRows(data=(one,), row=(np.zeros(1, dtype=int),), column=(np.zeros(1, dtype=int),), limits=one)
        )

    def measure(self, _run: RoundResult) -> Mapping[str, float]:
        """Return no numbers."""
        return {}
