"""Data of a report, from a replay in memory or in its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.idle_doubts import doubtful_nodes
from bftrain_datasets.log.log_files import load_log
from bftrain_replay import tables
from bftrain_replay.accounting.allocations import AllocationRecorder, AllocationRows, RenumberedAllocations
from bftrain_replay.drawing.series import StepSeries, TimeAxis, sum_by_key
from bftrain_replay.metrics.task_figures import TaskColumns
from bftrain_replay.output.read_folder import SavedReplay
from bftrain_replay.output.summary_json import summary
from bftrain_replay.provenance import LOG_FILE, InputSource
from bftrain_replay.results.campaign_stretch import campaigns_of
from bftrain_replay.study import ReplayStudy
from bftrain_replay.tables import CampaignRow

NAMED_TASKS: Final = 10_000  # limit of individually named tasks; beyond it, those with the most node-time

_TASK_COLUMNS: Final = tuple(column.name for column in tables.TASKS)
_CAMPAIGN: Final = tuple(column.name for column in tables.CAMPAIGNS)


class RunPageData(Protocol):
    """Data shared by the pages of replays and rounds."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``."""

    @property
    def end_s(self) -> float:
        """The time at which the run stopped."""

    @property
    def moments(self) -> TimeAxis:
        """Its time axis."""

    @property
    def nodes_over_time(self) -> StepSeries:
        """Idle nodes and allocated nodes."""

    @property
    def task_columns(self) -> TaskColumns:
        """The tasks by column."""


class ReportData(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """``summary`` is the content of ``summary.json``, ``tasks`` that table by column, ``log`` the replayed log.

    In ``holdings`` nodes are indices into ``log.node_names``. ``campaigns`` are user campaigns, if tasks set any.
    """

    summary: Mapping[str, Any]
    tasks: Sequence[Mapping[str, Any]]
    log: EventLog
    holdings: RenumberedAllocations
    campaigns: Sequence[CampaignRow] = ()

    @cached_property
    def end_s(self) -> float:
        """Return the stop time of the replay, in seconds since the log's start."""
        return float(self.summary["simulated_s"])

    @cached_property
    def moments(self) -> TimeAxis:
        """Return its time axis."""
        return TimeAxis(self.log.start_s, self.end_s)

    @cached_property
    def task_columns(self) -> TaskColumns:
        """Return the tasks by column, with derived times."""
        return TaskColumns.from_rows(self.tasks)

    @cached_property
    def named(self) -> NDArray[np.int64]:
        """Return the tasks that the page names, as places in ``holdings.tasks``."""
        held = self.holdings.tasks
        if len(held) <= NAMED_TASKS:
            return np.arange(len(held))
        node_h = {task["name"]: task["node_h"] for task in self.tasks}
        most = np.argsort([-node_h[name] for name in held], kind="stable")[:NAMED_TASKS]
        return np.sort(most)

    @property
    def others(self) -> int:
        """The number of tasks with nodes that the page does not name."""
        return len(self.holdings.tasks) - len(self.named)

    @cached_property
    def nodes_over_time(self) -> StepSeries:
        """Return idle nodes and allocated nodes."""
        idle_times = self.log.times - self.log.start_s
        at_s, doubtful = doubtful_nodes(self.log)
        doubtful_s = at_s - self.log.start_s
        times, changes = sum_by_key(
            (when, change * count)
            for block in self.holdings.blocks()
            for whens, change in ((block.from_s, 1), (block.to_s, -1))
            for when, count in (np.unique(whens, return_counts=True),)
        )
        changed = np.concatenate((idle_times, times, doubtful_s))
        moments = np.unique(np.append(changed[changed < self.end_s], 0.0))
        counts = np.concatenate(((0,), np.cumsum(changes)))
        used = counts[np.searchsorted(times, moments, side="right")]
        idle = self.log.pool_sizes()[np.searchsorted(idle_times, moments, side="right") - 1]
        columns = {"idle": idle, "used": used}
        if doubtful.any():
            columns["doubtful"] = doubtful[np.searchsorted(doubtful_s, moments, side="right") - 1]
        return StepSeries(times_s=moments, end_s=self.end_s, columns=columns)


def of_study(study: ReplayStudy, source: InputSource) -> ReportData:
    """Return the data of a study in memory."""
    taken = study.result.allocations or AllocationRecorder(study.part.node_names)
    rows, found = study.result.task_rows(), campaigns_of(study.result)
    return _material(summary(study, source), rows, study.part, taken, found)


def log_of_folder(folder: Path) -> EventLog:
    """Read the replayed part of the log."""
    path = folder / LOG_FILE
    if not path.is_file():
        what = f"holds no {LOG_FILE}, the log that was replayed"
        raise BadInput(what, where=str(folder), fix="run the replay again with this version")
    return load_log(path)


def of_folder(folder: Path) -> ReportData:
    """Read the folder of a replay."""
    saved = SavedReplay(folder)
    log, held = log_of_folder(folder), saved.holdings()
    strange = set(held.nodes).difference(log.node_names)
    if strange:
        what = f"{LOG_FILE} knows no node '{min(strange)}' of the table of allocations"
        raise BadInput(what, where=str(folder), fix="run the replay again, and do not edit its files")
    rows = list(saved.rows("tasks", *_TASK_COLUMNS))
    unknown = set(held.tasks).difference(row[0] for row in rows)
    if unknown:
        what = f"the table of tasks knows no task '{min(unknown)}' of the table of allocations"
        raise BadInput(what, where=str(folder), fix="run the replay again, and do not edit its files")
    found = (CampaignRow(**dict(zip(_CAMPAIGN, row, strict=True))) for row in saved.rows("campaigns", *_CAMPAIGN))
    return _material(saved.summary, rows, log, held, found)


def _material(
    figures: Mapping[str, Any],
    rows: Iterable[Sequence[Any]],
    log: EventLog,
    held: AllocationRows,
    campaigns: Iterable[CampaignRow],
) -> ReportData:
    """Build the data; tasks with nodes get the table's order."""
    tasks = [dict(zip(_TASK_COLUMNS, row, strict=True)) for row in rows]
    known = frozenset(held.tasks)
    names = tuple(task["name"] for task in tasks if task["name"] in known)
    ordered = RenumberedAllocations(
        rows=held,
        tasks=names,
        nodes=log.node_names,
        task_place=_places(held.tasks, names),
        node_place=_places(held.nodes, log.node_names),
    )
    return ReportData(summary=figures, tasks=tasks, log=log, holdings=ordered, campaigns=tuple(campaigns))


def _places(names: Sequence[str], among: Sequence[str]) -> NDArray[np.int32]:
    """Return the index of each name in ``among``."""
    places = {name: place for place, name in enumerate(among)}
    return np.array([places[name] for name in names], dtype=np.int32)
