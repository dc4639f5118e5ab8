"""Runs one pass of a sweep in this process. Failures are also outcomes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from bftrain.errors import BadInput, BftrainError, BrokenPlugin, NotAvailable
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubts_of
from bftrain_replay import plugin_files
from bftrain_replay.rounds.round_engine import OVERLOAD, STALLED
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.rounds.simulation import simulate
from bftrain_replay.run.decider_counts import CEILING
from bftrain_replay.run.harvest_by_block import HarvestCurve
from bftrain_replay.run.input_warnings import odd_decisions, odd_inputs
from bftrain_replay.run.provenance import tasks_sha256, versions_with
from bftrain_replay.simulation.fixed_cluster import WORDS, EndReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import StudyPasses, check_parts
from bftrain_replay.sweeping.sweep_inputs import SweepCluster, Tasks, log_of, tasks_of
from bftrain_replay.sweeping.sweep_runs import (
    InRounds,
    PassOutcome,
    PassStatus,
    RunKind,
    SweepPass,
    solver_of,
    versions_here,
)

# Called with the finished fraction of a pass; False stops it
Watch = Callable[[float], bool]

_CEILING_SHARE: Final = 0.9  # ceiling's fraction of the reference time: the dedicated pool has few events
_CUT_SHORT: Final = {
    OVERLOAD: "the queue grows without bound: more work comes than the cluster can do under any policy",
    EndReason.STANDSTILL: WORDS[EndReason.STANDSTILL],
    STALLED: "tasks wait, none runs, and nothing will change that",
}
_NOT_DONE: Final = (
    "some tasks were not done in the end: completion times, slowdown and rho are of the others only, and may be too low"
)


class WorkerActivity(NamedTuple):
    """A worker's state: its current pass (``None`` while it waits or after it exits), and the progress."""

    worker: str
    job: SweepPass | None
    share: float = 0.0


Tell = Callable[[WorkerActivity], None]
Stopping = Callable[[], bool]


class PassExecutor(Protocol):
    """A way to run passes."""

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes, report progress, and yield each outcome when ready; stop early once ``stopping()``.

        Busy workers are stopped then. If a worker dies, its present pass fails.
        """


class PassStopped(Exception):
    """The pass is no longer wanted."""


def work(job: SweepPass, watch: Watch, log: EventLog | None = None, tasks: Tasks | None = None) -> PassOutcome:
    """Run a pass with these inputs, or those of its sources; its outcome contains any error except an interruption."""
    begun = perf_counter()

    def go_on(share: float) -> bool:
        if not watch(min(share, 1.0)):
            raise PassStopped
        return True

    try:
        log = log_of(job.log, job.seed) if log is None else log
        tasks = tasks_of(job.tasks, job.seed) if tasks is None else tasks
        return _worked(job, log, tasks, go_on, begun)
    except PassStopped:
        raise
    except BftrainError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a solver or an objective may raise anything
        (place,) = traceback.extract_tb(error.__traceback__)[-1:]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    # Plugins use the name in the sweep file: the error text is then the same on every machine
    own = "policy" if job.kind is RunKind.ROUNDS else "objective"
    reason = reason.replace(getattr(job.how, own), str(job.made_from.settings[own]))
    for _, path in plugin_files.tables(job.how):
        reason = reason.replace(str(path), path.name)
    return failed(job, reason, perf_counter() - begun)


def failed(job: SweepPass, reason: str, wall_s: float = 0.0) -> PassOutcome:
    """Return the outcome of a pass that failed."""
    return PassOutcome(id=job.id, status=PassStatus.FAILED, reason=reason, wall_s=wall_s, made_from=job.made_from)


def _done(job: SweepPass, wall_s: float, warnings: tuple[str, ...], **found: Any) -> PassOutcome:  # noqa: ANN401 - its fields
    return PassOutcome(
        id=job.id, status=PassStatus.DONE, warnings=warnings, wall_s=wall_s, made_from=job.made_from, **found
    )


def _worked(job: SweepPass, log: EventLog, tasks: Tasks, go_on: Watch, begun: float) -> PassOutcome:
    _check_same(job, log, tasks)
    settings = job.how
    if isinstance(settings, RoundSettings):
        return _in_rounds(job, settings, log, tasks, go_on)
    if isinstance(job.log, SweepCluster):
        return _on_cluster(job, job.log, settings, tasks, go_on, begun)

    def going(name: str, simulated_s: float, _decisions: int) -> bool:
        share = simulated_s / span_s
        if job.kind is RunKind.YARDSTICKS:
            share = _CEILING_SHARE * share if name == CEILING else _CEILING_SHARE + (1.0 - _CEILING_SHARE) * share
        return go_on(share)

    passes = StudyPasses(log, tasks, check_parts(settings), going)
    span_s = passes.part.span_s or 1.0
    if job.kind is RunKind.YARDSTICKS:
        ceiling, dedicated = passes.ceiling(), passes.dedicated()
        odd = tuple(odd_decisions({passes.ceiling_words: ceiling}))
        return _done(job, perf_counter() - begun, odd, yardsticks=passes.yardsticks(ceiling, dedicated))
    doubts = doubts_of(passes.part)
    found = _replayed(job, passes, settings, lambda _: passes.part, begun)
    warnings = (*found.warnings, *doubts.caveats)
    return replace(found, doubtful_share=doubts.share, log_source=doubts.source, unit=doubts.unit, warnings=warnings)


def _on_cluster(
    job: SweepPass, nodes: SweepCluster, settings: ReplaySettings, tasks: Tasks, go_on: Watch, begun: float
) -> PassOutcome:
    cluster = nodes.cluster
    cluster.check(tasks)
    span_s = _expected_s(tasks, nodes.until_s)

    def going(_name: str, simulated_s: float, _decisions: int) -> bool:
        return go_on(simulated_s / span_s)

    passes = StudyPasses(cluster.log(), tasks, check_parts(settings), going, fixed=True)
    return _replayed(job, passes, settings, cluster.log, begun)


def _replayed(
    job: SweepPass, passes: StudyPasses, settings: ReplaySettings, part: Callable[[float], EventLog], begun: float
) -> PassOutcome:
    """Replay; ``part`` returns the replayed log for a given duration."""
    result = passes.replay()
    assert result is not None  # noqa: S101 - for the type checker: only a pass that was stopped is none
    _refuse_broken(result.broken_metrics)
    ended = "" if result.ended is None else str(result.ended)
    figures = result.summary()
    left = figures.tasks - figures.tasks_finished if ended else 0  # unfinished tasks are normal on a log
    odd = odd_inputs(part(result.simulated_s), passes.tasks, settings.racks)
    of_decisions = odd_decisions({settings.solver: result})
    warnings = (*odd, *of_decisions, *_partial(ended, left), *_at_point(job, result.metric_notes))
    harvest = HarvestCurve(result).harvest_node_h(np.array(job.edges_s)).tolist() if job.edges_s else ()
    found = {"figures": figures, "timings": result.timings(), "ended": ended, "harvest_node_h": tuple(harvest)}
    return _done(job, perf_counter() - begun, warnings, **found)


def _in_rounds(job: SweepPass, settings: RoundSettings, log: EventLog, tasks: Tasks, go_on: Watch) -> PassOutcome:
    cluster = job.log.cluster.nodes if isinstance(job.log, SweepCluster) else None
    span_s = settings.until_s or (log.span_s or 1.0 if cluster is None else _expected_s(tasks, None))
    source = log if cluster is None else cluster
    done = simulate(source, tasks, settings, watch=lambda simulated_s, _: go_on(simulated_s / span_s))
    _refuse_broken(done.broken_metrics)
    left = done.summary.measured - done.summary.measured_finished
    warnings = (*done.remarks, *_partial(done.ended, left), *_at_point(job, done.metric_notes))
    rounds = InRounds(
        figures=done.summary, tasks=done.task_figures, wall_s=done.wall_s, shares_wall_s=done.shares_wall_s
    )
    return _done(job, done.wall_s, warnings, rounds=rounds)


def _refuse_broken(metrics: Sequence[BrokenPlugin]) -> None:
    """Fail a pass with a broken metric; ``--retry-failed`` then measures it again."""
    for error in metrics:
        raise error


def _at_point(job: SweepPass, notes: Iterable[str]) -> Iterator[str]:
    """Add a pass's point to notes on its own numbers."""
    return (f"{note} (at {job.words})" for note in notes)


