"""TaskHistory: node-time and work of a task so far, for objectives and solvers that weigh them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from bftrain.values.curve import SpeedCurve


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When it was submitted, and what it had until ``since_s``: node-seconds, and samples according to its curve.

    Times are on the clock of the events. What rescaling costs is not taken off.
    """

    submitted_s: float
    since_s: float
    held_node_s: float = 0.0
    done_samples: float = 0.0

    def until(self, now_s: float, size: int, speed: float) -> TaskHistory:
        """Give what it had until ``now_s``, holding ``size`` nodes and running at ``speed`` samples/s all the time."""
        passed_s = now_s - self.since_s
        if passed_s <= 0.0:
            return self
        return TaskHistory(
            submitted_s=self.submitted_s,
            since_s=now_s,
            held_node_s=self.held_node_s + passed_s * size,
            done_samples=self.done_samples + passed_s * speed,
        )


def speed_at(curve: SpeedCurve, size: int) -> float:
    """Give the curve's speed. For one size this is several times as fast as numpy, and it is asked at every change."""
    place = bisect_left(curve.nodes, size)
    if place == len(curve.nodes):
        return curve.rate[-1]
    above, fastest = curve.nodes[place], curve.rate[place]
    below, slowest = (curve.nodes[place - 1], curve.rate[place - 1]) if place else (0, 0.0)
    return slowest + (fastest - slowest) * (size - below) / (above - below)
