"""Harvest by week or day, and intervals of weekly figures by block bootstrap.

Idle time has long waves (weekends, maintenance), so neighbouring hours are strongly correlated. Each resample therefore
draws whole weeks with replacement, the same number as in the log, and recomputes the figure. The median over resamples
is the estimate, and 90 % of them lie in the interval. Logs shorter than four weeks are cut into days.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain_replay.run.result import ReplayResult, integral_at
from bftrain_replay.run.tables import SECONDS_AN_HOUR

Floats = NDArray[np.float64]

DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S
WEEK: Final = "week"
DAY: Final = "day"
HOURS_A_WEEK: Final = WEEK_S / SECONDS_AN_HOUR
RESAMPLES: Final = 2000
SEED: Final = 0
PERCENTILES: Final = (5.0, 50.0, 95.0)
_WEEKS_AT_LEAST: Final = 4
FEW: Final = 10  # blocks or seeds; fewer make the interval too narrow (docs/how-to/sweeps.md quantifies it)
_LEAST_BLOCK: Final = 0.5  # fraction of a block; a shorter remainder joins the last block


class EstimatedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure and its 90 % interval from ``low`` to ``high``, which are ``None`` with a single block."""

    median: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> EstimatedFigure:
        """Return the figure in another unit; a negative factor swaps the interval's bounds."""
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        low, high = ends if factor >= 0.0 else reversed(ends)
        return EstimatedFigure(median=self.median * factor, low=low, high=high)


def interval(
    figure: EstimatedFigure | None, form: Callable[[float], str] = text_formats.count, *, signed: bool = False
) -> str:
    """Return a figure and its interval, such as ``1,234 (1,100 to 1,400)``.

    >>> interval(EstimatedFigure(median=0.5, low=0.4, high=0.61), text_formats.percent)
    '50.0 % (40.0 to 61.0 %)'
    """
    if figure is None:
        return text_formats.UNKNOWN
    text = _signed(figure.median, form, signed=signed)
    if figure.low is None or figure.high is None:
        return text
    low, high = (_signed(end, form, signed=signed) for end in (figure.low, figure.high))
    unit = high.rpartition(" ")[2]
    return f"{text} ({low.removesuffix(f' {unit}') if ' ' in high else low} to {high})"


def too_narrow(count: int) -> str:
    """Return the warning for an interval from this many blocks or seeds; "" if there are enough.

    >>> too_narrow(9)
    ', too narrow with fewer than 10'
    """
    return f", too narrow with fewer than {FEW}" if count < FEW else ""


def _signed(amount: float, form: Callable[[float], str], *, signed: bool) -> str:
    text = form(abs(amount))
    sign = "" if text.startswith("<") or not amount else "-" if amount < 0.0 else "+" if signed else ""
    return f"{sign}{text}"


class WeeklyHarvest(msgspec.Struct, frozen=True, kw_only=True):
    """Useful node-hours a week, and the number and length of the blocks behind the interval."""

    harvest: EstimatedFigure
    block: str
    blocks: int

    @classmethod
    def of(cls, result: ReplayResult) -> WeeklyHarvest:
        """Estimate the harvest a week from one replay."""
        blocks = TimeBlocks.of_span(result.simulated_s)
        amounts = HarvestCurve(result).harvest_node_h(np.append(blocks.begin_s, blocks.end_s[-1]))
        return cls(harvest=blocks.a_week(amounts), block=blocks.unit, blocks=len(blocks))


