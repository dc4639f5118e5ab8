"""Generated tasks: trials as in a hyper-parameter search, also to saturate a log, and mixes of models."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from bftrain import text_formats
from bftrain.errors import BadValue
from bftrain.node_units import GPU, NODE
from bftrain.taskfiles.records import MEASURED_WORK_SAMPLES, PROFILE_NAMES, Profile, profile
from bftrain.values.task import TaskSpec

DEFAULT_MAX_NODES: Final = 64  # largest size in sweeps, and largest measured size of bundled models
# The cost of a start from zero nodes is not published; growing is the nearest measured operation
DEFAULT_START_COST_S: Final = 18.0

MOST_TASKS: Final = 500_000  # larger numbers are likely typos; distinct tasks would need 0.8 GB

# The models of generate_mix(56, 1) as digits; importing the random generator would take 5 ms
_SAMPLE: Final = "50142631623450301456216350240213645312046563240510635142"
# Work of each task of the samples: in total more than their idle time can do
SAMPLE_WORK_SAMPLES: Final = {NODE: 2 * MEASURED_WORK_SAMPLES, GPU: 14 * MEASURED_WORK_SAMPLES}


class TaskShape(msgspec.Struct, frozen=True, kw_only=True):
    """Common properties of generated tasks. Tasks without ``work_samples`` run forever.

    A size of ``None`` is the smallest or largest measured size of the model. A start cost of ``None`` is the measured
    cost; if not measured, the cost of growing on Summit.
    """

    work_samples: float | None = MEASURED_WORK_SAMPLES
    min_nodes: int | None = None
    max_nodes: int | None = None
    start_cost_s: float | None = None
    user: str = ""
    campaign: str = ""


class TaskArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Submission times: all at ``start_s``, or random after it, ``per_hour`` on average (Poisson)."""

    start_s: float = 0.0
    per_hour: float | None = None

    def __post_init__(self) -> None:
        if self.per_hour is not None and not 0 < self.per_hour < math.inf:
            raise BadValue(f"must be above 0, not {self.per_hour:g}", where="TaskArrivals.per_hour")

    def moments(self, count: int, rng: np.random.Generator) -> list[float]:
        """Return ``count`` random times in seconds, to the millisecond."""
        if self.per_hour is None:
            return [self.start_s] * count
        gaps = rng.exponential(3600 / self.per_hour, count)
        return [round(self.start_s + passed, 3) for passed in np.cumsum(gaps).tolist()]


def generate_trials(
    count: int,
    model: str | Profile = "shufflenet",
    *,
    seed: int = 0,
    arrivals: TaskArrivals | None = None,
    shape: TaskShape | None = None,
) -> tuple[TaskSpec, ...]:
    """Return ``count`` tasks that train the same model equally long, as in a hyper-parameter search.

    ``seed`` affects random arrivals only.
    """
    models = [_profile(model)] * checked_count(count)
    rng = np.random.default_rng(checked_seed(seed))
    return _tasks(models, (arrivals or TaskArrivals()).moments(count, rng), shape)