def _expected_s(tasks: Sequence[TaskSpec], until_s: float | None) -> float:
    """Return the expected simulated time: on a cluster at least until the last arrival."""
    return until_s or max((task.submit_s for task in tasks), default=0.0) or 1.0


def _partial(ended: str, left: int) -> tuple[str, ...]:
    """Return a remark on partial figures, if the run stopped early or with ``left`` tasks unfinished."""
    if ended in _CUT_SHORT:
        return (f"ended early: {_CUT_SHORT[ended]}",)
    return (_NOT_DONE,) if left else ()


def _check_same(job: SweepPass, log: EventLog, tasks: Tasks) -> None:
    made_from = job.made_from
    if log.sha256 != job.log_sha256:
        raise BadInput("has changed since the sweep started", where=f"log of {job.words}")
    if tasks_sha256(tasks) != job.tasks_sha256:
        raise BadInput("have changed since the sweep started", where=f"tasks of {job.words}")
    _check_files(job)
    solver = solver_of(job.how)
    here = versions_with(solver) if solver else versions_here(solver)
    for name, version in made_from.versions.items():
        if version and here[name] != version:
            raise NotAvailable(
                f"this worker has {name} {here[name]}, but the sweep started with {version}",
                fix="install the same versions everywhere: figures may depend on them",
            )


def _check_files(job: SweepPass) -> None:
    made_from = job.made_from
    if made_from.objective_file:
        files = list(plugin_files.files(job.how))
        for file in files:
            if not file.is_file():
                fix = "put it where every worker sees it under the same name"
                raise NotAvailable("is not on this machine", where=str(file), fix=fix)
        if plugin_files.sha256(job.how) != made_from.objective_file:
            raise BadInput("has changed since the sweep started", where=", ".join(map(str, files)))
    for name, sha256 in plugin_files.tables_sha256(job.how).items():
        if sha256 != made_from.settings[name]:
            raise BadInput("has changed since the sweep started", where=getattr(job.how, name))
