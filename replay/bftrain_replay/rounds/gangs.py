"""Gangs: the tasks in columns. A gang runs on all of its nodes, which are of one kind, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bftrain.errors import BadInput
from bftrain_replay.rounds.round_settings import LARGEST, SMALLEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.curve import SpeedCurve
    from bftrain.values.task import TaskSpec
    from bftrain_replay.rounds.round_settings import RoundSettings

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGangs:
    """Tasks in the order in which they come. ``speeds`` are samples/s by task and kind, 0 where one does not run.

    ``work`` is infinite for a task that never ends by itself; ``fastest`` are the kinds by task, the fastest first.
    """

    specs: tuple[TaskSpec, ...]
    kinds: tuple[str, ...]
    submit_s: Floats
    nodes: Places
    weight: Floats
    work: Floats
    start_cost_s: Floats
    speeds: Floats
    fastest: Places

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self.specs)


def gangs_of(tasks: Sequence[TaskSpec], most: dict[str, int], settings: RoundSettings) -> TaskGangs:
    """Give tasks as gangs on kinds of which there are at ``most`` so many nodes at a time.

    One that can never run is refused by name.
    """
    specs = tuple(_gang(task, settings.gang) for task in sorted(tasks, key=lambda task: task.submit_s))
    kinds, nodes = tuple(most), [task.min_nodes for task in specs]
    speeds = np.array([_speeds(task, count, most) for task, count in zip(specs, nodes, strict=True)])
    speeds = speeds.reshape(len(specs), len(kinds))
    costs = [task.start_cost_s if settings.start_cost_s is None else settings.start_cost_s for task in specs]
    return TaskGangs(
        specs=specs,
        kinds=kinds,
        submit_s=np.array([task.submit_s for task in specs]),
        nodes=np.array(nodes, dtype=np.intp),
        weight=np.array([task.weight for task in specs]),
        work=np.array([np.inf if task.work_samples is None else task.work_samples for task in specs]),
        start_cost_s=np.array(costs) * settings.cost_factor,
        speeds=speeds,
        fastest=np.argsort(-speeds, axis=1, kind="stable"),
    )


def _gang(task: TaskSpec, chosen: str) -> TaskSpec:
    """Give the task with the one size that it has in rounds."""
    if task.min_nodes == task.max_nodes:
        return task
    if not chosen:
        raise BadInput(
            f"runs on {task.min_nodes} to {task.max_nodes} nodes, and in rounds a task has one size",
            where=f"task '{task.name}'",
            fix=f"--gang {SMALLEST} or --gang {LARGEST} chooses it for all tasks",
        )
    size = task.max_nodes if chosen == LARGEST else task.min_nodes
    return msgspec.structs.replace(task, min_nodes=size, max_nodes=size)


def _speeds(task: TaskSpec, nodes: int, most: dict[str, int]) -> list[float]:
    """Give its speed on each kind, and refuse one that can run nowhere."""
    curves = {kind: task.curve_on(kind) for kind in most}
    speeds = [_speed(curve, nodes) if curve and nodes <= most[kind] else 0.0 for kind, curve in curves.items()]
    if any(speeds):
        return speeds
    there = ", ".join(f"{count} of '{kind}'" if kind else f"{count}" for kind, count in most.items())
    what = f"can never run: it needs {nodes} nodes of one kind on which it has a speed, and there are {there or 'none'}"
    raise BadInput(what, where=f"task '{task.name}'", fix="leave it out, or give more nodes of a kind on which it runs")


def _speed(curve: SpeedCurve, nodes: int) -> float:
    """Give the speed as measured if it was, which is quicker."""
    return curve.rate[curve.nodes.index(nodes)] if nodes in curve.nodes else curve.speed(nodes)
