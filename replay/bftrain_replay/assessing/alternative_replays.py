"""The additional replays of an assessment: other assumptions, and other mixes of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bftrain.taskfiles.records import Profile
from bftrain_replay.assessing.assessment import Alternatives, ReplayedHarvest
from bftrain_replay.assessing.best_mix import RunPasses, best_mixes
from bftrain_replay.assessing.what_if_replays import InputFiles, WhatIfPlan
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass


def replay_alternatives(
    replayed: ReplayedHarvest,
    settings: ReplaySettings,
    models: Mapping[str, Profile],
    files: InputFiles,
    run: RunPasses,
    *,
    every: bool,
) -> Alternatives:
    """Replay other assumptions, on all windows with ``every``, then mixes of ``models``."""
    plan = WhatIfPlan.of(replayed, settings, files, every=every)
    outcomes = run("what if", plan.passes)
    if outcomes is None:
        return Alternatives()
    mixes = best_mixes(replayed.sample, settings, models, files, run)
    return Alternatives(what_ifs=plan.rows(outcomes), mixes=mixes)


def failure(passes: Sequence[SweepPass], outcomes: Mapping[str, PassOutcome]) -> str:
    """Return which replay failed first, and why; "" if none did."""
    failed = (job for job in passes if outcomes[job.id].figures is None)
    return next((f"{job.words}: {outcomes[job.id].reason}" for job in failed), "")
