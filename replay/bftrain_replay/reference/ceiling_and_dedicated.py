"""Yardsticks: the same log without costs (the ceiling), and the same node-time as a dedicated pool."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from bftrain_datasets.log.eventlog import IDLE, EventLog
from bftrain_datasets.log.measures import idle_node_s_by_kind
from bftrain_datasets.log.provenance import LogProvenance
from bftrain_replay.simulation.progress_assumptions import TASK
from bftrain_replay.simulation.replay_settings import PUBLISHED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bftrain.ports import Objective
    from bftrain.values.task import TaskSpec
    from bftrain_replay.simulation.replay_settings import ReplaySettings

EXACT: Final = "exact"  # the solver that needs no other package, and proves what it finds


def without_costs(tasks: Iterable[TaskSpec]) -> tuple[TaskSpec, ...]:
    """Give the same tasks as if rescaling, starting and preemption took no time."""
    return tuple(replace(spec, grow_cost_s=0.0, shrink_cost_s=0.0, start_cost_s=0.0) for spec in tasks)


def ideally(settings: ReplaySettings, objective: Objective) -> ReplaySettings:
    """Give the same settings as if decisions took no time and preemption no work, and were the best ones.

    So replays with different solvers have the same yardsticks, and a poor solver is not held against a poor one. Only
    for an objective that ties tasks together the solver stays, which is one that knows how to.
    """
    solver = settings.solver if hasattr(objective, "couple") else EXACT
    return replace(
        settings,
        solver=solver,
        solver_gap=0.0,
        decision_latency_s=0.0,
        min_interval_s=0.0,
        progress=None if settings.semantics == PUBLISHED else TASK,
        metrics="",
    )


def dedicated_nodes(log: EventLog) -> int:
    """How many nodes held all the time make up the log's idle node-time, to the nearest whole node."""
    return round(log.idle_node_s / log.span_s) if log.span_s > 0 else 0


def dedicated_by_kind(log: EventLog) -> dict[str, int]:
    """Divide these nodes over the kinds by the idle node-time of each, the largest remainders rounded up."""
    count = dedicated_nodes(log)
    idle_s = idle_node_s_by_kind(log)
    whole_s = math.fsum(idle_s.values())
    parts = {kind: count * seconds / whole_s if whole_s else 0.0 for kind, seconds in idle_s.items()}
    found = {kind: math.floor(part) for kind, part in parts.items()}
    left = count - sum(found.values()) if whole_s else 0
    for kind in sorted(parts, key=lambda kind: found[kind] - parts[kind])[:left]:  # stable: of equals the first kind
        found[kind] += 1
    return found


def dedicated_log(log: EventLog) -> EventLog | None:
    """Give a log of the same span in which that many nodes are idle throughout; ``None`` if that is no node."""
    count = dedicated_nodes(log)
    if count == 0:
        return None
    by_kind = dedicated_by_kind(log)
    return EventLog(
        node_names=tuple(f"dedicated-{number}" for number in range(count)),
        times=np.zeros(1),
        offsets=np.array([0, count], dtype=np.int64),
        nodes=np.arange(count, dtype=np.int32),
        states=np.full(count, IDLE, dtype=np.int8),
        end_s=log.span_s,
        kind_names=tuple(by_kind),
        node_kinds=np.repeat(np.arange(len(by_kind)), list(by_kind.values())),
        provenance=LogProvenance(made_by="dedicated pool"),
    )
