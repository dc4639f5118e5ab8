"""The policy that divides CPU cores and memory of hosts by the tasks' sensitivity to them (Synergy)."""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np

from bftrain import registry
from bftrain.errors import BadInput
from bftrain_replay.rounds.round_inputs import Floats
from bftrain_replay.rounds.round_policy import RoundPolicy, SizingPolicy
from bftrain_replay.rounds.round_resources import HostedTasks

_TRAITS: Final = ("steady", "every_round", "needs_work")


def _in_a_row(order: str) -> RoundPolicy:
    """Return the round policy ``order``; raise unless it only ranks tasks."""
    known = registry.BUILT_IN["rounds"]
    found = registry.load("rounds", order)() if order in known and order != Synergy.name else None
    if not isinstance(found, RoundPolicy) or isinstance(found, SizingPolicy):
        fix = "name a policy that puts tasks in a row: fifo, las, srtf, tiresias"
        raise BadInput(f"cannot run tasks in the order of '{order}'", fix=fix)
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
        policy = _in_a_row(order)
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
