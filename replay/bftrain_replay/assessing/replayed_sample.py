"""The replayed sample of a log's weeks or days, and estimates from it.

The time of a replay grows with the number of log changes. A log with more changes than the budget is replayed in part:
blocks are drawn at random, and their harvested share of the idle node-time is applied to the idle node-time of all
blocks, which is known from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import Interrupted
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubtful_nodes
from bftrain_replay.run.harvest_by_block import (
    HOURS_A_WEEK,
    SEED,
    WEEK,
    EstimatedFigure,
    Floats,
    HarvestCurve,
    TimeBlocks,
)
from bftrain_replay.run.result import integral_at
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.run_records import AllocationRecorder, AllocationTable
from bftrain_replay.study.study import StudyPasses, Watch, check_parts

EVENTS: Final = 25_000  # default budget of replayed log changes
_WHAT_IF_EVENTS: Final = 8_000  # the same for each other assumption
_LEAST_BLOCKS_OF_PART: Final = 4  # fewer have no meaningful differences
_LEAST_WEEKS: Final = 4  # days are drawn if the budget suffices for fewer weeks


class ReplayedWindow(NamedTuple):
    """Adjacent blocks that are replayed together, in seconds since the log's start, and the edges of the blocks."""

    begin_s: float
    end_s: float
    edges_s: tuple[float, ...]  # seconds since the start of the window

    def text(self, start_s: float) -> str:
        """Return the setting ``window`` for a log that starts at ``start_s``."""
        return f"{start_s + self.begin_s!r}:{start_s + self.end_s!r}"


@dataclass(frozen=True, eq=False)
class ReplayedSample:
    """The blocks of a log, and the places of the replayed ones."""

    log: EventLog
    blocks: TimeBlocks
    places: NDArray[np.int64]

    @classmethod
    def of(cls, log: EventLog, events: int = EVENTS) -> ReplayedSample:
        """Choose one or more blocks within a budget of ``events`` log changes; 0 chooses all blocks."""
        blocks = TimeBlocks.of_span(log.span_s)
        places = _within(log, blocks, events, np.arange(len(blocks)))
        if len(places) < min(_LEAST_WEEKS, len(blocks)) and blocks.unit == WEEK:
            blocks = TimeBlocks.in_days(log.span_s)
            places = _within(log, blocks, events, np.arange(len(blocks)))
        return cls(log, blocks, places)

    def part(self, events: int = _WHAT_IF_EVENTS, least: int = _LEAST_BLOCKS_OF_PART) -> ReplayedSample:
        """Choose ``least`` or more of its blocks within a smaller budget, for sets of many replays."""
        places = _within(self.log, self.blocks, events, self.places, least=least)
        return ReplayedSample(self.log, self.blocks, places)

    @property
    def whole(self) -> bool:
        """Whether the whole log is replayed."""
        return len(self.places) == len(self.blocks)

    @cached_property
    def replayed(self) -> TimeBlocks:
        """The blocks that are replayed."""
        return self.blocks.chosen(self.places)

    @cached_property
    def windows(self) -> tuple[ReplayedWindow, ...]:
        """The replayed blocks, adjacent ones in one window."""
        windows = []
        for adjacent in np.split(self.places, np.flatnonzero(np.diff(self.places) > 1) + 1):
            edges = np.append(self.blocks.begin_s[adjacent], self.blocks.end_s[adjacent[-1]])
            windows.append(ReplayedWindow(float(edges[0]), float(edges[-1]), tuple((edges - edges[0]).tolist())))
        return tuple(windows)

    def settings_of(self, window: ReplayedWindow, settings: ReplaySettings) -> ReplaySettings:
        """Return the settings for replaying a window."""
        return settings if self.whole else msgspec.structs.replace(settings, window=window.text(self.log.start_s))

    def idle_node_h(self, begin_s: Floats, end_s: Floats) -> Floats:
        """Return the idle node-hours of the log between times since its start."""
        at_s = self.log.times - self.log.start_s
        pool = self.log.pool_sizes()
        return (
            integral_at(at_s, pool, self.log.span_s, end_s) - integral_at(at_s, pool, self.log.span_s, begin_s)
        ) / SECONDS_AN_HOUR

    @property
    def most_idle_node_s(self) -> float:
        """The idle node-seconds of the window with the most."""
        windows = np.array([window[:2] for window in self.windows])
        return float(self.idle_node_h(windows[:, 0], windows[:, 1]).max()) * SECONDS_AN_HOUR

    @cached_property
    def idle_by_block(self) -> Floats:
        """The idle node-hours of all blocks."""
        return self.idle_node_h(self.blocks.begin_s, self.blocks.end_s)

    def rate(self, amounts: Floats, idle: Floats | None = None, hours: Floats | None = None) -> Floats:
        """Return an hourly amount in each resample; ``amounts`` are given by replayed block.

        ``idle`` and ``hours`` are the idle node-hours and the hours of a part of all blocks, such as all Mondays.
        """
        of_all = self.idle_by_block if idle is None else idle
        rates = self.blocks.rate(of_all, hours)
        return np.where(rates == 0.0, 0.0, rates * self.replayed.ratio(amounts, of_all[self.places]))

    def a_week(self, amounts: Floats, idle: Floats | None = None) -> EstimatedFigure:
        """Estimate the amount a week, from the amounts of the replayed blocks."""
        return self.blocks.estimate(self.rate(amounts, idle) * HOURS_A_WEEK) or EstimatedFigure(median=0.0)

    def share(self, amounts: Floats, of: Floats) -> EstimatedFigure | None:
        """Estimate a ratio of amounts of the replayed blocks."""
        return self.replayed.estimate(self.replayed.ratio(amounts, of))


