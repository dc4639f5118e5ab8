"""Pollux's rule, as published (Qiao and others, OSDI 2021), and tasks of AdaptDL's six models to compare it on.

An allocation is as good as the power mean, with p = -1, of the speedups of all jobs. A speedup is the goodput over that
on an equal share of the GPUs; where it changes the GPUs that a job has, it is multiplied by ``T / (T + delay)`` for a
job of age ``T``. Pollux searches with a genetic algorithm. The mean is largest where the sum of ``1 / speedup`` is
least, so here a dynamic programme finds the best allocation there is: no search holds the rule back.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from bftrain import (
    Availability,
    Limits,
    Quality,
    Settings,
    Solution,
    Solver,
    TaskSpec,
    Termination,
    ValueTable,
    build_harvester,
)
from bftrain.deciding.goodput import by_progress
from bftrain.ports import SolverCapabilities
from bftrain.taskfiles.records import Profile
from bftrain_datasets.workloads.catalogue import CatalogueOptions, catalogue
from bftrain_replay.simulation.engine import run
from bftrain_replay.simulation.fixed_cluster import FixedCluster
from bftrain_replay.simulation.task_progress import TaskProgress

DELAY_S: Final = 30.0  # to change the GPUs of a job
_LEAST: Final = 1e-3  # the speedup of a job without a GPU


class PolluxRule:
    """A solver that looks at nothing but progress and ages."""

    name = "pollux"
    capabilities = SolverCapabilities(uses_history=True)

    def available(self) -> Availability:
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - it takes its time
        begun, tasks, pool = perf_counter(), table.problem.tasks, table.problem.pool
        best, choices = np.zeros(pool + 1), []
        sizes = np.arange(pool + 1)
        left = sizes[:, None] - sizes[None, :]
        for task in tasks:
            speedup = task.curve.speeds(pool) / task.curve.speed(max(1.0, pool / len(tasks)))
            moved = task.age_s / (task.age_s + DELAY_S) if task.size else 1.0
            speedup *= np.where(sizes == task.size, 1.0, moved)
            cost = np.where(sizes <= task.max_nodes, 1.0 / np.maximum(speedup, _LEAST), np.inf)
            sums = np.where(left >= 0, best[left], np.inf) + cost
            choices.append(sums.argmin(axis=1))
            best = sums.min(axis=1)
        chosen, free = {}, int(best.argmin())
        for task, choice in zip(reversed(tasks), reversed(choices), strict=True):
            chosen[task.name] = int(choice[free])
            free -= chosen[task.name]
        return Solution(
            sizes=chosen,
            value=table.value_of(chosen),
            bound=None,
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            solver=self.name,
            wall_s=perf_counter() - begun,
        )


class Model(NamedTuple):
    """Batches by AdaptDL's scripts, a plausible noise scale, hours on a GPU as Pollux draws them, and how often."""

    initial: int
    largest: int
    noise_scale: float
    hours: tuple[float, float]
    share: float


MODELS: Final[Mapping[str, Model]] = {
    "cifar10": Model(128, 4096, 1500.0, (0.1, 1.0), 0.30),
    "ncf": Model(256, 32768, 20_000.0, (0.1, 1.0), 0.30),
    "bert": Model(12, 384, 150.0, (1.0, 10.0), 0.15),
    "deepspeech2": Model(20, 640, 250.0, (1.0, 10.0), 0.15),
    "yolov3": Model(8, 512, 120.0, (10.0, 100.0), 0.06),
    "imagenet": Model(100, 12800, 8000.0, (100.0, 1000.0), 0.04),
}


def models(folder: Path) -> Mapping[str, Profile]:
    """Read the six models of a folder with AdaptDL's sets, by GPUs."""
    noise = {name: model.noise_scale for name, model in MODELS.items()}
    return catalogue(sorted(folder.glob("adaptdl_*.csv")), CatalogueOptions(noise_scale=noise))


def tasks_of(
    known: Mapping[str, Profile], seed: int, gpus: int, *, count: int = 40, hours: float = 8.0
) -> list[TaskSpec]:
    """Draw tasks that come over some hours; their work is as many samples as a GPU does in the hours drawn for them."""
    dice = random.Random(seed)  # noqa: S311 - cases to try, not secrets
    found = []
    for number in range(count):
        name = dice.choices(list(MODELS), [model.share for model in MODELS.values()])[0]
        model, profile = MODELS[name], known[name]
        assert profile.batch is not None
        task = TaskSpec(
            name=f"{name}-{number}",
            curve=profile.curve,
            max_nodes=min(64, gpus),
            batch=replace(profile.batch, initial=model.initial, largest=model.largest),
            grow_cost_s=DELAY_S,
            shrink_cost_s=DELAY_S,
            start_cost_s=DELAY_S,
            submit_s=3600.0 * hours * dice.random(),
        )
        low, high = model.hours
        work = 3600.0 * gpus / 64 * low * (high / low) ** dice.random() * by_progress(task).curve.speed(1)
        found.append(replace(task, work_samples=work))
    return found


def mean_completion_h(tasks: Sequence[TaskSpec], gpus: int, *, objective: str, solver: Solver | None = None) -> float:
    """Replay on GPUs that never leave, where all compete; return the mean time from submission to the end, hours."""
    decider = build_harvester(Settings(objective=objective, max_tasks=len(tasks)), solver=solver)
    done = run(FixedCluster(nodes={"": gpus}).log(), tasks, decider, fixed=True)
    ends = {each.spec.name: each.finish_s for each in done.tasks if isinstance(each, TaskProgress)}
    return float(np.mean([(ends.get(task.name) or np.inf) - task.submit_s for task in tasks])) / 3600.0
