"""Generator of jobs of a shared training cluster, with the distributions of Gavel.

Each property has its own random stream, with one number per task. So a different share of large gangs changes no
duration, and a higher load only compresses the arrivals. The first hundred of a thousand tasks equal a hundred tasks
generated alone, except for the width of the numbers in their names.

The distributions are from Gavel (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning
Workloads", OSDI 2020), with gang sizes that Gavel took from the Philly trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput, BadValue
from bftrain.nodesets import MOST_NODES
from bftrain.taskfiles.records import profiles
from bftrain.values.curve import SpeedCurve
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.job import short
from bftrain_datasets.workloads.speed_table import SpeedTable
from bftrain_datasets.workloads.task_generators import DEFAULT_START_COST_S, TaskArrivals, checked_count, checked_seed

GANGS: Final[Mapping[int, float]] = MappingProxyType({1: 0.7, 2: 0.1, 4: 0.15, 8: 0.05})
LONG_SHARE: Final = 0.2
SHORT_POWERS: Final = (1.5, 3.0)  # powers of 10; a duration in minutes is between these powers
LONG_POWERS: Final = (3.0, 4.0)
HIGH_WEIGHT: Final = 5.0
_WHOLE: Final = "must be whole numbers of at least 1"
_SHARES: Final = "must have shares that are not negative and not all 0"

# The order determines a seed's results: append new streams at the end
STREAMS: Final = ("gaps", "lengths", "durations", "gangs", "models", "priorities", "deadlines", "bursts", "users")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """Distributions of jobs: gang size in GPUs, duration, weight, deadline, and user.

    ``gangs`` has the share of each gang size. ``long_share`` of the jobs run for 10^3 to 10^4 minutes, the rest for
    10^1.5 to 10^3. ``high_share`` of the jobs have ``high_weight``. Each job's deadline is a random multiple of its
    ideal duration from ``deadlines``; if empty, there are no deadlines. ``burst_share`` of the arrivals are bursts of
    ``burst_size`` simultaneous jobs, as in a parameter search; a burst forms a campaign. ``users`` is the number of
    users. An ``elastic`` job may have every measured size of its model, other jobs only their gang size.
    """

    gangs: Mapping[int, float] = field(default_factory=lambda: GANGS)
    long_share: float = LONG_SHARE
    high_share: float = 0.0
    high_weight: float = HIGH_WEIGHT
    deadlines: tuple[float, ...] = ()
    burst_share: float = 0.0
    burst_size: int = 1
    users: int = 0
    elastic: bool = False
    start_cost_s: float = DEFAULT_START_COST_S

    def __post_init__(self) -> None:
        shares = self.gangs.values()
        parts = {name: getattr(self, name) for name in ("long_share", "high_share", "burst_share")}
        checks = (
            *((name, 0 <= part <= 1, f"must be from 0 to 1, not {part:g}") for name, part in parts.items()),
            ("high_weight", 0 <= self.high_weight < math.inf, f"must be at least 0, not {self.high_weight:g}"),
            ("gangs", self.gangs and all(1 <= gang <= MOST_NODES for gang in self.gangs), _WHOLE),
            ("gangs", all(0 <= share < math.inf for share in shares) and sum(shares) > 0, _SHARES),
            ("deadlines", all(0 < multiple < math.inf for multiple in self.deadlines), "must be multiples above 0"),
            ("burst_size", self.burst_size >= 1, "must be at least 1"),
            ("users", self.users >= 0, "must be at least 0"),
        )
        for name, fine, what in checks:
            if not fine:
                raise BadValue(what, where=f"ClusterShape.{name}")


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A measured model: its speeds by size, and its rescaling costs.

    With ``curves`` by node kind, ``curve`` is for the reference kind and determines durations; ``spread`` is by hosts.
    """

    name: str
    curve: SpeedCurve
    grow_cost_s: float = 0.0
    shrink_cost_s: float = 0.0
    curves: Mapping[str, SpeedCurve] = field(default_factory=dict)
    spread: SpreadSpeeds | None = None

    def rate(self, gang: int) -> float:
        """Return the speed on ``gang`` nodes; 0 if not measured, or if the model does not fit."""
        return _measured(self.curve, gang)


def bundled_models() -> tuple[MeasuredModel, ...]:
    """Return the models measured on Summit."""
    return tuple(
        MeasuredModel(name, each.curve, each.grow_cost_s, each.shrink_cost_s)
        for name, each in sorted(profiles().items())
    )


def models_of(table: SpeedTable, kinds: Sequence[str], *, by_hosts: bool = False) -> tuple[MeasuredModel, ...]:
    """Return the models of a throughput table that run on the first kind, with their speeds on several ``kinds``."""
    by_kind = {
        kind: {
            name: SpeedCurve(nodes=tuple(gangs), rate=tuple(gangs.values()))
            for name, gangs in table.rates[kind].items()
            if any(gangs.values())
        }
        for kind in kinds
    }
    return tuple(
        MeasuredModel(
            name,
            curve,
            curves={kind: known[name] for kind, known in by_kind.items() if name in known} if len(kinds) > 1 else {},
            spread=table.spread(name, kinds) if by_hosts else None,
        )
        for name, curve in sorted(by_kind[kinds[0]].items())
    )