class TimeBlocks(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Blocks of observed time: starts and ends in seconds since the replay's start; ``unit`` is week or day.

    ``week`` is the week number of each day, if resamples draw whole weeks of days.
    """

    begin_s: Floats
    end_s: Floats
    unit: str
    week: NDArray[np.int64] | None = None

    @classmethod
    def of_span(cls, span_s: float) -> TimeBlocks:
        """Divide the time of a log into weeks, or into days if it has less than four weeks."""
        return cls._cut(span_s, WEEK_S, WEEK) if span_s >= _WEEKS_AT_LEAST * WEEK_S else cls.in_days(span_s)

    @classmethod
    def in_days(cls, span_s: float) -> TimeBlocks:
        """Divide the time of a log into days; from four weeks on, resamples draw whole weeks of them."""
        days, weeks = cls._cut(span_s, DAY_S, DAY), cls.of_span(span_s) if span_s >= _WEEKS_AT_LEAST * WEEK_S else None
        if weeks is None:
            return days
        week = np.searchsorted(weeks.begin_s, days.begin_s, side="right") - 1
        return cls(days.begin_s, days.end_s, DAY, week)

    @classmethod
    def _cut(cls, span_s: float, length_s: float, unit: str) -> TimeBlocks:
        count = max(int(span_s // length_s) + (span_s % length_s >= _LEAST_BLOCK * length_s), 1)
        edges = np.append(np.arange(count) * length_s, span_s)
        return cls(edges[:-1], edges[1:], unit)

    def __len__(self) -> int:
        return int(self.begin_s.size)

    def chosen(self, places: NDArray[np.int64]) -> TimeBlocks:
        """Return the chosen blocks only."""
        return TimeBlocks(self.begin_s[places], self.end_s[places], self.unit)

    @cached_property
    def hours(self) -> Floats:
        """Return the length of each block."""
        return (self.end_s - self.begin_s) / SECONDS_AN_HOUR

    @property
    def drawn(self) -> tuple[int, str]:
        """The number of blocks that resamples draw from, and their length."""
        return (len(self), self.unit) if self.week is None else (int(self.week.max()) + 1, WEEK)

    @cached_property
    def weights(self) -> Floats:
        """Return the count of each block in each resample; all figures use the same resamples, and stay comparable."""
        count, _ = self.drawn
        draws = np.random.default_rng(SEED).integers(0, count, (RESAMPLES, count))
        found = np.zeros((RESAMPLES, count))
        np.add.at(found, (np.arange(RESAMPLES)[:, np.newaxis], draws), 1.0)
        return found if self.week is None else found[:, self.week]

    def rate(self, amounts: Floats, hours: Floats | None = None) -> Floats:
        """Return an amount per hour in each resample; ``hours`` may be a part of each block, such as its Mondays."""
        return self.ratio(amounts, self.hours if hours is None else hours)

    def ratio(self, amounts: Floats, of: Floats) -> Floats:
        """Return the ratio of two amounts in each resample; NaN where the second is 0."""
        # No matrix products: their last digits differ between processors
        part, whole = ((self.weights * each).sum(axis=1) for each in (amounts, of))
        found = np.full(whole.size, np.nan)
        np.divide(part, whole, out=found, where=whole > 0.0)
        return found

    def a_week(self, amounts: Floats) -> EstimatedFigure:
        """Estimate the amount a week, from the amounts of all blocks."""
        return self.estimate(self.rate(amounts) * HOURS_A_WEEK) or EstimatedFigure(median=0.0)

    def estimate(self, resampled: Floats) -> EstimatedFigure | None:
        """Return the median of a figure over the resamples and its interval; NaN marks a resample without it."""
        known = resampled[~np.isnan(resampled)]
        if not known.size:
            return None
        low, median, high = np.percentile(known, PERCENTILES).tolist()
        return EstimatedFigure(median=median) if len(self) == 1 else EstimatedFigure(median=median, low=low, high=high)


class HarvestCurve(msgspec.Struct, frozen=True, eq=False):
    """Idle, used and lost node-time of one replay between given edges; times count from the replay's start."""

    result: ReplayResult

    def idle_node_h(self, edges_s: Floats) -> Floats:
        """Return the idle node-hours between consecutive edges."""
        return self._between(self.result.pool, edges_s)

    def used_node_h(self, edges_s: Floats) -> Floats:
        """Return the allocated node-hours between consecutive edges."""
        return self._between(self.result.used, edges_s)

    def causes_node_h(self, edges_s: Floats) -> dict[str, Floats]:
        """Return the node-hours that were unused or lost, by cause."""
        unused = {str(why): self._between(nodes, edges_s) for why, nodes in self.result.unused.items()}
        lost = {
            str(loss): self.result.losses.between(loss, edges_s) / SECONDS_AN_HOUR for loss in self.result.lost_node_s
        }
        return {**unused, **lost}

    def harvest_node_h(self, edges_s: Floats) -> Floats:
        """Return the node-hours of useful work: allocated minus lost."""
        lost = [self.result.losses.between(loss, edges_s) for loss in self.result.lost_node_s]
        found: Floats = self.used_node_h(edges_s) - np.sum(lost, axis=0) / SECONDS_AN_HOUR
        return found

    def _between(self, nodes: NDArray[np.int64], edges_s: Floats) -> Floats:
        return np.diff(integral_at(self.result.times_s, nodes, self.result.simulated_s, edges_s)) / SECONDS_AN_HOUR
