"""The replays of other assumptions: planned from files that workers read, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from bftrain.taskfiles.files import save_tasks
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.edits import leave_earlier
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.workloads.saturating import SaturatingWorkload
from bftrain_replay.assessing import what_if
from bftrain_replay.assessing.assessment import ReplayedHarvest
from bftrain_replay.assessing.replayed_sample import ReplayedSample
from bftrain_replay.assessing.what_if import WhatIfRow
from bftrain_replay.provenance import tasks_sha256
from bftrain_replay.results.harvest_by_block import HarvestCurve
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study_checks import check_kinds
from bftrain_replay.sweeping.alternatives import PassInputs
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass, origin_sha256
from bftrain_replay.variations import Variation


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """The log and the tasks, and their files for workers; ``scratch`` is a folder for more."""

    log: EventLog
    log_file: Path
    tasks: tuple[TaskSpec, ...]
    task_file: Path
    workload: SaturatingWorkload | None
    scratch: Path

    @classmethod
    def of(
        cls,
        sample: ReplayedSample,
        log_file: Path,
        given: tuple[tuple[TaskSpec, ...], Path] | None,
        settings: ReplaySettings,
        scratch: Path,
    ) -> InputFiles:
        """Use the given tasks and their file, or generate more trials than the idle nodes of any window can do."""
        log = sample.log
        if given is not None:
            tasks, task_file = given
            check_kinds(log, tasks)
            return cls(log=log, log_file=log_file, tasks=tasks, task_file=task_file, workload=None, scratch=scratch)
        workload = SaturatingWorkload.of(sample.most_idle_node_s, what_if.MOST_TASKS_FACTOR * settings.max_tasks)
        task_file = scratch / "tasks.toml"
        save_tasks(workload.tasks, task_file)
        return cls(
            log=log, log_file=log_file, tasks=workload.tasks, task_file=task_file, workload=workload, scratch=scratch
        )

    @property
    def start_cost_s(self) -> float | None:
        """The median cost of a start over the tasks."""
        return float(np.median([task.start_cost_s for task in self.tasks])) if self.tasks else None

    def inputs(self, lead_s: float) -> PassInputs:
        """Return log and tasks for workers; a log with earlier departures is written to a file of its own."""
        log, path = self.log, self.log_file
        if lead_s:
            log, path = leave_earlier(log, lead_s), self.scratch / f"leaving-{lead_s:g}.npz"
            save_log(log, path)
        return PassInputs(
            log=SweepLog(path=str(path.absolute())),
            tasks=TaskFile(path=str(self.task_file.absolute())),
            log_sha256=log.sha256,
            tasks_sha256=tasks_sha256(self.tasks),
            log_origin=origin_sha256(log),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPlan:
    """The assumptions to replay beside an assessment, and the passes of each."""

    replayed: ReplayedHarvest
    part: ReplayedSample
    found: tuple[Variation, ...]
    by_row: tuple[list[SweepPass], ...]

    @classmethod
    def of(cls, replayed: ReplayedHarvest, settings: ReplaySettings, files: InputFiles, *, every: bool) -> WhatIfPlan:
        """Plan the replays, of all windows with ``every``, else of a part of them."""
        part = replayed.sample if every else replayed.sample.part()
        found = what_if.what_ifs(settings)
        by_row = what_if.passes_of(found, part, cache(partial(InputFiles.inputs, files)))
        return cls(replayed=replayed, part=part, found=tuple(found), by_row=tuple(by_row))

    @property
    def passes(self) -> list[SweepPass]:
        """All passes, row by row."""
        return [job for jobs in self.by_row for job in jobs]

    def rows(self, outcomes: Mapping[str, PassOutcome]) -> tuple[WhatIfRow, ...]:
        """Return the rows from the outcomes."""
        harvest = self.replayed.by_block(HarvestCurve.harvest_node_h)
        samples = self.replayed.sample, self.part
        return what_if.rows_of(self.found, self.by_row, outcomes, samples, harvest)
