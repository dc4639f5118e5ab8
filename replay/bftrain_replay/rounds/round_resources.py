"""CPU cores and memory of hosts in rounds: the proportional share of each node, and their division by a policy.

A host has a fixed amount of CPU cores and memory per node. A task with resource-dependent speeds runs at the speed of
its proportional share, unless a policy divides the host's resources in another way.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import registry
from bftrain.errors import BadInput
from bftrain.values.curve import ANY_KIND, curve_on
from bftrain.values.resources import ResourceSpeeds
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_inputs import Floats, Ints, TaskGangs
from bftrain_replay.rounds.round_nodes import NodeHolders
from bftrain_replay.rounds.round_policy import RoundPolicy, SizingPolicy, policy_errors
from bftrain_replay.rounds.round_settings import RoundSettings

_TRAITS: Final = ("steady", "every_round", "needs_work")
_ROUNDING: Final = 1e-6  # fraction of a host's resources; matches the solvers' precision

Share = tuple[float, float]  # CPU cores and GB of memory for each node of a kind; infinite where it is not limited


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostedTasks:
    """The running tasks and their hosts.

    ``points`` are each task's options per node: rows of CPU cores, GB of memory, and speed relative to the speed with
    its proportional share. The first row is that share, and no row is slower. Unlimited amounts are 0. ``nodes`` counts
    each task's nodes by host; ``room`` is each host's capacity of both resources.
    """

    names: tuple[str, ...]
    points: tuple[Floats, ...]
    nodes: Ints
    room: Floats

    def parts(self, task: int) -> Floats:
        """Return the amounts in each row as parts of the share."""
        amounts = self.points[task][:, :2]
        parts: Floats = amounts / np.where(amounts[0] > 0.0, amounts[0], 1.0)
        return parts

    def hosts_of(self, task: int) -> list[tuple[int, int]]:
        """Return the hosts of a task, and its nodes on each."""
        hosts = np.flatnonzero(self.nodes[:, task])
        return list(zip(hosts.tolist(), self.nodes[hosts, task].tolist(), strict=True))

    def left(self, rows: Sequence[int]) -> Floats:
        """Return each host's remaining resources, with the chosen row of each task."""
        amounts = np.array([points[row, :2] for points, row in zip(self.points, rows, strict=True)]).reshape(-1, 2)
        left: Floats = self.room * (1.0 + _ROUNDING) - self.nodes @ amounts
        return left


@runtime_checkable
class ResourcePolicy(Protocol):
    """A policy of rounds that also divides CPU cores and memory of hosts."""

    def resources(self, hosted: HostedTasks) -> Sequence[int] | NDArray[np.intp]:
        """Return the row of ``points`` that each task has, when tasks have started or stopped."""


def shares_of(settings: RoundSettings, kinds: Sequence[str]) -> dict[str, Share]:
    """Return the share per node of each kind; empty if the settings set no shares."""
    if not settings.resources_of_nodes:
        return {}
    given = [settings.resources_of_nodes.get(name, {}) for name in ("cpus", "memory_gb")]
    for name, amounts in zip(("cpus", "memory_gb"), given, strict=True):
        for kind in kinds if amounts else ():
            if kind not in amounts and ANY_KIND not in amounts:
                raise BadInput(f"lacks the amount of a '{kind}' node", where=name, fix="add it")
    cpus, memory_gb = ({kind: each.get(kind, each.get(ANY_KIND, math.inf)) for kind in kinds} for each in given)
    return {kind: (cpus[kind], memory_gb[kind]) for kind in kinds}


def with_shares(tasks: Sequence[TaskSpec], shares: Mapping[str, Share]) -> tuple[TaskSpec, ...]:
    """Return the tasks with their speeds by kind at the share of each node."""
    return tuple(
        task if task.resources is None or not shares else _with_shares(task, task.resources, shares) for task in tasks
    )


