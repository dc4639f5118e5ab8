"""Result of a run in rounds: figures, tables, and the run that ``bftrain.rounds`` returns.

docs/how-to/rounds.md explains each figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import summaries, text_formats
from bftrain.parts import MeasuredFigures, measured_if_possible, metrics_of
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.result_tables import ColumnType, TableColumn, rows
from bftrain_replay.drawing.html_page import HtmlPage
from bftrain_replay.rounds.compiled_rounds import RoundStep
from bftrain_replay.rounds.round_engine import ALL_DONE, LOG_END, MEASURED_DONE, UNTIL, RoundEngine
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.run import tables
from bftrain_replay.run.fair_time import IdlePools, alone_s
from bftrain_replay.run.provenance import InputSource, tasks_sha256
from bftrain_replay.run.run import MadeContent, Run, RunKind, RunTable
from bftrain_replay.run.tables import SECONDS_AN_HOUR, TaskRecord, TaskState
from bftrain_replay.run.task_figures import TaskColumns, TaskFigures, TaskPercentiles, share_of, task_figures

if TYPE_CHECKING:
    from pandas import DataFrame


FORMAT: Final = "bftrain rounds 1"
MEASURED: Final = frozenset({"wall_s", "shares_wall_s"})
Table = dict[str, list[Any]]

MOST_REMARKS: Final = 5
STRETCHES: Final = 1000  # rows of the table over time
USER_STRETCHES: Final = 250  # intervals of the users table


class RoundKindSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The peak number and the node-hours of a node kind."""

    nodes: int
    idle_node_h: float
    used_node_h: float
    coverage: float | None


class RoundSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run. Unknown figures are ``None``; ``task_figures`` cover the measured tasks."""

    policy: str
    ended: str
    complete: bool
    simulated_s: float
    rounds: int
    tasks: int
    tasks_finished: int
    running: int
    waiting: int
    not_arrived: int
    measured: int
    measured_finished: int
    responsiveness_s: TaskPercentiles | None
    makespan_s: float | None
    idle_node_h: float
    used_node_h: float
    coverage: float | None
    kinds: dict[str, RoundKindSummary]
    cost: float
    harvested: float
    lost_start_up_samples: float
    lost_spread_samples: float
    starts: int
    moves: int
    preemptions: int
    taken: int
    shares_computed: int
    metrics: dict[str, float | None] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoundResult:
    """A finished run. ``wall_s`` is its wall time; ``shares_wall_s`` is the part spent on computing shares.

    ``specs`` are the original tasks, before their conversion to gangs.
    """

    settings: RoundSettings
    specs: tuple[TaskSpec, ...]
    engine: RoundEngine
    nodes: dict[str, int]
    log_sha256: str = ""  # SHA-256 of the log; empty for a cluster
    wall_s: float
    shares_computed: int = 0
    shares_wall_s: float = 0.0

    @property
    def ended(self) -> str:
        """The reason the run stopped."""
        return self.engine.ended

    @property
    def complete(self) -> bool:
        """Whether the run finished as planned."""
        return self.ended in {ALL_DONE, MEASURED_DONE, UNTIL, LOG_END}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Admission warnings about arrived tasks: the first ones and the number of further ones."""
        remarks = self.engine.remarks
        more = len(remarks) - MOST_REMARKS
        return remarks[:MOST_REMARKS] + ((f"and so for {more:,} more tasks",) if more > 0 else ())

    @cached_property
    def own_metrics(self) -> MeasuredFigures:
        """The requested metrics."""
        return measured_if_possible(metrics_of(self.settings.metrics), self)

    @property
    def simulated_s(self) -> float:
        """The simulated time."""
        return self.engine.now_s

    @property
    def times_s(self) -> NDArray[np.float64]:
        """Times at which the number of nodes or used nodes may change; each interval lasts until the next time."""
        return self._steps("from_s")

    @property
    def pool(self) -> NDArray[np.float64]:
        """The nodes at the start of the rounds."""
        return self._steps("pool")

    @property
    def used(self) -> NDArray[np.float64]:
        """The allocated nodes, averaged over identical rounds."""
        return self._steps("used_node_s") / (self._steps("to_s") - self._steps("from_s"))

    def _steps(self, name: str) -> NDArray[np.float64]:
        """Return a column of the table of rounds."""
        return np.array(self.rounds_table[name], dtype=np.float64)

    @cached_property
    def tasks(self) -> tuple[TaskRecord, ...]:
        """The table of tasks as records."""
        known = {*TaskRecord.__struct_fields__} - {"state"}
        records = []
        for row, state in zip(self._task_rows(), self.states, strict=True):
            own = {name: cell for name, cell in row.items() if name in known}
            records.append(TaskRecord(**own, state=state, node_s=row["node_h"] * SECONDS_AN_HOUR))
        return tuple(records)

    def _task_rows(self) -> Iterator[dict[str, Any]]:
        table = self.tasks_table
        return (dict(zip(table, row, strict=True)) for row in rows(table))

    def table(self, name: str) -> DataFrame:
        """Return a table as a DataFrame: tasks, rounds, users, or nodes, used nodes and samples ``over_time``."""
        return run_of(self).table(name)

    @property
    def states(self) -> list[TaskState]:
        """The final state of each task."""
        engine = self.engine
        here = np.where(engine.progress.kind >= 0, TaskState.RUNNING, TaskState.WAITING)
        came = np.arange(here.size) < np.searchsorted(engine.gangs.submit_s, engine.now_s, side="right")
        unfinished = np.where(came, here, TaskState.NOT_ARRIVED)
        states = np.where(np.isnan(engine.end_s), unfinished, TaskState.FINISHED)
        return list(map(TaskState, states.tolist()))

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Mask of the tasks included in means."""
        measured = np.zeros(len(self.engine.gangs), dtype=bool)
        measured[self.engine.measured] = True
        return measured

    @cached_property
    def columns(self) -> TaskColumns:
        """Return the table of tasks as arrays."""
        return TaskColumns.from_rows(self._task_rows())

    @cached_property
    def task_figures(self) -> TaskFigures:
        """Return the figures of the measured tasks: completion, response, rho, deadlines, users."""
        return task_figures(self.columns.chosen(self.measured), self.engine.now_s)

    @cached_property
    def summary(self) -> RoundSummary:
        """Return the figures of the run."""
        engine, states = self.engine, self.states
        idle, used = engine.pool_node_s / SECONDS_AN_HOUR, engine.held_node_s / SECONDS_AN_HOUR
        kinds = {
            kind: RoundKindSummary(
                nodes=self.nodes[kind],
                idle_node_h=float(idle[place]),
                used_node_h=float(used[place]),
                coverage=share_of(used[place], idle[place]),
            )
            for place, kind in enumerate(engine.gangs.kinds)
        }
        return RoundSummary(
            policy=self.settings.policy,
            ended=self.ended,
            complete=self.complete,
            simulated_s=engine.now_s,
            rounds=int(self._steps("rounds").sum()),
            tasks=len(states),
            tasks_finished=states.count(TaskState.FINISHED),
            **{str(each): states.count(each) for each in (TaskState.RUNNING, TaskState.WAITING, TaskState.NOT_ARRIVED)},
            measured=int(self.measured.sum()),
            measured_finished=int((~np.isnan(engine.end_s[self.measured])).sum()),
            responsiveness_s=TaskPercentiles.of((engine.seen_s - self.columns.came_s)[self.measured]),
            makespan_s=self.columns.makespan_s,
            idle_node_h=float(idle.sum()),
            used_node_h=float(used.sum()),
            coverage=share_of(used.sum(), idle.sum()),
            kinds=kinds,
            cost=sum(each.used_node_h * self.settings.prices.get(kind, 1.0) for kind, each in kinds.items()),
            harvested=float(self._steps("samples").sum()),
            lost_start_up_samples=float(engine.start_up_samples.sum()),
            lost_spread_samples=float(engine.spread_samples.sum()),
            **{name: int(getattr(engine, name).sum()) for name in ("starts", "moves", "preemptions", "taken")},
            shares_computed=self.shares_computed,
            metrics=self.own_metrics.numbers,
        )

    @cached_property
    def tasks_table(self) -> Table:
        """Return one row per task, in arrival order: the columns of a replay's tasks, and more."""
        engine, gangs = self.engine, self.engine.gangs
        states = self.states
        arrived = np.array([state is not TaskState.NOT_ARRIVED for state in states], dtype=bool)
        until_s = np.where(np.isnan(engine.end_s), engine.now_s, engine.end_s)
        ran_s = engine.progress.service_s.sum(axis=1)
        waited_s = np.where(arrived, np.maximum(0.0, until_s - np.maximum(gangs.submit_s, 0.0) - ran_s), 0.0)
        at_first = arrived & ~(engine.start_s <= gangs.submit_s)
        alone = iter(
            alone_s([spec for spec, here in zip(gangs.specs, arrived.tolist(), strict=True) if here], self.pools)
        )
        shortest_s = gangs.work / gangs.best
        known = np.isfinite(gangs.work)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean_batch = np.where(engine.batch_s > 0.0, engine.batch_s / ran_s, np.nan)
            mean_goodput = np.where(engine.batch_s > 0.0, engine.done_samples / ran_s, np.nan)
        return {
            "name": [spec.name for spec in gangs.specs],
            "state": [str(state) for state in states],
            "submit_s": gangs.submit_s.tolist(),
            "first_start_s": _cells(engine.start_s),
            "finish_s": _cells(engine.end_s),
            "starts": engine.starts.tolist(),
            "preemptions": engine.preemptions.tolist(),
            "waits": (at_first + engine.preemptions).tolist(),
            "waited_s": waited_s.tolist(),
            "node_h": (engine.progress.node_s / SECONDS_AN_HOUR).tolist(),
            "work_samples": _cells(np.where(known, gangs.work, np.nan)),
            "done_samples": engine.done_samples.tolist(),
            "lost_start_up_samples": engine.start_up_samples.tolist(),
            "lost_spread_samples": engine.spread_samples.tolist(),
            "user": [spec.user for spec in gangs.specs],
            "campaign": [spec.campaign for spec in gangs.specs],
            "deadline_s": [spec.deadline_s for spec in gangs.specs],
            "shortest_s": _cells(np.where(known, shortest_s, np.nan)),
            "alone_s": [next(alone) if here else None for here in arrived.tolist()],
            "mean_batch": _cells(mean_batch),
            "mean_goodput": _cells(mean_goodput),
            **self._resource_columns(ran_s),
            "nodes": gangs.nodes.tolist(),
            "moves": engine.moves.tolist(),
            "taken": engine.taken.tolist(),
            "seen_s": _cells(engine.seen_s),
            "measured": self.measured.tolist(),
            **{
                f"on_{kind or 'node'}_s": engine.progress.service_s[:, place].tolist()
                for place, kind in enumerate(gangs.kinds)
            },
        }

    def _resource_columns(self, ran_s: NDArray[np.float64]) -> Table:
        """Return each task's mean CPU cores and memory per node, where the settings limit them."""
        resources = self.engine.resources
        if resources is None:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(ran_s > 0.0, self.engine.resource_s.T / ran_s, np.nan)
        names = ("mean_cpus", "mean_memory_gb")
        every = zip(names, means, resources.limited, strict=True)
        return {name: _cells(mean) for name, mean, limited in every if limited}

    @property
    def pools(self) -> IdlePools:
        """The number of nodes of each kind over time."""
        engine = self.engine
        times_s = np.array([time_s for time_s, _ in engine.pools])
        counts = np.array([count for _, count in engine.pools]).reshape(times_s.size, len(engine.gangs.kinds))
        by_kind = {kind: counts[:, place] for place, kind in enumerate(engine.gangs.kinds)}
        return IdlePools(times_s, by_kind, engine.now_s)

    @cached_property
    def rounds_table(self) -> Table:
        """Return one row for each interval of identical rounds."""
        steps, names = self.engine.steps, RoundStep._fields
        columns = zip(*steps, strict=True) if steps else ((),) * len(names)
        return dict(zip(names, map(list, columns), strict=True))

    @cached_property
    def over_time_table(self) -> Table:
        """Return one row per interval of equal length: the columns of a replay's table of this name."""
        edges_s = np.concatenate(([0.0], self._steps("to_s")))
        spans_s = np.diff(edges_s)
        cuts_s = np.linspace(0.0, edges_s[-1], STRETCHES + 1)
        sums = [self._steps("pool") * spans_s, self._steps("used_node_s"), self._steps("samples")]
        idle, used, samples = (np.interp(cuts_s, edges_s, np.concatenate(([0.0], np.cumsum(each)))) for each in sums)
        width_s = max(float(cuts_s[1]), 1e-300)
        return {
            "from_s": cuts_s[:-1].tolist(),
            "to_s": cuts_s[1:].tolist(),
            "idle": (np.diff(idle) / width_s).tolist(),
            "used": (np.diff(used) / width_s).tolist(),
            "harvested": samples[1:].tolist(),
        }

    @cached_property
    def users_table(self) -> Table:
        """Return one row per user and interval with allocated nodes, with the number of nodes."""
        users = self.engine.users
        table: Table = {"from_s": [], "to_s": [], "user": [], "nodes": []}
        if not any(users) or not self.engine.steps:
            return table
        edges_s = np.concatenate(([0.0], self._steps("to_s")))
        cuts_s = np.linspace(0.0, edges_s[-1], USER_STRETCHES + 1)
        until = np.cumsum(np.vstack((np.zeros(len(users)), *self.engine.node_s_by_user)), axis=0)
        node_s = np.diff(np.array([np.interp(cuts_s, edges_s, column) for column in until.T]), axis=1)
        for stretch, user in np.argwhere(node_s.T > 0.0).tolist():
            table["from_s"].append(float(cuts_s[stretch]))
            table["to_s"].append(float(cuts_s[stretch + 1]))
            table["user"].append(users[user])
            table["nodes"].append(float(node_s[user, stretch] / (cuts_s[stretch + 1] - cuts_s[stretch])))
        return table


