"""NodeStay: how long idle nodes stay, learned from the past, and the costs of rescaling that are right for it.

A new size pays for as long as it lasts. Where rescaling costs ``c`` seconds and a size lasts ``T`` seconds, tasks that
count speed over ``sqrt(c * T)`` seconds lose least by changes that are not worth it and changes that are not made
(the rule of the economic order quantity). So each cost has a horizon of its own, and instead of the horizon the costs
are fitted: over one fixed horizon a fitted cost counts as much as the true cost does over its own. A start takes
its part of the time that the nodes stay after it. docs/objectives.md has the formulas and what they were
measured to give.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, NamedTuple

import msgspec

from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec

AUTO: Final = "auto"  # a horizon: fit the costs
HORIZON_S: Final = 120.0  # over which fitted costs count

_FIRST_S: Final = 900.0  # what is expected before any node has left ...
_FIRST_WEIGHT: Final = 4.0  # ... as if so many nodes had been seen to leave
_HALVED_AFTER: Final = 2000.0  # departures after which what was seen before them counts half
_LEAST_S: Final = 30.0
_MOST_S: Final = 14400.0  # tasks begin and end too, so sizes change even where nodes stay for days
_MOST_CHANGES: Final = 4.0  # of a size while one node stays: nodes that lie together leave together
_STEPS: Final = 2  # per factor of two: tables are kept while the expected stay is the same


def fixed_horizon_s(horizon_s: float | str) -> float:
    """Return a horizon as a number: if it is ``auto``, what fitted costs count over."""
    return HORIZON_S if isinstance(horizon_s, str) else horizon_s


class NodeStay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was seen of idle nodes until ``until_s``: node-seconds and departures; both fade as nodes leave."""

    until_s: float | None = None  # None: nothing yet
    idle_node_s: float = _FIRST_S * _FIRST_WEIGHT
    departures: float = _FIRST_WEIGHT

    def after(self, time_s: float, pool: int, departures: int) -> NodeStay:
        """Return the estimate at ``time_s``, until when ``pool`` nodes were idle, of which so many leave now."""
        if not math.isfinite(time_s):  # nothing has happened yet
            return self
        idle_node_s = 0.0 if self.until_s is None else pool * (time_s - self.until_s)
        fading = 0.5 ** (departures / _HALVED_AFTER)
        return NodeStay(
            until_s=time_s,
            idle_node_s=(self.idle_node_s + idle_node_s) * fading,
            departures=(self.departures + departures) * fading,
        )

    @property
    def expected_s(self) -> float:
        """Return how long a node stays on average, rounded to a power of the square root of two."""
        return _rounded(min(max(self.idle_node_s / self.departures, _LEAST_S), _MOST_S))

    def fit(self, nodes_each: float) -> CostFit:
        """Return how costs count where every task that competes has so many nodes on average."""
        changes = min(max(nodes_each / 2.0, 1.0), _MOST_CHANGES)  # nodes seldom leave one by one
        return _cost_fit(self.expected_s, _rounded(self.expected_s / changes))


class RescalingCosts(NamedTuple):
    """Seconds that a task stands still when it grows, shrinks or starts."""

    grow_cost_s: float
    shrink_cost_s: float
    start_cost_s: float


def costs_of(task: TaskSpec) -> RescalingCosts:
    """Return the costs as the task says them."""
    return RescalingCosts(task.grow_cost_s, task.shrink_cost_s, task.start_cost_s)


class CostFit(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """How costs are fitted: a node stays for ``stay_s`` on average, and a task keeps its size for ``size_lasts_s``.

    There is one object for the same times, so that what is kept by fit is found without comparing these.
    """

    stay_s: float
    size_lasts_s: float

    def costs_of(self, task: TaskSpec | CompetingTask) -> RescalingCosts:
        """Return the costs of a task so that they count over ``HORIZON_S`` as they should."""
        return RescalingCosts(
            HORIZON_S * math.sqrt(task.grow_cost_s / self.size_lasts_s),
            HORIZON_S * math.sqrt(task.shrink_cost_s / self.size_lasts_s),
            HORIZON_S * task.start_cost_s / (self.stay_s + task.start_cost_s),
        )


@cache
def _cost_fit(stay_s: float, size_lasts_s: float) -> CostFit:
    return CostFit(stay_s=stay_s, size_lasts_s=size_lasts_s)


def _rounded(seconds: float) -> float:
    return math.exp2(round(math.log2(seconds) * _STEPS) / _STEPS)
