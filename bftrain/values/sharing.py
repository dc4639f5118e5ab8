"""Sharing: node kinds divided by time. Which part of its time does each task run on which kind?

The setting of fixed clusters with several kinds of nodes, where a task needs a fixed number of nodes of one kind at a
time. Rounds then give each task its parts one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import isfinite

import msgspec

from bftrain.values import checks
from bftrain.values.wire import Mapped


class Inside(StrEnum):
    """How an entity divides what it gets over its own tasks."""

    FAIR = "fair"  # all at once, by their weights
    FIFO = "fifo"  # the first one that can still use more gets all


class Entity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An owner of tasks, such as a user or a group: entities share by their weights.

    ``nodes`` and ``tasks`` are its quota: how many nodes its tasks may hold, and how many of its tasks may compete, at
    a time; ``None`` for as many as they like. The admission ``quota`` sees to it.
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
    """A task that runs on ``nodes`` nodes of one kind at a time, as fast as ``speeds`` says (samples/s by kind).

    A kind that is not named, or has speed 0, cannot run it. ``alone_s`` is how long the work that is done would have
    taken on the task's own n-th part of everything, ``age_s`` how long ago it was submitted. ``deadline_in_s`` counts
    from now. ``kind`` is where it runs all of the time, for policies that let a task end where it began. ``model`` is
    what the speeds of pairs are looked up by.
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
    """How fast two tasks of these ``models`` are that share ``nodes`` nodes: samples/s of both, by kind."""

    models: tuple[str, str]
    nodes: int = 1
    speeds: Mapping[str, tuple[float, float]]

    def __post_init__(self) -> None:
        checks.integer(self, "nodes", at_least=1)
        checks.frozen_mapping(self, "speeds", _two_speeds, "a mapping from kinds to two numbers of at least 0")


class PairShare(Mapped, frozen=True, kw_only=True):
    """The shares of time, by kind, in which two tasks run on the same nodes."""

    tasks: tuple[str, str]
    shares: Mapping[str, float]


class SharingProblem(Mapped, frozen=True, kw_only=True):
    """Divide the time of ``nodes`` (how many by kind) over the tasks, as ``policy`` says."""

    nodes: Mapping[str, int]
    policy: str = "max-min"
    tasks: tuple[SharingTask, ...]
    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)  # those not named have weight 1, and are fair
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)  # of a node, by kind; 1 for those not named
    pairs: tuple[PairSpeeds, ...] = ()  # for packed policies

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
                checks.reject(self, "tasks", f"task '{task.name}' has a speed on '{unknown[0]}', which is no kind here")
            if not any(speed > 0.0 and task.nodes <= self.nodes[kind] for kind, speed in task.speeds.items()):
                problem = f"task '{task.name}' can run nowhere: it needs {task.nodes} nodes of one kind"
                checks.reject(self, "tasks", problem, "leave it out, or give it a speed on a kind that is large enough")


class Shares(Mapped, frozen=True, kw_only=True):
    """What came of it: by task its shares of time by kind, and its speed; ``value`` is what the policy made best.

    Of tasks that share nodes, ``shares`` are of the time alone, and ``pairs`` have those of the time together.
    """

    policy: str
    value: float
    value_is: str
    shares: Mapping[str, Mapping[str, float]]
    speeds: Mapping[str, float]
    wall_s: float = 0.0
    pairs: tuple[PairShare, ...] | msgspec.UnsetType = msgspec.UNSET
    notes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # what is not certain, if anything


def _speed(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given) or given < 0:
        raise ValueError
    return float(given)


def _two_speeds(given: object) -> tuple[float, float]:
    if not isinstance(given, list | tuple):
        raise ValueError  # noqa: TRY004 - the caller says what is wanted
    one, other = given
    return _speed(one), _speed(other)