def _measured(curve: SpeedCurve, gang: int) -> float:
    return dict(zip(curve.nodes, curve.rate, strict=True)).get(gang, 0.0)


def generate_cluster(
    count: int,
    seed: int = 0,
    *,
    models: Sequence[MeasuredModel] | None = None,
    arrivals: TaskArrivals | None = None,
    shape: ClusterShape | None = None,
) -> tuple[TaskSpec, ...]:
    """Return ``count`` generated jobs. The first arrives at the start, and the gaps after it are exponential."""
    checked_count(count)
    shape, arrivals = shape or ClusterShape(), arrivals or TaskArrivals()
    # Draw one number from 0 to 1 for every task and property
    seeds = np.random.SeedSequence(checked_seed(seed)).spawn(len(STREAMS))
    drawn = {
        name: np.random.default_rng(each).random(count).tolist() for name, each in zip(STREAMS, seeds, strict=True)
    }
    sizes = sorted(shape.gangs)
    bounds: NDArray[np.float64] = np.cumsum([shape.gangs[size] for size in sizes])
    last = max(place for place, size in enumerate(sizes) if shape.gangs[size] > 0)  # limits the effect of rounding
    found = np.minimum(np.searchsorted(bounds, np.array(drawn["gangs"]) * bounds[-1], side="right"), last)
    gangs = [sizes[place] for place in found.tolist()]
    powers = [LONG_POWERS if length < shape.long_share else SHORT_POWERS for length in drawn["lengths"]]
    parts = zip(powers, drawn["durations"], strict=True)
    durations = [round(60 * 10 ** (low + (high - low) * part), 3) for (low, high), part in parts]
    arrived = _arrivals(drawn["bursts"], shape, count)
    moments = _moments(drawn["gaps"], arrivals)
    running = _running(models or bundled_models(), sorted({*gangs}))
    width = len(str(count))
    tasks = []
    for place, (gang, duration_s, arrival) in enumerate(zip(gangs, durations, arrived, strict=True)):
        number, first, campaign = arrival
        among = running[gang]
        model = among[int(drawn["models"][place] * len(among))]
        submit_s = moments[number]
        tasks.append(
            TaskSpec(
                name=f"{short(model.name)}-{place + 1:0{width}d}",
                **_sizes(model, gang, elastic=shape.elastic),
                work_samples=duration_s * model.rate(gang),
                submit_s=submit_s,
                grow_cost_s=model.grow_cost_s,
                shrink_cost_s=model.shrink_cost_s,
                start_cost_s=shape.start_cost_s,
                weight=shape.high_weight if drawn["priorities"][place] < shape.high_share else 1.0,
                deadline_s=_deadline(drawn["deadlines"][place], shape.deadlines, submit_s, duration_s),
                user=f"user-{int(drawn['users'][first] * shape.users) + 1}" if shape.users else "",
                campaign=campaign,
                spread=model.spread if gang > 1 or shape.elastic else None,
            )
        )
    return tuple(tasks)


def _arrivals(drawn: list[float], shape: ClusterShape, count: int) -> list[tuple[int, int, str]]:
    """Return for each task the index of its arrival, the first task of that arrival, and its campaign if a burst."""
    found: list[tuple[int, int, str]] = []
    for number, each in enumerate(drawn):
        size = shape.burst_size if each < shape.burst_share else 1
        campaign = f"burst-{number + 1}" if size > 1 else ""
        found += [(number, len(found), campaign)] * min(size, count - len(found))
        if len(found) == count:
            break
    return found


def _moments(drawn: list[float], arrivals: TaskArrivals) -> list[float]:
    if arrivals.per_hour is None:
        return [arrivals.start_s] * len(drawn)
    gaps = -np.log1p(-np.array(drawn)) * (3600 / arrivals.per_hour)
    passed = np.concatenate(([0.0], np.cumsum(gaps[:-1])))
    return [round(arrivals.start_s + each, 3) for each in passed.tolist()]


def _running(models: Sequence[MeasuredModel], gangs: Sequence[int]) -> dict[int, list[MeasuredModel]]:
    found = {gang: [model for model in models if model.rate(gang) > 0] for gang in gangs}
    lacking = next((gang for gang in gangs if not found[gang]), None)
    if lacking is not None:
        measured = sorted({size for model in models for size in model.curve.nodes if model.rate(size) > 0})
        known = ", ".join(map(str, measured)) or "none"
        raise BadInput(f"no model was measured on a gang of {lacking}", fix=f"choose gangs among: {known}")
    return found


def _sizes(model: MeasuredModel, gang: int, *, elastic: bool) -> dict[str, Any]:
    if not elastic:
        running = {kind: curve for kind, curve in model.curves.items() if _measured(curve, gang) > 0}
        return {"curve": model.curve, "curves": running, "min_nodes": gang, "max_nodes": gang}
    curves = model.curves.values() or (model.curve,)
    fitting = sorted({size for curve in curves for size in curve.nodes if _measured(curve, size) > 0})
    return {"curve": model.curve, "curves": model.curves, "min_nodes": fitting[0], "max_nodes": fitting[-1]}


def _deadline(drawn: float, multiples: tuple[float, ...], submit_s: float, duration_s: float) -> float | None:
    if not multiples:
        return None
    return round(submit_s + multiples[int(drawn * len(multiples))] * duration_s, 3)