def _with_shares(task: TaskSpec, resources: ResourceSpeeds, shares: Mapping[str, Share]) -> TaskSpec:
    part = {kind: resources.part(*share) for kind, share in shares.items()}
    curves = {kind: curve.times(part[kind]) for kind in part if (curve := curve_on(task.curve, task.curves, kind))}
    spread = task.spread
    if spread is not None and any(each.curve for each in spread.speeds):
        by_kind = []
        for kind, slower in part.items():
            own = [each for each in spread.speeds if each.kind == kind]
            for each in own or [each for each in spread.speeds if each.kind == ANY_KIND]:
                curve = each.curve and each.curve.times(slower)
                by_kind.append(msgspec.structs.replace(each, kind=kind, curve=curve))
        spread = SpreadSpeeds(per_place=spread.per_place, speeds=tuple(by_kind)) if by_kind else None
    if ANY_KIND in curves:  # nodes have no kinds
        return msgspec.structs.replace(task, curve=curves[ANY_KIND], curves={}, spread=spread)
    curve = next(iter(curves.values()), task.curve)
    return msgspec.structs.replace(task, curve=curve, curves=curves or task.curves, spread=spread)


@lru_cache(maxsize=4096)  # tasks of one model have equal points
def points_of(resources: ResourceSpeeds | None, share: Share) -> Floats:
    """Return a task's points that are at least as fast as its share, starting with the share."""
    amounts = [0.0 if own == math.inf else own for own in share]
    points = [(*amounts, 1.0)]
    if resources is not None:
        usual = resources.part(*share)
        axes = [
            [own] if own == math.inf or not known else known
            for own, known in zip(share, (resources.cpus, resources.memory_gb), strict=True)
        ]
        for cpus, memory_gb in product(*axes):
            point = [0.0 if amount == math.inf else amount for amount in (cpus, memory_gb)]
            speed = resources.part(cpus, memory_gb) / usual
            if speed >= 1.0 and point != amounts:
                points.append((point[0], point[1], speed))
    return np.array(points)


class HostResources:
    """Each task's part of its hosts: ``amounts`` per node, and the ``gain`` over its proportional share."""

    def __init__(self, policy: object, name: str, gangs: TaskGangs, shares: Mapping[str, Share]) -> None:
        self._policy = policy if isinstance(policy, ResourcePolicy) else None
        self._name, self._gangs, self._shares = name, gangs, list(shares.values())
        self._usual = np.array([points_of(None, share)[0, :2] for share in self._shares])
        self.gain = np.ones(len(gangs))
        self.amounts = np.zeros((len(gangs), 2))
        self._version, self._run = -1, np.zeros(0, dtype=np.intp)

    @property
    def limited(self) -> tuple[bool, bool]:
        """Whether CPU cores are limited, and memory."""
        return bool(self._usual[:, 0].any()), bool(self._usual[:, 1].any())

    def divide(self, run: Ints, kind: Ints, holders: NodeHolders, version: int, when: str) -> None:
        """Divide the hosts' resources again if the running tasks, their nodes or the pool changed."""
        if version == self._version and np.array_equal(run, self._run):
            return
        self._version, self._run = version, run
        self.gain[run], self.amounts[run] = 1.0, self._usual[kind]
        if self._policy is None or not run.size:
            return
        nodes, present = holders.by_host(run)
        specs = [self._gangs.specs[place] for place in run.tolist()]
        pairs = zip(specs, kind.tolist(), strict=True)
        hosted = HostedTasks(
            names=tuple(spec.name for spec in specs),
            points=tuple(points_of(spec.resources, self._shares[where]) for spec, where in pairs),
            nodes=nodes,
            room=present @ self._usual,
        )
        rows = self._asked(self._policy, hosted, f"policy '{self._name}', {when}")
        chosen = np.array([points[row] for points, row in zip(hosted.points, rows, strict=True)])
        self.amounts[run], self.gain[run] = chosen[:, :2], chosen[:, 2]

    def _asked(self, policy: ResourcePolicy, hosted: HostedTasks, where: str) -> list[int]:
        with policy_errors(where):
            given = np.asarray(policy.resources(hosted))
        fix = "give one whole number a task, the row of its points"
        if given.shape != (len(hosted.names),) or given.dtype.kind not in "iu":
            raise BadInput(f"gave resources {given!r:.60} for {len(hosted.names)} tasks", where=where, fix=fix)
        rows: list[int] = given.tolist()
        for name, row, points in zip(hosted.names, rows, hosted.points, strict=True):
            if not 0 <= row < len(points):
                raise BadInput(f"gave task '{name}' the row {row} of {len(points)} points", where=where, fix=fix)
        over = np.argwhere(hosted.left(rows) < 0.0)
        if over.size:
            host, which = over[0].tolist()
            task = hosted.names[int(np.flatnonzero(hosted.nodes[host])[0])]
            what = f"gave out more {('CPU cores', 'memory')[which]} than the host of task '{task}' has"
            raise BadInput(what, where=where, fix="keep to the room of each host")
        return rows


