"""Sensitivity: the usual alternatives to the assumptions of a replay, each varied alone, and their figures.

This module chooses the replays and builds the rows; :mod:`bftrain_replay.sweeping.alternatives` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bftrain.errors import UsageError
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_replay.results.result import ReplayResult, ReplaySummary
from bftrain_replay.simulation.progress_kept import MEMORY
from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings
from bftrain_replay.simulation.rules import as_replayed
from bftrain_replay.simulation.task_progress import SampleLoss

PROGRESS: Final = "progress"
COSTS: Final = "costs"
START: Final = "start"
AS_TASKS_SAY: Final = "as the tasks say"
_KEPT: Final = (MEMORY, "disk:300", "disk:1800", "disk:3600")
_FACTORS: Final = ((0.25, "1/4"), (1.0, "1"), (4.0, "4"))
_STARTS_S: Final = (0.0, 60.0, 300.0)


class SensitivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one alternative; ``what`` is varied, and the ``chosen`` settings are among the others."""

    what: str
    setting: str
    chosen: bool
    efficiency: float | None
    harvested: float
    lost_preemption: float | None  # share of the idle node-time


class SettingsAlternative(msgspec.Struct, frozen=True, kw_only=True):
    """One alternative; without ``settings`` it is the chosen one, or equivalent to it."""

    what: str
    setting: str
    chosen: bool
    settings: ReplaySettings | None = None

    def row(self, figures: ReplaySummary, dedicated_samples: float) -> SensitivityRow:
        """Return its row from the figures of its replay."""
        idle_h = figures.idle_node_h
        return SensitivityRow(
            what=self.what,
            setting=self.setting,
            chosen=self.chosen,
            efficiency=figures.harvested / dedicated_samples if dedicated_samples else None,
            harvested=figures.harvested,
            lost_preemption=figures.lost[SampleLoss.PREEMPTION].node_h / idle_h if idle_h else None,
        )


def check(settings: ReplaySettings) -> None:
    """Raise for the published rules, which fix the cost of a preemption themselves."""
    if settings.semantics == PUBLISHED:
        fix = "leave the table out, or replay realistic"
        raise UsageError("is for the realistic rules", where="sensitivity", fix=fix)


def alternatives(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> list[SettingsAlternative]:
    """Return the usual alternatives to ``settings``; equivalent ones are marked.

    A group whose members are all equivalent is left out: without costs there is nothing to scale.
    """
    chosen = _inputs(settings, tasks)
    found: list[SettingsAlternative] = []
    for group in (_kept(settings), _factors(settings), _starts(settings, tasks)):
        trials = [
            SettingsAlternative(
                what=what,
                setting=setting,
                chosen=is_chosen,
                settings=None if _inputs(other, tasks) == chosen else other,
            )
            for what, setting, is_chosen, other in group
        ]
        if any(each.settings is not None for each in trials):
            found += trials
    return found


def _inputs(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> tuple[object, ...]:
    """Return the inputs of a replay in which alternatives can differ."""
    return settings.progress, as_replayed(tasks, settings)


def _kept(settings: ReplaySettings) -> Iterator[tuple[str, str, bool, ReplaySettings]]:
    own = settings.progress or MEMORY
    for text in dict.fromkeys((*_KEPT, own)):
        yield PROGRESS, text, text == own, replace(settings, progress=text)


def _factors(settings: ReplaySettings) -> Iterator[tuple[str, str, bool, ReplaySettings]]:
    for factor, text in _FACTORS:
        yield COSTS, text, factor == 1.0, replace(settings, cost_factor=settings.cost_factor * factor)


def _starts(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> Iterator[tuple[str, str, bool, ReplaySettings]]:
    own = {spec.start_cost_s for spec in as_replayed(tasks, settings)}
    same = own.pop() if len(own) == 1 else None
    if same not in _STARTS_S:
        yield START, AS_TASKS_SAY if same is None else f"{same:g}", True, settings
    for start_s in _STARTS_S:
        yield START, f"{start_s:g}", start_s == same, _starting(settings, start_s)


def _starting(settings: ReplaySettings, start_s: float) -> ReplaySettings:
    if settings.cost_factor > 0.0:
        return replace(settings, start_cost_s=start_s / settings.cost_factor)
    return replace(settings, cost_factor=1.0, grow_cost_s=0.0, shrink_cost_s=0.0, start_cost_s=start_s)


def rows_of(
    found: Sequence[SettingsAlternative], main: ReplayResult, replayed: Mapping[int, ReplaySummary]
) -> tuple[SensitivityRow, ...]:
    """Return the rows: ``replayed`` alternatives by their places; the others equal the main replay."""
    own = main.summary()
    dedicated = main.yardsticks.dedicated_samples if main.yardsticks else 0.0
    return tuple(each.row(replayed.get(place, own), dedicated) for place, each in enumerate(found))


def to_dicts(rows: Sequence[SensitivityRow] | None) -> list[dict[str, Any]] | None:
    """Return the entries of ``summary.json``."""
    return None if rows is None else [dict(wire.plain(row)) for row in rows]
