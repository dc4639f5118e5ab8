"""Evaluation: the result of a run, from its ledger, its tasks and its decisions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bftrain_replay.metrics.fair_time import IdlePools, alone_s, shortest_s
from bftrain_replay.metrics.kind_figures import kind_figures
from bftrain_replay.results.replayed_task import TaskRecord, TaskState
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.simulation.task_progress import SampleLoss, TaskProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bftrain.config import Settings
    from bftrain.values.task import TaskSpec
    from bftrain_replay.simulation.engine import EngineRun


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
    if not isinstance(task, TaskProgress):
        return TaskRecord(state=TaskState.NOT_ARRIVED, **_known_before(task, largest))
    return TaskRecord(
        state=_state(task),
        first_start_s=task.first_start_s,
        finish_s=task.finish_s,
        starts=task.starts,
        rescales=task.rescales,
        preemptions=task.preemptions,
        waits=task.waits,
        waited_s=task.waited_s,
        node_s=task.node_s,
        done_samples=task.done_samples,
        lost_preemption_samples=task.lost_samples[SampleLoss.PREEMPTION],
        lost_rescaling_samples=task.lost_samples[SampleLoss.RESCALING],
        lost_start_up_samples=task.lost_samples[SampleLoss.START_UP],
        lost_unnoticed_samples=task.lost_samples[SampleLoss.UNNOTICED],
        owed_samples=task.owed_samples,
        alone_s=alone.get(task.spec.name),
        **_known_before(task.spec, largest),
    )


def _known_before(spec: TaskSpec, largest: Mapping[str, int]) -> dict[str, Any]:
    """Return what was known of a task before it ran."""
    return {
        "name": spec.name,
        "submit_s": spec.submit_s,
        "work_samples": spec.work_samples,
        "user": spec.user,
        "campaign": spec.campaign,
        "deadline_s": spec.deadline_s,
        "shortest_s": shortest_s(spec, largest),
    }


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
