"""The replays of an assessment with other assumptions, and with mixes of measured models.

Models differ in samples/s, so the work of a mix is measured in hours of one node at its model's single-node speed. The
tasks of a mix are endless, and as many as may compete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from bftrain import text_formats
from bftrain.errors import BadInput
from bftrain.taskfiles.records import Profile
from bftrain.values.curve import SpeedCurve
from bftrain_datasets.workloads.catalogue import catalogue
from bftrain_datasets.workloads.task_generators import TaskShape, generate_mix
from bftrain_replay.assessing.replayed_sample import ReplayedHarvest, ReplayedSample
from bftrain_replay.run.harvest_by_block import HOURS_A_WEEK, EstimatedFigure, HarvestCurve
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.run.variations import COSTS, PROGRESS, Variation
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.sweeping.alternatives import ReplayFiles, RunPasses
from bftrain_replay.sweeping.sweep_passes import PassOutcome, SweepPass

TASKS: Final = "tasks"
NOTICE: Final = "notice"  # departures are announced
LEAD: Final = "lead"  # tasks leave some time before their nodes are wanted
_TASK_FACTORS: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
_COST_FACTORS: Final = (0.25, 1.0, 4.0, 10.0)
MOST_TASKS_FACTOR: Final = 4  # the largest of _TASK_FACTORS
_LEADS_S: Final = (30.0, 120.0, 600.0)
_DISK_PROGRESS: Final = "disk:1800"
_NOTICE_PROGRESS: Final = "memory:1"  # tasks save at most a second before each departure
_MOST_MODELS: Final = 12  # each is a replay
_EVENTS_OF_MIX: Final = 4_000  # replayed log changes per mix
_TOGETHER: Final = (2, 3)  # sizes of mixes of the best models, apart from the mix of all


class WhatIfRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one assumption: weekly node-hours, and the relative change from the assessment.

    ``what`` is the varied assumption, ``option`` the setting and ``value`` its number. The rows of tasks, costs and
    progress include the ``assumed`` setting, which is the assessment itself.
    """

    what: str
    label: str
    option: str
    value: float | None
    assumed: bool
    harvest: EstimatedFigure
    change: EstimatedFigure | None


class MixRow(msgspec.Struct, frozen=True, kw_only=True):
    """Equal numbers of tasks of these models: weekly node-hours of useful work, and ``work`` in hours of single nodes.

    ``share`` is the harvest divided by the idle node-time. ``scaling`` is the work divided by the harvest: the speed of
    a node in the tasks relative to its speed alone.
    """

    models: tuple[str, ...]
    harvest: EstimatedFigure
    share: EstimatedFigure | None
    scaling: float
    work: EstimatedFigure


Alternatives = tuple[tuple[WhatIfRow, ...], tuple[MixRow, ...]]


def replay_alternatives(
    replayed: ReplayedHarvest,
    settings: ReplaySettings,
    models: Mapping[str, Profile],
    files: ReplayFiles,
    run: RunPasses,
    *,
    every: bool,
) -> Alternatives:
    """Replay other assumptions, on some of the replayed blocks unless ``every`` is set, then mixes of ``models``.

    Both are empty if the replays were interrupted.
    """
    part = replayed.sample if every else replayed.sample.part()
    variations, leaving = _what_ifs(settings), cache(files.leaving)
    passes = [
        _passes(leaving(each.lead_s), part, each.settings, each.option) if each.settings is not None else []
        for each in variations
    ]
    outcomes = run("what if", [job for jobs in passes for job in jobs])
    if outcomes is None:
        return (), ()
    rows = tuple(_rows(replayed, part, variations, passes, outcomes))
    return rows, _best_mixes(replayed.sample, settings, models, files, run)


def _passes(files: ReplayFiles, part: ReplayedSample, settings: ReplaySettings, label: str) -> list[SweepPass]:
    return [files.replay(part.settings_of(window, settings), label, window.edges_s) for window in part.windows]


def _rows(
    replayed: ReplayedHarvest,
    part: ReplayedSample,
    variations: Sequence[Variation],
    passes: Sequence[Sequence[SweepPass]],
    outcomes: Mapping[str, PassOutcome],
) -> Iterator[WhatIfRow]:
    """Yield a row for each assumption: its change in ``part``, applied to the figure of the assessment."""
    sample, harvest = replayed.sample, replayed.by_block(HarvestCurve.harvest_node_h)
    same, figure = harvest[np.isin(sample.places, part.places)], sample.rate(harvest) * HOURS_A_WEEK
    for each, jobs in zip(variations, passes, strict=True):
        own = np.concatenate([outcomes[job.id].harvest_node_h for job in jobs]) if jobs else same
        ratio = part.replayed.ratio(own, same)
        yield WhatIfRow(
            what=each.what,
            label=each.label,
            option=each.option,
            value=each.value,
            assumed=not jobs,
            harvest=sample.blocks.estimate(figure * ratio) or EstimatedFigure(median=0.0),
            change=part.replayed.estimate(ratio - 1.0) if jobs else None,
        )


