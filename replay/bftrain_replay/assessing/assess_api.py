"""``bftrain.assess``: an assessment in Python, with the figures of the command."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from bftrain import text_formats
from bftrain.errors import BadValue
from bftrain.result_folder import IN_PYTHON, ResultFolder
from bftrain.short_repr import ShortRepr
from bftrain.taskfiles.files import load_tasks
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import load_log
from bftrain_replay.assessing import assess_page
from bftrain_replay.assessing.assessment import AssessmentInputs, LogAssessment, NodePrices, assess_log
from bftrain_replay.assessing.figure_text import headline
from bftrain_replay.assessing.handback import jobs_of
from bftrain_replay.assessing.replayed_sample import EVENTS, replay_sample
from bftrain_replay.assessing.what_if import models_of
from bftrain_replay.run.harvest_by_block import interval
from bftrain_replay.run.provenance import file_name
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import Watch
from bftrain_replay.sweeping.alternatives import runner

_IN_PYTHON: Final = "bftrain.assess"


@dataclass(frozen=True, repr=False)
class AssessedLog(ShortRepr):
    """An assessment; ``figures`` has all figures by name, as a rule with ``median``, ``low`` and ``high``."""

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
        with ResultFolder(Path(folder), assess_page.KIND, overwrite=overwrite, advice=IN_PYTHON) as result:
            result.replace(lambda draft: assess_page.write(self.figures, draft))


def assess(  # noqa: PLR0913 - one parameter an option
    log: EventLog | str | Path,
    tasks: Sequence[TaskSpec] | str | Path | None = None,
    *,
    node_prices: NodePrices | None = None,
    handback_delay_s: float | None = None,
    records: Sequence[str | Path] = (),
    timezone: str = "",
    most_events: int = EVENTS,
    what_ifs: bool = False,
    profiles: Sequence[str | Path] = (),
    watch: Watch | None = None,
    **options: Any,  # noqa: ANN401 - the fields of ReplaySettings
) -> AssessedLog:
    """Assess the idle nodes of ``log``, a value or a file name; the figures equal the command's.

    Without ``tasks``, identical trials are replayed, more than the idle nodes can finish. ``options`` are replay
    settings by name. ``most_events`` limits the log changes that are replayed (0: all). ``records`` are the files the
    log was imported from; they supply the jobs delayed by ``handback_delay_s`` seconds, without which only the delayed
    node-hours are known. ``node_prices`` are powers, energy and node prices. ``timezone`` is the zone of hours and
    weekdays (default: the import's, or UTC). With ``what_ifs`` other assumptions are also replayed in separate
    processes, as are tasks of the models in ``profiles`` (default: the bundled ones).
    ``watch(replay, simulated_seconds, decisions)`` is called at every moment; return False to stop.

    Raises :class:`bftrain.errors.UsageError` for an unknown setting or options that do not fit together,
    :class:`bftrain.errors.BadInput` for an invalid log, task or value, and ``OSError`` for an unreadable file.

    >>> from bftrain import assess
    >>> done = assess("log.npz", max_tasks=4)
    >>> done.figures.harvest.median <= done.figures.idle.median
    True
    """
    if handback_delay_s is not None and not handback_delay_s >= 0.0:
        raise BadValue(f"is {handback_delay_s}", where="handback_delay_s", fix="write seconds, such as 30.0")
    settings = ReplaySettings.with_options(options, "assess")
    source = load_log(Path(log)) if isinstance(log, str | Path) else log
    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        inputs = AssessmentInputs(
            log=source,
            log_file=Path(folder) / "log.npz",
            settings=settings,
            name=file_name(log) or "log",
            command=_IN_PYTHON,
            tasks=load_tasks(Path(tasks)) if isinstance(tasks, str | Path) else tasks,
            task_file=Path(tasks) if isinstance(tasks, str | Path) else None,
            task_name=file_name(tasks) or "the call",
            timezone=timezone,
            prices=node_prices or NodePrices(),
            handback_delay_s=handback_delay_s,
            jobs=jobs_of([Path(each) for each in records], source) if records else None,
            most_events=most_events,
        )
        figures = assess_log(
            inputs,
            scratch=Path(folder),
            replay=lambda sample, given: replay_sample(sample, given, settings, watch),
            models=models_of([Path(each) for each in profiles]),
            run=runner("what_ifs") if what_ifs else None,
        )
    return AssessedLog(figures)
