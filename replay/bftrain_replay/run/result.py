"""Result of a replay: figures, one record for each task, decisions, and idle and used nodes over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain.config import Settings
from bftrain.errors import BadInput, UsageError
from bftrain.parts import MeasuredFigures
from bftrain.short_repr import ShortRepr
from bftrain.values.curve import ANY_KIND
from bftrain.values.task import TaskSpec
from bftrain_replay.run import decider_counts, tables
from bftrain_replay.run.fair_time import IdlePools, alone_s, shortest_s
from bftrain_replay.run.tables import SECONDS_AN_HOUR, TaskRecord, TaskState
from bftrain_replay.run.task_figures import (
    KindFigures,
    TaskColumns,
    TaskFigures,
    cost_of,
    kind_figures,
    share_of,
    task_figures,
)
from bftrain_replay.simulation.engine import EngineRun
from bftrain_replay.simulation.fixed_cluster import EndReason
from bftrain_replay.simulation.node_time_ledger import HarvestOverTime, Ledger, UnusedReason
from bftrain_replay.simulation.run_records import AllocationRecorder, DecisionColumns, TimeSpread, spread_ms
from bftrain_replay.simulation.task_progress import USUAL_LOSSES, LossTimes, SampleLoss, TaskProgress

if TYPE_CHECKING:
    from pandas import DataFrame


Floats = NDArray[np.float64]


class LostWork(msgspec.Struct, frozen=True, kw_only=True):
    """The loss by one cause: samples, and the node-hours needed to do them."""

    samples: float
    node_h: float


class _RunFigures(TaskFigures, frozen=True):
    # Not keyword-only: msgspec then puts these fields before those of TaskFigures and ReplaySummary
    complete: bool
    solver: str
    objective: str
    decisions: int
    simulated_s: float
    idle_node_h: float
    used_node_h: float
    unused_node_h: dict[str, float]
    coverage: float | None
    harvested: float
    owed_samples: float
    efficiency: float | None
    ceiling_efficiency: float | None
    dedicated_nodes: int | None
    dedicated_samples: float | None
    ceiling_samples: float | None
    lost: dict[str, LostWork]
    starts: int
    rescales: int
    preemptions: int
    tasks: int
    tasks_finished: int
    makespan_s: float | None
    fallbacks: int
    notes: int


class ReplaySummary(_RunFigures, frozen=True, kw_only=True):
    """The figures of one replay, including its tasks; ``harvested`` counts samples. Unknown figures are ``None``.

    New figures here appear in ``summary.json``, in comparisons and in sweep tables.
    """

    kinds: dict[str, KindFigures]
    cost: float | None
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)
    infeasible_decisions: int = 0
    fallback_causes: dict[str, int] = msgspec.field(default_factory=dict)
    decided_by: dict[str, int] = msgspec.field(default_factory=dict)
    wasted_starts: int = 0
    bound_samples: float | None = None
    one_each_samples: float | None = None


class MeasuredTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Times measured with a real clock, which differ from run to run."""

    wall_s: float
    decisions_per_s: float
    solve_ms: TimeSpread
    decide_ms: TimeSpread


# Figures that depend on inputs alone: result checksums exclude them
BOUND_FIGURES: Final = ("bound_samples", "one_each_samples")
_NO_REFERENCES: Final[dict[str, Any]] = dict.fromkeys(
    ("efficiency", "ceiling_efficiency", "dedicated_nodes", "dedicated_samples", "ceiling_samples")
)
_SUMS: Final = ("starts", "rescales", "preemptions", "wasted_starts")


class ReferenceFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The references of a harvest: a dedicated pool without costs, the same log without costs, and the proven bound."""

    dedicated_nodes: int
    dedicated_samples: float
    ceiling_samples: float
    bound_samples: float | None = None  # no schedule harvests more
    one_each_samples: float | None = None  # harvest of identical tasks, one on each idle node


class ReplayResult(ShortRepr, msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One replay. ``times_s``, ``pool`` and ``used`` are step curves: each value lasts until the next time."""

    settings: Settings
    simulated_s: float
    tasks: tuple[TaskRecord, ...]
    complete: bool
    wall_s: float
    decisions: DecisionColumns
    allocations: AllocationRecorder | None = None  # recorded for the requested replay only
    harvest: HarvestOverTime
    ledger: Ledger
    idle_node_s: float
    used_node_s: float
    unused_node_s: Mapping[UnusedReason, float]
    losses: LossTimes
    lost_samples: Mapping[SampleLoss, float]
    lost_node_s: Mapping[SampleLoss, float]
    kinds: Mapping[str, KindFigures] = msgspec.field(default_factory=dict)  # an empty name if nodes have no kinds
    yardsticks: ReferenceFigures | None = None
    warnings: tuple[str, ...] = ()
    own_metrics: MeasuredFigures = MeasuredFigures({})  # metrics requested in the settings
    ended: EndReason | None = None  # stop reason on a cluster; ``None`` on a log

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        return f"replay by {self.column_label}{'' if self.complete else ', a part'}", {
            "objective": self.settings.objective,
            "simulated": text_formats.duration(self.simulated_s),
            "idle node-hours": text_formats.count(self.idle_node_s / SECONDS_AN_HOUR),
            "used": text_formats.percent(self.coverage),
            "harvested samples": text_formats.large(self.harvested_samples),
            "decisions": f"{len(self.decisions):,}",
            "tasks finished": f"{self.tasks_finished:,} of {len(self.tasks):,}",
        }

    @property
    def times_s(self) -> NDArray[np.float64]:
        """The times at which idle or used nodes change."""
        return self.ledger.times_s

    @property
    def pool(self) -> NDArray[np.int64]:
        """Idle nodes from each time on."""
        return self.ledger.pool

    @property
    def used(self) -> NDArray[np.int64]:
        """Allocated nodes from each time on."""
        return self.ledger.used

    @property
    def unused(self) -> Mapping[UnusedReason, NDArray[np.int64]]:
        """Unused idle nodes from each time on, by reason."""
        return self.ledger.unused

    @property
    def harvested_samples(self) -> float:
        """Work done on idle nodes, samples."""
        return math.fsum(task.done_samples for task in self.tasks)

    @property
    def efficiency(self) -> float | None:
        """Harvest divided by the harvest of a dedicated pool with the same node-time."""
        return share_of(self.harvested_samples, self.yardsticks.dedicated_samples if self.yardsticks else None)

    @property
    def coverage(self) -> float | None:
        """Allocated share of the idle node-time."""
        return share_of(self.used_node_s, self.idle_node_s)

    @property
    def tasks_finished(self) -> int:
        """The number of finished tasks."""
        return sum(task.state is TaskState.FINISHED for task in self.tasks)

    @cached_property
    def columns(self) -> TaskColumns:
        """The table of tasks as arrays."""
        return TaskColumns.from_rows(
            {name: getattr(task, name) for name in TaskColumns.__struct_fields__} for task in self.tasks
        )

    @cached_property
    def task_figures(self) -> TaskFigures:
        """Completion times, fairness and deadlines of tasks."""
        return task_figures(self.columns, self.simulated_s)

    @property
    def column_label(self) -> str:
        """Column name: the solver, and its fallbacks if any."""
        return decider_counts.column_label(self.settings.solver, len(self.decisions), self.decisions.decided_by)

    def table_rows(self, name: str) -> Iterator[tuple[object, ...]]:
        """Return the rows of a table other than allocations, in its columns of ``TABLES``."""
        if name == "decisions":
            return self.decisions.rows()
        if name == "tasks":
            names = [column.name for column in tables.TASKS]
            return (tuple(getattr(record, name) for name in names) for record in self.tasks)
        return self.over_time_rows()

    def over_time_rows(self) -> Iterator[tuple[object, ...]]:
        """Return one row per interval: mean idle and used nodes, and all samples done by its end."""
        edges_s = np.concatenate(([0.0], self.harvest.ends_s))
        spans_s = np.diff(edges_s)
        node_s = (np.diff(integral_at(self.times_s, each, edges_s[-1], edges_s)) for each in (self.pool, self.used))
        idle, used = (np.divide(each, spans_s, out=np.zeros_like(spans_s), where=spans_s > 0.0) for each in node_s)
        columns = (edges_s[:-1], edges_s[1:], idle, used, self.harvest.samples)
        return zip(*(column.tolist() for column in columns), strict=True)

    def table(self, name: str) -> DataFrame:
        """Return a table as a DataFrame (docs/reference/results.md explains its columns)."""
        if name not in tables.TABLES:
            fix = f"there are {', '.join(tables.TABLES)}"
            raise UsageError(f"a replay has no table '{name}'", where="table", fix=fix)
        if name != tables.ALLOCATIONS:
            return tables.frame(tables.TABLES[name], self.table_rows(name))
        if self.allocations is None:
            fix = "ask the replay itself, not its reference runs"
            raise BadInput("allocations were not recorded", where="replay", fix=fix)
        return tables.allocations_frame(self.allocations.rows().table())

    def summary(self) -> ReplaySummary:
        """Return the figures that depend on the inputs alone."""
        figures = ReplaySummary(
            complete=self.complete,
            solver=self.settings.solver,
            objective=self.settings.objective,
            decisions=len(self.decisions),
            simulated_s=self.simulated_s,
            idle_node_h=self.idle_node_s / SECONDS_AN_HOUR,
            used_node_h=self.used_node_s / SECONDS_AN_HOUR,
            unused_node_h={str(why): seconds / SECONDS_AN_HOUR for why, seconds in self.unused_node_s.items()},
            coverage=self.coverage,
            harvested=self.harvested_samples,
            owed_samples=math.fsum(task.owed_samples for task in self.tasks),
            **_NO_REFERENCES,
            lost={
                str(loss): LostWork(samples=samples, node_h=self.lost_node_s[loss] / SECONDS_AN_HOUR)
                for loss, samples in self.lost_samples.items()
            },
            **{name: sum(getattr(task, name) for task in self.tasks) for name in _SUMS},
            tasks=len(self.tasks),
            tasks_finished=self.tasks_finished,
            makespan_s=self.columns.makespan_s,
            fallbacks=len(self.decisions.fallbacks),
            infeasible_decisions=self.decisions.infeasible,
            fallback_causes=dict(sorted(self.decisions.fallback_causes.items())),
            decided_by=dict(sorted(self.decisions.decided_by.items())),
            notes=self.decisions.notes_counted,
            metrics=dict(self.own_metrics.numbers),
            kinds=dict(self.kinds),
            cost=cost_of(self.kinds, self.settings.prices),
            **msgspec.structs.asdict(self.task_figures),
        )
        return with_references(figures, self.yardsticks) if self.yardsticks else figures

    def timings(self) -> MeasuredTimings:
        """Return the figures that also depend on the machine."""
        return MeasuredTimings(
            wall_s=self.wall_s,
            decisions_per_s=len(self.decisions) / self.wall_s if self.wall_s > 0 else 0.0,
            solve_ms=spread_ms(self.decisions.solve_s),
            decide_ms=spread_ms(self.decisions.decide_s),
        )


