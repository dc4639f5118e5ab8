"""Variations: the effect of changing one replay setting alone.

The sensitivity table varies the assumptions of a replay; the advice varies settings that address its large losses. This
module chooses variations and makes rows of their figures; :mod:`bftrain_replay.sweeping.alternatives` replays them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bftrain.errors import UsageError
from bftrain.values import wire
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_replay.run.headline import harvest_node_h
from bftrain_replay.run.result import ReplaySummary
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.progress_kept import MEMORY, ProgressKept
from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings
from bftrain_replay.simulation.rules import as_replayed
from bftrain_replay.simulation.task_progress import SampleLoss

PROGRESS: Final = "progress"
COSTS: Final = "costs"
START: Final = "start"
AS_TASKS_SAY: Final = "as in the task file"
LEAST_GAIN: Final = 0.001  # fraction of the harvest; smaller gains are not advice
_KEPT: Final = (MEMORY, "disk:300", "disk:1800", "disk:3600")
_FACTORS: Final = ((0.25, "1/4"), (1.0, "1"), (4.0, "4"))
_STARTS_S: Final = (0.0, 60.0, 300.0)
_LARGE: Final = 0.002  # fraction of the idle node-time; smaller causes justify no change
_MIN_INTERVAL_S: Final = 60.0


class Variation(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a replay's settings; without ``settings`` it has the main replay's inputs.

    ``what`` is the varied assumption, or the cause of loss that the change addresses; ``chosen`` marks the setting of
    the main replay. What-if replays also have the ``option`` that makes the change, its number as ``value``, or a log
    whose nodes leave ``lead_s`` earlier.
    """

    what: str
    label: str
    settings: ReplaySettings | None = None
    chosen: bool = False
    option: str = ""
    value: float | None = None
    lead_s: float = 0.0


class SensitivityRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a replay under another assumption: ``what`` is varied, to ``setting``."""

    what: str
    setting: str
    chosen: bool
    efficiency: float | None
    harvested: float
    lost_preemption: float | None  # share of the idle node-time

    @classmethod
    def of(cls, variation: Variation, figures: ReplaySummary, dedicated_samples: float) -> SensitivityRow:
        """Return the row of a variation from the figures of its replay."""
        idle_h = figures.idle_node_h
        return cls(
            what=variation.what,
            setting=variation.label,
            chosen=variation.chosen,
            efficiency=figures.harvested / dedicated_samples if dedicated_samples else None,
            harvested=figures.harvested,
            lost_preemption=figures.lost[SampleLoss.PREEMPTION].node_h / idle_h if idle_h else None,
        )


class AdviceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The gain of a replay with ``option`` over the main replay, and the differences in changes of tasks.

    ``cause`` is the loss, or the reason for unused node-time, that the option addresses. ``gain`` is the gain in
    samples relative to the harvest, 1 if the harvest was 0. ``rescales``, ``starts`` and ``preemptions`` are
    differences; negative values are reductions.
    """

    cause: str
    option: str
    gain: float
    gain_samples: float
    gain_node_h: float
    rescales: int
    starts: int
    preemptions: int

    @classmethod
    def of(cls, variation: Variation, main: ReplaySummary, tried: ReplaySummary) -> AdviceRow:
        """Return the row of a variation from the figures of both replays."""
        samples = tried.harvested - main.harvested
        return cls(
            cause=variation.what,
            option=variation.label,
            gain=samples / main.harvested if main.harvested else float(samples > 0.0),
            gain_samples=samples,
            gain_node_h=harvest_node_h(tried) - harvest_node_h(main),
            rescales=tried.rescales - main.rescales,
            starts=tried.starts - main.starts,
            preemptions=tried.preemptions - main.preemptions,
        )


def check_rules(settings: ReplaySettings) -> None:
    """Raise for the published rules, which themselves set the cost of a preemption."""
    if settings.semantics == PUBLISHED:
        fix = "omit it, or use --semantics realistic"
        raise UsageError("is for the realistic rules", where="sensitivity", fix=fix)


