"""Generated tasks: identical trials as in a hyper-parameter search, and mixes of models as in architecture search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadValue
from bftrain.taskfiles.profiles import (
    MEASURED_WORK_SAMPLES,
    PROFILE_NAMES,
    Profile,
    profile,
)
from bftrain.values.task import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULT_MAX_NODES: Final = 64
# No published figure says what a start from nothing costs; a grow is the nearest thing measured
DEFAULT_START_COST_S: Final = 18.0

SAMPLE_TASKS: Final = 56
SAMPLE_SEED: Final = 1
SAMPLE_WORK_SAMPLES: Final = 2 * MEASURED_WORK_SAMPLES


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShape:
    """What all generated tasks have in common."""

    work_samples: float = MEASURED_WORK_SAMPLES
    min_nodes: int = 1
    max_nodes: int = DEFAULT_MAX_NODES
    start_cost_s: float = DEFAULT_START_COST_S
    user: str = ""
    campaign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskArrivals:
    """When tasks are handed in: all at ``start_s``, or at random from then on, ``per_hour`` on average (Poisson)."""

    start_s: float = 0.0
    per_hour: float | None = None

    def moments(self, count: int, rng: np.random.Generator) -> list[float]:
        """Draw ``count`` times in seconds, to the millisecond."""
        if self.per_hour is None:
            return [self.start_s] * count
        if not 0 < self.per_hour < float("inf"):
            raise BadValue(f"must be above 0, not {self.per_hour:g}", where="Arrivals.per_hour")
        gaps = rng.exponential(3600 / self.per_hour, count)
        return [round(self.start_s + passed, 3) for passed in np.cumsum(gaps).tolist()]


def generate_trials(
    count: int,
    model: str = "shufflenet",
    *,
    seed: int = 0,
    arrivals: TaskArrivals | None = None,
    shape: TaskShape | None = None,
) -> tuple[TaskSpec, ...]:
    """Generate ``count`` tasks that train the same model equally long, as a hyper-parameter search does.

    ``seed`` decides over random arrivals only.
    """
    return _tasks([profile(model)] * _checked(count), _rng(seed), arrivals, shape)


def generate_mix(
    count: int,
    seed: int,
    *,
    models: Iterable[str] = PROFILE_NAMES,
    arrivals: TaskArrivals | None = None,
    shape: TaskShape | None = None,
) -> tuple[TaskSpec, ...]:
    """Generate ``count`` tasks of several models in random order, as an architecture search does.

    Every model comes equally often, as far as ``count`` allows.
    """
    chosen = [profile(name) for name in models]
    if not chosen:
        raise BadValue("names no model", where="generate_mix.models")
    rng = _rng(seed)
    rounds = [rng.permutation(len(chosen)) for _ in range(-(-_checked(count) // len(chosen)))]
    order = np.concatenate(rounds)[:count].tolist()
    return _tasks([chosen[index] for index in order], rng, arrivals, shape)


def sample_tasks() -> tuple[TaskSpec, ...]:
    """Give the tasks of the built-in sample: more work than the idle nodes of ``sample_log()`` can ever do."""
    return generate_mix(SAMPLE_TASKS, SAMPLE_SEED, shape=TaskShape(work_samples=SAMPLE_WORK_SAMPLES))


def _checked(count: int) -> int:
    if count < 1:
        raise BadValue(f"must be at least 1, not {count}", where="tasks.count")
    return count


def _rng(seed: int) -> np.random.Generator:
    if seed < 0:
        raise BadValue(f"must not be negative, but is {seed}", where="tasks.seed")
    return np.random.default_rng(seed)


def _tasks(
    models: list[Profile],
    rng: np.random.Generator,
    arrivals: TaskArrivals | None,
    shape: TaskShape | None,
) -> tuple[TaskSpec, ...]:
    shape = shape or TaskShape()
    moments = (arrivals or TaskArrivals()).moments(len(models), rng)
    width = len(str(len(models)))
    return tuple(
        TaskSpec(
            name=f"{model.name}-{number:0{width}d}",
            curve=model.curve,
            min_nodes=shape.min_nodes,
            max_nodes=shape.max_nodes,
            work_samples=shape.work_samples,
            submit_s=submit_s,
            grow_cost_s=model.grow_cost_s,
            shrink_cost_s=model.shrink_cost_s,
            start_cost_s=shape.start_cost_s,
            user=shape.user,
            campaign=shape.campaign,
        )
        for number, (model, submit_s) in enumerate(zip(models, moments, strict=True), start=1)
    )
