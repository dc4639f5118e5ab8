"""Evaluation: the result of a run, from its ledger, its tasks and its decisions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import fields

from bftrain_replay.metrics.fair_time import IdlePools, alone_s, shortest_s
from bftrain_replay.metrics.kind_figures import kind_figures
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.simulation.task_progress import SampleLoss, TaskProgress
from bftrain_replay.tables.replayed_task import TaskRecord, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_replay.simulation.engine import EngineRun

_COPIED: Final = tuple(field.name for field in fields(TaskRecord))


def result_of(run: EngineRun, settings: Settings) -> ReplayResult:
    """Return the result of a run."""
    ledger = run.ledger
    arrived = [task for task in run.tasks if isinstance(task, TaskProgress)]
    pools = IdlePools.of_one_kind(ledger.times_s, ledger.pool, ledger.end_s)
    if run.pools is not None:
        pools = IdlePools(ledger.times_s, run.pools, ledger.end_s)
    sharing = [task.spec for task in arrived if not task.dropped]  # those given up say nothing about the others
    alone = dict(zip((spec.name for spec in sharing), alone_s(sharing, pools), strict=True))
    largest = pools.largest
    return ReplayResult(
        settings=settings,
        complete=run.complete,
        simulated_s=ledger.end_s,
        ended=run.ended,
        wall_s=run.wall_s,
        tasks=tuple(_record(task, largest, alone) for task in run.tasks),
        decisions=run.decisions,
        allocations=run.allocations,
        times_s=ledger.times_s,
        pool=ledger.pool,
        used=ledger.used,
        harvest=run.harvest,
        idle_node_s=ledger.idle_node_s,
        used_node_s=ledger.used_node_s,
        unused_node_s=ledger.unused_node_s,
        lost_samples=_by_loss([task.lost_samples for task in arrived]),
        lost_node_s=_by_loss([task.lost_node_s for task in arrived]),
        kinds=kind_figures(pools, _held_by_kind(arrived)),
    )


def _record(task: TaskProgress | TaskSpec, largest: Mapping[str, int], alone: Mapping[str, float | None]) -> TaskRecord:
    """Book a task: every field of the record that its spec or its progress has too is copied from there."""
    if not isinstance(task, TaskProgress):
        return TaskRecord(state=TaskState.NOT_ARRIVED, shortest_s=shortest_s(task, largest), **_shared(task))
    lost: dict[str, Any] = {f"lost_{loss.name.lower()}_samples": samples for loss, samples in task.lost_samples.items()}
    return TaskRecord(
        state=_state(task),
        alone_s=alone.get(task.spec.name),
        shortest_s=shortest_s(task.spec, largest),
        **lost,
        **(_shared(task) | _shared(task.spec)),
    )


def _shared(source: TaskProgress | TaskSpec) -> dict[str, Any]:
    return {name: getattr(source, name) for name in _COPIED if hasattr(source, name)}


def _state(task: TaskProgress) -> TaskState:
    if task.finish_s is not None:
        return TaskState.FINISHED
    if task.dropped:
        return TaskState.DROPPED
    return TaskState.RUNNING if task.size else TaskState.WAITING


def _held_by_kind(tasks: Iterable[TaskProgress]) -> dict[str, float]:
    parts: dict[str, list[float]] = {}
    for task in tasks:
        for kind, seconds in task.node_s_by_kind.items():
            parts.setdefault(kind, []).append(seconds)
    return {kind: math.fsum(each) for kind, each in parts.items()}


def _by_loss(parts: Iterable[Mapping[SampleLoss, float]]) -> dict[SampleLoss, float]:
    parts = list(parts)
    return {loss: math.fsum(part[loss] for part in parts) for loss in SampleLoss}
