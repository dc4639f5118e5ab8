"""Checks of a study before any work is done, and its parts found by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace as changed

from bftrain.assembly import build_harvester
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, UsageError
from bftrain.parts import metrics_of, resolve_objective
from bftrain.ports import Objective
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.simulation.fixed_cluster import never_held
from bftrain_replay.simulation.replay_settings import ReplaySettings


class ReplayParts(msgspec.Struct, frozen=True):
    """The settings of a study and the parts that they name.

    ``harvesters`` are those of the replays by the solver and by the baseline, by solver; each is good for one replay.
    """

    settings: ReplaySettings
    baseline: str
    objective: Objective
    harvesters: dict[str, Harvester]


def check_parts(settings: Settings, baseline: str = "", objective: Objective | None = None) -> ReplayParts:
    """Find every part that a study needs; raise if one is missing or wrong."""
    if baseline == settings.solver:
        raise UsageError(f"the baseline '{baseline}' is the solver itself", fix="name another solver")
    objective = objective or resolve_objective(settings.objective)
    settings = ReplaySettings.of(settings)
    metrics_of(settings.metrics)
    solvers = filter(None, (settings.solver, baseline))
    built = {each: build_harvester(changed(settings, solver=each), objective=objective) for each in solvers}
    return ReplayParts(settings, baseline, objective, built)


def check_kinds(log: EventLog, tasks: Sequence[TaskSpec]) -> None:
    """Raise for tasks that no kind of node can ever hold, however many of its nodes were idle at once."""
    unfit = never_held(tasks, Counter(log.kind_of.values())) if log.kind_names else ""
    if unfit:
        fix = "leave them out, or give them a curve for a kind that the log has"
        raise BadInput(f"no kind of node in the log can ever hold {unfit}", where="tasks", fix=fix)


def check_cluster(settings: ReplaySettings) -> None:
    """Raise for settings without a meaning if nodes never leave."""
    usual = ReplaySettings()
    for name in ("semantics", "events", "window", "nodes", "skip_events"):
        if getattr(settings, name) != getattr(usual, name):
            raise UsageError("is for logs: on a cluster nodes never leave", where=name, fix="leave it out")
