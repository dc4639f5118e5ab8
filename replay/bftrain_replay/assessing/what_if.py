"""Alternatives: other numbers of tasks, costs, checkpoints, notice of departures, or models, on the same log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from bftrain import text_formats
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.results.harvest_by_block import HOURS_A_WEEK, EstimatedFigure, Floats
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.sweeping.alternatives import PassInputs
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass
from bftrain_replay.variations import COSTS, PROGRESS, Variation

TASKS: Final = "tasks"
NOTICE: Final = "notice"
LEAD: Final = "lead"  # tasks go when notice comes, and do not use the time until the nodes are wanted
_TASK_FACTORS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_COST_FACTORS: Final = (0.25, 1.0, 4.0, 10.0)
MOST_TASKS_FACTOR: Final = 4  # the largest of the factors above
_LEADS_S: Final = (30.0, 120.0, 600.0)
_ON_DISK: Final = "disk:1800"
_ON_NOTICE: Final = "memory:1"  # as good as a save at the last moment


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one assumption: node-hours a week, and the relative change against the assessment itself.

    ``what`` is varied, ``option`` says how to replay it; the assessment itself is among the rows of each ``what``.
    """

    what: str
    label: str
    option: str
    value: float | None
    assumed: bool
    harvest: EstimatedFigure
    change: EstimatedFigure | None


class MixRow(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of these models in equal numbers: node-hours a week of work that counts, and of work at one node's speed.

    ``share`` is the harvest as a share of the idle node-time, ``scaling`` the work as a share of the harvest: the speed
    of a node in the tasks, over that of a node alone.
    """

    models: tuple[str, ...]
    harvest: EstimatedFigure
    share: EstimatedFigure | None
    scaling: float
    work: EstimatedFigure


def what_ifs(settings: ReplaySettings) -> list[Variation]:
    """Return the assumptions to replay beside ``settings``, each varied alone."""
    return [*_tasks(settings), *_costs(settings), *_kept(settings), *_leads(settings)]


def _tasks(settings: ReplaySettings) -> Iterator[Variation]:
    for factor in _TASK_FACTORS:
        count = max(round(settings.max_tasks * factor), 1)
        other = None if factor == 1.0 else replace(settings, max_tasks=count)
        yield Variation(what=TASKS, label=f"{count:,}", option=f"--max-tasks {count}", value=count, settings=other)


def _costs(settings: ReplaySettings) -> Iterator[Variation]:
    for factor in _COST_FACTORS:
        cost = settings.cost_factor * factor
        other = None if factor == 1.0 else replace(settings, cost_factor=cost)
        label = "1/4" if factor == 0.25 else f"{factor:g}"  # noqa: PLR2004 - the only one that is no whole number
        yield Variation(what=COSTS, label=f"x {label}", option=f"--cost-factor {cost:g}", value=factor, settings=other)


def _kept(settings: ReplaySettings) -> Iterator[Variation]:
    yield Variation(what=PROGRESS, label="as assumed", option=f"--progress {settings.progress}")
    for what, label, progress in (
        (PROGRESS, "on disk every 30 min", _ON_DISK),
        (NOTICE, "saved on notice", _ON_NOTICE),
    ):
        if progress != settings.progress:
            changed = replace(settings, progress=progress)
            yield Variation(what=what, label=label, option=f"--progress {progress}", settings=changed)


def _leads(settings: ReplaySettings) -> Iterator[Variation]:
    changed = replace(settings, progress=_ON_NOTICE)
    for lead_s in _LEADS_S:
        label = text_formats.duration(lead_s)
        option = f"--progress {_ON_NOTICE}, on the log of bftrain slice --leave-early {lead_s:g}"
        yield Variation(what=LEAD, label=label, option=option, value=lead_s, settings=changed, lead_s=lead_s)


def passes_of(
    found: Sequence[Variation], sample: ReplayedSample, inputs_of: Callable[[float], PassInputs]
) -> list[list[SweepPass]]:
    """Return the passes of each assumption on the windows of the sample; none for the main one.

    ``inputs_of`` returns the log with departures that many seconds earlier, and the tasks.
    """
    return [
        []
        if each.settings is None
        else [
            inputs_of(each.lead_s).replay(sample.settings_of(window, each.settings), each.option, window.edges_s)
            for window in sample.windows
        ]
        for each in found
    ]


def rows_of(
    found: Sequence[Variation],
    passes: Sequence[Sequence[SweepPass]],
    outcomes: Mapping[str, PassOutcome],
    samples: tuple[ReplayedSample, ReplayedSample],
    harvest: Floats,
) -> tuple[WhatIfRow, ...]:
    """Return the rows from the replays.

    ``samples`` are that of the assessment, whose ``harvest`` in each block is given, and the part of it that was
    replayed with each other assumption: the change found there is applied to the figure of the assessment.
    """
    rows = []
    sample, part = samples
    same, figure = harvest[np.isin(sample.places, part.places)], sample.rate(harvest) * HOURS_A_WEEK
    for each, jobs in zip(found, passes, strict=True):
        own = np.concatenate([outcomes[job.id].harvest_node_h for job in jobs]) if jobs else same
        ratio = part.replayed.ratio(own, same)
        change = part.replayed.estimate(ratio - 1.0) if jobs else None
        rows.append(
            WhatIfRow(
                what=each.what,
                label=each.label,
                option=each.option,
                value=each.value,
                assumed=not jobs,
                harvest=sample.blocks.estimate(figure * ratio) or EstimatedFigure(median=0.0),
                change=change,
            )
        )
    return tuple(rows)