def _ranking_policy(order: str) -> RoundPolicy:
    """Return the round policy ``order``; raise unless it only ranks tasks."""
    known = registry.BUILT_IN["rounds"]
    found = registry.load("rounds", order)() if order in known and order != Synergy.name else None
    if not isinstance(found, RoundPolicy) or isinstance(found, SizingPolicy):
        fix = "name a policy that only ranks tasks: fifo, las, srtf, tiresias"
        raise BadInput(f"cannot run tasks in the order '{order}'", fix=fix)
    return found


def _take(more: Floats, hosts: list[tuple[int, int]], left: list[list[float]]) -> bool:
    """Take more CPU cores and memory per node and return True, if all of the task's hosts have enough left."""
    cpus, memory_gb, _ = more.tolist()
    if any(left[host][0] < nodes * cpus or left[host][1] < nodes * memory_gb for host, nodes in hosts):
        return False
    for host, nodes in hosts:
        left[host] = [left[host][0] - nodes * cpus, left[host][1] - nodes * memory_gb]
    return True


class Synergy:
    """Keeps each task as fast as with its share, and moves surplus resources to where they help most.

    Like Synergy-TUNE (Mohan et al., OSDI 2022): each task starts with the minimum that keeps the speed of its
    share. The step with the largest speed gain per resource is then repeated until no step fits on its hosts.
    """

    name = "synergy"

    def __init__(self, order: str = "fifo") -> None:
        policy = _ranking_policy(order)
        self.priorities = policy.priorities
        self.steady, self.every_round, self.needs_work = (getattr(policy, each, False) for each in _TRAITS)

    def resources(self, hosted: HostedTasks) -> list[int]:
        """Return the row of each task."""
        points, parts = hosted.points, [hosted.parts(task) for task in range(len(hosted.names))]
        least = [np.where((own <= 1.0).all(axis=1), own.sum(axis=1), np.inf) for own in parts]
        rows, steps = [int(np.argmin(own)) for own in least], list[tuple[float, int, int, int]]()
        left, counts = hosted.left(rows).tolist(), [hosted.hosts_of(task) for task in range(len(parts))]

        def offer(task: int) -> None:
            before, nodes = rows[task], sum(count for _, count in counts[task])
            faster = points[task][:, 2] - points[task][before, 2]
            takes = nodes * np.maximum(0.0, parts[task] - parts[task][before]).sum(axis=1)
            for row in np.flatnonzero(faster > 0.0).tolist():
                heapq.heappush(steps, (-float(faster[row] / max(takes[row], 1e-9)), task, before, row))

        for task in range(len(parts)):
            offer(task)
        while steps:
            _, task, before, row = heapq.heappop(steps)
            if rows[task] == before and _take(points[task][row] - points[task][before], counts[task], left):
                rows[task] = row
                offer(task)
        return rows