def with_references(figures: ReplaySummary, yardsticks: ReferenceFigures) -> ReplaySummary:
    """Return the figures with the references, and U of the replay and of the ceiling."""
    dedicated = yardsticks.dedicated_samples
    return msgspec.structs.replace(
        figures,
        efficiency=share_of(figures.harvested, dedicated),
        ceiling_efficiency=share_of(yardsticks.ceiling_samples, dedicated),
        **msgspec.structs.asdict(yardsticks),
    )


def integral_at(times_s: Floats, values: NDArray[np.generic], end_s: float, at_s: Floats) -> Floats:
    """Return the integral of a step curve from its start to each time.

    >>> integral_at(np.array([0.0, 10.0]), np.array([2, 4]), 20.0, np.array([5.0, 15.0])).tolist()
    [10.0, 40.0]
    """
    bounds = np.append(times_s, end_s)
    whole = np.concatenate(([0.0], np.cumsum(np.asarray(values, dtype=np.float64) * np.diff(bounds))))
    return np.interp(at_s, bounds, whole)


_COPIED: Final = TaskRecord.__struct_fields__


def result_of(run: EngineRun, settings: Settings) -> ReplayResult:
    """Return the result of a run."""
    ledger = run.ledger
    arrived = [task for task in run.tasks if isinstance(task, TaskProgress)]
    pools = IdlePools(ledger.times_s, run.pools or {ANY_KIND: ledger.pool}, ledger.end_s)
    # Dropped tasks take no part in the hypothetical run, where they would stay until their work is done
    sharing = [task.spec for task in arrived if not task.dropped]
    alone = dict(zip((spec.name for spec in sharing), alone_s(sharing, pools), strict=True))
    spread = any(SampleLoss.SPREAD in task.lost_samples for task in arrived)
    lost = tuple(SampleLoss) if spread else USUAL_LOSSES
    by_kind = [task.node_s_by_kind for task in arrived]
    return ReplayResult(
        settings=settings,
        complete=run.complete,
        simulated_s=ledger.end_s,
        ended=run.ended,
        wall_s=run.wall_s,
        tasks=tuple(_record(task, pools.largest, alone) for task in run.tasks),
        decisions=run.decisions,
        allocations=run.allocations,
        ledger=ledger,
        harvest=run.harvest,
        idle_node_s=ledger.idle_node_s,
        used_node_s=ledger.used_node_s,
        unused_node_s=ledger.unused_node_s,
        losses=run.losses,
        lost_samples={loss: math.fsum(task.lost_samples.get(loss, 0.0) for task in arrived) for loss in lost},
        lost_node_s={loss: math.fsum(task.lost_node_s.get(loss, 0.0) for task in arrived) for loss in lost},
        kinds=kind_figures(pools, {kind: math.fsum(held.get(kind, 0.0) for held in by_kind) for kind in pools.counts}),
    )


def _record(task: TaskProgress | TaskSpec, largest: Mapping[str, int], alone: Mapping[str, float | None]) -> TaskRecord:
    """Return a task's record; fields shared with its spec or progress are copied."""
    if not isinstance(task, TaskProgress):
        return TaskRecord(state=TaskState.NOT_ARRIVED, shortest_s=shortest_s(task, largest), **_shared(task))
    state = TaskState.RUNNING if task.size else TaskState.WAITING
    if task.finish_s is not None:
        state = TaskState.FINISHED
    elif task.dropped:
        state = TaskState.DROPPED
    lost: dict[str, Any] = {f"lost_{loss.name.lower()}_samples": task.lost_samples[loss] for loss in USUAL_LOSSES}
    own: dict[str, Any] = {
        "state": state,
        "alone_s": alone.get(task.spec.name),
        "shortest_s": shortest_s(task.spec, largest),
    }
    return TaskRecord(**own, **lost, **(_shared(task) | _shared(task.spec)))


def _shared(source: TaskProgress | TaskSpec) -> dict[str, Any]:
    return {name: getattr(source, name) for name in _COPIED if hasattr(source, name)}
