"""``bftrain.assess``: the command's function for use in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from bftrain import text_formats
from bftrain.errors import BftrainError, Interrupted, UsageError
from bftrain.result_folder import IN_PYTHON, ResultFolder
from bftrain.short_repr import ShortRepr
from bftrain.taskfiles.files import load_tasks, save_tasks
from bftrain.values.task import TaskSpec
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import load_log, save_log
from bftrain_replay.assessing import assess_folder, resimulated_waits
from bftrain_replay.assessing.alternative_replays import failure, replay_alternatives
from bftrain_replay.assessing.assessment import AssessmentInputs, LogAssessment, replay_sample
from bftrain_replay.assessing.assessment import assess as assess_replayed
from bftrain_replay.assessing.batch_jobs import BatchJobs, jobs_of
from bftrain_replay.assessing.best_mix import models_of
from bftrain_replay.assessing.figure_text import headline
from bftrain_replay.assessing.node_groups import NodeGroups
from bftrain_replay.assessing.replayed_sample import EVENTS, ReplayedSample
from bftrain_replay.assessing.resimulated_waits import ResimulatedWaits
from bftrain_replay.assessing.what_if_replays import InputFiles
from bftrain_replay.assessing.worth import NodePrices
from bftrain_replay.forked_pass import usable_cpus
from bftrain_replay.results.harvest_by_block import interval
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study_passes import Watch
from bftrain_replay.sweeping.alternatives import outcomes_of
from bftrain_replay.sweeping.outcome_cache import OutcomeCache
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass

_IN_PYTHON: Final = "bftrain.assess"


@dataclass(frozen=True, repr=False)
class AssessedLog(ShortRepr):
    """An assessment; ``figures`` has all figures by name, each a week with ``median``, ``low`` and ``high``."""

    figures: LogAssessment

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of its short form."""
        found = self.figures
        return "assessment of idle nodes", {
            "headline": headline(found),
            "idle, a week": interval(found.idle),
            "harvest, a week": interval(found.harvest),
            "of idle": text_formats.percent(found.harvest_share.median if found.harvest_share else None),
        }

    @cached_property
    def summary(self) -> dict[str, Any]:
        """All figures, as in ``assess.json``."""
        return self.figures.to_dict()

    def write(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the page and the figures; a finished result is replaced only with ``overwrite``."""
        with ResultFolder(Path(folder), assess_folder.KIND, overwrite=overwrite, advice=IN_PYTHON) as result:
            result.replace(lambda draft: assess_folder.write(self.figures, draft))


def assess(  # noqa: PLR0913 - one parameter an option
    log: EventLog | str | Path,
    tasks: Sequence[TaskSpec] | str | Path | None = None,
    *,
    node_prices: NodePrices | None = None,
    handback_delay_s: float | None = None,
    records: Sequence[str | Path] = (),
    resimulate: str | None = None,
    timezone: str = "",
    most_events: int = EVENTS,
    what_ifs: bool = False,
    profiles: Sequence[str | Path] = (),
    watch: Watch | None = None,
    **options: Any,  # noqa: ANN401 - the fields of ReplaySettings
) -> AssessedLog:
    """Assess the idle nodes of ``log``, a value or the name of a file; the figures are those of the command.

    Without ``tasks`` identical trials are replayed, more than the idle nodes can do. ``options`` are settings of a
    replay by their names. At most so many changes of the log (``most_events``) are replayed, 0 for all. ``records``
    are the files that the log was imported from, for jobs behind ``handback_delay_s``; ``resimulate`` is the policy by
    which these are scheduled again with the delay, such as easy. With ``what_ifs`` other
    assumptions are replayed too, in other processes, and tasks of the models of ``profiles``, or the bundled ones.

    >>> from bftrain import assess
    >>> done = assess("log.npz", max_tasks=4)
    >>> done.figures.harvest.median <= done.figures.idle.median
    True
    """
    settings, models = ReplaySettings.with_options(options, "assess"), models_of([Path(each) for each in profiles])
    source = load_log(Path(log)) if isinstance(log, str | Path) else log
    jobs = jobs_of([Path(each) for each in records], source) if records else None
    again, why_not = _resimulated(jobs, source, handback_delay_s, resimulate)
    sample = ReplayedSample.of(source, most_events)
    zone = timezone or source.provenance.options.get("timezone")
    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        files = InputFiles.of(sample, Path(folder) / "log.npz", _given(tasks, Path(folder)), settings, Path(folder))
        replayed = replay_sample(sample, files.tasks, settings, watch)
        if replayed is None:
            raise Interrupted("interrupted")
        others = None
        if what_ifs:
            save_log(replayed.sample.log, files.log_file)
            every = most_events == 0
            others = replay_alternatives(replayed, settings, models, files, _outcomes, every=every)
    inputs = AssessmentInputs(
        name=str(log) if isinstance(log, str | Path) else "log",
        command=_IN_PYTHON,
        workload=files.workload,
        tasks=str(tasks) if isinstance(tasks, str | Path) else "" if tasks is None else "the call",
        zone=time_formats.zone(zone) if zone else UTC,
        prices=node_prices or NodePrices(),
        groups=NodeGroups.of(sample.log, settings.racks),
        start_cost_s=files.start_cost_s,
        handback_delay_s=handback_delay_s,
        jobs=jobs,
        resimulated=again,
        not_resimulated=why_not,
    )
    return AssessedLog(assess_replayed(replayed, settings, inputs, others))


def _resimulated(
    jobs: BatchJobs | None, log: EventLog, delay_s: float | None, policy: str | None
) -> tuple[ResimulatedWaits | None, str]:
    """Schedule the batch queue again, if requested, or return why that cannot be done."""
    if policy is None:
        return None, ""
    if jobs is None or delay_s is None:
        raise UsageError("needs a delay, and the records of jobs", where="resimulate", fix="give both")
    why_not = resimulated_waits.obstacle(jobs, len(log.node_names))
    if why_not:
        return None, why_not
    return resimulated_waits.resimulate(jobs, len(log.node_names), delay_s, policy), ""


def _outcomes(_table: str, passes: Sequence[SweepPass]) -> Mapping[str, PassOutcome]:
    """Run replays side by side, as the command does."""
    outcomes = outcomes_of(passes, min(usable_cpus(), len(passes)), cache=OutcomeCache.of_user())
    if outcomes is None:
        raise Interrupted("interrupted")
    failed = failure(passes, outcomes)
    if failed:
        raise BftrainError(f"a replay failed: {failed}", where="what_ifs")
    return outcomes


def _given(tasks: Sequence[TaskSpec] | str | Path | None, scratch: Path) -> tuple[tuple[TaskSpec, ...], Path] | None:
    """Return the tasks and their file, which is written if they are given as values."""
    if tasks is None:
        return None
    if isinstance(tasks, str | Path):
        return tuple(load_tasks(Path(tasks))), Path(tasks)
    save_tasks(tasks, scratch / "given.toml")
    return tuple(tasks), scratch / "given.toml"
