"""Implements ``bftrain rounds``: from tasks and nodes to a result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Final

from bftrain.errors import BadInput
from bftrain.parts import metrics_of
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec, with_places
from bftrain_datasets.log.edits import chosen_nodes, chosen_window
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.rounds.round_engine import RoundEngine, Watch
from bftrain_replay.rounds.round_inputs import TaskGangs, gangs_of
from bftrain_replay.rounds.round_nodes import NodeSupply, cluster, idle_nodes
from bftrain_replay.rounds.round_policy import ByShares, RoundPolicy, SizingPolicy, find_policy
from bftrain_replay.rounds.round_resources import shares_of, with_shares
from bftrain_replay.rounds.round_result import RoundResult
from bftrain_replay.rounds.round_settings import GAVEL, GAVEL_IDEAL, RoundSettings
from bftrain_replay.simulation.replay_settings import NO

# Settings that only rounds carry out
_NOT_IDEAL: Final = ("admission", "pairs", "phases", "per_host", "cpus", "memory_gb", "placement", "finish", "learning")


def simulate(
    source: Mapping[str, int] | EventLog,
    tasks: Sequence[TaskSpec],
    settings: RoundSettings,
    *,
    watch: Watch | None = None,
) -> RoundResult:
    """Share the time of a cluster (nodes by kind), or of a log's idle nodes, in rounds.

    ``watch`` receives the progress; it stops the run by returning False.
    """
    begun_s = perf_counter()
    supply = _supply(source, settings)
    metrics_of(settings.metrics)  # reports bad names before any work
    policy = find_policy(settings)
    shares = shares_of(settings, supply.kinds)
    placed = with_shares(with_places(tasks, supply.largest_host), shares)
    gangs = gangs_of(placed, supply.most, settings, sizes=isinstance(policy, SizingPolicy))
    _check(gangs, supply, settings, policy)
    if settings.like == GAVEL_IDEAL:
        _check_ideal(gangs, settings, policy)
    if isinstance(policy, ByShares) and settings.overtaking == NO:
        fix = "omit it, or choose a policy that orders tasks"
        raise BadInput("sharing policies have no order for waiting tasks", where="overtaking", fix=fix)
    engine = RoundEngine(gangs, supply, policy, settings, shares)
    engine.run(watch)
    computed, shares_s = (policy.computed, policy.wall_s) if isinstance(policy, ByShares) else (0, 0.0)
    return RoundResult(
        settings=settings,
        specs=tuple(tasks),
        engine=engine,
        nodes=supply.most,
        log_sha256=source.sha256 if isinstance(source, EventLog) else "",
        wall_s=perf_counter() - begun_s,
        shares_computed=computed,
        shares_wall_s=shares_s,
    )


def _supply(source: Mapping[str, int] | EventLog, settings: RoundSettings) -> NodeSupply:
    is_log = isinstance(source, EventLog)
    for name in ("per_host",) if is_log else ("window", "nodes", "racks"):
        if getattr(settings, name):
            fix = "omit it: GPU or rack names already give the hosts" if is_log else "omit it, or give a log"
            raise BadInput(f"has no effect on a {'log' if is_log else 'cluster'}", where=name, fix=fix)
    if isinstance(source, EventLog):
        chosen = chosen_nodes(source, settings.nodes) if settings.nodes else None
        supply = idle_nodes(
            source.select(nodes=chosen, window=chosen_window(source, settings.window or ":")), settings.racks
        )
    else:
        supply = cluster(source, settings.nodes_of_hosts)
    if settings.resources_of_nodes and (supply.host_of is None or settings.racks):
        what = "is shared by the nodes of a host, and which nodes lie on one host is not known"
        whole = "omit it, or give a log of GPUs: tasks on whole nodes never share"
        fix = whole if is_log else "use --set per-host=N, or omit it"
        raise BadInput(what, where=next(iter(settings.resources_of_nodes)), fix=fix)
    if settings.placement != AUTO and supply.host_of is None:
        fix = "give racks by --topology, or omit it" if is_log else "use --set per-host=N, or omit it"
        raise BadInput("has no effect, because the hosts of nodes are unknown", where="placement", fix=fix)
    return supply


def _check_ideal(gangs: TaskGangs, settings: RoundSettings, policy: RoundPolicy) -> None:
    """Raise for policies without shares, and for settings and tasks that ideal shares ignore."""
    if not isinstance(policy, ByShares):
        fix = "choose a sharing policy such as max-min, or like gavel"
        raise BadInput("needs a policy with shares, and this policy has none", where="like", fix=fix)
    usual = RoundSettings()
    for name in _NOT_IDEAL:
        if getattr(settings, name) != getattr(usual, name):
            raise BadInput(f"has no effect with like {GAVEL_IDEAL}", where=name, fix=f"omit it, or use {GAVEL}")
    if gangs.start_cost_s.any():
        fix = f"set it to 0, or choose like {GAVEL}"
        raise BadInput(f"with like {GAVEL_IDEAL} tasks start at no cost", where="start_cost_s", fix=fix)


def _check(gangs: TaskGangs, supply: NodeSupply, settings: RoundSettings, policy: RoundPolicy) -> None:
    """Raise for runs that would never end, tasks that the policy cannot serve, and means over missing tasks."""
    endless = [spec.name for spec, work in zip(gangs.specs, gangs.work.tolist(), strict=True) if work == math.inf]
    if endless and getattr(policy, "needs_work", False):
        what = f"has no amount of work, which policy '{policy.name}' requires"
        fix = "give it work_samples, or choose a policy that needs none"
        raise BadInput(what, where=f"task '{endless[0]}'", fix=fix)
    if endless and supply.end_s == math.inf and settings.until_s is None:
        what = "has endless work, and a cluster has no end time"
        raise BadInput(what, where=f"task '{endless[0]}'", fix="set --until, or give it work_samples")
    settings.check_measured(len(gangs))