def assumptions(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> list[Variation]:
    """Return the variations of the sensitivity table.

    A group with all members equal to the main replay is skipped: for instance, zero costs cannot be scaled.
    """
    main = _inputs(settings, tasks)
    found: list[Variation] = []
    for group in (_kept(settings), _factors(settings), _starts(settings, tasks)):
        variations = [
            replace(each, settings=None) if each.settings is None or _inputs(each.settings, tasks) == main else each
            for each in group
        ]
        if any(each.settings is not None for each in variations):
            found += variations
    return found


def _inputs(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> tuple[object, ...]:
    """Return the replay inputs that these variations can change."""
    return settings.progress, as_replayed(tasks, settings)


def _kept(settings: ReplaySettings) -> Iterator[Variation]:
    own = settings.progress or MEMORY
    for text in dict.fromkeys((*_KEPT, own)):
        yield Variation(what=PROGRESS, label=text, chosen=text == own, settings=replace(settings, progress=text))


def _factors(settings: ReplaySettings) -> Iterator[Variation]:
    for factor, text in _FACTORS:
        changed = replace(settings, cost_factor=settings.cost_factor * factor)
        yield Variation(what=COSTS, label=text, chosen=factor == 1.0, settings=changed)


def _starts(settings: ReplaySettings, tasks: Sequence[TaskSpec]) -> Iterator[Variation]:
    own = {spec.start_cost_s for spec in as_replayed(tasks, settings)}
    same = own.pop() if len(own) == 1 else None
    if same not in _STARTS_S:
        yield Variation(what=START, label=AS_TASKS_SAY if same is None else f"{same:g}", chosen=True)
    for start_s in _STARTS_S:
        if settings.cost_factor > 0.0:
            changed = replace(settings, start_cost_s=start_s / settings.cost_factor)
        else:
            costs = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0, "start_cost_s": start_s}
            changed = replace(settings, cost_factor=1.0, **costs)
        yield Variation(what=START, label=f"{start_s:g}", chosen=start_s == same, settings=changed)


def remedies(main: ReplaySummary, settings: ReplaySettings) -> list[Variation]:
    """Return the variations to try as advice, one per large cause in the replay's figures."""
    node_h = {**main.unused_node_h, **{cause: lost.node_h for cause, lost in main.lost.items()}}
    least_h = _LARGE * main.idle_node_h
    large = {cause for cause, hours in node_h.items() if hours > 0.0 and hours >= least_h}
    if main.tasks > settings.max_tasks:
        # The competing tasks may use all nodes; then no unused node-time shows that tasks wait
        large.add(UnusedReason.TASK_CAP)
    return [each for each in _remedies(settings) if each.what in large]


def _remedies(settings: ReplaySettings) -> Iterator[Variation]:
    def change(cause: str, option: str, **fields: Any) -> Variation:  # noqa: ANN401 - the fields' own types
        return Variation(what=cause, label=option, settings=replace(settings, **fields))

    most = 2 * settings.max_tasks
    yield change(UnusedReason.TASK_CAP, f"--max-tasks {most}", max_tasks=most)
    if settings.min_interval_s > 0.0:
        yield change(UnusedReason.UNDECIDED, "--min-interval 0", min_interval_s=0.0)
    if settings.min_interval_s < _MIN_INTERVAL_S:
        option = f"--min-interval {_MIN_INTERVAL_S:g}"
        yield change(SampleLoss.RESCALING, option, min_interval_s=_MIN_INTERVAL_S)
    if not isinstance(settings.horizon_s, str):
        yield change(UnusedReason.NOT_WORTH, f"--horizon {AUTO}", horizon_s=AUTO)
    if settings.progress is not None and ProgressKept.parse(settings.progress).kept != MEMORY:
        yield change(SampleLoss.PREEMPTION, f"--progress {MEMORY}", progress=MEMORY)


def gaining(rows: Iterable[AdviceRow]) -> tuple[AdviceRow, ...]:
    """Return the rows with a gain large enough for advice."""
    return tuple(row for row in rows if row.gain >= LEAST_GAIN)


def in_summary(table: Sequence[SensitivityRow] | None, advice: Sequence[AdviceRow] | None) -> dict[str, Any]:
    """Return the entries of ``summary.json``: table, advice, and options without a gain; ``None`` if not tried."""
    rows = None if table is None else [dict(wire.plain(row)) for row in table]
    if advice is None:
        return {"sensitivity": rows, "advice": None, "tried_without_gain": None}
    kept = gaining(advice)
    return {
        "sensitivity": rows,
        "advice": [dict(wire.plain(row)) for row in kept],
        "tried_without_gain": [row.option for row in advice if row not in kept],
    }
