"""The compared replays, each with its figures, its tasks and its course over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from bftrain.errors import BadInput
from bftrain.node_units import NODE, UNITS
from bftrain.values import wire
from bftrain_replay.rounds.round_result import FORMAT as ROUNDS
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.run.provenance import FORMAT as REPLAY
from bftrain_replay.run.result import ReplaySummary
from bftrain_replay.run.run import Run
from bftrain_replay.run.task_figures import TaskColumns, TaskPercentiles
from bftrain_replay.simulation.node_time_ledger import PLAIN
from bftrain_replay.simulation.run_records import TimeSpread
from bftrain_replay.simulation.task_progress import USUAL_LOSSES


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
            raise ValueError(f"the unit must be one of {', '.join(UNITS)}, not {self.unit!r:.40}")
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


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run with its label and its checked figures."""

    label: str
    run: Run
    summary: SummaryFigures | RoundSummaryFigures

    @property
    def place(self) -> str:
        """Its folder; "" for a run in memory."""
        return "" if self.run.content.made is not None else self.run.content.place

    @property
    def unit(self) -> str:
        """The unit of capacity: nodes, or the GPUs or cores of a log; rounds share nodes."""
        return self.run.unit

    @property
    def in_rounds(self) -> bool:
        """Whether time was shared in rounds."""
        return isinstance(self.summary, RoundSummaryFigures)

    @property
    def tasks(self) -> TaskColumns:
        """The tasks; in rounds only the measured ones."""
        return self.run.task_columns

    @property
    def waits(self) -> int:
        """The number of waits of these tasks."""
        return sum(row["waits"] for row in self.run.measured_tasks)

    @cached_property
    def work_of_tasks(self) -> dict[str, tuple[float, float]]:
        """Return the samples and the node-hours of each task."""
        return {row["name"]: (row["done_samples"], row["node_h"]) for row in self.run.task_rows}


def compared_run(label: str, run: Run) -> ComparedRun:
    """Return a run with its figures; raise ``BadInput`` unless they belong to a replay or to rounds."""
    kinds: dict[str, type[SummaryFigures | RoundSummaryFigures]] = {REPLAY: SummaryFigures, ROUNDS: RoundSummaryFigures}
    where = run.content.place
    if run.kind.form not in kinds:
        fix = "name replays, or runs in rounds"
        raise BadInput(f"a {run.kind.title} cannot be compared", where=where, fix=fix)
    where = where if run.content.made is not None else f"{where}/summary.json"
    try:
        return ComparedRun(label, run, wire.convert(run.summary, kinds[run.kind.form], where=where))
    except BadInput as error:
        what = f"not the summary of a replay: {error.what}"
        raise BadInput(what, where=where, fix="run the replay again, and do not edit its files") from error
