"""Replays in addition to a main one: for its sensitivity table and advice, or for an assessment.

They run as passes of a sweep, in its local workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from bftrain.errors import BftrainError
from bftrain.taskfiles.files import save_tasks
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.edits import leave_earlier
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import save_log
from bftrain_replay.run.provenance import tasks_sha256
from bftrain_replay.run.variations import AdviceRow, SensitivityRow, Variation, assumptions, remedies
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.forked_pass import usable_cpus
from bftrain_replay.study.study import ReplayStudy
from bftrain_replay.sweeping.local_executor import LocalExecutor
from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile
from bftrain_replay.sweeping.sweep_passes import PassInputs, PassKind, PassOutcome, SweepPass, origin_sha256

# Called with the finished replays (including fractions of running ones) and the total; False stops them
Watch = Callable[[float, int], bool]
# Runs passes for the table of this name; returns their outcomes by ID, or None if the table must be left out
RunPasses = Callable[[str, Sequence[SweepPass]], "Mapping[str, PassOutcome] | None"]

TABLE: Final = "sensitivity to assumptions, and advice"
_PRINTS: Final = "workers.log"


@dataclass(frozen=True, kw_only=True)
class ReplayFiles:
    """A log and tasks, and their files, which workers read; ``scratch`` is a folder for further files."""

    log: EventLog
    source: SweepLog
    tasks: Sequence[TaskSpec]
    task_file: Path
    scratch: Path

    @classmethod
    def of(
        cls,
        log: EventLog,
        log_file: Path,
        tasks: Sequence[TaskSpec],
        task_file: Path | None,
        scratch: Path,
        kinds: str = "",
    ) -> ReplayFiles:
        """Write the log if ``log_file`` is missing, and the tasks if ``task_file`` is ``None``; ``kinds`` is a file."""
        if not log_file.exists():
            save_log(log, log_file)
        files = cls(
            log=log,
            source=SweepLog(path=str(log_file.absolute()), kinds=kinds),
            tasks=tasks,
            task_file=task_file or scratch / "tasks.toml",
            scratch=scratch,
        )
        return files if task_file else files.with_tasks(tasks, "tasks")

    def with_tasks(self, tasks: Sequence[TaskSpec], name: str) -> ReplayFiles:
        """Return the same with other tasks."""
        path = self.scratch / f"{name}.toml"
        save_tasks(tasks, path)
        return replace(self, tasks=tasks, task_file=path)

    def leaving(self, lead_s: float) -> ReplayFiles:
        """Return the same with departures that many seconds earlier."""
        if not lead_s:
            return self
        log, path = leave_earlier(self.log, lead_s), self.scratch / f"leaving-{lead_s:g}.npz"
        save_log(log, path)
        return replace(self, log=log, source=SweepLog(path=str(path.absolute())))

    def replay(self, settings: ReplaySettings, words: str, edges_s: tuple[float, ...] = ()) -> SweepPass:
        """Return the pass that replays the tasks on the log; its outcome has the harvest between the edges."""
        tasks = TaskFile(path=str(self.task_file.absolute()))
        inputs = PassInputs(self.source, self.log.sha256, origin_sha256(self.log), tasks, tasks_sha256(self.tasks))
        return inputs.make_pass(PassKind.REPLAY, settings, words, edges_s=edges_s)


def with_table(study: ReplayStudy, settings: ReplaySettings, files: ReplayFiles, run: RunPasses) -> ReplayStudy:
    """Return the study with its sensitivity table and advice; unchanged if ``run`` returns no outcomes."""
    settings = msgspec.structs.replace(settings, metrics="")  # the rows contain no metrics
    main = study.result.summary()
    passes: dict[str, SweepPass] = {}  # passes by id: the table and the advice may share a variation

    def planned(variation: Variation, words: str) -> tuple[Variation, str]:
        if variation.settings is None:
            return variation, ""
        job = files.replay(variation.settings, words)
        return variation, passes.setdefault(job.id, job).id

    table = [planned(each, f"{each.what} {each.label}") for each in assumptions(settings, study.tasks)]
    tried = [planned(each, each.label) for each in remedies(main, settings)]
    outcomes = run(TABLE, tuple(passes.values()))
    if outcomes is None:
        return study
    dedicated = study.result.yardsticks.dedicated_samples if study.result.yardsticks else 0.0
    figures = {"": main, **{name: each.figures for name, each in outcomes.items() if each.figures is not None}}
    advice = [AdviceRow.of(each, main, figures[job]) for each, job in tried]
    return msgspec.structs.replace(
        study,
        sensitivity=tuple(SensitivityRow.of(each, figures[job], dedicated) for each, job in table),
        tried=tuple(sorted(advice, key=lambda row: -row.gain)),
    )


def runner(where: str, watch: Watch | None = None) -> RunPasses:
    """Return a function that runs passes until ``watch`` returns false, and raises if one fails.

    ``where`` is the caller's argument, for the error.
    """

    def run(_table: str, passes: Sequence[SweepPass]) -> Mapping[str, PassOutcome] | None:
        outcomes = outcomes_of(passes, watch, OutcomeCache.of_user())
        if outcomes is not None and (failed := failure(passes, outcomes)):
            raise BftrainError(f"a replay failed: {failed}", where=where)
        return outcomes

    return run


def failure(passes: Sequence[SweepPass], outcomes: Mapping[str, PassOutcome]) -> str:
    """Return the name of the first failed replay, and the reason; "" if all succeeded."""
    failed = (job for job in passes if outcomes[job.id].figures is None)
    return next((f"{job.words}: {outcomes[job.id].reason}" for job in failed), "")


def workers_for(passes: Sequence[SweepPass]) -> int:
    """Return the number of worker processes."""
    return min(usable_cpus(), len(passes))


def outcomes_of(
    passes: Sequence[SweepPass], watch: Watch | None, cache: OutcomeCache | None
) -> dict[str, PassOutcome] | None:
    """Run passes in local processes, unless ``cache`` has their outcomes; return all outcomes by id.

    Return ``None`` once ``watch`` returns false.
    """
    # Two variations may be the same pass, such as earlier departures on a log that no node leaves
    passes = tuple({job.id: job for job in passes}.values())
    outcomes: dict[str, PassOutcome] = {}
    at_work: Mapping[str, float] = {}
    going = True

    def stopping() -> bool:
        nonlocal going
        going = going and (watch is None or watch(len(outcomes) + sum(at_work.values()), len(passes)))
        return not going

    def tell(shares: Mapping[str, float]) -> None:
        nonlocal at_work
        at_work = shares

    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        executor = CachedExecutor(LocalExecutor(workers_for(passes), Path(folder) / _PRINTS), cache)
        for outcome in executor.outcomes(passes, tell, stopping):
            outcomes[outcome.id] = outcome
    return outcomes if going and len(outcomes) == len(passes) else None
