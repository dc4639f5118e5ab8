"""The compared replays, each with its figures, its tasks and its course over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import NODE, UNITS
from bftrain.values import wire
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay import tables
from bftrain_replay.accounting.decision_log import TimeSpread
from bftrain_replay.accounting.node_time_ledger import PLAIN
from bftrain_replay.api import ReplayOutcome
from bftrain_replay.metrics.task_figures import TaskColumns, TaskPercentiles
from bftrain_replay.output.read_folder import SavedReplay
from bftrain_replay.reporting.report_data import log_of_folder
from bftrain_replay.results.result import ReplayResult, ReplaySummary
from bftrain_replay.rounds.round_folder import FORMAT as ROUNDS
from bftrain_replay.rounds.round_page import READ, TABLES
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.simulation.task_progress import USUAL_LOSSES

# Reads these columns of a table, row by row
Rows = Callable[..., Iterable[Sequence[Any]]]

_TABLES: Final[dict[str, Callable[[ReplayResult], Iterable[Sequence[Any]]]]] = {
    "tasks": ReplayResult.task_rows,
    "over_time": ReplayResult.over_time_rows,
}


class InputFile(msgspec.Struct, frozen=True, kw_only=True):
    """An input of a replay."""

    name: str
    sha256: str


class ComparedInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The log or the cluster (rounds) and the tasks of a replay."""

    log: InputFile
    tasks: InputFile
    cluster: dict[str, int] = msgspec.field(default_factory=dict)


class BaselineFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline replay of the main one."""

    solver: str


class OnCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Permanent nodes by kind, the latest stop, and the stop reason of each solver's replay."""

    nodes: dict[str, int]
    until_s: float | None
    ended: dict[str, str]


class DoubtfulShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of doubtful idle node-time, and whether the log is from records."""

    source: str
    share: float | None
    caveats: tuple[str, ...]


class SummaryFigures(ReplaySummary, frozen=True, kw_only=True):
    """The entries of a replay's ``summary.json`` that are compared."""

    wall_s: float
    decide_ms: TimeSpread
    solve_ms: TimeSpread
    baseline: BaselineFigures | None
    warnings: tuple[str, ...]
    inputs: ComparedInputs
    settings: dict[str, Any]
    versions: dict[str, str]
    figures_sha256: str
    cluster: OnCluster | None = None
    unit: str = NODE  # counted resource; written for units other than nodes only
    doubtful: DoubtfulShare | None = None  # earlier versions wrote none

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes of a cluster; empty for a log."""
        return self.cluster.nodes if self.cluster is not None else {}

    @property
    def until_s(self) -> float | None:
        """The latest stop of a replay on a cluster."""
        return self.cluster.until_s if self.cluster is not None else None

    @property
    def why(self) -> str:
        """Stop reason of a replay on a cluster; empty for a log, which stops by definition."""
        return self.cluster.ended.get(str(self.settings["solver"]), "") if self.cluster is not None else ""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"the unit is none of {', '.join(UNITS)}: {self.unit!r:.40}")
        for known, figures, name in ((PLAIN, self.unused_node_h, "unused_node_h"), (USUAL_LOSSES, self.lost, "lost")):
            missing = [str(each) for each in known if each not in figures]
            if missing:
                raise ValueError(f"{name} lacks {missing[0]}")


class RoundSummaryFigures(RoundSummary, frozen=True, kw_only=True):
    """The entries of the ``summary.json`` of rounds that are compared."""

    tasks_unfinished: int
    completion_at_least_s: float | None
    response_s: TaskPercentiles | None
    rho: TaskPercentiles | None
    rho_over_1: float | None
    deadlines: int
    deadlines_missed: int
    wall_s: float
    inputs: ComparedInputs
    settings: dict[str, Any]
    versions: dict[str, str]
    figures_sha256: str
    baseline: BaselineFigures | None = None
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes of a cluster; empty for a log."""
        return self.inputs.cluster

    @property
    def until_s(self) -> float | None:
        """The latest end."""
        until_s: float | None = self.settings.get("until_s")
        return until_s

    @property
    def why(self) -> str:
        """Stop reason."""
        return self.ended


class TaskTimes(NamedTuple):
    """Task times, by column."""

    columns: TaskColumns
    waits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverTime:
    """Mean idle and used nodes, and samples done, in intervals. Seconds since the log's start."""

    from_s: NDArray[np.float64]
    to_s: NDArray[np.float64]
    idle: NDArray[np.float64]
    used: NDArray[np.float64]
    harvested: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """One of the replays. Tables are read on demand."""

    label: str
    place: str  # its folder; "" for one in memory
    summary: SummaryFigures | RoundSummaryFigures
    rows: Rows
    read_log: Callable[[], EventLog]

    @property
    def unit(self) -> str:
        """The unit of capacity: nodes, or the GPUs or cores of a log; rounds share nodes."""
        return self.summary.unit if isinstance(self.summary, SummaryFigures) else NODE

    @property
    def in_rounds(self) -> bool:
        """Whether time was shared in rounds."""
        return isinstance(self.summary, RoundSummaryFigures)

    @cached_property
    def log(self) -> EventLog:
        """Return the replayed part of the log; a run in rounds has none."""
        return self.read_log()

    @cached_property
    def tasks(self) -> TaskTimes:
        """Return the task times; in rounds for measured tasks only."""
        names = READ if self.in_rounds else tuple(column.name for column in tables.TASKS)
        rows = [dict(zip(names, row, strict=True)) for row in self.rows("tasks", *names)]
        if self.in_rounds:
            rows = [row for row in rows if row["measured"]]
        return TaskTimes(columns=TaskColumns.from_rows(rows), waits=sum(row["waits"] for row in rows))

    @cached_property
    def work_of_tasks(self) -> dict[str, tuple[float, float]]:
        """Return the samples and the node-hours of each task of a replay."""
        return {
            task: (samples, node_h) for task, samples, node_h in self.rows("tasks", "name", "done_samples", "node_h")
        }

    @cached_property
    def over_time(self) -> OverTime:
        """Return its course over time."""
        columns = [column.name for column in tables.OVER_TIME]
        read = np.array(list(self.rows("over_time", *columns)), dtype=np.float64).reshape(-1, len(columns))
        return OverTime(**dict(zip(columns, read.T, strict=True)))


def side_of_folder(label: str, folder: Path) -> ComparedRun:
    """Read the folder of a replay, or of time shared in rounds."""
    in_rounds = SavedReplay.form_of(folder) == ROUNDS
    saved = SavedReplay(folder, ROUNDS, TABLES) if in_rounds else SavedReplay(folder)
    where = str(folder / "summary.json")
    try:
        kind: type[SummaryFigures | RoundSummaryFigures] = RoundSummaryFigures if in_rounds else SummaryFigures
        figures = wire.convert(saved.summary, kind, where=where)
    except BadInput as error:
        what = f"not the summary of a replay: {error.what}"
        raise BadInput(what, where=where, fix="run the replay again, and do not edit its files") from error
    return ComparedRun(label, str(folder), figures, saved.rows, partial(log_of_folder, folder))


def side_of_replayed(label: str, done: ReplayOutcome) -> ComparedRun:
    """Return the compared form of a replay made in this process."""

    def rows(name: str, *columns: str) -> Iterable[Sequence[Any]]:
        places = [[column.name for column in tables.TABLES[name]].index(column) for column in columns]
        return ([row[place] for place in places] for row in _TABLES[name](done.result))

    return ComparedRun(label, "", wire.convert(done.summary, SummaryFigures), rows, lambda: done.study.part)