def _cells(values: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]  # noqa: PLR0124 - NaN


def run_of(result: RoundResult, source: InputSource | None = None) -> Run:
    """Return the run of a result."""
    source = source or InputSource()

    def table(name: str) -> RunTable:
        return RunTable.of(getattr(result, f"{name}_table"))

    content = MadeContent(
        made=result,
        summarise=partial(summary, result, source),
        given=result.settings,
        tables={name: partial(table, name) for name in COLUMNS},
        command=source.command("rounds"),
    )
    return Run(kind=ROUNDS, content=content)


def summary(result: RoundResult, source: InputSource) -> dict[str, Any]:
    """Return the content of ``summary.json``: the figures, then inputs and versions.

    The same inputs give the same bytes, except for the times :data:`MEASURED`, which ``figures_sha256`` omits.
    """
    figures: dict[str, Any] = {
        "format": FORMAT,
        **wire.plain(result.summary),
        **wire.plain(result.task_figures),
        "wall_s": result.wall_s,
        "shares_wall_s": result.shares_wall_s,
        "inputs": {
            "cluster": {} if result.log_sha256 else result.nodes,
            "log": {"name": source.log, "sha256": result.log_sha256},
            "tasks": {"name": source.tasks, "sha256": tasks_sha256(result.specs)},
        },
        "settings": wire.plain(result.settings),
        "versions": summaries.versions(),
    }
    return summaries.with_sum(figures, MEASURED)


