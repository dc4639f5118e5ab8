"""References: the same log without costs (the ceiling), and the same node-time as a dedicated pool."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from bftrain.ports import Objective
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import idle_node_s_by_kind
from bftrain_datasets.log.provenance import LogProvenance
from bftrain_replay.simulation.fixed_cluster import idle_log
from bftrain_replay.simulation.progress_kept import TASK
from bftrain_replay.simulation.replay_settings import NO, PUBLISHED, ReplaySettings

EXACT: Final = "exact"  # exact solver without dependencies on other packages


def without_costs(tasks: Iterable[TaskSpec]) -> tuple[TaskSpec, ...]:
    """Return the same tasks with free rescaling, starts and preemptions."""
    return tuple(replace(spec, grow_cost_s=0.0, shrink_cost_s=0.0, start_cost_s=0.0) for spec in tasks)


def ideally(settings: ReplaySettings, objective: Objective) -> ReplaySettings:
    """Return the same settings with instant and optimal decisions and without losses.

    Replays with different solvers therefore share the same references. Only a coupled objective keeps its solver,
    because that solver supports it. With free rescaling, the horizon only scales the values of an objective that
    sees one task at a time, and changes no decision: replays with different horizons then also share their references.
    """
    solver = settings.solver if hasattr(objective, "couple") else EXACT
    plain = not hasattr(objective, "recast") and not hasattr(objective, "couple")
    return replace(
        settings,
        solver=solver,
        solver_gap=0.0,
        horizon_s=AUTO if plain else settings.horizon_s,
        turn_s=0.0,
        decision_latency_s=0.0,
        min_interval_s=0.0,
        progress=None if settings.semantics == PUBLISHED else TASK,
        speed_error=0.0,
        profiled=0.0,
        learning=NO,
        metrics="",
    )


def dedicated_nodes(log: EventLog) -> int:
    """Return the number of permanent nodes with the log's idle node-time, to the nearest whole node."""
    return round(log.idle_node_s / log.span_s) if log.span_s > 0 else 0


def dedicated_by_kind(log: EventLog) -> dict[str, int]:
    """Divide these nodes over the kinds by their idle node-time, with the largest remainders rounded up."""
    count = dedicated_nodes(log)
    idle_s = idle_node_s_by_kind(log)
    whole_s = math.fsum(idle_s.values())
    parts = {kind: count * seconds / whole_s if whole_s else 0.0 for kind, seconds in idle_s.items()}
    found = {kind: math.floor(part) for kind, part in parts.items()}
    left = count - sum(found.values()) if whole_s else 0
    for kind in sorted(parts, key=lambda kind: found[kind] - parts[kind])[:left]:  # stable: ties go to the first kind
        found[kind] += 1
    return found


def dedicated_log(log: EventLog) -> EventLog | None:
    """Return a log of the same span with that many nodes always idle; ``None`` if the number is 0."""
    count = dedicated_nodes(log)
    if count == 0:
        return None
    names = tuple(f"dedicated-{number}" for number in range(count))
    return idle_log(names, dedicated_by_kind(log), log.span_s, LogProvenance(made_by="dedicated pool"))
