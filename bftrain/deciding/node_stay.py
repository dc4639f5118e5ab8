"""NodeStay: a learned estimate of how long idle nodes stay, and rescaling costs fitted to it.

A new size must repay its cost while it lasts. If rescaling costs ``c`` seconds and a size lasts ``T`` seconds, counting
speed over a horizon of ``sqrt(c * T)`` seconds minimises the total loss from unprofitable and from missed changes
(the rule of the economic order quantity). So each cost has its own best horizon; instead of the horizon the costs
are fitted: over one fixed horizon a fitted cost counts like the true cost over its own. The cost of a start
is fitted to the remaining stay of the nodes. docs/reference/objectives.md has the formulas and their measured
effects.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import msgspec

from bftrain.values.options import HORIZON_S
from bftrain.values.problem import CompetingTask
from bftrain.values.task import TaskSpec

_FIRST_S: Final = 900.0  # expected stay before any node has left ...
_FIRST_WEIGHT: Final = 4.0  # ... weighted as this many observed departures
_HALVED_AFTER: Final = 2000.0  # departures after which earlier observations count half
_LEAST_S: Final = 30.0  # limits of the expected stay
_MOST_S: Final = 14400.0  # tasks also start and finish, so sizes change even if nodes stay for days
_MOST_CHANGES: Final = 4.0  # maximum size changes while a node stays: neighbouring nodes leave together
_STEPS: Final = 2  # steps per factor of two: tables are reused while the expected stay is unchanged


class NodeStay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Observations of idle nodes until ``until_s``: node-seconds and departures; both decay as nodes leave."""

    until_s: float | None = None  # None: no observations yet
    idle_node_s: float = _FIRST_S * _FIRST_WEIGHT
    departures: float = _FIRST_WEIGHT

    def after(self, time_s: float, pool: int, departures: int) -> NodeStay:
        """Return the estimate at ``time_s``: ``pool`` nodes were idle until then; ``departures`` of these leave now."""
        if not math.isfinite(time_s):  # no events yet
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
        """The expected stay of a node, rounded to a power of the square root of two."""
        return _rounded(min(max(self.idle_node_s / self.departures, _LEAST_S), _MOST_S))

    def fit(self, nodes_each: float) -> CostFit:
        """Return the cost fit if competing tasks hold ``nodes_each`` nodes on average."""
        changes = min(max(nodes_each / 2.0, 1.0), _MOST_CHANGES)  # nodes seldom leave one by one
        expected_s = self.expected_s
        return CostFit(expected_s, _rounded(expected_s / changes))


class CostFit(NamedTuple):
    """Parameters of fitted costs: a node stays ``stay_s`` on average, and a task keeps a size for ``size_lasts_s``."""

    stay_s: float
    size_lasts_s: float


def costs_of(task: TaskSpec | CompetingTask, fit: CostFit | None) -> tuple[float, float, float]:
    """Return the seconds that a task stands still when it grows, shrinks or starts; fitted to ``HORIZON_S``, if any."""
    if fit is None:
        return task.grow_cost_s, task.shrink_cost_s, task.start_cost_s
    return (
        HORIZON_S * math.sqrt(task.grow_cost_s / fit.size_lasts_s),
        HORIZON_S * math.sqrt(task.shrink_cost_s / fit.size_lasts_s),
        HORIZON_S * task.start_cost_s / (fit.stay_s + task.start_cost_s),
    )


def _rounded(seconds: float) -> float:
    return math.exp2(round(math.log2(seconds) * _STEPS) / _STEPS)