def generate_mix(
    count: int,
    seed: int,
    *,
    models: Iterable[str | Profile] = PROFILE_NAMES,
    arrivals: TaskArrivals | None = None,
    shape: TaskShape | None = None,
) -> tuple[TaskSpec, ...]:
    """Return ``count`` tasks of several models in random order, as in an architecture search.

    All ``models`` (names of bundled profiles, or profiles) are equally frequent, as far as ``count`` allows. ``seed``
    sets the order and the arrivals. ``arrivals`` are the submission times (default: all at 0 s), ``shape`` the work in
    samples, sizes and start costs of each task. Raises :class:`bftrain.errors.BadValue` for a count below 1, and
    :class:`bftrain.errors.UnknownName` for an unknown model.

    >>> from bftrain import generate_mix
    >>> len(generate_mix(3, seed=1))
    3
    """
    chosen = [_profile(each) for each in models]
    if not chosen:
        raise BadValue("has no model", where="generate_mix.models")
    rng = np.random.default_rng(checked_seed(seed))
    rounds = [rng.permutation(len(chosen)) for _ in range(-(-checked_count(count) // len(chosen)))]
    order = np.concatenate(rounds)[:count].tolist()
    return _tasks([chosen[index] for index in order], (arrivals or TaskArrivals()).moments(count, rng), shape)


def _profile(model: str | Profile) -> Profile:
    return profile(model) if isinstance(model, str) else model


def sample_tasks(unit: str = NODE) -> tuple[TaskSpec, ...]:
    """Return the tasks of a built-in sample: more work than the idle time of ``sample_log(unit)`` can do."""
    models = [profile(PROFILE_NAMES[int(place)]) for place in _SAMPLE]
    return _tasks(models, [0.0] * len(models), TaskShape(work_samples=SAMPLE_WORK_SAMPLES[unit]))


def checked_count(count: int) -> int:
    """Return the number of tasks to generate; raise ``BadValue`` unless it is from 1 to ``MOST_TASKS``."""
    if count < 1:
        raise BadValue(f"must be at least 1, not {count}", where="tasks.count")
    if count > MOST_TASKS:
        raise BadValue(f"must not exceed {MOST_TASKS:,}, but is {count:,}", where="tasks.count")
    return count


def checked_seed(seed: int) -> int:
    """Return the seed of a random generator; raise ``BadValue`` if it is negative."""
    if seed < 0:
        raise BadValue(f"must not be negative, but is {seed}", where="tasks.seed")
    return seed


def _tasks(models: list[Profile], moments: list[float], shape: TaskShape | None) -> tuple[TaskSpec, ...]:
    shape = shape or TaskShape()
    width = len(str(len(models)))
    return tuple(
        TaskSpec(
            name=f"{model.name}-{number:0{width}d}",
            curve=model.curve,
            batch=model.batch,
            spread=model.spread,
            min_nodes=model.curve.nodes[0] if shape.min_nodes is None else shape.min_nodes,
            max_nodes=model.curve.last_measured if shape.max_nodes is None else shape.max_nodes,
            work_samples=shape.work_samples,
            submit_s=submit_s,
            grow_cost_s=model.grow_cost_s,
            shrink_cost_s=model.shrink_cost_s,
            start_cost_s=next(
                cost for cost in (shape.start_cost_s, model.start_cost_s, DEFAULT_START_COST_S) if cost is not None
            ),
            user=shape.user,
            campaign=shape.campaign,
        )
        for number, (model, submit_s) in enumerate(zip(models, moments, strict=True), start=1)
    )


MODEL: Final = "shufflenet"  # the model of the published hyper-parameter search
# Most trials without the competing ones; if the idle time needs more, each has a multiple of the published work
MOST_TRIALS: Final = 2000


class SaturatingWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of a single model, all submitted at the start, with more total work than the log's idle nodes can do."""

    model: str
    trials: int
    work_samples: float

    @classmethod
    def of(cls, idle_node_s: float, competing: int) -> SaturatingWorkload:
        """Return the workload for this idle node-time and number of competing tasks.

        No allocation processes more samples than all node-time at the best speed per node. There are ``competing``
        trials beyond that, so at any time that many are unfinished.

        >>> found = SaturatingWorkload.of(idle_node_s=3600.0 * 1269, competing=35)
        >>> found.trials, found.work_samples
        (135, 130000000.0)
        """
        curve = profile(MODEL).curve
        best = max(rate / nodes for nodes, rate in zip(curve.nodes, curve.rate, strict=True))
        needed = idle_node_s * best / MEASURED_WORK_SAMPLES
        multiple = max(1, math.ceil(needed / MOST_TRIALS))
        return cls(
            model=MODEL, trials=math.ceil(needed / multiple) + competing, work_samples=multiple * MEASURED_WORK_SAMPLES
        )

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """The trials."""
        return generate_trials(self.trials, self.model, shape=TaskShape(work_samples=self.work_samples))

    @property
    def sentence(self) -> str:
        """The description of the workload."""
        work = text_formats.large(self.work_samples)
        return (
            f"{self.trials:,} identical trials of {self.model}, {work} samples each: more than the idle "
            "nodes can process, so the queue never empties"
        )

    @property
    def command(self) -> str:
        """The command that writes these tasks to a file."""
        work = f" --work {self.work_samples:g}" if self.work_samples != MEASURED_WORK_SAMPLES else ""
        return f"bftrain generate tasks -o tasks.toml --kind trials --count {self.trials}{work}"
