"""Best mix: the log replayed with tasks of one measured model, of the best few, or of all, to find the most work.

Models differ in samples a second, so work is counted in hours of one node at its model's speed on one node. There are
as many endless tasks as may compete, so that the queue never empties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from bftrain.errors import BadInput
from bftrain.taskfiles.files import save_tasks
from bftrain.taskfiles.records import Profile
from bftrain.values.curve import SpeedCurve
from bftrain_datasets.workloads.catalogue import catalogue
from bftrain_datasets.workloads.task_generators import TaskShape, generate_mix
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.assessing.what_if import MixRow
from bftrain_replay.assessing.what_if_replays import InputFiles
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass
from bftrain_replay.tables import SECONDS_AN_HOUR

MOST_MODELS: Final = 12  # each is a replay
_EVENTS: Final = 4_000  # changes of the log that each of them replays at most: some seconds
_TABLE: Final = "mixes of models"
_TOGETHER: Final = (2, 3)  # of the best models, and all

# Does the passes of a table by its name; returns outcomes by id, or nothing if they were interrupted or one failed
RunPasses = Callable[[str, Sequence[SweepPass]], Mapping[str, PassOutcome] | None]


def best_mixes(
    sample: ReplayedSample, settings: ReplaySettings, known: Mapping[str, Profile], files: InputFiles, run: RunPasses
) -> tuple[MixRow, ...]:
    """Replay each model alone, then the best of them together; return the rows, the most work first."""
    models = {name: _of_one_node(each) for name, each in known.items()}
    part = sample.part(_EVENTS, least=1)

    def rows(mixes: Sequence[tuple[str, ...]]) -> list[MixRow] | None:
        passes = [_passes([models[name] for name in mix], part, settings, files) for mix in mixes]
        outcomes = run(_TABLE, [job for jobs in passes for job in jobs])
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
    """Return the models of these files of profiles, or the bundled ones; raise if they are too many to replay."""
    found = catalogue(paths)
    if len(found) > MOST_MODELS:
        what, fix = f"{len(found):,} models are too many", f"give {MOST_MODELS} at most"
        raise BadInput(what, where=", ".join(map(str, paths)), fix=fix)
    return found


def _ordered(rows: Sequence[MixRow]) -> list[MixRow]:
    return sorted(rows, key=lambda row: -row.work.median)


def _of_one_node(model: Profile) -> Profile:
    """Return the model with speeds relative to one node, extrapolated from its smallest measured size."""
    nodes, speed = next((each for each in zip(model.curve.nodes, model.curve.rate, strict=True) if each[1]), (1, 0.0))
    if not speed:
        raise BadInput("has no speed above 0", where=model.name, fix="leave the model out")
    curve = SpeedCurve(nodes=model.curve.nodes, rate=tuple(rate * nodes / speed for rate in model.curve.rate))
    return msgspec.structs.replace(model, curve=curve)


def _passes(
    models: Sequence[Profile], part: ReplayedSample, settings: ReplaySettings, files: InputFiles
) -> list[SweepPass]:
    words = " and ".join(model.name for model in models)
    tasks = generate_mix(settings.max_tasks, 0, models=models, shape=TaskShape(work_samples=None))
    path = files.scratch / f"mix-{len(models)}-{models[0].name}.toml"
    save_tasks(tasks, path)
    inputs = replace(files, tasks=tasks, task_file=path).inputs(0.0)
    return [inputs.replay(part.settings_of(window, settings), words, window.edges_s) for window in part.windows]


def _row(mix: tuple[str, ...], part: ReplayedSample, outcomes: Sequence[PassOutcome]) -> MixRow:
    harvest = np.concatenate([outcome.harvest_node_h for outcome in outcomes])
    done = sum(outcome.figures.harvested for outcome in outcomes if outcome.figures) / SECONDS_AN_HOUR
    scaling = done / float(harvest.sum()) if harvest.sum() else 0.0
    a_week = part.a_week(harvest)
    share = part.share(harvest, part.idle_by_block[part.places])
    return MixRow(models=mix, harvest=a_week, share=share, scaling=scaling, work=a_week.times(scaling))
