"""Ideal: what the same tasks on the same cluster would take if nodes could be divided and moved at no cost.

Two figures, of which each says something else (docs/clusters.md):

- *fluid*: the same objective, made largest over shares of time instead of whole nodes, solved exactly whenever a task
  comes or goes. What a policy loses by whole nodes, rounds and costs is what lies between it and its fluid.
- *least*: what no policy can go below. Every division of the nodes is also one for a single machine that does
  a second's worth of all nodes each second (``priced``); on one machine the shortest remaining work first gives the
  smallest mean completion time there is. No task is faster than alone at its best size either.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from bftrain_replay.metrics.fair_time import shortest_s
from bftrain_replay.reference.makespan_bound import costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bftrain.values.task import TaskSpec
    from bftrain_replay.reference.fluid_shares import FluidShares, KeepGoing


class IdealCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Mean completion time and makespan, seconds: of the fluid (``None``: not all would finish), and the least."""

    objective: str
    fluid_completion_s: float | None
    fluid_makespan_s: float | None
    least_completion_s: float
    least_makespan_s: float

    def over(self, completion_s: float | None, makespan_s: float | None) -> dict[str, float | None]:
        """Give how many times as long a replay took, where it finished all tasks."""
        return {
            "completion_over_fluid": _ratio(completion_s, self.fluid_completion_s),
            "completion_over_least": _ratio(completion_s, self.least_completion_s),
            "makespan_over_fluid": _ratio(makespan_s, self.fluid_makespan_s),
            "makespan_over_least": _ratio(makespan_s, self.least_makespan_s),
        }


def _ratio(taken_s: float | None, ideal_s: float | None) -> float | None:
    return taken_s / ideal_s if taken_s is not None and ideal_s else None


def ideal(
    tasks: Sequence[TaskSpec], nodes: Mapping[str, int], fluid: FluidShares, keep_going: KeepGoing
) -> IdealCluster | None:
    """Find both figures for tasks that all have an end and run somewhere; ``None`` if it was stopped."""
    came = [max(spec.submit_s, 0.0) for spec in tasks]
    going = [True]

    def asked(now_s: float, chosen: int) -> bool:
        going[0] = keep_going(now_s, chosen)
        return going[0]

    finish = fluid.run(asked)
    if not going[0]:
        return None
    done = [finish[spec.name] for spec in tasks if spec.name in finish]
    all_done = len(done) == len(tasks)
    least = least_of(tasks, nodes)
    return IdealCluster(
        objective=fluid.objective,
        fluid_completion_s=_mean([end - begin for end, begin in zip(done, came, strict=True)]) if all_done else None,
        fluid_makespan_s=max(done) - min(came) if all_done else None,
        least_completion_s=least.completion_s,
        least_makespan_s=least.makespan_s,
    )


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """The mean completion time and the makespan that no policy can go below, seconds."""

    completion_s: float
    makespan_s: float


def least_of(tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> LowerBounds:
    """Bound them by a single machine as fast as all nodes, and by each task alone on its best nodes."""
    came = [max(spec.submit_s, 0.0) for spec in tasks]
    alone = [shortest_s(spec, nodes) or 0.0 for spec in tasks]
    ends = _one_machine(came, costs(tasks, nodes).tolist())
    shared = _mean([end - begin for end, begin in zip(ends, came, strict=True)])
    last = max(*ends, *(begin + lasts for begin, lasts in zip(came, alone, strict=True)))
    return LowerBounds(max(shared, _mean(alone)), last - min(came))


def _one_machine(came: Sequence[float], cost: Sequence[float]) -> list[float]:
    """Finish jobs on one machine, the one with least work left first, and give when each ends."""
    order = sorted(range(len(came)), key=came.__getitem__)
    ends = [0.0] * len(came)
    left: list[tuple[float, int]] = []
    now, following = 0.0, 0
    while left or following < len(order):
        if not left:
            now = max(now, came[order[following]])
        while following < len(order) and came[order[following]] <= now:
            heapq.heappush(left, (cost[order[following]], order[following]))
            following += 1
        rest, job = heapq.heappop(left)
        until = came[order[following]] if following < len(order) else math.inf
        if now + rest <= until:
            now += rest
            ends[job] = now
        else:
            heapq.heappush(left, (rest - (until - now), job))
            now = until
    return ends


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
