"""Time sharing of node kinds: the input and output of policies that assign tasks shares of time on each kind.

This models fixed clusters with several node kinds, where a task needs a fixed number of nodes of one kind at a
time. Rounds then schedule the shares sequentially.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite

import msgspec

from bftrain.values import checks
from bftrain.values.wire import Mapped


class Inside(StrEnum):
    """Rule by which an entity divides its share among its own tasks."""

    FAIR = "fair"  # all tasks together, by weight
    FIFO = "fifo"  # all to the first task that can still use more


class Entity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner of tasks, such as a user or a group: entities share by their weights.

    ``nodes`` and ``tasks`` are its quota: the most nodes its tasks may hold, and the most tasks that may compete, at
    a time; ``None`` for no limit. The admission ``quota`` enforces them.
    """

    weight: float = 1.0
    inside: Inside = Inside.FAIR
    nodes: int | None = None
    tasks: int | None = None

    def __post_init__(self) -> None:
        checks.number(self, "weight", above=0.0)
        checks.choice(self, "inside", Inside)
        quotas = [quota for quota in ("nodes", "tasks") if getattr(self, quota) is not None]
        checks.integer(self, *quotas, at_least=1)


class SharingTask(Mapped, frozen=True, kw_only=True):
    """A task that runs on ``nodes`` nodes of a single kind, at ``speeds`` in samples/s by kind.

    A kind that is missing, or has speed 0, cannot run it. ``alone_s`` is the hypothetical duration of the completed
    work on an n-th part of all nodes, ``age_s`` the time since its submission. ``deadline_in_s`` counts
    from now. ``kind`` is the only kind it runs on, for policies with fixed kinds. ``model`` is
    the key to the speeds of pairs.
    """

    name: str
    speeds: Mapping[str, float]
    nodes: int = 1
    weight: float = 1.0
    entity: str = ""
    work_left_samples: float | None = None
    age_s: float = 0.0
    alone_s: float = 0.0
    deadline_in_s: float | None = None
    kind: str = ""
    model: str = ""

    def __post_init__(self) -> None:
        checks.text(self, "name")
        checks.frozen_mapping(self, "speeds", _speed, "a mapping from kinds to numbers of at least 0")
        checks.integer(self, "nodes", at_least=1)
        checks.number(self, "weight", "age_s", "alone_s", at_least=0.0)
        checks.words(self, "entity", "kind", "model")
        checks.optional_number(self, "deadline_in_s")
        checks.optional_number(self, "work_left_samples", above=0.0)


class PairSpeeds(Mapped, frozen=True, kw_only=True):
    """Speeds in samples/s, by kind, of two tasks of these ``models`` that run together on the same ``nodes`` nodes."""

    models: tuple[str, str]
    nodes: int = 1
    speeds: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        checks.integer(self, "nodes", at_least=1)
        checks.frozen_mapping(self, "speeds", _two_speeds, "a mapping from kinds to two numbers of at least 0")


class PairShare(Mapped, frozen=True, kw_only=True):
    """The shares of time, by kind, during which two tasks run together on shared nodes."""

    tasks: tuple[str, str]
    shares: Mapping[str, float]


class SharingProblem(Mapped, frozen=True, kw_only=True):
    """Divide the time of ``nodes`` (a number by kind) among the tasks according to ``policy``."""

    nodes: Mapping[str, int]
    policy: str = "max-min"
    tasks: tuple[SharingTask, ...]
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)  # default: weight 1, fair
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)  # node prices by kind (default: 1)
    pairs: tuple[PairSpeeds, ...] = ()  # speeds for packed policies

    def __post_init__(self) -> None:
        checks.counts(self, "nodes")
        checks.text(self, "policy")
        tasks = checks.instances(self, "tasks", SharingTask)
        checks.different(self, "tasks", [task.name for task in tasks], "give every task its own name")
        checks.frozen_mapping(self, "entities", checks.instance_of(Entity), "a mapping from names to entities")
        checks.positive(self, "prices")
        checks.instances(self, "pairs", PairSpeeds)
        for task in tasks:
            unknown = sorted(set(task.speeds).difference(self.nodes))
            if unknown:
                checks.reject(self, "tasks", f"task '{task.name}' has a speed on '{unknown[0]}', an unknown kind")
            if not any(speed > 0.0 and task.nodes <= self.nodes[kind] for kind, speed in task.speeds.items()):
                problem = f"task '{task.name}' cannot run: it needs {task.nodes} nodes of one kind"
                checks.reject(self, "tasks", problem, "omit it, or give it a speed on a larger kind")


class Shares(Mapped, frozen=True, kw_only=True):
    """The result: shares of time by task and kind, and speeds by task; ``value`` is the optimised quantity.

    If tasks run together on nodes, ``shares`` is only the time alone, and ``pairs`` the time together.
    """

    policy: str
    value: float
    value_is: str
    shares: Mapping[str, Mapping[str, float]]
    speeds: Mapping[str, float]
    wall_s: float = 0.0
    pairs: tuple[PairShare, ...] | msgspec.UnsetType = msgspec.UNSET
    notes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # remarks on uncertain results


def _speed(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given < 0:
        raise ValueError
    return float(given)


def _two_speeds(given: object) -> tuple[float, float]:
    if not isinstance(given, list | tuple):
        raise ValueError  # noqa: TRY004 - the caller's message names the accepted form
    one, other = given
    return _speed(one), _speed(other)