def _what_ifs(settings: ReplaySettings) -> list[Variation]:
    """Return the assumptions to replay around ``settings``, each varied alone."""
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
        label = {0.25: "1/4"}.get(factor, f"{factor:g}")
        yield Variation(what=COSTS, label=f"x {label}", option=f"--cost-factor {cost:g}", value=factor, settings=other)


def _kept(settings: ReplaySettings) -> Iterator[Variation]:
    yield Variation(what=PROGRESS, label="as assumed", option=f"--progress {settings.progress}")
    for what, label, progress in (
        (PROGRESS, "on disk every 30 min", _DISK_PROGRESS),
        (NOTICE, "saved on notice", _NOTICE_PROGRESS),
    ):
        if progress != settings.progress:
            changed = replace(settings, progress=progress)
            yield Variation(what=what, label=label, option=f"--progress {progress}", settings=changed)


def _leads(settings: ReplaySettings) -> Iterator[Variation]:
    changed = replace(settings, progress=_NOTICE_PROGRESS)
    for lead_s in _LEADS_S:
        label = text_formats.duration(lead_s)
        option = f"--progress {_NOTICE_PROGRESS}, on the log of bftrain slice --set leave-early={lead_s:g}"
        yield Variation(what=LEAD, label=label, option=option, value=lead_s, settings=changed, lead_s=lead_s)


def _best_mixes(
    sample: ReplayedSample, settings: ReplaySettings, known: Mapping[str, Profile], files: ReplayFiles, run: RunPasses
) -> tuple[MixRow, ...]:
    """Replay each model alone, then mixes of the best; return the rows, the most work first."""
    models = {name: _in_node_hours(each) for name, each in known.items()}
    part = sample.part(_EVENTS_OF_MIX, least=1)

    def passes_of(mix: tuple[str, ...]) -> list[SweepPass]:
        chosen = [models[name] for name in mix]
        tasks = generate_mix(settings.max_tasks, 0, models=chosen, shape=TaskShape(work_samples=None))
        own = files.with_tasks(tasks, f"mix-{len(mix)}-{chosen[0].name}")
        return _passes(own, part, settings, " and ".join(model.name for model in chosen))

    def rows(mixes: Sequence[tuple[str, ...]]) -> list[MixRow] | None:
        passes = list(map(passes_of, mixes))
        outcomes = run("mixes of models", [job for jobs in passes for job in jobs])
        if outcomes is None:
            return None
        return [_row(mix, part, [outcomes[job.id] for job in jobs]) for mix, jobs in zip(mixes, passes, strict=True)]

    alone = rows([(name,) for name in models])
    if alone is None:
        return ()
    best = [row.models[0] for row in _ordered(alone)]
    sizes = {size for size in (*_TOGETHER, len(best)) if 1 < size <= min(len(best), settings.max_tasks)}
    together = rows([tuple(best[:size]) for size in sorted(sizes)]) if sizes else []
    return () if together is None else tuple(_ordered([*alone, *together]))


def models_of(paths: Sequence[Path]) -> dict[str, Profile]:
    """Return the models of these profile files (default: the bundled ones); raise if there are too many to replay."""
    found = catalogue(paths)
    if len(found) > _MOST_MODELS:
        what, fix = f"{len(found):,} models exceed the limit", f"give {_MOST_MODELS} or fewer"
        raise BadInput(what, where=", ".join(map(str, paths)), fix=fix)
    return found


def _ordered(rows: Sequence[MixRow]) -> list[MixRow]:
    return sorted(rows, key=lambda row: -row.work.median)


def _in_node_hours(model: Profile) -> Profile:
    """Return the model with speeds relative to one node: the speed per node at its smallest measured size."""
    nodes, speed = next((each for each in zip(model.curve.nodes, model.curve.rate, strict=True) if each[1]), (1, 0.0))
    if not speed:
        raise BadInput("has no speed above 0", where=model.name, fix="omit the model")
    curve = SpeedCurve(nodes=model.curve.nodes, rate=tuple(rate * nodes / speed for rate in model.curve.rate))
    return msgspec.structs.replace(model, curve=curve)


def _row(mix: tuple[str, ...], part: ReplayedSample, outcomes: Sequence[PassOutcome]) -> MixRow:
    harvest = np.concatenate([outcome.harvest_node_h for outcome in outcomes])
    work_h = sum(outcome.figures.harvested for outcome in outcomes if outcome.figures) / SECONDS_AN_HOUR
    scaling = work_h / float(harvest.sum()) if harvest.sum() else 0.0
    a_week = part.a_week(harvest)
    share = part.share(harvest, part.idle_by_block[part.places])
    return MixRow(models=mix, harvest=a_week, share=share, scaling=scaling, work=a_week.times(scaling))
