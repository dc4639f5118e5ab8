"""Speed of a task on an equal share of the nodes, which fair objectives compare a task's speed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bftrain.values.curve import SpeedCurve


class ElasticTask(Protocol):
    """Anything with a minimum and a maximum of nodes: a task, competing or submitted."""

    @property
    def min_nodes(self) -> int:
        """Fewest nodes it runs on."""
        ...

    @property
    def max_nodes(self) -> int:
        """Most nodes it may get."""
        ...

    def curve_on(self, kind: str) -> SpeedCurve | None:
        """Give its speed on nodes of ``kind``; ``None`` if it does not run there."""
        ...


def isolated_speed(task: ElasticTask, by_kind: Mapping[str, int], tasks: int) -> float:
    """Speed in samples/s on an n-th part of the nodes, n being the number of ``tasks``.

    Between whole sizes the curve is linear. Where the part is less than ``min_nodes`` the task has these for a part of
    the time; the same, on the size where it does most, if it does not run on its part at all. Of several kinds it
    has each in turn, for as much of the time as nodes are of that kind. 0 if it runs nowhere.
    """
    nodes = sum(by_kind.values())
    if nodes == 0 or tasks == 0:
        return 0.0
    part = nodes / tasks
    speed = 0.0
    for kind, count in by_kind.items():
        curve = task.curve_on(kind)
        if curve is not None and count >= task.min_nodes:
            speed += count / nodes * _speed_on(task, curve, min(part, count), count)
    return speed


def _speed_on(task: ElasticTask, curve: SpeedCurve, part: float, count: int) -> float:
    if part >= task.min_nodes:
        speed = curve.speed(min(part, task.max_nodes))
    else:
        speed = curve.speed(task.min_nodes) * part / task.min_nodes
    if speed > 0.0:
        return speed
    most = min(task.max_nodes, count)
    sizes = {task.min_nodes, most, *(nodes for nodes in curve.nodes if task.min_nodes <= nodes <= most)}
    return max(curve.speed(size) * min(1.0, part / size) for size in sizes)