def _page(run: Run, title: str, _early: object) -> HtmlPage:
    from bftrain_replay.rounds import round_page  # noqa: PLC0415 - what draws takes a while to import

    return round_page.page(run, title)


def _shown(summary: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    took, kinds = summary["completion_s"], summary["kinds"].values()
    return f"run in rounds by {summary['policy']}", {
        "ended": summary["ended"].replace("_", " "),
        "round": text_formats.duration(summary["settings"]["round_s"]),
        "nodes": f"{sum(each['nodes'] for each in kinds):,}",
        "simulated": text_formats.duration(summary["simulated_s"]),
        "tasks finished": f"{summary['tasks_finished']:,} of {summary['tasks']:,}",
        "completion, mean": text_formats.duration(took["mean"] if took else None),
    }


_ROUND_COLUMNS: Final = (TableColumn("moves", ColumnType.WHOLE), TableColumn("measured", ColumnType.TRUTH))
_REPLAY_ONLY_COLUMNS: Final = frozenset({"rescales", "owed_samples", "wasted_starts"})
_TASKS: Final = tuple(
    column for column in tables.TASKS if not column.name.startswith("lost_") and column.name not in _REPLAY_ONLY_COLUMNS
)
_USERS: Final = (
    TableColumn("from_s", ColumnType.NUMBER),
    TableColumn("to_s", ColumnType.NUMBER),
    TableColumn("user", ColumnType.TEXT),
    TableColumn("nodes", ColumnType.NUMBER),
)
COLUMNS: Final[Mapping[str, Sequence[TableColumn]]] = {
    "tasks": (*_TASKS, *_ROUND_COLUMNS),
    "rounds": (),
    "over_time": tables.OVER_TIME,
    "users": _USERS,
}
ROUNDS: Final = RunKind(
    title="run in rounds", form=FORMAT, columns=COLUMNS, settings=RoundSettings, shown=_shown, page=_page
)
