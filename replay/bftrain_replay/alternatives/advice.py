"""Advice: changes of settings that reduce the large causes of loss, and their gain when replayed.

This module chooses the replays and builds the rows; :mod:`bftrain_replay.sweeping.alternatives` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bftrain.deciding.node_stay import AUTO
from bftrain.values import wire
from bftrain_replay.accounting.node_time_ledger import UnusedReason
from bftrain_replay.results.headline import harvest_node_h
from bftrain_replay.results.result import ReplaySummary
from bftrain_replay.simulation.progress_kept import MEMORY, ProgressKept
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.task_progress import SampleLoss

LEAST_GAIN: Final = 0.001  # of the harvest; a change that gains less is no advice
_LARGE: Final = 0.002  # of the idle node-time; a smaller cause is no reason for a change
_MIN_INTERVAL_S: Final = 60.0


class AdviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The gain of a replay with ``option`` over the main replay, and the differences in changes of tasks.

    ``cause`` is the loss, or the reason for unused node-time, that the option addresses. ``gain`` is the gain in
    samples as a share of the harvest, 1 if there was none. ``rescales``, ``starts`` and ``preemptions`` are
    differences: below 0 there are fewer.
    """

    cause: str
    option: str
    gain: float
    gain_samples: float
    gain_node_h: float
    rescales: int
    starts: int
    preemptions: int


class AdviceTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the settings to try."""

    cause: str
    option: str
    settings: ReplaySettings

    def row(self, main: ReplaySummary, tried: ReplaySummary) -> AdviceRow:
        """Return its gain, from the figures of both replays."""
        samples = tried.harvested - main.harvested
        return AdviceRow(
            cause=self.cause,
            option=self.option,
            gain=samples / main.harvested if main.harvested else float(samples > 0.0),
            gain_samples=samples,
            gain_node_h=harvest_node_h(tried) - harvest_node_h(main),
            rescales=tried.rescales - main.rescales,
            starts=tried.starts - main.starts,
            preemptions=tried.preemptions - main.preemptions,
        )


def trials(main: ReplaySummary, settings: ReplaySettings) -> list[AdviceTrial]:
    """Return the changes of ``settings`` to try, at most one for each large cause in the figures of the replay."""
    node_h = {**main.unused_node_h, **{cause: lost.node_h for cause, lost in main.lost.items()}}
    least_h = _LARGE * main.idle_node_h
    large = {cause for cause, hours in node_h.items() if hours > 0.0 and hours >= least_h}
    if main.tasks > settings.max_tasks:
        large.add(UnusedReason.TASK_CAP)  # tasks that compete may hold all nodes, and those that wait make more of them
    return [each for each in _changes(settings) if each.cause in large]


def _changes(settings: ReplaySettings) -> Iterator[AdviceTrial]:
    most = 2 * settings.max_tasks
    yield AdviceTrial(
        cause=UnusedReason.TASK_CAP, option=f"--max-tasks {most}", settings=replace(settings, max_tasks=most)
    )
    if settings.min_interval_s > 0.0:
        at_once = replace(settings, min_interval_s=0.0)
        yield AdviceTrial(cause=UnusedReason.UNDECIDED, option="--min-interval 0", settings=at_once)
    if settings.min_interval_s < _MIN_INTERVAL_S:
        rarer = replace(settings, min_interval_s=_MIN_INTERVAL_S)
        yield AdviceTrial(cause=SampleLoss.RESCALING, option=f"--min-interval {_MIN_INTERVAL_S:g}", settings=rarer)
    if not isinstance(settings.horizon_s, str):
        fitted = replace(settings, horizon_s=AUTO)
        yield AdviceTrial(cause=UnusedReason.NOT_WORTH, option=f"--horizon {AUTO}", settings=fitted)
    if settings.progress is not None and ProgressKept.parse(settings.progress).kept != MEMORY:
        in_memory = replace(settings, progress=MEMORY)
        yield AdviceTrial(cause=SampleLoss.PREEMPTION, option=f"--progress {MEMORY}", settings=in_memory)


def rows_of(
    found: Sequence[AdviceTrial], main: ReplaySummary, tried: Mapping[int, ReplaySummary]
) -> tuple[AdviceRow, ...]:
    """Return a row for each tried change, the largest gain first; ``tried`` has the figures by place."""
    rows = [found[place].row(main, figures) for place, figures in tried.items()]
    return tuple(sorted(rows, key=lambda row: -row.gain))


def gaining(rows: Sequence[AdviceRow]) -> tuple[AdviceRow, ...]:
    """Return the rows whose gain is large enough to be advice."""
    return tuple(row for row in rows if row.gain >= LEAST_GAIN)


def to_plain(rows: Sequence[AdviceRow] | None) -> dict[str, Any]:
    """Return the entries of ``summary.json``: the advice, and the options without a gain; ``None`` if not tried."""
    if rows is None:
        return {"advice": None, "tried_without_gain": None}
    kept = gaining(rows)
    return {
        "advice": [dict(wire.plain(row)) for row in kept],
        "tried_without_gain": [row.option for row in rows if row not in kept],
    }