@dataclass(frozen=True, eq=False)
class ReplayedHarvest:
    """The replayed windows of a sample: the harvest and the allocated nodes."""

    sample: ReplayedSample
    curves: list[HarvestCurve]
    held: list[AllocationTable]

    def by_block(self, measure: Callable[[HarvestCurve, Floats], Floats]) -> Floats:
        """Return a measure of the curves by replayed block."""
        windows = zip(self.sample.windows, self.curves, strict=True)
        return np.concatenate([measure(curve, np.array(window.edges_s)) for window, curve in windows])

    @property
    def sure(self) -> Floats:
        """The harvest of each replayed block on certain idle node-time, if doubtful nodes are harvested equally."""
        log = self.sample.log
        at_s, doubtful = doubtful_nodes(log)
        pool = log.pool_sizes()[np.searchsorted(log.times, at_s, side="right") - 1]
        sure_share = 1.0 - np.divide(doubtful, pool, out=np.zeros(at_s.size), where=pool > 0)
        harvest = []
        for window, curve in zip(self.sample.windows, self.curves, strict=True):
            edges = np.unique(np.concatenate((window.edges_s, at_s - log.start_s - window.begin_s)))
            edges = edges[(edges >= 0.0) & (edges <= window.end_s - window.begin_s)]
            places = np.searchsorted(at_s - log.start_s, edges[:-1] + window.begin_s, side="right") - 1
            counted = curve.harvest_node_h(edges) * sure_share[places]
            block = np.searchsorted(window.edges_s, edges[:-1], side="right") - 1
            harvest.append(np.bincount(block, counted, minlength=len(window.edges_s) - 1))
        return np.concatenate(harvest)


def replay_sample(
    sample: ReplayedSample, tasks: Sequence[TaskSpec], settings: ReplaySettings, watch: Watch | None = None
) -> ReplayedHarvest:
    """Replay each window of a sample; raise ``Interrupted`` once ``watch`` returns false."""
    curves, held = [], []
    for window in sample.windows:
        passes = StudyPasses(sample.log, tasks, check_parts(sample.settings_of(window, settings)), watch)
        recorder = AllocationRecorder(sample.log.node_names)
        result = passes.replay(recorder)
        if result is None or not result.complete:
            raise Interrupted("interrupted; no file was written")
        curves.append(HarvestCurve(result))
        held.append(recorder.rows().table())
    return ReplayedHarvest(sample, curves, held)


def concatenated(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """Concatenate the amounts of several windows by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _within(
    log: EventLog, blocks: TimeBlocks, events: int, among: NDArray[np.int64], least: int = 1
) -> NDArray[np.int64]:
    """Draw some of the blocks ``among``, ``least`` or more, with up to ``events`` changes in total; 0: return all."""
    at_s = log.times - log.start_s
    counts = (np.searchsorted(at_s, blocks.end_s) - np.searchsorted(at_s, blocks.begin_s))[among]
    if not events or counts.sum() <= events:
        return among
    order = np.random.default_rng(SEED).permutation(len(among))
    fitting = int(np.searchsorted(np.cumsum(counts[order]), events, side="right"))
    return np.sort(among[order[: max(fitting, least)]])
